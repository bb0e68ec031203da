"""testbed/node_types.py, made from the JSON Schema that `backchannel-node registry` exports.

    python -m tests.node_types             # fails if the file differs
    python -m tests.node_types --update    # writes it

The scenario is made whole. Of the reports, those are that Rust alone writes; testbed/report.py has those that Python or
several programs write, and test_registry_contract.py compares them.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from keyword import iskeyword
from pathlib import Path
from typing import Any

from testbed import node_binary

FILE = Path(__file__).parent.parent / "testbed/node_types.py"
#: Reports of the registry and their objects.
REPORTS = {
    "emulation": ("Fault", "Headers", "Lateness", "Stalls"),
    "status": ("DirectionStatus",),
    "audit": ("DirectionAudit",),
    "program": ("ProgramReport",),
    "probe-send": ("ProbeSendReport",),
    "probe-receive": ("Arrival", "ProbeReceiveReport"),
}
#: Defaults that serde does not write, and that are not their type's empty value.
DEFAULTS = {"Capture.telemetry": "True", "Flow.ip": "4"}
#: Stores of older versions lack some of their fields.
LENIENT = {"DirectionAudit"}
EMPTY = {"boolean": "False", "number": "0.0", "integer": "0", "array": "()", "object": "NOTHING"}
PLAIN = {"boolean": "bool", "number": "float", "integer": "int", "string": "str"}

HEADER = '''"""What the node binary reads and reports, as declared in Rust.

Made by `python -m tests.node_types --update`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from testbed.documents import NOTHING, Model, Part, UInt16, UInt32, UInt64
'''

Json = dict[str, Any]


def _comment(text: str, indent: str, unit: str | None = None) -> Iterator[str]:
    full = " ".join(text.split()) + (f" Unit: {unit}." if unit is not None else "")
    yield from textwrap.wrap(full, 120, initial_indent=f"{indent}#: ", subsequent_indent=f"{indent}#: ")


def _type(part: Json, definitions: Json) -> str:
    if "$ref" in part:
        name: str = part["$ref"].rsplit("/", 1)[1]
        target = definitions[name]
        # An enum without values has a name of its own.
        return name if "properties" in target or _values(target) else _type(target, definitions)
    if "anyOf" in part:
        return " | ".join(_type(choice, definitions) for choice in part["anyOf"])
    if "oneOf" in part:
        # An enum with values: an object with one field, the name of the case.
        return "Mapping[str, Any]"
    names = part["type"] if isinstance(part["type"], list) else [part["type"]]
    return " | ".join("None" if name == "null" else _of_kind(name, part, definitions) for name in names)


def _values(part: Json) -> list[str]:
    values = part.get("enum") or [choice.get("const") for choice in part.get("oneOf", ())]
    return [f'"{value}"' if isinstance(value, str) else repr(value) for value in values if value is not None]


def _of_kind(name: str, part: Json, definitions: Json) -> str:
    if name == "array":
        return f"tuple[{_type(part['items'], definitions)}, ...]"
    if name == "object":
        values = part.get("additionalProperties", True)
        return f"Mapping[str, {_type(values, definitions) if isinstance(values, dict) else 'Any'}]"
    unsigned = {"uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64"}
    return unsigned.get(part.get("format", ""), PLAIN[name])


def _default(field: str, part: Json, type_: str) -> str:
    if field in DEFAULTS:
        return DEFAULTS[field]
    if type_.endswith("| None") or "null" in part.get("type", ()):
        return "None"
    if "$ref" in part and "default" in part:
        given = {name: value for name, value in part["default"].items() if value != []}
        return f"{type_}({', '.join(f'{name}={value!r}' for name, value in given.items())})"
    if "$ref" in part:
        return f"{type_}()"
    return EMPTY[part["type"]]


def _class(name: str, schema: Json, definitions: Json) -> Iterator[str]:
    # Rust's own readers decide which objects may have further fields.
    base = "Model" if schema.get("additionalProperties") is False else "Part"
    yield f"class {name}({base}):"
    doc = textwrap.wrap(" ".join(schema["description"].split()), 110)
    yield f'    """{doc[0]}' + ('"""' if len(doc) == 1 else "")
    if len(doc) > 1:
        yield from (f"    {line}" for line in [*doc[1:], '"""'])
    yield ""
    for field, part in sorted(schema["properties"].items()):
        type_ = _type(part, definitions)
        if base == "Part":
            type_ = type_.replace("UInt64", "int").replace("UInt32", "int").replace("UInt16", "int")
        is_required = field in schema.get("required", ()) and name not in LENIENT
        default = "" if is_required else f" = {_default(f'{name}.{field}', part, type_)}"
        yield from _comment(part["description"], "    ", part.get("unit"))
        yield f"    {field}{'_' if iskeyword(field) else ''}: {type_}{default}"


def _alias(name: str, schema: Json) -> Iterator[str]:
    yield from _comment(schema["description"], "")
    yield f"{name} = Literal[{', '.join(_values(schema))}]"


def source() -> str:
    """The text of the file, before the formatter."""
    registry = node_binary.call("registry")
    scenario = registry["schema"]
    definitions = {**scenario["$defs"], scenario["title"]: scenario}
    chosen = {name: (part, definitions) for name, part in definitions.items() if "properties" in part}
    enums = {name: part for name, part in definitions.items() if _values(part)}
    for report, names in REPORTS.items():
        schema = registry["report"][report]
        definitions = {**schema.get("$defs", {}), schema["title"]: schema}
        chosen |= {name: (definitions[name], definitions) for name in names}
        wanted = json.dumps([definitions[name] for name in names])
        enums |= {name: part for name, part in definitions.items() if _values(part) and f"/{name}" in wanted}
    aliases = "\n".join(line for name in sorted(enums) for line in _alias(name, enums[name]))
    texts = {name: "\n".join(_class(name, *chosen[name])) for name in sorted(chosen)}
    # A default is made when the class that has it is.
    first = {name for name in texts if any(f"= {name}(" in text for text in texts.values())}
    classes = [texts[name] for name in sorted(texts, key=lambda name: (name not in first, name))]
    return f"{HEADER}\n{aliases}\n" + "".join(f"\n\n{text}\n" for text in classes)


def main() -> int:
    """Compares, or updates."""
    made = source()
    if "--update" in sys.argv[1:]:
        FILE.write_text(made)
    return 0 if made == FILE.read_text() else 1


if __name__ == "__main__":
    raise SystemExit(main())
