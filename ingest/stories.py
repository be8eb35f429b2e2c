"""Story items: from checked fields to the frame that the queue carries."""

from typing import Any

from ingest.checking import Reader
from ingest.items import StoryDeletion, StoryItem
from store.payloads import StoryFrame

ITEM = Reader(StoryItem)
DELETION = Reader(StoryDeletion)

_OPTIONAL = ("title_original", "author_name", "status", "cover_url", "summary", "language", "aliases", "genres")
# Null empties these; of the others it says nothing.
_NULLABLE = frozenset({"title_original", "author_name", "cover_url", "summary"})


def frame(fields: dict[str, Any]) -> StoryFrame:
    given = tuple(name for name in _OPTIONAL if name in fields and (fields[name] is not None or name in _NULLABLE))
    values = {name: fields[name] for name in given}
    for name in ("aliases", "genres"):
        if values.get(name) is not None:
            values[name] = tuple(dict.fromkeys(values[name]))  # each once, in the order given
    return StoryFrame(
        source_story_id=fields["source_story_id"],
        updated_at_source=fields["updated_at_source"],
        slug=fields["slug"],
        title=fields["title"],
        given=given,
        **values,
    )


def deletion(fields: dict[str, Any]) -> StoryFrame:
    return StoryFrame(
        source_story_id=fields["source_story_id"], updated_at_source=fields["updated_at_source"], deleted=True
    )


def external_ref(frame: StoryFrame) -> str:
    return frame.source_story_id
