"""A setting that nobody can find does not exist."""

from runtime import settings
from tests.conftest import ROOT


def test_every_setting_is_documented() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    assert not [f.metadata["variable"] for f in settings.every_option() if f"`{f.metadata['variable']}`" not in page]
