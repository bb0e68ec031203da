"""What mkdocs is told about our pages: links that leave docs/, and anchors as GitHub makes them.

Pages are written for a reader of the repository. A link from docs/ to another file of it leads, on the site, to a page
with that file's text, below `source/`.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
#: A link or a picture, but not one with a scheme or within the page.
LINK = re.compile(r"(\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")
#: Repository paths whose pages the site has outside docs/.
SOURCE = "source/"
#: Markdown of Python needs a blank line before a list that follows a paragraph; that of GitHub does not.
_LIST = re.compile(r"^((?![-*|#>]|\d+\. | {4}).+)\n(?=(?:[-*]|1\.) )", re.MULTILINE)


def anchor(heading: str, separator: str = "-") -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", re.sub(r"<[^>]*>", "", heading).lower()).replace(" ", separator)


def target(page: str, link: str) -> str:
    """The path in the repository that a link of a page leads to; both relative to the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def linked(text: str) -> set[str]:
    """Links of a page to files, without their anchors. Links in code are ignored."""
    return {link for _, link, _ in LINK.findall(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for each file outside docs/ that a page links to, and for those that these pages link to."""
    from mkdocs.structure.files import File

    docs = Path(config.docs_dir)
    waiting = [f"docs/{path.relative_to(docs)}" for path in sorted(docs.rglob("*.md"))]
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        for link in linked((ROOT / page).read_text(encoding="utf-8")):
            path = target(page, link)
            if path.startswith("docs/") or path in seen:
                continue
            seen.add(path)
            if path.endswith(".md"):
                waiting.append(path)
            files.append(File.generated(config, _source(path), content=_page(path)))
    return files


def _source(path: str) -> str:
    """Where the site has a file of the repository."""
    return f"{SOURCE}{path}" if path.endswith(".md") else f"{SOURCE}{path}.md"


def _page(path: str) -> str:
    file = ROOT / path
    if path.endswith(".md"):
        return file.read_text(encoding="utf-8")
    if file.is_dir():
        names = "\n".join(f"    {name.name}" for name in sorted(file.iterdir()) if name.name[0] not in "._")
        return f"# {path}\n\nA folder of the repository:\n\n{names}\n"
    kind = {"yaml": "yaml", "yml": "yaml", "py": "python", "toml": "toml"}.get(file.suffix[1:], "")
    return f"# {path}\n\n````{kind}\n{file.read_text(encoding='utf-8')}\n````\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites links that leave docs/, and separates lists from paragraphs."""
    here = page.file.src_uri
    repository = here.removeprefix(SOURCE) if here.startswith(SOURCE) else f"docs/{here}"

    def rewritten(match: re.Match[str]) -> str:
        path = target(repository, match[2])
        place = path.removeprefix("docs/") if path.startswith("docs/") else _source(path)
        return f"{match[1]}{posixpath.relpath(place, posixpath.dirname(here) or '.')}{match[3] or ''})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if at % 2 else _LIST.sub(r"\1\n\n", LINK.sub(rewritten, part)) for at, part in enumerate(parts))
