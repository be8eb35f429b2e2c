"""What the door makes of a batch, without a server."""

import json
from datetime import UTC, datetime
from typing import Any

from ingest import batch, envelope
from ingest.batch import Checked, Kind
from store import payloads
from store.payloads import ChapterFrame, StoryFrame
from tests.ingest.client import SOURCE

NOW = datetime(2026, 3, 1, tzinfo=UTC)
STORY = batch.stories_kind()
CHAPTER = batch.chapters_kind(content_encoding="gzip")


def body(*items: Any, source: Any = SOURCE, **more: Any) -> bytes:
    """In ASCII, so that half a surrogate pair can be said. An item in bytes is taken as it is."""
    texts = [item if isinstance(item, bytes) else json.dumps(item).encode() for item in items]
    outer = json.dumps({"source": source} | more).encode()
    return outer[:-1] + b', "items": [' + b",".join(texts) + b"]}"


def check_body(raw: bytes, kind: Kind, *, now: datetime = NOW) -> Checked:
    return batch.check(envelope.read(raw), kind, now=now)


def check(kind: Kind, *items: Any, **more: Any) -> Checked:
    return check_body(body(*items, **more), kind)


def refusal(kind: Kind, item: Any) -> tuple[str, str]:
    """Code and message with which an item is refused."""
    checked = check(kind, item)
    assert not checked.accepted, frames(checked)
    (error,) = checked.errors
    assert error.index == 0
    return error.code, error.message


def frames(checked: Checked) -> list[StoryFrame | ChapterFrame]:
    return [payloads.decode(item.frame) for blob, _ in checked.blobs for item in blob.items]


def story_frame(item: Any) -> StoryFrame:
    """What is queued for a story that is accepted."""
    frame = _only(check(STORY, item))
    assert isinstance(frame, StoryFrame)
    return frame


def chapter_frame(item: Any) -> ChapterFrame:
    frame = _only(check(CHAPTER, item))
    assert isinstance(frame, ChapterFrame)
    return frame


def _only(checked: Checked) -> StoryFrame | ChapterFrame:
    assert not checked.errors, checked.errors
    (frame,) = frames(checked)
    return frame
