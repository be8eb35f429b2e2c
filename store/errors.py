"""What can go wrong with the database, in terms a service can act on. None of it knows HTTP."""

from asyncmy.errors import MySQLError

# 1205 lock wait timeout, 1213 deadlock or Galera certification failure, 1020 snapshot isolation (MariaDB 11.6.2+),
# 1047 a Galera node that is not ready yet.
RETRYABLE = frozenset({1205, 1213, 1020, 1047})
DUPLICATE = 1062
STATEMENT_TIMEOUTS = frozenset({1969, 3024})


# The server is full, read-only, shutting down, or somebody has ended our statement: it may do it a moment later.
UNAVAILABLE = frozenset({1021, 1037, 1038, 1040, 1041, 1053, 1114, 1180, 1206, 1290, 1317, 1836, 1927})
# Of these, those after which a COMMIT may have happened.
_CUT_OFF = frozenset({1053, 1317, 1927})

# Any refusal of the server, for who can only note it.
ServerRefused = MySQLError


class StoreError(Exception):
    """The database could not do what was asked."""


class DatabaseUnavailable(StoreError):
    """The database cannot be reached, or gave no connection in time. Nothing was changed; try again later."""


class StatementTimeout(StoreError):
    """The database ended a statement that took longer than it may."""


class CommitUncertain(StoreError):
    """The connection broke during COMMIT: the change may stand or not. Read back by key before repeating it."""


def number(error: BaseException) -> int:
    """The server's or driver's number of an error; 0 if it has none."""
    first = error.args[0] if error.args else 0
    return first if isinstance(first, int) else 0


def is_retryable(error: BaseException) -> bool:
    return isinstance(error, MySQLError) and number(error) in RETRYABLE


def is_duplicate(error: BaseException) -> bool:
    """Whether a unique key already has such a row."""
    return isinstance(error, MySQLError) and number(error) == DUPLICATE


def is_unavailable(error: BaseException) -> bool:
    return isinstance(error, MySQLError) and number(error) in UNAVAILABLE


def is_uncertain(error: BaseException) -> bool:
    """Whether a COMMIT that ended so may have happened."""
    return is_lost(error) or (isinstance(error, MySQLError) and number(error) in _CUT_OFF)


def is_lost(error: BaseException) -> bool:
    """Whether the error is the driver's own: the server did not answer, so the connection is of no more use."""
    return isinstance(error, OSError) or (
        isinstance(error, MySQLError) and (number(error) == 0 or 2000 <= number(error) < 3000)
    )
