"""Every mechanism has a picture, and its page shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.language import registry
from experiments.language.backends import Backend

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = {"link": "links.md", "error-model": "links.md", "policy": "policies.md", "middlebox": "middleboxes.md"}


@pytest.mark.parametrize("kind", PAGES)
def test_every_mechanism_has_a_picture_on_its_page(kind: str) -> None:
    page = (DOCS / PAGES[kind]).read_text()
    # Pictures are of simulations.
    for name in {entry.name for entry in registry.of_kind(kind) if not entry.backends or Backend.SIM in entry.backends}:
        picture = f"images/mechanisms/{name}.svg"
        assert f"({picture})" in page, f"docs/{PAGES[kind]} does not show {picture}: docs/pictures.py draws it"
        assert (DOCS / picture).read_text().rstrip().endswith("</svg>")
