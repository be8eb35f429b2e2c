from schema import live
from schema.connection import Connection
from schema.model import Column, Index, Table


def test_a_table_is_read_as_the_server_has_it(empty_conn: Connection) -> None:
    empty_conn.execute("""CREATE TABLE wp_novel_x (
        id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
        a VARCHAR(10) NOT NULL DEFAULT 'vi',
        b DECIMAL(14,4) NULL DEFAULT 0,
        c MEDIUMTEXT,
        d VARCHAR(10) NULL DEFAULT '',
        e VARCHAR(10) NULL DEFAULT 'NULL',
        f DATETIME NULL ON UPDATE CURRENT_TIMESTAMP,
        PRIMARY KEY (id), UNIQUE KEY one (a, b), KEY two (b DESC, c(20)), FULLTEXT KEY three (c)
    ) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci""")
    text = "utf8mb4_unicode_520_ci"
    assert live.tables(empty_conn) == {
        "wp_novel_x": Table(
            {
                "id": Column("bigint unsigned", False, auto_increment=True),
                "a": Column("varchar(10)", False, "vi", text),
                "b": Column("decimal(14,4)", True, "0"),
                "c": Column("mediumtext", True, None, text),
                "d": Column("varchar(10)", True, "", text),
                "e": Column("varchar(10)", True, "NULL", text),
                "f": Column("datetime", True, extra="on update current_timestamp"),
            },
            {
                "PRIMARY": Index("PRIMARY", ("id",)),
                "one": Index("UNIQUE", ("a", "b")),
                "two": Index("KEY", ("b DESC", "c(20)")),
                "three": Index("FULLTEXT", ("c",)),
            },
            "InnoDB",
            text,
        )
    }


def test_only_our_tables_are_read(empty_conn: Connection) -> None:
    for name in ("wp_novelist", "wp_posts", "wpXnovel_x", "WP_novel_x", "a_wp_novel_x", "wp_novel_"):
        empty_conn.execute(f"CREATE TABLE {name} (id INT)")
    empty_conn.execute("CREATE VIEW wp_novel_view AS SELECT 1 AS one")
    assert set(live.tables(empty_conn)) == {"wp_novel_"}


def test_columns_and_indexes_are_found_by_name_in_this_table_only(empty_conn: Connection) -> None:
    empty_conn.execute("CREATE TABLE wp_novel_x (id INT, KEY i (id))")
    empty_conn.execute("CREATE TABLE wpXnovel_x (other INT, KEY j (other))")
    empty_conn.execute("CREATE TABLE WP_NOVEL_X (third INT)")
    assert live.column_names(empty_conn, "wp_novel_x") == {"id"}
    assert live.column_names(empty_conn, "wp_novel_absent") == set()
    assert live.has_column(empty_conn, "wp_novel_x", "id")
    assert not live.has_column(empty_conn, "wp_novel_x", "other")
    assert not live.has_column(empty_conn, "wp_novel_x", "third")
    assert live.has_index(empty_conn, "wp_novel_x", "i")
    assert not live.has_index(empty_conn, "wp_novel_x", "j")


def test_tables_of_another_database_are_not_seen(conn: Connection, empty_conn: Connection) -> None:
    assert live.tables(conn)
    assert live.tables(empty_conn) == {}
    assert not live.has_column(empty_conn, "wp_novel_stories", "id")
