import ctypes
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import bcrypt
import pytest

from runtime.settings import Settings
from schema import connection, migrator
from schema.connection import Connection
from store import administrators

PASSWORD = "mật khẩu — correct horse"


def ensure(conn: Connection, *, login: str = "admin", password: str = PASSWORD) -> bool:
    return administrators.ensure(conn, login=login, email=f"{login}@example.org", password=password, operator="a test")


def stored_hash(conn: Connection, login: str = "admin") -> str:
    ((hashed,),) = conn.fetch_all("SELECT user_pass FROM wp_users WHERE user_login = %s", (login,))
    return str(hashed)


def php_accepts(password: str, hashed: str) -> bool:
    """What PHP's password_verify does: crypt() of the system, which knows `$2y$`."""
    crypt = ctypes.CDLL("libcrypt.so.1").crypt
    crypt.restype = ctypes.c_char_p
    result: bytes | None = crypt(password.encode(), hashed.encode())
    return result == hashed.encode()


def test_an_administrator_is_written_as_wordpress_writes_one(conn: Connection) -> None:
    ((before,),) = conn.fetch_all("SELECT UTC_TIMESTAMP()")
    assert ensure(conn) is True
    ((after,),) = conn.fetch_all("SELECT UTC_TIMESTAMP()")
    ((user_id, registered, *rest),) = conn.fetch_all(
        "SELECT ID, user_registered, user_login, user_nicename, user_email, display_name, user_url,"
        " user_activation_key, user_status FROM wp_users"
    )
    assert rest == ["admin", "admin", "admin@example.org", "admin", "", "", 0]
    assert before <= registered <= after
    meta = conn.fetch_all("SELECT user_id, meta_key, meta_value FROM wp_usermeta")
    assert {row[0] for row in meta} == {user_id}
    assert {row[1]: row[2] for row in meta}.items() >= {
        ("nickname", "admin"),
        ("wp_capabilities", 'a:1:{s:13:"administrator";b:1;}'),
        ("wp_user_level", "10"),
    }
    assert len({row[1] for row in meta}) == len(meta)


def test_the_password_is_a_hash_that_php_verifies(conn: Connection) -> None:
    ensure(conn)
    hashed = stored_hash(conn)
    assert hashed.startswith("$2y$12$")
    assert php_accepts(PASSWORD, hashed)
    assert not php_accepts(PASSWORD + "!", hashed)


def test_capabilities_carry_the_table_prefix(empty_settings: Settings) -> None:
    with connection.connect(replace(empty_settings.database, table_prefix="blog7_")) as conn:
        migrator.migrate(conn, lock_seconds=10)
        ensure(conn)
        keys = {row[0] for row in conn.fetch_all("SELECT meta_key FROM blog7_usermeta")}
    assert {"blog7_capabilities", "blog7_user_level"} <= keys
    assert not {key for key in keys if key.startswith("wp_")}


def test_who_made_an_administrator_is_written_down_without_the_password(conn: Connection) -> None:
    ensure(conn)
    (row,) = conn.fetch_all(
        "SELECT message, context_json FROM wp_novel_sync_logs WHERE event_type = 'administrator.created'"
    )
    assert row == ("Administrator admin was created by a test.", '{"operator":"a test"}')


def test_the_second_time_nothing_is_changed(conn: Connection) -> None:
    ensure(conn)
    tables = ("wp_users", "wp_usermeta", "wp_novel_sync_logs")
    before = [conn.fetch_all(f"SELECT * FROM {table}") for table in tables]
    assert ensure(conn) is False
    assert [conn.fetch_all(f"SELECT * FROM {table}") for table in tables] == before


@pytest.mark.parametrize("stored", ["$P$BDcS1mUuZQYvfZ3HKsJ1mNsJmPvOE.1", "5f4dcc3b5aa765d61d8327deb882cf99", ""])
def test_a_password_that_differs_is_set_anew_and_nothing_else(conn: Connection, stored: str) -> None:
    ensure(conn)
    meta = conn.fetch_all("SELECT * FROM wp_usermeta")
    conn.execute("UPDATE wp_users SET user_pass = %s", (stored,))
    assert ensure(conn) is False
    assert bcrypt.checkpw(PASSWORD.encode(), stored_hash(conn).replace("$2y$", "$2b$").encode())
    assert conn.fetch_all("SELECT * FROM wp_usermeta") == meta


def test_one_that_was_demoted_is_promoted_again_once(conn: Connection) -> None:
    ensure(conn)
    conn.execute("""UPDATE wp_usermeta SET meta_value = 'a:1:{s:10:"subscriber";b:1;}' WHERE meta_key LIKE '%capab%'""")
    conn.execute("DELETE FROM wp_usermeta WHERE meta_key = 'wp_user_level'")
    assert ensure(conn) is False
    meta = conn.fetch_all("SELECT meta_key, meta_value FROM wp_usermeta WHERE meta_key LIKE 'wp_%'")
    assert sorted(meta) == [("wp_capabilities", 'a:1:{s:13:"administrator";b:1;}'), ("wp_user_level", "10")]


def test_the_longest_login_of_wordpress_fits(conn: Connection) -> None:
    assert ensure(conn, login="a" * 60) is True
    assert conn.fetch_all("SELECT user_nicename FROM wp_users") == [("a" * 50,)]


def test_two_administrators_do_not_meet(conn: Connection) -> None:
    assert ensure(conn, login="anh") is True
    assert ensure(conn, login="binh", password="another one") is True
    assert php_accepts(PASSWORD, stored_hash(conn, "anh"))
    assert php_accepts("another one", stored_hash(conn, "binh"))


def test_of_many_at_the_same_moment_one_makes_the_administrator(test_settings: Settings, conn: Connection) -> None:
    together = Barrier(4)

    def make(_: int) -> bool:
        with connection.connect(test_settings.database) as own:
            together.wait(30)
            return ensure(own)

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(make, range(4))) == [False, False, False, True]
    assert conn.fetch_all("SELECT user_login FROM wp_users") == [("admin",)]
    assert len(conn.fetch_all("SELECT umeta_id FROM wp_usermeta WHERE meta_key = 'wp_capabilities'")) == 1


def test_one_that_fails_half_way_leaves_nothing(conn: Connection) -> None:
    conn.execute("ALTER TABLE wp_usermeta RENAME TO wp_usermeta_away")
    try:
        with pytest.raises(Exception, match="wp_usermeta"):
            ensure(conn)
    finally:
        conn.execute("ALTER TABLE wp_usermeta_away RENAME TO wp_usermeta")
    assert conn.fetch_all("SELECT ID FROM wp_users") == []
    assert ensure(conn) is True
