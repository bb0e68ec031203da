"""Messages for values of a file that its pydantic model rejects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from experiments.language import registry
from experiments.language.mechanisms import MechanismError
from experiments.language.yaml_text import FieldPath

#: Example lines for required fields.
_EXAMPLES = {
    "name": "name: download",
    "network": "network: {topology: line, forward: {rate: 1 Mbit/s, delay: 10 ms}}",
    "workload": "workload: [{name: download, from: left, to: right}]",
    "duration": "duration: 30 s",
    "from": "from: server",
    "to": "to: client",
    "ends": "ends: [server, router]",
    "forward": "forward: {rate: 1 Mbit/s, delay: 10 ms}",
    "at": "at: 5 s",
    "every": "every: 1 s",
}
#: What a name may contain, by the pattern of the field.
_NAMES = {
    r"^[a-z][a-z0-9-]*$": "lower-case letters, digits and hyphens, starting with a letter",
    r"^[a-z0-9][a-z0-9-]*$": "lower-case letters, digits and hyphens, starting with a letter or digit",
    r"^[a-z][a-z0-9]*$": "lower-case letters and digits, starting with a letter",
    r"^[A-Za-z0-9_.:@-]+$": "letters, digits and _ . : @ -",
}


def rejected(
    error: ValidationError, model: type[BaseModel], extra: Sequence[str] = (), *, missing: bool = True
) -> Iterator[tuple[FieldPath, str]]:
    """The path of each value that the model of a file rejects, with what is wrong and what is allowed.

    Args:
        error: of the model.
        model: of the file.
        extra: fields that the top of the file has beside those of the model.
        missing: whether fields that the file does not have are told.
    """
    for details in error.errors(include_url=False):
        path = tuple(part for part in details["loc"] if part != "[key]")
        inner = details.get("ctx", {}).get("error")
        if isinstance(inner, MechanismError):
            yield from (((*path, *below), text) for below, text in inner.problems)
        elif missing or details["type"] != "missing":
            yield path, _message(details, model, path, extra)


def _message(error: Any, model: type[BaseModel], path: FieldPath, extra: Sequence[str]) -> str:
    """The message for one of pydantic's errors."""
    value, context, example = error.get("input"), error.get("ctx", {}), _EXAMPLES.get(str(path[-1]))
    match error["type"]:
        case "extra_forbidden":
            return registry.unknown("field", str(path[-1]), _siblings(model, path, extra))
        case "missing":
            return f"this field is missing; add it{f', such as {example!r}' if example else ''}"
        case "value_error":
            return str(context["error"])
        case "string_pattern_mismatch":
            allowed = _NAMES.get(context["pattern"], f"text that matches {context['pattern']}")
            return f"'{value}' is not a valid name; use {allowed}"
        case "string_too_long":
            return f"'{value}' is too long: at most {context['max_length']} characters are allowed"
        case "literal_error":
            return f"'{value}' is not one of {context['expected']}"
        case "string_type":
            return f"expected text, found {_shown(value)}; quote it to use it as text"
        case "bool_type" | "bool_parsing":
            return f"'{value}' is not true or false"
        case "int_type" | "int_parsing" | "int_from_float":
            return f"'{value}' is not a whole number"
        case "greater_than_equal":
            return f"'{value}' is out of range: it must be at least {context['ge']}"
        case "less_than_equal":
            return f"'{value}' is out of range: it must be at most {context['le']}"
        case "too_short":
            entries = f"{context['min_length']} {'entry' if context['min_length'] == 1 else 'entries'}"
            return f"at least {entries} required, found {context['actual_length']}"
        case "model_type" | "dict_type" | "model_attributes_type":
            return f"expected a mapping such as '{example or '{field: value}'}', found {_shown(value)}"
        case "list_type":
            return f"expected a list such as '{example or '[a, b]'}', found {_shown(value)}"
    return f"{error['msg'][0].lower()}{error['msg'][1:]} (it is '{value}')"


def _shown(value: object) -> str:
    """A value that is of the wrong type."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"a mapping with {', '.join(map(str, value)) or 'no fields'}"
    return "nothing" if value is None else f"'{value}'"


def _siblings(model: type[BaseModel], path: Sequence[str | int], extra: Sequence[str]) -> list[str]:
    """Fields that are allowed beside an unknown field."""
    here: Any = model
    is_key = False
    for part in path[:-1]:
        if isinstance(part, int) or is_key:
            is_key = False
            continue
        field = next((info for name, info in here.model_fields.items() if part in (name, info.alias)), None)
        here = _model_in(field.annotation) if field is not None else None
        if field is None or here is None:
            return []
        # Keys of a mapping are not fields.
        is_key = "dict[" in str(field.annotation)
    names = [info.alias or name for name, info in here.model_fields.items()]
    return [*names, *extra] if here is model else names


def _model_in(annotation: Any) -> Any:
    """The first model in a type; None without one."""
    if hasattr(annotation, "model_fields"):
        return annotation
    return next((model for inner in getattr(annotation, "__args__", ()) if (model := _model_in(inner))), None)
