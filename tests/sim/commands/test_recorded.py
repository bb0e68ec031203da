"""README and tutorial show what their commands print."""

from __future__ import annotations

from tests import recorded


def test_pages_show_what_their_commands_print() -> None:
    shown = {page: page.read_text() for page in recorded.PAGES}
    assert recorded.renewed() == shown, "python -m tests.recorded --update"
