import orjson
import pytest

from schema import journal
from schema.connection import Connection

READ = "SELECT event_type, source, reference_id, level, message, context_json FROM wp_novel_sync_logs"


@pytest.fixture(autouse=True)
def empty_log(conn: Connection) -> None:
    """The migrations themselves have logged already."""
    conn.execute("DELETE FROM wp_novel_sync_logs")


def test_an_event_is_appended_with_all_its_fields(conn: Connection) -> None:
    journal.append(
        conn, "key.created", "Made a key.", level="warning", source="a", reference="k1", context={"số": 1, "by": "anh"}
    )
    (row,) = conn.fetch_all(READ)
    assert row[:5] == ("key.created", "a", "k1", "warning", "Made a key.")
    assert orjson.loads(row[5]) == {"số": 1, "by": "anh"}
    assert conn.fetch_one("SELECT TIMESTAMPDIFF(MINUTE, created_at, UTC_TIMESTAMP()) FROM wp_novel_sync_logs") == (0,)


def test_what_is_not_given_is_null_and_the_level_is_info(conn: Connection) -> None:
    journal.append(conn, "x", "y")
    assert conn.fetch_all(READ) == [("x", None, None, "info", "y", None)]


def test_a_long_message_is_cut(conn: Connection) -> None:
    journal.append(conn, "x", "đ" * (journal.MAX_MESSAGE_CHARACTERS + 1))
    assert conn.fetch_one("SELECT message FROM wp_novel_sync_logs") == ("đ" * journal.MAX_MESSAGE_CHARACTERS,)


@pytest.mark.parametrize(("more", "is_kept"), [(0, True), (1, False)])
def test_a_large_context_is_left_out_and_its_size_kept(conn: Connection, more: int, is_kept: bool) -> None:
    context = {"a": "x" * (journal.MAX_CONTEXT_BYTES - len('{"a":""}') + more)}
    journal.append(conn, "x", "y", context=context)
    row = conn.fetch_one("SELECT context_json FROM wp_novel_sync_logs")
    assert row is not None
    assert orjson.loads(row[0]) == (context if is_kept else {"truncated_bytes": journal.MAX_CONTEXT_BYTES + more})


def test_letters_count_as_the_bytes_they_take(conn: Connection) -> None:
    journal.append(conn, "x", "y", context={"a": "đ" * (journal.MAX_CONTEXT_BYTES // 2)})
    row = conn.fetch_one("SELECT context_json FROM wp_novel_sync_logs")
    assert row is not None
    assert "truncated_bytes" in row[0]
