"""Chapter items: from checked fields to the frame that the queue carries."""

import hashlib
from decimal import Decimal
from typing import Any
from urllib.parse import quote

from msgspec import structs

from ingest.checking import Reader, Refused, decimals
from ingest.items import MAX_CONTENT_BYTES, ChapterDeletion, ChapterItem
from store import bodies
from store.payloads import AnyFrame, ChapterFrame, Content

ITEM = Reader(ChapterItem)
DELETION = Reader(ChapterDeletion)

MAX_REF_CHARACTERS = 191


def frame(fields: dict[str, Any]) -> ChapterFrame:
    """With the text as it came: see `packed`."""
    number = Decimal(decimals(fields["chapter_no"]))
    is_published = fields.get("is_published")
    return ChapterFrame(
        source_story_id=fields["source_story_id"],
        updated_at_source=fields["updated_at_source"],
        source_chapter_id=fields.get("source_chapter_id"),
        chapter_no=number,
        slug=fields["slug"],
        title=fields["title"],
        published_at=fields.get("published_at"),
        is_published=None if is_published is None else bool(is_published),
        content=_content(fields["content_raw"]),
    )


def packed(frame: AnyFrame, *, encoding: str) -> AnyFrame:
    """The frame with its text compressed as it will be stored."""
    if not isinstance(frame, ChapterFrame) or frame.content is None or encoding == "none":
        return frame
    text = frame.content
    content = Content(bodies.compress(text.stored, encoding), encoding, text.sha256, text.size)
    return structs.replace(frame, content=content)


def deletion(fields: dict[str, Any]) -> ChapterFrame:
    identifier, number = fields.get("source_chapter_id"), fields.get("chapter_no")
    if identifier is None and number is None:
        raise Refused("missing_field", "source_chapter_id or chapter_no is required, to say which chapter is deleted.")
    return ChapterFrame(
        source_story_id=fields["source_story_id"],
        updated_at_source=fields["updated_at_source"],
        source_chapter_id=identifier,
        chapter_no=None if number is None else Decimal(decimals(number)),
        deleted=True,
    )


def external_ref(frame: ChapterFrame) -> str:
    """Names the chapter within its source: `story/chapter`, or `story#number` when the source gave it no id.

    Different chapters have different names: the story's part has neither of the two signs. What does not fit into the
    column ends in a hash and fills it, so no other name is as long.
    """
    story = frame.source_story_id
    if not story.isalnum():
        story = "".join(quote(letter, safe="") if letter in "%/#" else letter for letter in story)
    chapter = f"/{frame.source_chapter_id}" if frame.source_chapter_id else f"#{frame.chapter_no}"
    ref = story + chapter
    if len(ref) < MAX_REF_CHARACTERS:
        return ref
    return f"{ref[:126]}~{hashlib.sha256(ref.encode()).hexdigest()}"


def _content(text: str) -> Content:
    raw = text.encode()
    if len(raw) > MAX_CONTENT_BYTES:
        raise Refused(
            "content_too_large", f"content_raw has {len(raw)} bytes in UTF-8; at most {MAX_CONTENT_BYTES} are taken."
        )
    return Content(raw, "none", hashlib.sha256(raw).digest(), len(raw))
