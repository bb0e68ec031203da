"""Links of the documentation lead to files of the repository, and to headings of pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.node_binary import ROOT
from web.guide import anchor

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def dead_links(page: Path) -> list[str]:
    """Links of a page to missing files or headings."""
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", _prose(page)):
        if re.match(r"\w+:", link):
            continue
        name, _, place = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (place and place not in _anchors(target)):
            dead.append(link)
    return dead


def _anchors(page: Path) -> set[str]:
    return {anchor(heading) for heading in re.findall(r"^#+ (.+)$", _prose(page), re.MULTILINE)}


def _prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page) == []


def test_dead_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A `b`: c\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md#a-b-c) [b](other.md#b) [c](none.md) [d](#here) [e](https://e.org/none.md)\n\n## Here\n"
    )
    assert dead_links(page) == ["other.md#b", "none.md"]
