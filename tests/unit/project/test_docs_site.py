"""The documentation as a site: every link and anchor leads somewhere, and a page loads nothing from the network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from distribution import diagram
from testbed.node_binary import ROOT

CONFIGURATION = ROOT / "distribution/mkdocs.yml"
#: What a browser loads by itself; a link is loaded by a person.
LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=[\"'](https?:)?//([^\"'/]+)")


def build(configuration: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "distribution"), "NO_MKDOCS_2_WARNING": "1"}
    # `-q` would count no warning, and so find no dead link.
    words = ["-m", "mkdocs", "build", "-f", str(configuration), "-d", str(folder)]
    return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(CONFIGURATION, folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_page_loads_nothing_from_the_network(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 60
    loaded = {(page.name, host) for page in pages for scheme, host in LOADED.findall(page.read_text()) if host}
    # The canonical address and the like; none is set.
    assert loaded == set()
    styles = "".join(style.read_text() for style in site.rglob("*.css"))
    assert re.findall(r"url\([\"']?https?:[^)]*", styles) == []


def test_diagrams_are_pictures(site: Path) -> None:
    page = (site / "architecture.html").read_text()
    assert "graph TD" not in page
    picture = page.partition('<div class="diagram"><svg')[2].partition("</svg>")[0]
    assert {"web", "experiments/api.py", "testbed/core"} <= set(re.findall(r"<text[^>]*>([^<]*)", picture))
    labels, arrows = diagram.parse("graph TD\n a[A, B] --> b & c --> d\n a --> d\n")
    assert (labels["a"], arrows) == ("A, B", [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "d")])
    boxes = [node for layer in diagram.layered(labels, arrows) for node in layer if node.label]
    assert [(node.label, node.layer) for node in boxes] == [("A, B", 0), ("b", 1), ("c", 1), ("d", 2)]
    assert abs(boxes[1].x - boxes[2].x) > boxes[1].width


@pytest.mark.parametrize("text", ["graph LR\na --> b", "graph TD\na -.-> b", "graph TD\na --> b --> a"])
def test_what_a_diagram_cannot_draw_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="graph TD|is not drawn|circle"):
        diagram.svg(text)


def test_search_has_every_page(site: Path) -> None:
    entries = json.loads((site / "search/search_index.json").read_text())["docs"]
    found = {entry["location"].partition("#")[0] for entry in entries}
    assert {"index.html", "tutorial.html", "glossary.html", "json.html", "options.html", "gallery.html"} <= found


@pytest.mark.parametrize("link", ["no-such-page.md", "tutorial.md#no-such-heading"])
def test_a_dead_link_fails_the_build(link: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/README.md").write_text(f"# Home\n\n[dead]({link})\n")
    (tmp_path / "docs/tutorial.md").write_text("# Tutorial\n")
    (tmp_path / "docs/site.css").write_text("")
    text = CONFIGURATION.read_text().partition("\nnav:\n")[0].replace("docs_dir: ../docs", f"docs_dir: {tmp_path}/docs")
    text = text.replace("hooks: [docs_hook.py]", "")
    configuration = tmp_path / "mkdocs.yml"
    configuration.write_text(text)
    done = build(configuration, tmp_path / "site")
    assert done.returncode != 0
    assert link.partition("#")[2] in done.stderr + done.stdout
