from collections.abc import Iterator

import pytest

from cli.pushing import retrying
from tests.cli.pushing.fake_service import FakeService, fake_service


@pytest.fixture
def service() -> Iterator[FakeService]:
    with fake_service() as service:
        yield service


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries follow at once."""
    monkeypatch.setattr(retrying, "FIRST_DELAY_SECONDS", 0.001)
