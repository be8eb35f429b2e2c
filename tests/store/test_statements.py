"""Prepared statements: the same answers as text gives, whatever changes between two executions."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from asyncmy.errors import MySQLError
from hypothesis import given
from hypothesis import strategies as st

from schema.connection import Connection as SyncConnection
from store import errors, statements
from store.connection import Connection
from store.pool import Pool
from tests.conftest import DatabaseServer

# -- texts -----------------------------------------------------------------------------------------------


def test_placeholders_become_the_servers_own() -> None:
    assert statements.with_question_marks("a = %s AND b LIKE '10%%' AND c IN (%s, %s)") == (
        "a = ? AND b LIKE '10%' AND c IN (?, ?)"
    )


@pytest.mark.parametrize("sql", ["a LIKE '10%'", "a = %d", "a = %(name)s", "100%"])
def test_any_other_percent_sign_is_refused(sql: str) -> None:
    with pytest.raises(ValueError, match="write %s for a value and %% for a percent sign"):
        statements.with_question_marks(sql)


def test_an_insert_is_written_for_many_rows() -> None:
    sql = "INSERT INTO t (a, b) VALUES (%s, NOW) ON DUPLICATE KEY UPDATE a = VALUES(a)"
    assert statements.for_rows(sql, 1) == sql
    assert statements.for_rows(sql, 2) == (
        "INSERT INTO t (a, b) VALUES (%s, NOW), (%s, NOW) ON DUPLICATE KEY UPDATE a = VALUES(a)"
    )


def test_a_value_may_be_a_function_call() -> None:
    sql = "INSERT INTO t (a, b) VALUES (%s, UTC_TIMESTAMP()) ON DUPLICATE KEY UPDATE a = VALUES(a)"
    assert statements.for_rows(sql, 2) == (
        "INSERT INTO t (a, b) VALUES (%s, UTC_TIMESTAMP()), (%s, UTC_TIMESTAMP()) ON DUPLICATE KEY UPDATE a = VALUES(a)"
    )


def test_what_is_no_insert_of_one_row_is_refused() -> None:
    with pytest.raises(ValueError, match="not an INSERT"):
        statements.for_rows("UPDATE t SET a = %s", 2)


rows_of_texts = st.lists(st.tuples(st.integers(), st.binary(max_size=40) | st.none() | st.text(max_size=40)))


@given(rows=rows_of_texts, max_bytes=st.integers(1, 100))
def test_chunks_keep_every_row_in_order_within_the_bounds(rows: list[tuple[Any, ...]], max_bytes: int) -> None:
    chunks = list(statements.chunks(rows, max_rows=8, max_bytes=max_bytes))
    assert [row for chunk in chunks for row in chunk] == rows
    for chunk in chunks:
        assert len(chunk) in (1, 2, 4, 8)
        sizes = [len(body.encode() if isinstance(body, str) else body or b"") for _, body in chunk]
        assert len(chunk) == 1 or sum(sizes) <= max_bytes


# -- on a server -----------------------------------------------------------------------------------------


@pytest.fixture
def typed(conn: SyncConnection) -> Iterator[str]:
    conn.execute("""
        CREATE TABLE wp_novel_test_types (
            id INT PRIMARY KEY, tiny TINYINT, flag BOOL, big BIGINT UNSIGNED, price DECIMAL(20, 4), wide DOUBLE,
            at DATETIME, at_micro DATETIME(6), born DATE, span TIME, span_micro TIME(6), year YEAR, body LONGBLOB,
            words LONGTEXT, doc JSON, kind ENUM('a', 'b'), letters CHAR(5), nothing INT
        )
    """)
    yield "wp_novel_test_types"
    conn.execute("DROP TABLE wp_novel_test_types")


@pytest.fixture
async def lent(pool: Pool) -> AsyncIterator[Connection]:
    async with pool.reading() as conn:
        yield conn


USUAL = (
    *(1, -5, True, 2**64 - 1, Decimal("12345.6789"), 1.1),
    *(datetime(2026, 1, 2, 3, 4, 5), datetime(2026, 1, 2, 3, 4, 5, 6), date(2026, 1, 2)),
    *(timedelta(hours=-12, seconds=-4), timedelta(hours=12, milliseconds=500), 2026),
    *(b"\x00\xff'\"\\%s", "Đấu Phá\x00'\"\\%s 😀", '{"a": 1}', "a", "ab", None),
)
SELECT_TYPES = """
    SELECT id, tiny, flag, big, price, wide, at, at_micro, born, span, span_micro, year, body, words, doc, kind,
        letters, nothing
    FROM wp_novel_test_types
"""


async def test_every_type_comes_back_as_it_went_in_and_as_text_gives_it(lent: Connection, typed: str) -> None:
    marks = ", ".join(["%s"] * len(USUAL))
    await lent.execute(f"INSERT INTO wp_novel_test_types VALUES ({marks})", USUAL)
    [prepared] = await lent.fetch_all(f"{SELECT_TYPES} WHERE id = %s", (1,))
    [text] = await lent.fetch_all(f"{SELECT_TYPES} WHERE id = 1")
    assert prepared == USUAL
    assert [(type(value), value) for value in prepared] == [(type(value), value) for value in text]


async def test_the_zero_dates_of_wordpress_are_none(lent: Connection, typed: str) -> None:
    await lent.execute("INSERT INTO wp_novel_test_types (id, at, born) VALUES (1, '0000-00-00 00:00:00', 0)")
    await lent.execute("INSERT INTO wp_novel_test_types (id, at, born) VALUES (2, '2026-01-02 03:04:05', '2026-01-02')")
    select = "SELECT at, born FROM wp_novel_test_types WHERE id > "
    expected = [(None, None), (datetime(2026, 1, 2, 3, 4, 5), date(2026, 1, 2))]
    assert await lent.fetch_all(f"{select}%s", (0,)) == expected
    assert await lent.fetch_all(f"{select}0") == expected


VALUES = (1, "words", None, Decimal("1.50"), b"\xff", 2.5, -(2**63), 2**64 - 1, "", "x" * 70_000)


async def test_a_value_of_another_type_gets_its_own_answer(lent: Connection) -> None:
    """The driver's own cache would decode the second answer by the types of the first."""
    for _ in range(2):
        for value in VALUES:
            assert await lent.fetch_one("SELECT %s, 'next'", (value,)) == (value, "next")


