"""`rebuild-stats`: have the counts of some stories computed again."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET

from ingest import accepting, answers, decompression, envelope
from ingest.accepting import Identity
from ingest.answers import NothingAccepted
from ingest.errors import InvalidSchema
from ingest.items import ItemError, StoryIds
from ingest.members import Members
from ingest.service import Push
from ingest.stage import Stage
from store import payloads, recounts, stories
from store.connection import Connection
from store.ingest_requests import NewRequest
from store.key_ring import Key
from store.pool import Pool

MAX_BODY_BYTES = 512 << 10

_MEMBERS = Members(("story_ids",))
_IDS: msgspec.json.Decoder[list[int]] = msgspec.json.Decoder(msgspec.structs.fields(StoryIds)[0].type)


def source_of(key: Key) -> str:
    """A recount belongs to no source: it is filed under the key, and the keys it is rotated into."""
    return key.family[:40]


def read(push: Push) -> tuple[list[int], bytes | bytearray]:
    """The ids of a body, and the body expanded."""
    payload = decompression.expand(push.body.content, push.encoding, max_bytes=MAX_BODY_BYTES)
    members, _ = envelope.members_of(payload, _MEMBERS)
    if members.story_ids is UNSET:
        raise InvalidSchema("story_ids is missing.")
    try:
        return _IDS.decode(members.story_ids), payload
    except msgspec.DecodeError as error:
        raise InvalidSchema(f"story_ids must be a list of 1 to 10000 whole numbers: {error}.") from None


async def prepare(
    push: Push, story_ids: Sequence[int], identity: Identity, *, pool: Pool, stage: Stage
) -> tuple[NewRequest, accepting.Write]:
    """What to write for these stories, less those that are not there or not this key's."""
    async with pool.reading() as conn:
        found = await stories.sources(conn, story_ids)
    return await stage.run(lambda: _answered(push, story_ids, identity, found), size_bytes=len(push.body.content))


def _answered(
    push: Push, story_ids: Sequence[int], identity: Identity, found: Mapping[int, str]
) -> tuple[NewRequest, accepting.Write]:
    key = push.visitor.key
    wanted = [number for number in story_ids if number in found and key.may_use(found[number])]
    allowed = frozenset(wanted)
    missing = [
        ItemError(index, "story_not_found", f"There is no story {number} that this key may use.")
        for index, number in enumerate(story_ids)
        if number not in allowed
    ]
    if not wanted:
        raise NothingAccepted(push.request_id, missing, [])
    new = NewRequest(
        request_id=push.request_id,
        source=identity.source,
        job_type=payloads.REBUILD_STATS,
        idempotency_key=push.idempotency_key,
        total_items=len(story_ids),
        accepted_items=len(wanted),
        payload_sha256=identity.payload_sha256,
        response=answers.accepted(push.request_id, accepted=len(wanted), rejected=missing, warnings=[]),
        key_id=key.key_id,
        done_items=len(wanted),
    )

    async def write(conn: Connection) -> None:
        await recounts.ask(conn, allowed)

    return new, write
