"""Architecture and the walk through the code name files that exist: in full, or by their name in those folders."""

from __future__ import annotations

import re

import pytest

from testbed.node_binary import ROOT

PAGE = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("architecture.md", "code-walk.md"))
NAMED = sorted(set(re.findall(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|rs|toml))`", PAGE)))


def test_the_page_names_files() -> None:
    assert len(NAMED) > 60


@pytest.mark.parametrize("name", NAMED)
def test_named_file_exists(name: str) -> None:
    if (ROOT / name).is_file():
        return
    folders = ("testbed", "agents", "analysis", "experiments", "web")
    assert any(path.is_file() for folder in folders for path in (ROOT / folder).rglob(name)), name
