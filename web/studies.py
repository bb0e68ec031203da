"""Studies of what does not agree with the papers: docs/studies, whose headings begin with ids of artefacts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from markupsafe import Markup

from testbed import node_binary
from web.guide import anchor, rendered


@dataclass(frozen=True)
class Section:
    """A section of a paper's study."""

    heading: str
    anchor: str
    #: Ids of the artefacts that it explains; empty if it concerns the whole paper.
    artefacts: frozenset[str]
    #: Its first paragraph.
    summary: Markup


@cache
def page(name: str) -> Markup | None:
    """A page of docs/studies; None if there is none."""
    text = _text(name)
    return rendered(text) if text else None


@cache
def sections(paper: str) -> tuple[Section, ...]:
    """The sections of a paper's study; empty if this installation has no docs."""
    parts = re.findall(r"^## (.+)\n\n(.+(?:\n.+)*)", _text(paper), re.MULTILINE)
    return tuple(
        Section(heading, anchor(heading), frozenset(re.findall(rf"\b{paper}-[\w-]+", heading)), rendered(first))
        for heading, first in parts
    )


def _text(name: str) -> str:
    # Looked up in the list, because an address may hold any name.
    paths = {path.stem: path for path in (node_binary.ROOT / "docs/studies").glob("*.md")}
    return paths[name].read_text(encoding="utf-8") if name in paths else ""
