"""The Vietnamese words of `words.txt`: one tuple for each of its sections."""

from importlib import resources

BAR = "|"


def read(text: str) -> dict[str, tuple[str, ...]]:
    """The sections of a file of words: `[name]`, then entries between bars, over as many lines as it takes."""
    sections: dict[str, list[str]] = {}
    entries: list[str] = []
    for line in text.splitlines():
        if line.startswith("["):
            entries = sections.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            entries += (entry.strip() for entry in line.split(BAR))
    return {name: tuple(found) for name, found in sections.items()}


TEXT = (resources.files("loadtests.catalogue") / "words.txt").read_text(encoding="utf-8")
_SECTIONS = read(TEXT)

FAMILIES = _SECTIONS["families"]
GIVEN = _SECTIONS["given"]
PEN_NAMES = _SECTIONS["pen_names"]
TITLE_HEADS = _SECTIONS["title_heads"]
TITLE_TAILS = _SECTIONS["title_tails"]
TITLE_ENDS = _SECTIONS["title_ends"]
ORIGINALS = _SECTIONS["originals"]
GENRES = _SECTIONS["genres"]
SOURCES = _SECTIONS["sources"]
CHAPTER_HEADS = _SECTIONS["chapter_heads"]
SENTENCES = _SECTIONS["sentences"]
PEOPLE = _SECTIONS["people"]
PLACES = _SECTIONS["places"]
THINGS = _SECTIONS["things"]
ACTIONS = _SECTIONS["actions"]
VERBS = _SECTIONS["verbs"]
MANNERS = _SECTIONS["manners"]
TIMES = _SECTIONS["times"]
SAYINGS = _SECTIONS["sayings"]
WORDS = _SECTIONS["words"]
