"""The form of a batch, in types: they check what arrives, and OpenAPI is generated from them."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from runtime.openapi import either

MAX_ITEMS = 300
MAX_CONTENT_BYTES = 256 << 10
MAX_STORY_IDS = 10_000

SLUG_PATTERN = "^[a-z0-9-]+$"
SOURCE_PATTERN = r"^(?!\.{1,2}$)[^\s/\x00-\x1f\x7f-\x9f]([^/\x00-\x1f\x7f-\x9f\u2028\u2029]*[^\s/\x00-\x1f\x7f-\x9f])?$"

Source = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=40,
        pattern=SOURCE_PATTERN,
        description="Name of the source; it is a part of public addresses",
        examples=["truyen-source-a"],
    ),
]
Identifier = Annotated[str, Meta(min_length=1, max_length=191, examples=["abc123"])]
Slug = Annotated[str, Meta(min_length=1, max_length=191, pattern=SLUG_PATTERN, examples=["than-dao"])]
Title = Annotated[str, Meta(min_length=1, max_length=255, examples=["Thần Đạo"])]
Url = Annotated[str, Meta(min_length=1, max_length=1024, pattern=r"^https?://[^\s\x00-\x1f]+$")]
Language = Annotated[str, Meta(max_length=10, pattern="^[a-z]{2,3}(-[A-Za-z0-9]{1,8})*$", examples=["vi"])]
Time = Annotated[datetime, Meta(tz=True, description="RFC 3339 with a time zone", examples=["2026-02-21T08:00:00Z"])]
ChapterNumber = Annotated[int, Meta(ge=0, le=99_999_999)] | Annotated[float, Meta(ge=0, le=99_999_999.99)]
Flag = bool | Literal[0, 1]


Status = Annotated[
    int, Meta(ge=0, le=4, description="0 draft, 1 ongoing, 2 completed, 3 hiatus, 4 dropped; 1 for a new story")
]
Aliases = Annotated[
    list[Title], Meta(max_length=100, description="Replaces all aliases of the story; left out: they stay")
]
Genres = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=120)]],
    Meta(max_length=50, description="Replaces all genres of the story; left out: they stay"),
]


class StoryItem(Struct, kw_only=True):
    """A story as its source has it now."""

    source_story_id: Identifier
    slug: Slug
    title: Title
    updated_at_source: Time
    title_original: Annotated[str, Meta(max_length=255)] | UnsetType | None = UNSET
    author_name: Annotated[str, Meta(max_length=191)] | UnsetType | None = UNSET
    status: Status | UnsetType | None = UNSET
    cover_url: Url | UnsetType | None = UNSET
    summary: Annotated[str, Meta(max_length=65535)] | UnsetType | None = UNSET
    language: Language | UnsetType | None = UNSET
    aliases: Aliases | UnsetType | None = UNSET
    genres: Genres | UnsetType | None = UNSET
    deleted: Literal[False] | UnsetType | None = UNSET


class StoryDeletion(Struct, kw_only=True):
    """A story that its source has deleted. A later, newer item brings it back."""

    source_story_id: Identifier
    updated_at_source: Time
    deleted: Literal[True]


class ChapterItem(Struct, kw_only=True):
    """A chapter as its source has it now."""

    source_story_id: Identifier
    chapter_no: Annotated[
        ChapterNumber, Meta(description="0 to 99999999.99 with at most two decimals", examples=[1, 12.5])
    ]
    slug: Slug
    title: Title
    content_raw: Annotated[
        str,
        Meta(
            min_length=1,
            description=f"Text or HTML, at most {MAX_CONTENT_BYTES} bytes in UTF-8",
            examples=["<p>Ngày xưa ...</p>"],
        ),
    ]
    updated_at_source: Time
    source_chapter_id: Identifier | UnsetType | None = UNSET
    published_at: Time | UnsetType | None = UNSET
    is_published: Flag | UnsetType | None = UNSET
    deleted: Literal[False] | UnsetType | None = UNSET


class ChapterDeletion(Struct, kw_only=True):
    """A chapter that its source has deleted, named by source_chapter_id or by chapter_no."""

    source_story_id: Identifier
    updated_at_source: Time
    deleted: Literal[True]
    source_chapter_id: Identifier | UnsetType | None = UNSET
    chapter_no: ChapterNumber | UnsetType | None = UNSET


class StoryBatch(Struct, kw_only=True):
    source: Source
    items: Annotated[list[Annotated[Raw, either(StoryItem, StoryDeletion)]], Meta(min_length=1, max_length=MAX_ITEMS)]


class ChapterBatch(Struct, kw_only=True):
    source: Source
    items: Annotated[
        list[Annotated[Raw, either(ChapterItem, ChapterDeletion)]], Meta(min_length=1, max_length=MAX_ITEMS)
    ]


class StoryIds(Struct, kw_only=True):
    story_ids: Annotated[list[Annotated[int, Meta(ge=1, le=2**63 - 1)]], Meta(min_length=1, max_length=MAX_STORY_IDS)]


class ItemError(Struct, frozen=True):
    """Why one item of a batch was not taken."""

    index: int
    code: str
    message: str


class BatchWarning(Struct, frozen=True):
    """Something to look at; the items were taken all the same."""

    code: str
    message: str


class Accepted(Struct, kw_only=True):
    """What became of a batch. A repeated batch gets the same answer, byte for byte."""

    request_id: str
    accepted_count: int
    rejected_count: int
    errors: list[ItemError]
    warnings: list[BatchWarning]


class RequestState(Struct, kw_only=True):
    request_id: str
    source: str
    job_type: Literal["stories_bulk", "chapters_bulk", "rebuild_stats"]
    status: Literal["queued", "processing", "completed", "partially_failed", "failed"]
    total_items: int
    accepted_items: int
    rejected_items: int
    processed_items: int
    failed_items: int
    last_error: str | None
    created_at: str
    updated_at: str


class ItemState(Struct, kw_only=True):
    index: Annotated[int, Meta(description="Place in the batch, from 0")]
    external_id: str
    status: Literal["queued", "processing", "completed", "stale", "failed", "dead_letter"]
    attempts: int
    error_code: str | None
    message: str | None
    can_retry: Annotated[bool, Meta(description="Whether pushing the same item again can help")]


class ItemStates(Struct, kw_only=True):
    items: list[ItemState]
    next_cursor: str | None
    has_more: bool
