"""Fields of a campaign by their paths."""

from __future__ import annotations

import copy
from typing import Any

from experiments.language import located, registry
from experiments.language.problems import dotted
from experiments.language.yaml_text import FieldPath


def resolve(values: Any, path: FieldPath) -> FieldPath:
    """A path in which names of list entries are replaced by indices: `workload.reverse.size` finds the flow "reverse".

    Raises:
        ValueError: a list has no such entry.
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


def look_up(values: Any, path: FieldPath) -> Any:
    """The value at a resolved path; None if it does not exist."""
    for part in path:
        if isinstance(values, dict):
            values = values.get(str(part))
        elif isinstance(values, list) and isinstance(part, int) and part < len(values):
            values = values[part]
        else:
            return None
    return values


def assign(values: dict[str, Any], path: FieldPath, value: Any) -> None:
    """Sets the value at a resolved path. A mechanism that is only a name becomes a mapping when one of its options is
    set. A mechanism keeps its options when its name is set.

    Mappings and lists on the path are replaced by copies, so other mappings may share everything below `values`.

    Raises:
        ValueError: a value on the path has no fields.
    """
    here: Any = values
    for depth, part in enumerate(path[:-1]):
        if isinstance(here, list):
            here[int(part)] = here = copy.copy(here[int(part)])
            continue
        following = here.get(str(part))
        if following is None:
            following = {"policy": "droptail"} if part == "queue" else {}
        elif isinstance(following, str) and part in located.MECHANISMS:
            following = {located.MECHANISMS[str(part)]: following}
        if not isinstance(following, dict | list):
            raise ValueError(f"{dotted(path[: depth + 1])} is '{following}', which has no fields")
        here[str(part)] = here = copy.copy(following)
    last = path[-1]
    if isinstance(here, list):
        here[int(last)] = value
        return
    old = here.get(str(last))
    if isinstance(value, str) and isinstance(old, dict) and last in located.MECHANISMS:
        value = {**old, located.MECHANISMS[str(last)]: value}
    here[str(last)] = value
