import pytest

from schema import declared, migrations
from schema.dialect import Dialect
from schema.migrations import Migration
from schema.model import Column, Index, Table

MARIADB = Dialect("MariaDB", (10, 11, 6))
OPTIONS = "ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci"
TEXT = "utf8mb4_unicode_520_ci"


def fold(*statements: str) -> dict[str, Table]:
    return dict(declared.fold((Migration(1, "0001_x", statements),)))


def test_a_table_is_read_with_all_that_a_column_and_an_index_can_have() -> None:
    table = fold(f"""CREATE TABLE IF NOT EXISTS wp_novel_x (
        id BIGINT(20) UNSIGNED NOT NULL AUTO_INCREMENT,
        a VARCHAR(10) COLLATE utf8mb4_nopad_bin NOT NULL DEFAULT 'vi',
        b DECIMAL(14, 4) NULL DEFAULT 0,
        c MEDIUMTEXT,
        d INT(11) NOT NULL DEFAULT '5',
        e BINARY(32) NULL DEFAULT NULL,
        f DATETIME(6) NOT NULL,
        PRIMARY KEY (id),
        UNIQUE KEY one (a, b),
        KEY two (b DESC, c(20)),
        FULLTEXT KEY three (c)
    ) {OPTIONS}""")["wp_novel_x"]
    assert table == Table(
        {
            "id": Column("bigint unsigned", False, auto_increment=True),
            "a": Column("varchar(10)", False, "vi", "utf8mb4_nopad_bin"),
            "b": Column("decimal(14,4)", True, "0"),
            "c": Column("mediumtext", True, None, TEXT),
            "d": Column("int", False, "5"),
            "e": Column("binary(32)", True),
            "f": Column("datetime(6)", False),
        },
        {
            "PRIMARY": Index("PRIMARY", ("id",)),
            "one": Index("UNIQUE", ("a", "b")),
            "two": Index("KEY", ("b DESC", "c(20)")),
            "three": Index("FULLTEXT", ("c",)),
        },
        "InnoDB",
        TEXT,
    )


def test_later_migrations_add_to_earlier_ones() -> None:
    table = fold(
        f"CREATE TABLE IF NOT EXISTS wp_novel_x (id INT NOT NULL) {OPTIONS}",
        "ALTER TABLE wp_novel_x ADD COLUMN a TEXT NULL",
        "ALTER TABLE wp_novel_x ADD INDEX i (id)",
        "ALTER TABLE wp_novel_x ADD UNIQUE INDEX u (id)",
        "ALTER TABLE wp_novel_x ADD FULLTEXT INDEX f (a)",
    )["wp_novel_x"]
    assert list(table.columns) == ["id", "a"]
    assert table.columns["a"] == Column("text", True, None, TEXT)
    assert table.indexes == {
        "i": Index("KEY", ("id",)),
        "u": Index("UNIQUE", ("id",)),
        "f": Index("FULLTEXT", ("a",)),
    }


def test_a_second_create_of_a_table_changes_nothing() -> None:
    first = f"CREATE TABLE IF NOT EXISTS wp_novel_x (id INT NOT NULL) {OPTIONS}"
    assert fold(first, first.replace("id INT", "other TEXT")) == fold(first)


def test_what_cannot_be_compared_is_refused_rather_than_overlooked() -> None:
    with pytest.raises(TypeError, match="cannot read"):
        fold(f"CREATE TABLE IF NOT EXISTS wp_novel_x (id INT, FOREIGN KEY (id) REFERENCES wp_users (ID)) {OPTIONS}")


@pytest.mark.parametrize("prefix", ["wp_", "blog7_"])
def test_our_tables_and_those_of_wordpress_are_told_apart(prefix: str) -> None:
    tables = declared.tables(MARIADB, prefix=prefix)
    assert all(name.startswith(f"{prefix}novel_") for name in tables)
    core = declared.core_columns(prefix=prefix)
    assert set(core) == {f"{prefix}users", f"{prefix}usermeta", f"{prefix}options"}
    assert core[f"{prefix}options"] == {"option_id", "option_name", "option_value", "autoload"}
    assert len(tables) + len(core) == len(declared.fold(migrations.available()))
