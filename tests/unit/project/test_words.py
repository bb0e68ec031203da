"""Pages and help use the glossary's words: none of those in its column "not", except in another sense."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.node_binary import ROOT

#: The help of commands is in options.md, word by word; JSON's and Python's reference are made from code, too.
#: beyond.md is a record of studies, and senders.md one of comparisons with Linux.
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in {"beyond.md", "senders.md"}),
]
#: Phrases in which an old word has another sense: lines of text, of a drawing or of a fit, geometry, terms of others.
OTHER_SENSE = {
    "line": r"command line|file(?: and|,) line|per line|by line|line by\s+line|line numbers|lines and commas"
    r"|(?:one|json|last|comment|further|changed|this|its|twenty|break the|marks the|\d) lines?|lines of json"
    r"|\| line \| meaning|\"line\"|^### line$|'--line-results'|serial lines?|asynchronous line|horizontal lines"
    r"|a line leads",
    "wire": r"(?:on|in) the wire",
    "pipe": r"pipe algorithm|off the pipe",
    "point": r"imports point|point-to-point|access points?|entry points?|percentage points|fixed point"
    r"|recovery point|contact points",
}
BLANKED = (
    re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL),
    re.compile(r"^    .*", re.MULTILINE),
    re.compile(r"`[^`]*`"),
    re.compile(r"\]\([^)]*\)|<!--.*?-->"),
)


def prose(text: str) -> str:
    """A page without its code and the targets of its links, line by line."""
    for pattern in BLANKED:
        text = pattern.sub(lambda found: "\n" * found[0].count("\n") or "·", text)
    return text


def old_words(glossary: str) -> list[str]:
    """The last column of the glossary's table."""
    rows = [row.strip("|").split("|") for row in glossary.splitlines() if row.startswith("| ")]
    return [word.strip() for row in rows[1:] for word in row[-1].split(",") if word.strip()]


def uses(text: str, words: list[str]) -> Iterator[str]:
    """Old words of a page in their old sense: number of the line and the words around."""
    shown = prose(text)
    for word in sorted(set(words)):
        other = OTHER_SENSE.get(word)
        allowed = [found.span() for found in re.finditer(other, shown, re.IGNORECASE | re.MULTILINE)] if other else []
        for found in re.finditer(rf"\b{word}s?\b", shown, re.IGNORECASE):
            if not any(start <= found.start() and found.end() <= end for start, end in allowed):
                around = shown[max(0, found.start() - 40) : found.end() + 40].replace("\n", " ")
                yield f"{shown.count(chr(10), 0, found.start()) + 1}: {around}"


OLD = old_words((ROOT / "docs/glossary.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_and_help_use_the_glossarys_words(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if page.name == "glossary.md":
        text = text.partition("\n| word |")[0]
    assert list(uses(text, OLD)) == []


def test_an_old_word_is_found_and_another_sense_is_not() -> None:
    assert {"line", "wire", "point"} <= set(OLD)
    page = "A slow line.\n\n    line = 3\n\n`line` and [text](line.md) on the command line.\nPoints, point-to-point.\n"
    assert [use.partition(":")[0] for use in uses(page, OLD)] == ["1", "6"]
