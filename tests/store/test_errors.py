import pytest
from asyncmy.errors import IntegrityError, InternalError, OperationalError

from store import errors


@pytest.mark.parametrize("number", [1205, 1213, 1020, 1047])
def test_what_the_server_gave_up_can_be_tried_again(number: int) -> None:
    assert errors.is_retryable(OperationalError(number, "..."))
    assert not errors.is_lost(OperationalError(number, "..."))


@pytest.mark.parametrize("error", [OperationalError(2013, "..."), OperationalError(2006, "..."), OSError(104, "...")])
def test_a_connection_without_an_answer_is_lost(error: Exception) -> None:
    assert errors.is_lost(error)
    assert not errors.is_retryable(error)


def test_an_answer_that_makes_no_sense_is_a_lost_connection() -> None:
    assert errors.is_lost(InternalError("Packet sequence number wrong"))


def test_a_broken_rule_is_neither() -> None:
    error = IntegrityError(1062, "Duplicate entry")
    assert not errors.is_retryable(error)
    assert not errors.is_lost(error)
