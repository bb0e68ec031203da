"""docs/architecture.md names files that exist: in full, or by their name within the folders that the section walks."""

from __future__ import annotations

import re

import pytest

from testbed.node_binary import ROOT

PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|rs|toml))`", PAGE)))


def test_the_page_names_files() -> None:
    assert len(NAMED) > 60


@pytest.mark.parametrize("name", NAMED)
def test_named_file_exists(name: str) -> None:
    if (ROOT / name).is_file():
        return
    folders = ("testbed", "agents", "analysis", "experiments", "web")
    assert any(path.is_file() for folder in folders for path in (ROOT / folder).rglob(name)), name
