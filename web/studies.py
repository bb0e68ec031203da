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
    #: As it is written.
    text: str


@cache
def page(name: str) -> Markup | None:
    """A page of docs/studies; None if there is none."""
    text = _text(name)
    return rendered(text) if text else None


@cache
def sections(name: str) -> tuple[Section, ...]:
    """The sections of a page; empty if this installation has no docs."""
    parts = re.findall(r"^## (.+)\n\n((.+(?:\n.+)*)(?:\n(?!## ).*)*)", _text(name), re.MULTILINE)
    return tuple(
        Section(heading, anchor(heading), frozenset(re.findall(rf"\b{name}-[\w-]+", heading)), rendered(first), text)
        for heading, text, first in parts
    )


def _text(name: str) -> str:
    # Looked up in the list, because an address may hold any name.
    paths = {path.stem: path for path in (node_binary.ROOT / "docs/studies").glob("*.md")}
    return paths[name].read_text(encoding="utf-8") if name in paths else ""
