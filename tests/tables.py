"""Tables of the docs that are made from the registries of metrics, figures and exports.

    python -m tests.tables             # fails if a table differs from its registry
    python -m tests.tables --update    # writes the tables

A table stands between the lines `<!-- table: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from analysis import kinds
from analysis.metrics import METRICS
from analysis.registry import plugin_of
from testbed.node_binary import ROOT

TABLE = re.compile(r"(<!-- table: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def figures(of: str) -> Iterator[str]:
    """A table of figures of runs or campaigns."""
    yield f"| of a {of} | shows |\n|---|---|\n"
    for entry in kinds.listed("figures"):
        if entry.of == of and not entry.source:
            yield f"| `{entry.name}` | {entry.summary} |\n"


def exports() -> Iterator[str]:
    """The table of exports."""
    yield "| kind | subject | content |\n|---|---|---|\n"
    for entry in kinds.listed("exports"):
        if not entry.source:
            yield f"| `{entry.name}` | {entry.of} | {entry.summary} |\n"


def metrics() -> Iterator[str]:
    """The table of metrics."""
    yield "| metric | title | unit | of | better | source |\n|---|---|---|---|---|---|\n"
    for metric in METRICS.values():
        if plugin_of(metric.module) is None:
            better = metric.better or "neither"
            yield f"| `{metric.name}` | {metric.title} | {metric.unit} | {metric.per} | {better} | {metric.source} |\n"


TABLES = {
    "figures of a run": lambda: figures("run"),
    "figures of a campaign": lambda: figures("campaign"),
    "exports": exports,
    "metrics": metrics,
}


def renewed(text: str) -> str:
    """A page with its tables as the registries have them."""
    return TABLE.sub(lambda table: table[1] + "".join(TABLES[table[2]]()) + table[3], text)


def main() -> int:
    """Compares or updates the pages."""
    differ = []
    for page in sorted((ROOT / "docs").glob("*.md")):
        before = page.read_text(encoding="utf-8")
        after = renewed(before)
        if before != after:
            differ.append(page.name)
            if "--update" in sys.argv:
                page.write_text(after, encoding="utf-8")
    print("\n".join(differ))
    return int(bool(differ) and "--update" not in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
