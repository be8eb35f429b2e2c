"""What may be typed after `novel keys`, and who is taken to be typing."""

import getpass
import os

import pytest

from cli import keys


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["ingest:stories,ingest:chapters"], ("ingest:stories", "ingest:chapters")),
        (["ingest:stats", "ingest:stories"], ("ingest:stories", "ingest:stats")),
        ([" ingest:stats , ingest:stats", "ingest:stats"], ("ingest:stats",)),
    ],
)
def test_permissions_come_repeated_or_with_commas(texts: list[str], names: tuple[str, ...]) -> None:
    assert keys.permission_names(texts) == names


@pytest.mark.parametrize(
    "texts", [["ingest:story"], [""], ["ingest:stats,"], ["ingest:stats", "INGEST:STORIES"], ["*"]]
)
def test_an_unknown_permission_is_answered_with_those_there_are(texts: list[str]) -> None:
    with pytest.raises(
        ValueError, match=r"is no permission\. Choose from: ingest:stories, ingest:chapters, ingest:stat"
    ):
        keys.permission_names(texts)


@pytest.mark.parametrize("name", ["a", "x" * 40, "truyen-source-a", "...", "a b", "ấ" * 40, "a,b", '"', "源"])
def test_what_may_be_a_source(name: str) -> None:
    assert keys.source_names([name]) == (name,)


@pytest.mark.parametrize(
    "name", ["", "x" * 41, "a/b", ".", "..", " a", "a ", "\u00a0a", "a\nb", "a\x00", "\x7f", "\x85", "\u2028", "\udcff"]
)
def test_what_may_not(name: str) -> None:
    with pytest.raises(ValueError, match="must have 1 to 40 characters, no slash"):
        keys.source_names(["good", name])


def test_sources_and_names_are_kept_in_nfc_and_counted_in_it() -> None:
    assert keys.source_names(["a\u0302\u0301" * 40, "ấ" * 40]) == ("ấ" * 40,)
    assert keys.label("e\u0301" * 120) == "é" * 120


def test_no_source_is_any_source_and_too_many_are_refused() -> None:
    assert keys.source_names([]) is None
    many = [f"source {number}" for number in range(keys.MAX_SOURCES)]
    assert keys.source_names(many) == tuple(many)
    with pytest.raises(ValueError, match="at most 64 sources"):
        keys.source_names([*many, "one more"])


@pytest.mark.parametrize("name", ["", " ", "x" * 121, " x", "a\tb", "\x1b[31m", "\udcff"])
def test_a_name_has_bounds(name: str) -> None:
    with pytest.raises(ValueError, match="must have 1 to 120 characters"):
        keys.label(name)


@pytest.mark.parametrize(
    ("variables", "operator"),
    [
        ({"SUDO_USER": "lan", "LOGNAME": "root"}, "lan"),
        ({"SUDO_USER": "", "LOGNAME": "minh"}, "minh"),
        ({"LOGNAME": "minh"}, "minh"),
    ],
)
def test_the_operator_is_the_person_at_the_keyboard(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], operator: str
) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert keys.person_at_the_keyboard() == operator


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_a_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def nobody() -> str:
        raise error

    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setattr(getpass, "getuser", nobody)
    assert keys.person_at_the_keyboard() == f"user {os.getuid()}"
