"""README and tutorial show what their commands print."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import recorded


@pytest.mark.parametrize("page", recorded.PAGES, ids=lambda page: page.name)
def test_a_page_shows_what_its_commands_print(page: Path) -> None:
    text = page.read_text()
    assert recorded.renewed(text) == text, "python -m tests.recorded --update"
