from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sqlglot import exp

from runtime.settings import Settings
from schema import connection, migrations, prefix
from schema.connection import Connection

PREFIXES = st.from_regex(r"[A-Za-z0-9_]{1,20}", fullmatch=True)
OUR_TABLES = st.from_regex(r"wp_(novel_[a-z_]{1,20}|users|usermeta|options)", fullmatch=True)


@pytest.mark.parametrize(
    ("written", "rewritten"),
    [
        ("SELECT id FROM wp_novel_stories", "SELECT id FROM blog7_novel_stories"),
        ("FROM `wp_novel_stories` s JOIN wp_users u", "FROM `blog7_novel_stories` s JOIN blog7_users u"),
        ("wp_users.ID = wp_usermeta.user_id", "blog7_users.ID = blog7_usermeta.user_id"),
        ("INSERT INTO wp_options(option_name)", "INSERT INTO blog7_options(option_name)"),
        ("CREATE TABLE IF NOT EXISTS wp_novel_genres (", "CREATE TABLE IF NOT EXISTS blog7_novel_genres ("),
    ],
)
def test_tables_get_the_prefix(written: str, rewritten: str) -> None:
    assert prefix.rewrite(written, "blog7_") == rewritten


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 FROM wp_posts",
        "SELECT 1 FROM wp_novelist",
        "SELECT 1 FROM wp_users_old",
        "SELECT 1 FROM mywp_users",
        "SELECT 1 FROM old_wp_novel_stories",
        "SELECT 'wp_novel_stories'",
        "WHERE meta_key = 'wp_users'",
        'WHERE meta_key = "wp_options"',
        "WHERE a = 'it''s wp_users' AND b = 'c'",
        r"WHERE a = 'it\'s wp_users'",
        "WHERE meta_key = 'wp_capabilities' AND wp_user_level > 0",
        "SELECT novel_users, wp_ FROM dual",
        "-- wp_users, that's all\n",
        "/* don't: wp_users */",
    ],
)
def test_strings_comparisons_and_the_tables_of_others_are_left_alone(sql: str) -> None:
    assert prefix.rewrite(sql, "blog7_") == sql


def test_what_stands_beside_a_string_or_a_comment_is_still_rewritten() -> None:
    sql = """SELECT 'wp_users' -- don't
        FROM wp_users WHERE a = '' AND b <> 'it''s' AND wp_users.c = "x" /* isn't */ AND d IN wp_options"""
    assert prefix.rewrite(sql, "x_") == (
        """SELECT 'wp_users' -- don't
        FROM x_users WHERE a = '' AND b <> 'it''s' AND x_users.c = "x" /* isn't */ AND d IN x_options"""
    )


@given(prefix_=PREFIXES, table=OUR_TABLES, text=st.text(alphabet=st.characters(exclude_characters="'\\\x00")))
def test_whatever_a_string_holds_it_stays_and_the_table_beside_it_moves(prefix_: str, table: str, text: str) -> None:
    rewritten = prefix.rewrite(f"SELECT '{text}', '{table}' FROM {table} WHERE a = '{text}'", prefix_)
    assert rewritten == f"SELECT '{text}', '{table}' FROM {prefix_}{table.removeprefix('wp_')} WHERE a = '{text}'"


@given(sql=st.text())
def test_the_default_prefix_changes_nothing(sql: str) -> None:
    assert prefix.rewrite(sql, "wp_") == sql


@given(prefix_=PREFIXES)
@hypothesis_settings(max_examples=5, deadline=None)  # each parses every migration
def test_no_migration_names_a_table_outside_the_prefix(prefix_: str) -> None:
    for migration in migrations.available():
        for statement in migration.statements:
            (table,) = migrations.parse(prefix.rewrite(statement, prefix_)).find_all(exp.Table)
            assert table.name.startswith(prefix_)
            assert table.name.removeprefix(prefix_).startswith(("novel_", *prefix.CORE_TABLES))


def test_bound_values_are_never_rewritten(empty_settings: Settings) -> None:
    value = "wp_users and 'wp_novel_stories'"
    with connection.connect(replace(empty_settings.database, table_prefix="blog7_")) as conn:
        assert conn.fetch_one("SELECT %s, 'wp_users', %s = 'wp_options'", (value, "wp_options")) == (
            value,
            "wp_users",
            1,
        )


def test_a_connection_names_tables_by_its_prefix(empty_conn: Connection) -> None:
    assert empty_conn.table("wp_novel_stories") == "wp_novel_stories"
    empty_conn.table_prefix = "blog7_"
    assert empty_conn.table("wp_novel_stories") == "blog7_novel_stories"
    assert empty_conn.table("wp_options") == "blog7_options"
