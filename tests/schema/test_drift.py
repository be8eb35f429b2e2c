"""`drift.check` is silent on a migrated database and names each change made by hand, also after it was undone."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from runtime import settings
from schema import connection, declared, drift, live, migrator
from schema.connection import Connection
from tests.conftest import DatabaseFactory


@dataclass(frozen=True)
class Change:
    what: str
    do: str
    undo: str
    named: tuple[str, ...]


def alter(what: str, table: str, do: str, undo: str, *named: str) -> Change:
    return Change(what, f"ALTER TABLE {table} {do}", f"ALTER TABLE {table} {undo}", named)


TEXT = "utf8mb4_unicode_520_ci"
CHANGES = [
    alter(
        "a column added",
        "wp_novel_genres",
        "ADD x INT",
        "DROP x",
        "wp_novel_genres.x: column is not declared",
    ),
    alter(
        "a column removed",
        "wp_novel_reading_progress",
        "DROP scroll_position",
        "ADD scroll_position FLOAT NULL AFTER chapter_no",
        "wp_novel_reading_progress.scroll_position: column is missing",
    ),
    alter(
        "a column renamed",
        "wp_novel_ratings",
        "CHANGE review_text review TEXT NULL",
        "CHANGE review review_text TEXT NULL",
        "wp_novel_ratings.review_text: column is missing",
        "wp_novel_ratings.review: column is not declared",
    ),
    alter(
        "a column retyped",
        "wp_novel_stories",
        "MODIFY title VARCHAR(200) NOT NULL",
        "MODIFY title VARCHAR(255) NOT NULL",
        "wp_novel_stories.title: type is varchar(200), should be varchar(255)",
    ),
    alter(
        "a sign added",
        "wp_novel_ratings",
        "MODIFY score TINYINT NOT NULL",
        "MODIFY score TINYINT UNSIGNED NOT NULL",
        "wp_novel_ratings.score: type is tinyint, should be tinyint unsigned",
    ),
    alter(
        "a precision changed",
        "wp_novel_stories",
        "MODIFY rating_avg DECIMAL(4,1) NULL",
        "MODIFY rating_avg DECIMAL(4,2) NULL",
        "wp_novel_stories.rating_avg: type is decimal(4,1), should be decimal(4,2)",
    ),
    alter(
        "fractions of a second lost",
        "wp_novel_events",
        "MODIFY created_at DATETIME NOT NULL",
        "MODIFY created_at DATETIME(6) NOT NULL",
        "wp_novel_events.created_at: type is datetime, should be datetime(6)",
    ),
    alter(
        "a default of a word changed",
        "wp_novel_stories",
        "ALTER language SET DEFAULT 'en'",
        "ALTER language SET DEFAULT 'vi'",
        "wp_novel_stories.language: default is en, should be vi",
    ),
    alter(
        "a default of a number changed",
        "wp_novel_ingest_jobs",
        "ALTER max_attempts SET DEFAULT 50",
        "ALTER max_attempts SET DEFAULT 5",
        "wp_novel_ingest_jobs.max_attempts: default is 50, should be 5",
    ),
    alter(
        "a default removed",
        "wp_novel_stories",
        "ALTER popularity_score DROP DEFAULT",
        "ALTER popularity_score SET DEFAULT 0",
        "wp_novel_stories.popularity_score: default is none, should be 0",
    ),
    alter(
        "a default added",
        "wp_novel_genres",
        "ALTER created_at SET DEFAULT '2026-02-21 08:00:00'",
        "ALTER created_at DROP DEFAULT",
        "wp_novel_genres.created_at: default is 2026-02-21 08:00:00, should be none",
    ),
    alter(
        "an empty default added",
        "wp_novel_genres",
        "ALTER name SET DEFAULT ''",
        "ALTER name DROP DEFAULT",
        "wp_novel_genres.name: default is '', should be none",
    ),
    alter(
        "a clock that sets a column",
        "wp_novel_comments",
        "MODIFY deleted_at DATETIME NULL ON UPDATE CURRENT_TIMESTAMP",
        "MODIFY deleted_at DATETIME NULL",
        "wp_novel_comments.deleted_at: extra is on update current_timestamp, should be none",
    ),
    alter(
        "a column that is computed",
        "wp_novel_ratings",
        "DROP review_text, ADD review_text TEXT AS ('x') VIRTUAL AFTER score",
        "DROP review_text, ADD review_text TEXT NULL AFTER score",
        "wp_novel_ratings.review_text: extra is virtual generated, should be none",
    ),
    alter(
        "NULL allowed",
        "wp_novel_comments",
        "MODIFY content TEXT NULL",
        "MODIFY content TEXT NOT NULL",
        "wp_novel_comments.content: nullable is yes, should be no",
    ),
    alter(
        "NULL forbidden",
        "wp_novel_comments",
        "MODIFY parent_id BIGINT UNSIGNED NOT NULL",
        "MODIFY parent_id BIGINT UNSIGNED NULL",
        "wp_novel_comments.parent_id: nullable is no, should be yes",
    ),
    alter(
        "an identifier that folds",
        "wp_novel_genres",
        f"MODIFY slug VARCHAR(120) COLLATE {TEXT} NOT NULL",
        "MODIFY slug VARCHAR(120) COLLATE utf8mb4_nopad_bin NOT NULL",
        f"wp_novel_genres.slug: collation is {TEXT}, should be utf8mb4_nopad_bin",
    ),
    alter(
        "text in another character set",
        "wp_novel_genres",
        "MODIFY name VARCHAR(120) CHARACTER SET latin1 NOT NULL",
        f"MODIFY name VARCHAR(120) CHARACTER SET utf8mb4 COLLATE {TEXT} NOT NULL",
        f"wp_novel_genres.name: collation is latin1_swedish_ci, should be {TEXT}",
    ),
    alter(
        "auto increment lost",
        "wp_novel_reports",
        "MODIFY id BIGINT UNSIGNED NOT NULL",
        "MODIFY id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT",
        "wp_novel_reports.id: auto increment is no, should be yes",
    ),
    alter(
        "an index missing",
        "wp_novel_stories",
        "DROP INDEX by_author",
        "ADD INDEX by_author (author_name)",
        "wp_novel_stories index by_author: missing, should be KEY (author_name)",
    ),
    alter(
        "a full-text index missing",
        "wp_novel_stories",
        "DROP INDEX search",
        "ADD FULLTEXT INDEX search (search_text)",
        "wp_novel_stories index search: missing, should be FULLTEXT (search_text)",
    ),
    alter(
        "a primary key missing",
        "wp_novel_comment_likes",
        "DROP PRIMARY KEY",
        "ADD PRIMARY KEY (comment_id, user_id)",
        "wp_novel_comment_likes index PRIMARY: missing, should be PRIMARY (comment_id, user_id)",
    ),
    alter(
        "an index more",
        "wp_novel_workers",
        "ADD INDEX extra (pid, host(20))",
        "DROP INDEX extra",
        "wp_novel_workers index extra: not declared, is KEY (pid, host(20))",
    ),
    alter(
        "an index in another order",
        "wp_novel_story_genres",
        "DROP INDEX by_genre, ADD INDEX by_genre (story_id, genre_id)",
        "DROP INDEX by_genre, ADD INDEX by_genre (genre_id, story_id)",
        "wp_novel_story_genres index by_genre: is KEY (story_id, genre_id), should be KEY (genre_id, story_id)",
    ),
    alter(
        "an index no longer unique",
        "wp_novel_bookmarks",
        "DROP INDEX user_story, ADD INDEX user_story (user_id, story_id)",
        "DROP INDEX user_story, ADD UNIQUE INDEX user_story (user_id, story_id)",
        "wp_novel_bookmarks index user_story: is KEY (user_id, story_id), should be UNIQUE (user_id, story_id)",
    ),
    alter(
        "an index of beginnings",
        "wp_novel_genres",
        "DROP INDEX slug, ADD UNIQUE INDEX slug (slug(20))",
        "DROP INDEX slug, ADD UNIQUE INDEX slug (slug)",
        "wp_novel_genres index slug: is UNIQUE (slug(20)), should be UNIQUE (slug)",
    ),
    alter(
        "an index that ascends",
        "wp_novel_story_recount_queue",
        "DROP INDEX due, ADD INDEX due (priority, next_run_at, story_id)",
        "DROP INDEX due, ADD INDEX due (priority DESC, next_run_at, story_id)",
        "wp_novel_story_recount_queue index due: is KEY (priority, next_run_at, story_id),"
        " should be KEY (priority DESC, next_run_at, story_id)",
    ),
    alter(
        "another engine",
        "wp_novel_story_genres",
        "ENGINE=MyISAM",
        "ENGINE=InnoDB",
        "wp_novel_story_genres: engine is MyISAM, should be InnoDB",
    ),
    alter(
        "another collation for what comes",
        "wp_novel_story_genres",
        "DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        f"DEFAULT CHARACTER SET utf8mb4 COLLATE {TEXT}",
        f"wp_novel_story_genres: collation is utf8mb4_general_ci, should be {TEXT}",
    ),
    alter(
        "a foreign key",
        "wp_novel_story_genres",
        "ADD CONSTRAINT of_genre FOREIGN KEY (genre_id) REFERENCES wp_novel_genres (id) ON DELETE CASCADE",
        "DROP FOREIGN KEY of_genre",
        "wp_novel_story_genres foreign key of_genre: not declared",
    ),
    alter(
        "a check",
        "wp_novel_ratings",
        "ADD CONSTRAINT range_of_score CHECK (score <= 10)",
        "DROP CONSTRAINT range_of_score",
        "wp_novel_ratings check range_of_score: not declared",
    ),
    Change(
        "a trigger",
        "CREATE TRIGGER touched BEFORE UPDATE ON wp_novel_ratings FOR EACH ROW SET NEW.score = 1",
        "DROP TRIGGER touched",
        ("wp_novel_ratings trigger touched: not declared",),
    ),
    Change(
        "a table missing",
        "RENAME TABLE wp_novel_events TO away",
        "RENAME TABLE away TO wp_novel_events",
        ("wp_novel_events: table is missing",),
    ),
    Change(
        "a table more",
        "CREATE TABLE wp_novel_mine (id INT)",
        "DROP TABLE wp_novel_mine",
        ("wp_novel_mine: table is not declared",),
    ),
    Change(
        "a table of WordPress missing",
        "RENAME TABLE wp_usermeta TO away",
        "RENAME TABLE away TO wp_usermeta",
        ("wp_usermeta: table is missing",),
    ),
    alter(
        "a column of WordPress missing",
        "wp_users",
        "DROP user_url, DROP display_name",
        "ADD user_url VARCHAR(100), ADD display_name VARCHAR(250)",
        "wp_users.display_name: column is missing",
        "wp_users.user_url: column is missing",
    ),
]
# What is WordPress's own business, or nobody's.
HARMLESS = [
    "ALTER TABLE wp_users ADD spam TINYINT, MODIFY user_url TEXT, ADD INDEX more (user_status)",
    "CREATE TABLE wp_novelist (id INT)",
    "CREATE TABLE wp_posts (id INT)",
    "CREATE TABLE blog7_novel_stories (id INT)",
    "CREATE VIEW wp_novel_view AS SELECT 1 AS one",
    "ALTER TABLE wp_novel_stories AUTO_INCREMENT = 1000",
    "INSERT INTO wp_novel_story_genres VALUES (1, 1)",
]


@pytest.fixture(scope="module")
def migrated(make_database: DatabaseFactory) -> Iterator[Connection]:
    with connection.connect(settings.load({"NOVEL_DATABASE_URL": make_database().url}).database) as conn:
        migrator.migrate(conn, lock_seconds=5)
        yield conn


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.what)
def test_a_change_by_hand_is_named_and_nothing_else(migrated: Connection, change: Change) -> None:
    assert drift.check(migrated) == []
    migrated.execute(change.do)
    try:
        assert drift.check(migrated) == [migrated.dialect.translate(line) for line in change.named]
    finally:
        migrated.execute(change.undo)
    assert drift.check(migrated) == []


def test_several_changes_are_all_named(empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5)
    empty_conn.execute("ALTER TABLE wp_novel_stories DROP INDEX by_author, MODIFY title VARCHAR(200) NULL, ADD x INT")
    empty_conn.execute("DROP TABLE wp_novel_events")
    assert drift.check(empty_conn) == [
        "wp_novel_events: table is missing",
        "wp_novel_stories.title: type is varchar(200), should be varchar(255)",
        "wp_novel_stories.title: nullable is yes, should be no",
        "wp_novel_stories.x: column is not declared",
        "wp_novel_stories index by_author: missing, should be KEY (author_name)",
    ]


@pytest.mark.parametrize("statement", HARMLESS)
def test_what_is_not_ours_is_not_named(empty_conn: Connection, statement: str) -> None:
    migrator.migrate(empty_conn, lock_seconds=5)
    empty_conn.execute(statement)
    assert drift.check(empty_conn) == []


def test_an_empty_database_lacks_every_table(empty_conn: Connection) -> None:
    named = drift.check(empty_conn)
    assert len(named) == len(declared.tables(empty_conn.dialect, prefix="wp_")) + 3
    assert all(line.endswith(": table is missing") for line in named)


def test_what_is_declared_is_what_the_server_says_word_for_word(conn: Connection) -> None:
    assert declared.tables(conn.dialect, prefix="wp_") == live.tables(conn)