async def test_times_with_a_zone_are_not_shifted_by_the_driver(lent: Connection) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert await lent.fetch_one("SELECT CAST(%s AS DATETIME)", (at,)) == (at.replace(tzinfo=None),)


async def test_a_column_whose_type_was_altered_meanwhile_is_read_right(
    lent: Connection, conn: SyncConnection, typed: str
) -> None:
    conn.execute("INSERT INTO wp_novel_test_types (id, tiny, letters) VALUES (1, 5, 'ab')")
    select = "SELECT tiny, letters FROM wp_novel_test_types WHERE id = %s"
    assert await lent.fetch_one(select, (1,)) == (5, "ab")
    conn.execute("ALTER TABLE wp_novel_test_types MODIFY tiny BIGINT")
    assert await lent.fetch_one(select, (1,)) == (5, "ab")
    conn.execute("ALTER TABLE wp_novel_test_types MODIFY tiny VARCHAR(20), MODIFY letters VARBINARY(20)")
    assert await lent.fetch_one(select, (1,)) == ("5", b"ab")
    conn.execute("ALTER TABLE wp_novel_test_types DROP tiny, ADD tiny INT NOT NULL DEFAULT 7")
    assert await lent.fetch_one(select, (1,)) == (7, b"ab")


async def test_only_so_many_statements_are_kept_on_the_server(lent: Connection) -> None:
    async def kept() -> int:
        row = await lent.fetch_one("SHOW SESSION STATUS LIKE 'Prepared_stmt_count'")
        assert row is not None
        return int(row[1])

    before = await kept()
    for number in range(3 * statements.MAX_KEPT):
        assert await lent.fetch_one(f"SELECT {number}, %s", (number,)) == (number, number)
    assert await kept() - before <= statements.MAX_KEPT
    assert await lent.fetch_one("SELECT 0, %s", (5,)) == (0, 5)


async def test_a_server_without_room_for_statements_still_answers(
    lent: Connection, database_server: DatabaseServer
) -> None:
    with database_server.as_root() as root, root.cursor() as cursor:
        cursor.execute("SET GLOBAL max_prepared_stmt_count = 0")
        try:
            assert await lent.fetch_one("SELECT %s, '100%%'", ("it's \\ text",)) == ("it's \\ text", "100%")
        finally:
            cursor.execute("SET GLOBAL max_prepared_stmt_count = DEFAULT")
    assert await lent.fetch_one("SELECT %s, '100%%'", ("it's \\ text",)) == ("it's \\ text", "100%")


async def test_a_wrong_statement_is_an_error_and_the_connection_goes_on(lent: Connection) -> None:
    with pytest.raises(MySQLError) as caught:
        await lent.fetch_one("SELEC %s", (1,))
    assert errors.number(caught.value) == 1064
    assert lent.is_reusable
    assert await lent.fetch_one("SELECT %s", (1,)) == (1,)


INSERT = "INSERT INTO wp_novel_test_types (id, words, body) VALUES (%s, %s, %s)"


async def test_many_rows_go_in_whatever_their_types_and_nulls(pool: Pool, typed: str) -> None:
    rows = [(number, None if number % 3 else f"Chương {number}", None) for number in range(1000)]

    async def insert(conn: Connection) -> int:
        return await conn.execute_many(INSERT, rows)

    assert await pool.transaction(insert) == 1000
    async with pool.reading() as conn:
        assert await conn.fetch_all("SELECT id, words, body FROM wp_novel_test_types ORDER BY id") == rows


async def test_no_rows_are_no_statement(lent: Connection) -> None:
    assert await lent.execute_many("INSERT INTO wp_novel_no_such_table (id) VALUES (%s)", []) == 0


async def test_rows_larger_than_a_packet_go_in_one_after_the_other(pool: Pool, typed: str) -> None:
    body = b"\xff" * (3 << 20)
    rows = [(number, None, body) for number in range(9)]
    await pool.transaction(lambda conn: conn.execute_many(INSERT, rows))
    async with pool.reading() as conn:
        assert await conn.fetch_one("SELECT COUNT(*), SUM(LENGTH(body)) FROM wp_novel_test_types") == (9, 27 << 20)


async def test_an_upsert_counts_as_the_server_does(pool: Pool, typed: str) -> None:
    upsert = f"{INSERT} ON DUPLICATE KEY UPDATE words = VALUES(words)"
    await pool.transaction(lambda conn: conn.execute_many(upsert, [(1, "a", None), (2, "b", None)]))
    changed = await pool.transaction(
        lambda conn: conn.execute_many(upsert, [(1, "new", None), (2, "b", None), (3, "c", None)])
    )
    assert changed == 2 + 0 + 1


async def test_a_failing_row_leaves_none_of_them(pool: Pool, typed: str) -> None:
    with pytest.raises(MySQLError):
        await pool.transaction(
            lambda conn: conn.execute_many(INSERT, [(number % 150, None, None) for number in range(200)])
        )
    async with pool.reading() as conn:
        assert await conn.fetch_one("SELECT COUNT(*) FROM wp_novel_test_types") == (0,)
