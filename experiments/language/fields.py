"""Fields of a campaign by their path: finding, setting, and error messages of the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.language import registry, source
from experiments.language.schema import Campaign
from experiments.language.source import Path_
from experiments.language.sweep import SWEEP


def dotted(path: Sequence[str | int]) -> str:
    """ "network.reverse.rate"."""
    return ".".join(str(part) for part in path)


def resolve(values: Any, path: Path_) -> Path_:
    """A path with the entries of lists by number: `workload.reverse.size` finds the flow of that name.

    Raises:
        ValueError: there is no such entry.
    """
    resolved: list[str | int] = []
    here = values
    for part in path:
        if isinstance(here, list):
            names = [entry.get("name") if isinstance(entry, dict) else None for entry in here]
            if isinstance(part, str) and part in names:
                part = names.index(part)
            elif not isinstance(part, int) or part >= len(here):
                known = [str(name) for name in names if name is not None]
                raise ValueError(registry.unknown("entry", str(part), [*known, *map(str, range(len(here)))]))
            here = here[part]
        else:
            here = here.get(str(part)) if isinstance(here, dict) else None
        resolved.append(part)
    return tuple(resolved)


def look_up(values: Any, path: Path_) -> Any:
    """The value at a resolved path; None where there is none."""
    for part in path:
        if isinstance(values, dict):
            values = values.get(str(part))
        elif isinstance(values, list) and isinstance(part, int) and part < len(values):
            values = values[part]
        else:
            return None
    return values


def assign(values: dict[str, Any], path: Path_, value: Any) -> None:
    """Sets a value deep in a mapping; `path` is resolved. A mechanism that is given by its name alone becomes a mapping
    when an option of it is set, and keeps its options when it gets another name.

    Raises:
        ValueError: the path leads through something that has no fields.
    """
    here: Any = values
    for depth, part in enumerate(path[:-1]):
        if isinstance(here, list):
            here = here[int(part)]
            continue
        following = here.get(str(part))
        if following is None:
            following = {"policy": "droptail"} if part == "queue" else {}
        elif isinstance(following, str) and part in source.MECHANISMS:
            following = {source.MECHANISMS[str(part)]: following}
        if not isinstance(following, dict | list):
            raise ValueError(f"{dotted(path[: depth + 1])} is '{following}', which has no fields")
        here[str(part)] = following
        here = following
    last = path[-1]
    if isinstance(here, list):
        here[int(last)] = value
        return
    old = here.get(str(last))
    if isinstance(value, str) and isinstance(old, dict) and last in source.MECHANISMS:
        value = {**old, source.MECHANISMS[str(last)]: value}
    here[str(last)] = value


def error_message(error: Mapping[str, Any], path: Sequence[str | int]) -> str:
    """A message for one of pydantic's errors."""
    match error["type"]:
        case "extra_forbidden":
            return registry.unknown("field", str(path[-1]), _siblings(path))
        case "missing":
            return "this field is missing"
        case "value_error":
            return str(error["ctx"]["error"])
        case "string_pattern_mismatch":
            return f"'{error['input']}' is not a name: lower-case letters, digits and hyphens, beginning with a letter"
        case "literal_error":
            return f"'{error['input']}' is not one of {error['ctx']['expected']}"
        case "model_type" | "dict_type" | "model_attributes_type":
            return f"a mapping is wanted here, not '{error['input']}'"
    return f"{error['msg'][0].lower()}{error['msg'][1:]} (it is '{error['input']}')"


def _siblings(path: Sequence[str | int]) -> list[str]:
    """Fields that are allowed where an unknown one stands."""
    model: Any = Campaign
    for part in path[:-1]:
        if isinstance(part, int):
            continue
        field = next((one for name, one in model.model_fields.items() if part in (name, one.alias)), None)
        inner = _model_of(field.annotation) if field is not None else None
        if inner is None:
            return []
        model = inner
    names = [one.alias or name for name, one in model.model_fields.items()]
    return [*names, SWEEP, source.INCLUDE, source.DEFAULTS, source.BACKENDS] if model is Campaign else names


def _model_of(annotation: Any) -> Any:
    if hasattr(annotation, "model_fields"):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _model_of(inner)
        if found is not None:
            return found
    return None
