"""Typed values travel between modules: `dict[str, Any]` or `Mapping[str, Any]` in a public signature is at an edge, or
a mistake.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("testbed", "agents", "analysis", "experiments", "web")
#: A method that writes a value as JSON, which leaves the program.
WRITER = "as_json"
#: Public names at an edge, by what is on its other side. The form is defined there, or not known before it is parsed.
EDGES = {
    "mappings whose keys others declare: the registry's options, and a whole JSON object": {
        "testbed.scenario.Document",
        "testbed.scenario.Options",
    },
    "a campaign file's YAML before validation": {
        "analysis.choices.Choice.alternatives",
        "analysis.choices.Choice.fields",
        "analysis.store.documents.SessionChange.fields",
        "experiments.choice_sensitivity.Variant.changed",
        "experiments.choice_sensitivity.Variant.values",
        "experiments.defaults.Occurrence",
        "experiments.defaults.default_values",
        "experiments.defaults.occurrences",
        "experiments.defaults.other_values",
        "experiments.language.fields.assign",
        "experiments.language.source.Source.values",
        "experiments.language.yaml_text.parse",
        "experiments.sessions.changes.typed",
        "web.launch.to_yaml",
    },
    "the same fields as a user's Mininet script has them": {
        "experiments.mininet_link.Line",
        "experiments.mininet_link.common_fields",
        "experiments.mininet_link.link_spec",
        "testbed.mininet_links.EmulatedLink",
    },
    "errors of pydantic": {"experiments.language.messages.Invalid.ctx"},
    "Ansible: variables and argument specs": {
        "experiments.foreign_labs.importing.write",
        "experiments.inventory.HostEntry.vars",
        "experiments.inventory.InventoryFile.vars",
        "experiments.inventory.host_variables",
        "experiments.inventory.role_options",
        "testbed.placement.host_vars",
    },
    "messages between two processes, a JSON object a line": {
        "experiments.sessions.control.Handle",
        "experiments.sessions.control.ask",
        "testbed.cellmain.CellServer.handle",
        "testbed.cellmain.send",
        "testbed.gateway_keeper.Keeper.handle",
        "testbed.json_lines.LineProcess",
        "testbed.json_lines.LineProcess.ask",
        "testbed.report.Progress.from_json",
    },
    "JSON of others, before it is read": {
        "analysis.exports.unpack.json_object",
        "experiments.foreign_labs.lent.Rows.mapping",
        "experiments.foreign_labs.lent.Rows.need",
        "experiments.foreign_labs.lent.Rows.text",
        "testbed.gateway_rules.Links",
        "testbed.gateway_rules.choose_networks",
        "testbed.gateway_rules.dropping_chains",
        "testbed.gateway_rules.objection",
        "testbed.gateway_rules.uplinks",
        "testbed.gateway_rules.without_ipv6",
        "web.tables.telemetry",
    },
    "JSON for others": {
        "analysis.exports.flent.FlentData.metadata",
        "analysis.exports.flent.compose",
        "analysis.scorecard.document",
        "experiments.labels.PointDocument.metrics",
    },
    "JSON Schema in the description of the site's API": {
        "web.api.ANSWERS",
        "web.api.BODIES",
        "web.api.PARAMETERS",
        "web.api.describe",
    },
    "Dask's configuration": {"experiments.engine.dask_security.http_settings"},
}


MAPPINGS = ("dict", "Mapping", "MutableMapping")
UNTYPED = {f"{mapping}[str, {value}]" for mapping in MAPPINGS for value in ("Any", "object")}


def untyped(annotation: ast.expr | None) -> bool:
    """Whether a type has a mapping of names to anything in it."""
    if annotation is None:
        return False
    return any(isinstance(part, ast.Subscript) and ast.unparse(part) in UNTYPED for part in ast.walk(annotation))


def signatures(body: Iterable[ast.stmt], prefix: str) -> Iterator[tuple[str, list[ast.expr | None]]]:
    """Public functions, fields, constants and aliases of a module or class, with their types."""
    for statement in body:
        match statement:
            case ast.ClassDef(name=name) if not name.startswith("_"):
                yield from signatures(statement.body, f"{prefix}.{name}")
            case ast.FunctionDef(name=name, args=args) | ast.AsyncFunctionDef(name=name, args=args):
                every = [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
                if name == "__init__":
                    yield prefix, [argument.annotation for argument in every]
                elif not name.startswith("_"):
                    yield f"{prefix}.{name}", [statement.returns, *(argument.annotation for argument in every)]
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                yield f"{prefix}.{name}", [statement.annotation]
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() as value) if not name.startswith("_"):
                yield f"{prefix}.{name}", [value]


def found(text: str, module: str) -> set[str]:
    """The public names of a module that carry untyped dictionaries."""
    public = signatures(ast.parse(text).body, module)
    return {name for name, types in public if any(map(untyped, types)) and not name.endswith(f".{WRITER}")}


def test_untyped_dictionaries_are_at_edges_only() -> None:
    names: set[str] = set()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            names |= found(path.read_text(), module)
    edges = set().union(*EDGES.values())
    assert names - edges == set(), "give them a dataclass, a TypedDict or a part of testbed.scenario"
    assert edges - names == set(), "no longer there: take them out of EDGES"


def test_a_dictionary_is_found_in_every_kind_of_signature() -> None:
    text = """
Alias = Callable[[dict[str, Any]], None]
CONSTANT: dict[str, dict[str, object]] = {}
_private: dict[str, Any] = {}
def taken(value: list[dict[str, Any]]) -> None: ...
def mapped(value: Mapping[str, Mapping[str, Any]]) -> None: ...
def returned() -> dict[str, Any] | None: ...
def typed(value: dict[str, int]) -> None: ...
class Public:
    field: dict[str, Any]
    def __init__(self, value: dict[str, Any]) -> None: ...
    def method(self, *, value: dict[str, object]) -> None: ...
    def as_json(self) -> dict[str, Any]: ...
    def _hidden(self) -> dict[str, Any]: ...
class _Private:
    field: dict[str, Any]
"""
    names = {"Alias", "CONSTANT", "taken", "mapped", "returned", "Public", "Public.field", "Public.method"}
    assert found(text, "m") == {f"m.{name}" for name in names}
