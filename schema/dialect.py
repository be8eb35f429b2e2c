"""What differs between MariaDB and MySQL, in one place. SQL is written for MariaDB, in what both understand.

| | MariaDB 10.6+ | MySQL 8.0.19+ |
|---|---|---|
| text (đ = d, ấ = a) | `utf8mb4_unicode_520_ci` | the same |
| identifiers, byte by byte | `utf8mb4_nopad_bin` | `utf8mb4_0900_bin` |
| the inserted value in an upsert | `VALUES(column)` | the same, deprecated but working in 8.x and 9.x |
| `INSERT ... RETURNING` | yes | no: read the rows back by their unique key |
| descending index columns | from 10.8, ignored before | yes |
| a prepared statement, given a value of another type | takes it | converts it to the type of the first (`words` to 0) |
| a statement's time limit | `max_statement_time`, seconds, every statement | `max_execution_time`, ms, SELECT only |
"""

import re
from dataclasses import dataclass

from runtime.problems import Problem

TEXT_COLLATION = "utf8mb4_unicode_520_ci"
IDENTIFIER_COLLATION = "utf8mb4_nopad_bin"
OLDEST = {"MariaDB": (10, 6, 0), "MySQL": (8, 0, 19)}

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Dialect:
    product: str
    version: tuple[int, int, int]

    @property
    def name(self) -> str:
        return f"{self.product} {'.'.join(map(str, self.version))}"

    @property
    def is_mariadb(self) -> bool:
        return self.product == "MariaDB"

    @property
    def identifier_collation(self) -> str:
        return IDENTIFIER_COLLATION if self.is_mariadb else "utf8mb4_0900_bin"

    @property
    def has_returning(self) -> bool:
        return self.is_mariadb

    @property
    def retypes_parameters(self) -> bool:
        """Whether every execution of a prepared statement takes its values as they are."""
        return self.is_mariadb

    @property
    def has_descending_indexes(self) -> bool:
        return not self.is_mariadb or self.version >= (10, 8, 0)

    def translate(self, sql: str) -> str:
        """A statement written for MariaDB, for this server."""
        return sql if self.is_mariadb else sql.replace(IDENTIFIER_COLLATION, self.identifier_collation)


def detect(server_version: str) -> Dialect:
    """The dialect of a server, by the version it greets with (`5.5.5-10.6.1-MariaDB`, `8.0.36`)."""
    product = "MariaDB" if "mariadb" in server_version.lower() else "MySQL"
    # MariaDB puts 5.5.5- before its version, so that old replication clients do not stumble.
    match = _VERSION.search(server_version.removeprefix("5.5.5-"))
    if not match:
        raise Problem(f"the database server gives an unknown version: {server_version!r}.")
    major, minor, patch = (int(part) for part in match.groups())
    dialect = Dialect(product, (major, minor, patch))
    if dialect.version < OLDEST[product]:
        oldest = ".".join(map(str, OLDEST[product]))
        raise Problem(f"the database server is {dialect.name}; at least {product} {oldest} is needed.")
    return dialect
