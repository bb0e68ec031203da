"""`./backchannel check`: a crate of the user's held to the laws that Backchannel's own mechanisms keep, as a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from markdown_it import MarkdownIt

from experiments.language import registry
from testbed import node_binary
from testbed.errors import BadRequest
from testbed.own_crates import Crate

#: Kinds that have laws.
KINDS = ("policy", "controller", "link", "middlebox", "workload")
#: What each law says, by the name that the node has for it.
MEANINGS = {
    "conservation": "what enters leaves once, waits, or is reported once",
    "order": "packets leave in the order that the mechanism claims to keep, and the data of a connection always",
    "no time travel": "nothing happens before its time, and announced times are kept",
    "idempotent polling": "a second call at the same time changes nothing",
    "bounded memory": "what waits is bounded by the limit, and counted as it is",
    "determinism": "the same seed and arrivals give the same result",
    "both versions of IP alike": "packets of IPv6 are treated as those of IPv4",
    "throughput of the standard set": "a clean link is used by half at least",
}
#: In place of a table without rows.
UNSHOWN = "Not shown, because of the law of time that it breaks: the set might never end."
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 78em; margin: 2em auto; padding: 0 1em; color: #222 }
h2, h3 { font-size: 1.1em; margin: 1.6em 0 0 }
div { overflow-x: auto } table { border-collapse: collapse; margin: .5em 0 }
td, th { padding: .15em .8em .15em 0; text-align: left; border-bottom: 1px solid #ddd; vertical-align: top }
td { font-variant-numeric: tabular-nums } strong { color: #b00020 }
"""
#: Limit of one mechanism's laws, in s.
LAWS_S = 600.0


@dataclass(frozen=True)
class Verdict:
    """A mechanism and the laws."""

    kind: str
    name: str
    laws: Sequence[Mapping[str, Any]]
    table: Mapping[str, Any]

    @property
    def broken(self) -> list[str]:
        """Names of the laws that it breaks."""
        return [law["law"] for law in self.laws if law["broken"] is not None]


def verdicts(crate: Crate, options: Mapping[str, Any]) -> list[Verdict]:
    """The mechanisms of a crate that the current node has, held to the laws of their kinds.

    Args:
        crate: whose mechanisms.
        options: by their full names, in SI units, for mechanisms that have them.

    Raises:
        BadRequest: it has no mechanism with laws, or an option is none of theirs.
        TestbedError: the node failed.
    """
    mechanisms = [(kind, name) for kind, name in registry.additions(crate.name) if kind in KINDS]
    if not mechanisms:
        raise BadRequest(f"{crate.name} registers nothing that has laws: a {', a '.join(KINDS)}")
    known = {(kind, name): _options_of(kind, name) for kind, name in mechanisms}
    names = set().union(*known.values())
    if unknown := options.keys() - names:
        raise BadRequest(registry.unknown("option", min(unknown), sorted(names)))
    found = []
    for kind, name in mechanisms:
        own = json.dumps({option: value for option, value in options.items() if option in known[kind, name]})
        words = ("laws", "--kind", kind, "--name", name, "--options", own)
        found.append(Verdict(kind, name, **node_binary.call(*words, timeout_s=LAWS_S)))
    return found


def _options_of(kind: str, name: str) -> set[str]:
    entry = registry.controller(name) if kind == "controller" else registry.find(kind, name)
    return set() if entry is None else {param.name for param in entry.params}


def page(crate: Crate, found: Sequence[Verdict]) -> str:
    """The page, in Markdown."""
    lines = [f"# {crate.name} {crate.version}", "", f"Digest of the sources: `{crate.sha256[:12]}`.", ""]
    for verdict in found:
        lines += [f"## {verdict.kind} {verdict.name}", ""]
        lines += _table(
            ("law", "it says", "tried", "result"),
            [
                (
                    law["law"],
                    MEANINGS[law["law"]],
                    f"{law['cases']} cases",
                    "holds" if law["broken"] is None else f"**broken**: {law['broken']}",
                )
                for law in verdict.laws
            ],
        )
        lines += ["", f"### {verdict.table['title']}", ""]
        shown = _table(verdict.table["columns"], verdict.table["rows"])
        lines += [*(shown if verdict.table["rows"] else [UNSHOWN]), ""]
    return "\n".join(lines)


def as_html(title: str, markdown: str) -> str:
    """A page in Markdown as one HTML file, for a browser. HTML in the text is shown, not used."""
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown)
    # A wide table scrolls by itself, also by the keyboard.
    body = body.replace("<table>", '<div tabindex="0"><table>').replace("</table>", "</table></div>")
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>\n{body}</html>\n"
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"

    return [line(columns), "|" + "---|" * len(columns), *map(line, rows)]
