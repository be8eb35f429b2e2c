"""What a private server runs at its start: our database, and a user with rights on it and nothing else."""

from runtime.addresses import DatabaseAddress

_STATEMENTS = """\
CREATE DATABASE IF NOT EXISTS `{database}` CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci;
CREATE USER IF NOT EXISTS '{user}'@'127.0.0.1' IDENTIFIED BY '{password}';
ALTER USER '{user}'@'127.0.0.1' IDENTIFIED BY '{password}';
GRANT ALL PRIVILEGES ON `{pattern}`.* TO '{user}'@'127.0.0.1';
"""
_MORE = "GRANT ALL PRIVILEGES ON `{pattern}\\_%`.* TO '{user}'@'127.0.0.1';\n"


def script(address: DatabaseAddress, *, and_databases_like_it: bool = False) -> str:
    """SQL for `init-file`: one statement a line. Names and password are ours, made of letters, digits, - and _.

    Tests also make databases of their own, named after this one.
    """
    for part in (address.database, address.user, address.password):
        if not part.replace("-", "").replace("_", "").isalnum():
            raise ValueError("a private server's names and password have only letters, digits, - and _")
    pattern = address.database.replace("_", r"\_")
    template = _STATEMENTS + (_MORE if and_databases_like_it else "")
    return template.format(database=address.database, user=address.user, password=address.password, pattern=pattern)
