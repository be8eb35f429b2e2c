from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schema.model import plain_default


@pytest.mark.parametrize(
    ("value", "plain"),
    [(None, None), ("0", "0"), ("0.0000", "0"), ("10", "10"), ("1.50", "1.5"), ("vi", "vi"), ("", ""), ("-1.0", "-1")],
)
def test_a_default_has_one_spelling(value: str | None, plain: str | None) -> None:
    assert plain_default(value) == plain


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**9), max_value=10**9))
def test_numbers_that_are_equal_are_spelt_the_same(number: Decimal) -> None:
    assert plain_default(str(number)) == plain_default(f"{number:.6f}")
    assert Decimal(plain_default(str(number)) or "") == number
