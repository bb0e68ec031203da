"""Pages name files and tests that exist: in full, or by the end of their path."""

from __future__ import annotations

import re

import pytest

from testbed.node_binary import ROOT

#: Pages with files of the reader's own, and one that is made from data.
OTHERS = ("your-own.md", "beyond.md")
PAGES = {
    path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md") if path.name not in OTHERS
}
NAMED = sorted(set(re.findall(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|rs|toml))`", "".join(PAGES.values()))))
FOLDERS = ("testbed", "agents", "analysis", "experiments", "web", "tests", "benchmarks", "docs", "distribution")
FILES = [path for folder in FOLDERS for kind in ("py", "rs", "toml") for path in (ROOT / folder).rglob(f"*.{kind}")]


def test_pages_name_files() -> None:
    assert len(NAMED) > 200


@pytest.mark.parametrize("name", NAMED)
def test_named_file_exists(name: str) -> None:
    assert (ROOT / name).is_file() or any(path.as_posix().endswith(f"/{name}") for path in FILES), name


def test_tests_that_find_a_fault_exist() -> None:
    named = re.findall(r"`[\w/.]+::(\w+)`", PAGES["testing.md"])
    tests = set(re.findall(r"\b(?:fn|def) (\w+)", "".join(path.read_text(encoding="utf-8") for path in FILES)))
    assert len(named) > 40
    assert [name for name in named if name not in tests] == []
