"""The guide to campaign files on the site: docs/campaigns.md, each example of which can be launched."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from markdown_it import MarkdownIt
from markupsafe import Markup

from testbed import node_binary

FILE = "docs/campaigns.md"


@dataclass(frozen=True)
class Part:
    """A part of the guide: text, and the example that follows it."""

    html: Markup
    #: YAML of a complete campaign; empty after the last text.
    example: str


@cache
def parts() -> tuple[Part, ...]:
    """The guide; empty if this installation has no docs."""
    path = node_binary.ROOT / FILE
    if not path.is_file():
        return ()
    pieces = re.split(r"^```yaml\n(.*?)^```\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    texts, examples = pieces[::2], pieces[1::2]
    return tuple(Part(rendered(text, lowered=1), example) for text, example in zip(texts, [*examples, ""], strict=True))


@dataclass(frozen=True)
class Section:
    """A heading of the guide with the text below it."""

    title: str
    anchor: str
    text: str


@cache
def sections() -> tuple[Section, ...]:
    """The guide by its headings."""
    html = "".join(f"{part.html}{part.example}" for part in parts())
    _, *pieces = re.split(r'<h[234] id="([^"]*)">(.*?)</h[234]>', html)
    plain = [re.sub(r"<[^>]*>", "", piece) for piece in pieces]
    return tuple(map(Section, plain[1::3], plain[::3], plain[2::3]))


def example(number: int) -> str:
    """The text of an example, counted from 1; empty if there is none."""
    examples = [part.example for part in parts() if part.example]
    return examples[number - 1] if 1 <= number <= len(examples) else ""


def rendered(text: str, lowered: int = 0) -> Markup:
    """Text of docs/ as HTML, its headings `lowered` levels lower."""
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    # Other pages of the docs are files of the repository; headings of this page are places of it.
    plain = re.sub(r"\[([^]]+)\]\((?!#)[^)]*\)", r"\1", text)
    html = markdown.render(plain)
    html = re.sub(
        r"<h([123])>(.*?)</h\1>",
        lambda head: f'<h{int(head[1]) + lowered} id="{anchor(head[2])}">{head[2]}</h{int(head[1]) + lowered}>',
        html,
    )
    for tag, opened in (("pre", '<pre tabindex="0">'), ("table", '<div class="scroll" tabindex="0"><table>')):
        html = html.replace(f"<{tag}>", opened)
    return Markup(html.replace("</table>", "</table></div>"))


def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", re.sub(r"<[^>]*>", "", heading).lower()).replace(" ", "-")
