"""Administrators, written as WordPress writes them: a row in `wp_users`, the rest in `wp_usermeta`."""

import bcrypt

from schema import journal
from schema.connection import Connection

# PHP's serialize() of ['administrator' => true].
_CAPABILITIES = 'a:1:{s:13:"administrator";b:1;}'
_LEVEL = "10"
# What WordPress gives every new user beside name and role.
_PREFERENCES = {
    "first_name": "",
    "last_name": "",
    "description": "",
    "rich_editing": "true",
    "syntax_highlighting": "true",
    "comment_shortcuts": "false",
    "admin_color": "fresh",
    "use_ssl": "0",
    "show_admin_bar_front": "true",
    "locale": "",
}
MAX_NICENAME_LETTERS = 50

# Makers take turns at this row (UNIQUE option_name): WordPress has no unique key on the login to stop the second one.
_TAKE_TURN = "SELECT option_id FROM wp_options WHERE option_name = 'novel_db_version' FOR UPDATE"
# Reads KEY user_login_key.
_FIND = "SELECT ID, user_pass FROM wp_users WHERE user_login = %s"
_INSERT = """
    INSERT INTO wp_users (user_login, user_pass, user_nicename, user_email, user_registered, display_name)
    VALUES (%s, %s, %s, %s, UTC_TIMESTAMP(), %s)
"""
_USER_ID = "SELECT LAST_INSERT_ID()"
_INSERT_META = "INSERT INTO wp_usermeta (user_id, meta_key, meta_value) VALUES (%s, %s, %s)"
# Reads KEY user_id.
_DELETE_META = "DELETE FROM wp_usermeta WHERE user_id = %s AND meta_key IN (%s, %s)"
_FIND_META = "SELECT meta_value FROM wp_usermeta WHERE user_id = %s AND meta_key = %s"
_SET_PASSWORD = "UPDATE wp_users SET user_pass = %s WHERE ID = %s"  # noqa: S105  a statement, not a password


def ensure(conn: Connection, *, login: str, email: str, password: str, operator: str) -> bool:
    """Make sure that this user exists, with this password, as an administrator; says whether one was made.

    Call it only for a login that is ours: whoever has it now gets this password and this role.
    """
    role = {f"{conn.table_prefix}capabilities": _CAPABILITIES, f"{conn.table_prefix}user_level": _LEVEL}
    with conn.transaction():
        conn.fetch_one(_TAKE_TURN)
        row = conn.fetch_one(_FIND, (login,))
        if row is not None:
            _mend(conn, *row, password=password, role=role)
            return False
        conn.execute(_INSERT, (login, hash_password(password), login[:MAX_NICENAME_LETTERS], email, login))
        (user_id,) = conn.fetch_one(_USER_ID) or (0,)
        for key, value in ({"nickname": login} | _PREFERENCES | role).items():
            conn.execute(_INSERT_META, (user_id, key, value))
        journal.append(
            conn,
            "administrator.created",
            f"Administrator {login} was created by {operator}.",
            reference=str(user_id),
            context={"operator": operator},
        )
    return True


def _mend(conn: Connection, user_id: int, stored: str, *, password: str, role: dict[str, str]) -> None:
    if not _matches(password, stored):
        conn.execute(_SET_PASSWORD, (hash_password(password), user_id))
    if any(conn.fetch_one(_FIND_META, (user_id, key)) != (value,) for key, value in role.items()):
        conn.execute(_DELETE_META, (user_id, *role))
        for key, value in role.items():
            conn.execute(_INSERT_META, (user_id, key, value))


def hash_password(password: str) -> str:
    """bcrypt in the spelling of PHP, which every WordPress since 3.x verifies."""
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(12)).decode().replace("$2b$", "$2y$", 1)


def _matches(password: str, stored: str) -> bool:
    try:
        return bcrypt.checkpw(password.encode(), stored.replace("$2y$", "$2b$", 1).encode())
    except ValueError:  # not a bcrypt hash
        return False
