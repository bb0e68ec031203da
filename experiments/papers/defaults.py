"""Campaigns with other values of the parameters that were chosen for them (experiments/PAPER/chosen.yaml)."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.language.sweep import SWEEP
from experiments.papers.choices import Choice

#: A mapping of the file and a key in it.
Occurrence = tuple[dict[str, Any], str]


def occurrences(values: Mapping[str, Any], field: str, value: Any) -> list[Occurrence]:
    """Places of a campaign file where a field has a value: in the base and in the labels of the sweep's axes.

    Args:
        values: of the file.
        field: path; "*" stands for every entry of a list.
        value: as the file writes it.
    """
    steps = field.split(".")
    holders = list(_walk({key: part for key, part in values.items() if key not in (SWEEP, "backends")}, steps))
    for labels in ((values.get(SWEEP) or {}).get("axes") or {}).values():
        for changes in labels.values():
            holders += _walk(changes, steps)
    return [(holder, key) for holder, key in holders if holder[key] == value]


def _walk(holder: Any, steps: Sequence[str]) -> Iterator[Occurrence]:
    if isinstance(holder, list):
        for entry in holder:
            if steps[0] in ("*", entry.get("name")):
                yield from _walk(entry, steps[1:])
    elif isinstance(holder, dict):
        for key in holder:
            # The keys of an axis' label are paths.
            parts = str(key).split(".")
            if parts == list(steps):
                yield holder, key
            elif parts == list(steps[: len(parts)]):
                yield from _walk(holder[key], steps[len(parts) :])


def other_values(values: Mapping[str, Any], choice: Choice, other: Mapping[str, Any]) -> dict[str, Any]:
    """A campaign file's values with other values of some fields of a choice."""
    changed = copy.deepcopy(dict(values))
    for field, value in other.items():
        for holder, key in occurrences(changed, field, choice.fields[field]):
            holder[key] = copy.deepcopy(value)
    return changed


def default_values(values: Mapping[str, Any], artefact: str, choices: Sequence[Choice]) -> dict[str, Any]:
    """A campaign file's values where every chosen parameter with a default has that default."""
    changed = copy.deepcopy(dict(values))
    for choice in choices:
        if artefact not in choice.artefacts or not choice.has_default:
            continue
        for field, value in choice.fields.items():
            for holder, key in occurrences(changed, field, value):
                if choice.default == "language":
                    del holder[key]
                else:
                    holder[key] = choice.default
    return changed
