"""Text that is made from declarations: tables of the docs and default values of Ansible's roles.

    python -m tests.tables             # fails if one differs from its declaration
    python -m tests.tables --update    # writes them

A table stands between the lines `<!-- table: NAME -->` and `<!-- end -->`; it shows a registry of metrics, figures or
exports, the choices of a chosen.yaml, or commands (tests/reference.py). The `defaults/main.yml` of an Ansible role has
the defaults of its `meta/argument_specs.yml`, which Ansible uses for documentation only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from analysis import kinds
from analysis.metrics import METRICS
from analysis.registry import plugin_of
from experiments.catalogue import FOLDER
from experiments.papers.choices import FILE, choices
from experiments.papers.page import PAPERS
from testbed.node_binary import ROOT
from tests import reference
from tests.kept import origins

ROLES = ROOT / "ansible" / "roles"
#: An option of a role in its specification, and the option's default. Fields of entries of a list are indented further.
OPTION = re.compile(r"^ {6}(\w+):\n((?: {8}.*\n)+)", re.MULTILINE)
DEFAULT = re.compile(r"^ {8}default: (.*\n(?: {10}.*\n)*)", re.MULTILINE)
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
            of = f"{metric.unit} | `{metric.per}` | {better}"
            yield f"| `{metric.name}` | {metric.title} | {of} | {metric.source} |\n"


def choices_of(paper: str) -> Iterator[str]:
    """The table of parameters of a paper's campaigns that the paper does not state."""
    yield "| artefacts | field | value | default | chosen by | when | reason |\n|---|---|---|---|---|---|---|\n"
    for choice in choices(FOLDER / paper / FILE):
        names = ", ".join(name.removeprefix(f"{paper}-") for name in choice.artefacts)
        fields = "<br>".join(f"`{field}`" for field in choice.fields)
        values = "<br>".join(_as_written(value) for value in choice.fields.values())
        default = {"language": "default", "none": "-"}.get(choice.default, choice.default)
        yield f"| {names} | {fields} | {values} | {default} | {choice.by} | {choice.when} | {choice.reason} |\n"


def kept_defaults() -> Iterator[str]:
    """The table of the defaults that the papers' campaigns keep."""
    yield "| of | default | papers | from | reason |\n|---|---|---|---|---|\n"
    for origin in origins():
        of = f"{origin.of} {', '.join(origin.mechanisms)}".strip()
        options = "<br>".join(f"`{option}` {_default(value)}" for option, value in origin.defaults.items())
        source = f"{origin.by}, fitted" if origin.fitted else origin.by
        yield f"| {of} | {options} | {', '.join(origin.papers) or 'all'} | {source} | {origin.reason} |\n"


def _default(value: object) -> str:
    if isinstance(value, list):
        return " or ".join(map(_default, value))
    return "absent" if value is None else _as_written(value)


def _as_written(value: object) -> str:
    if isinstance(value, list):
        return " to ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "figures of a run": lambda: figures("run"),
    "figures of a campaign": lambda: figures("campaign"),
    "exports": exports,
    "metrics": metrics,
    "kept defaults": kept_defaults,
    "json commands": reference.json_commands,
    "json exceptions": reference.json_exceptions,
    "json documents": reference.json_documents,
    "options": reference.options,
    "python handle": reference.python_handle,
    **{f"choices of {paper}": partial(choices_of, paper) for paper in PAPERS},
}


def renewed(text: str) -> str:
    """A page with its tables as the registries have them."""
    return TABLE.sub(lambda table: table[1] + "".join(TABLES[table[2]]()) + table[3], text)


def role_defaults(role: str) -> str:
    """`defaults/main.yml` of a role."""
    options = OPTION.findall((ROLES / role / "meta/argument_specs.yml").read_text(encoding="utf-8"))
    values = [(name, value[1]) for name, body in options if (value := DEFAULT.search(body))]
    lines = [f"{name}: {re.sub('^ {8}', '', value, flags=re.MULTILINE)}" for name, value in values]
    return "---\n# Written by python -m tests.tables --update from meta/argument_specs.yml.\n" + "".join(lines)


def declared() -> Iterator[tuple[Path, str]]:
    """Every file with made text, and what its text should be."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        yield page, renewed(page.read_text(encoding="utf-8"))
    for role in sorted(ROLES.iterdir()):
        yield role / "defaults/main.yml", role_defaults(role.name)


def main() -> int:
    """Compares or updates the files."""
    differ = []
    for path, text in declared():
        if path.read_text(encoding="utf-8") != text:
            differ.append(str(path.relative_to(ROOT)))
            if "--update" in sys.argv:
                path.write_text(text, encoding="utf-8")
    print("\n".join(differ))
    return int(bool(differ) and "--update" not in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
