"""A campaign's sweep: from axes, zipped axes, exclusions and extra points to the list of points.

sweep:
  stack: [reno, cubic]                     # an axis: every combination with the other axes
  zip:                                     # axes that advance together
    - {network.forward.rate: [1 Mbit/s, 10 Mbit/s], network.reverse.rate: [9.6 kbit/s, 28.8 kbit/s]}
  axes:                                    # an axis with a name and a label for each step
    protocol: {Reno: {stack: reno-ns}, AF/SA: {stack: sa, network.reverse.queue.policy: ack-filtering}}
  exclude: [{stack: cubic, network.reverse.rate: 9.6 kbit/s}]
  include: [...]                           # points beside those; without any axis, the whole list
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.language import registry
from experiments.language.source import Path_

#: The key of the campaign file.
SWEEP = "sweep"
#: Points times repetitions of one campaign; more is a slip of the keyboard.
MOST_RUNS = 100_000
_AXES, _ZIP, _EXCLUDE, _INCLUDE = "axes", "zip", "exclude", "include"

Note = Callable[[Path_, str], None]


@dataclass(frozen=True)
class Value:
    """One swept field at one point, and where the file says so."""

    field: str
    value: Any
    place: Path_
    #: Name and label where the step of a labelled axis brings it.
    axis: str = ""
    label: str = ""


#: The swept fields of one point, in the order of the sweep.
Combination = tuple[Value, ...]


def split_field(field: str) -> Path_:
    """ "network.reverse.rate" or "workload.0.start" as a path."""
    return tuple(int(part) if part.isdecimal() and part.isascii() else part for part in field.split("."))


def same_field(path: Path_) -> Path_:
    """Equal for two ways to write one field: a mechanism's name is its key, or the whole of it."""
    return (
        path[:-1]
        if path[-2:] in (("queue", "policy"), ("stack", "name"), ("link", "kind"), ("middlebox", "middlebox"))
        else path
    )


def combinations(sweep: Any, overrides: Mapping[Path_, Any], note: Note) -> list[Combination]:
    """Every point of a sweep; one without fields when there is nothing to sweep.

    Args:
        sweep: what the file has under `sweep`.
        overrides: fields fixed on the command line, as `same_field` writes them, with their values; they are no longer
            swept.
        note: is told every mistake, with its place in the file.
    """
    if sweep is None:
        return [()]
    if not isinstance(sweep, dict):
        note((SWEEP,), "a sweep maps fields to lists of values, such as stack: [reno, cubic]")
        return []
    reader = _Reader(overrides, note)
    groups = reader.groups(sweep)
    extra = reader.mappings(sweep, _INCLUDE, "a list of points, such as [{stack: cubic}]")
    if reader.bad:
        return []
    size = math.prod(len(steps) for steps in groups)
    if size > MOST_RUNS:
        note((SWEEP,), f"this makes {size} points; a campaign has at most {MOST_RUNS} runs")
        return []
    found = [tuple(itertools.chain(*steps)) for steps in itertools.product(*groups)] if groups else []
    rules = reader.mappings(sweep, _EXCLUDE, "a list of mappings from swept fields to values")
    fields = [value.field for steps in groups for value in steps[0]]
    if extra and any(value.axis for steps in groups for value in steps[0]):
        note((SWEEP, _INCLUDE), "points cannot be added to labelled axes; give the axis another label")
        return []
    exclusions = reader.rules(rules, found)
    found = [one for one in found if not any(reader.matches(one, rule) for rule in exclusions)]
    found += reader.extra(extra, fields, found)
    if not found and not reader.bad:
        if groups:
            note((SWEEP, _EXCLUDE), "nothing is left: every point is excluded")
        else:
            return [()]
    return found


class _Reader:
    def __init__(self, overrides: Mapping[Path_, Any], note: Note) -> None:
        self._overrides = overrides
        self._note = note
        self.bad = False

    def _wrong(self, place: Path_, message: str) -> None:
        self.bad = True
        self._note(place, message)

    def _override(self, field: str) -> tuple[bool, Any]:
        path = same_field(split_field(field))
        return path in self._overrides, self._overrides.get(path)

    def groups(self, sweep: Mapping[str, Any]) -> list[list[Combination]]:
        """Axes, each as its steps; a step of zipped axes holds several values."""
        seen: set[Path_] = set()
        groups: list[list[Combination]] = []
        for key, values in sweep.items():
            if key in (_EXCLUDE, _INCLUDE):
                continue
            if key == _AXES:
                groups += self._labelled(values, seen)
                continue
            if key != _ZIP:
                axis = self._axis(key, values, (SWEEP, key), seen, distinct=True)
                if axis:
                    groups.append([(value,) for value in axis])
                continue
            blocks: list[tuple[Path_, Any]] = [((SWEEP, _ZIP), values)]
            if isinstance(values, list):
                blocks = [((SWEEP, _ZIP, number), block) for number, block in enumerate(values)]
            for place, block in blocks:
                zipped = self._zip(block, place, seen)
                if zipped:
                    groups.append(zipped)
        return groups

    def _labelled(self, axes: Any, seen: set[Path_]) -> list[list[Combination]]:
        """Axes with a name, whose steps have labels and fields of their own."""
        if not isinstance(axes, dict) or not axes:
            self._wrong((SWEEP, _AXES), "labelled axes are a mapping: {protocol: {Reno: {stack: reno-ns}, ...}, ...}")
            return []
        groups: list[list[Combination]] = []
        for name, steps in axes.items():
            place: Path_ = (SWEEP, _AXES, name)
            if not isinstance(steps, dict) or not steps:
                self._wrong(place, "a labelled axis maps labels to fields, such as {Reno: {stack: reno-ns}}")
                continue
            fields: set[Path_] = set()
            group: list[Combination] = []
            for label, values in steps.items():
                names = name.split(", ")
                if len(names) > 1 and label.count(", ") != len(names) - 1:
                    self._wrong((*place, label), f"a label here names {len(names)} things, as the axis does: '{name}'")
                    continue
                if not isinstance(values, dict) or not values:
                    self._wrong((*place, label), "a label maps fields to values, such as {stack: reno-ns}")
                    continue
                fields |= {same_field(split_field(field)) for field in values}
                step = tuple(
                    Value(field, value, (*place, label, field), str(name), str(label))
                    for field, value in values.items()
                    if not self._override(field)[0]
                )
                if step:
                    group.append(step)
            for path in fields & seen:
                self._wrong(place, f"'{'.'.join(map(str, path))}' is swept twice")
            seen |= fields
            if group:
                groups.append(group)
        return groups

    def _zip(self, block: Any, place: Path_, seen: set[Path_]) -> list[Combination]:
        if not isinstance(block, dict) or not block:
            self._wrong(place, "zipped axes are a mapping from fields to lists of equal length")
            return []
        axes = {field: self._axis(field, values, (*place, field), seen) for field, values in block.items()}
        axes = {field: axis for field, axis in axes.items() if axis}
        lengths = {field: len(axis) for field, axis in axes.items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{field} has {length}" for field, length in lengths.items())
            self._wrong(place, f"zipped axes must be of equal length: {told}")
            return []
        return list(zip(*axes.values(), strict=True)) if axes else []

    def _axis(self, field: str, values: Any, place: Path_, seen: set[Path_], distinct: bool = False) -> list[Value]:
        if self._override(field)[0]:
            return []
        path = same_field(split_field(field))
        if path in seen:
            self._wrong(place, f"'{field}' is swept twice")
        elif not isinstance(values, list) or not values:
            self._wrong(place, "an axis is a list of at least one value")
        elif distinct and len({_key(value) for value in values}) < len(values):
            self._wrong(place, "an axis has the same value twice")
        else:
            seen.add(path)
            return [Value(field, value, (*place, number)) for number, value in enumerate(values)]
        return []

    def mappings(self, sweep: Mapping[str, Any], key: str, wanted: str) -> list[tuple[Path_, dict[str, Any]]]:
        """The entries of `exclude` or `include` with their places."""
        given = sweep.get(key)
        if given is None:
            return []
        if not isinstance(given, list):
            self._wrong((SWEEP, key), f"this is {wanted}")
            return []
        found: list[tuple[Path_, dict[str, Any]]] = []
        for number, entry in enumerate(given):
            if isinstance(entry, dict) and entry:
                found.append(((SWEEP, key, number), entry))
            else:
                self._wrong((SWEEP, key, number), f"'{key}' is {wanted}")
        return found

    def rules(
        self, entries: Sequence[tuple[Path_, dict[str, Any]]], found: Sequence[Combination]
    ) -> list[dict[str, list[str]]]:
        """Exclusions that can apply: field to the keys of the values it names."""
        values: dict[str, dict[str, Any]] = {}
        labelled = {value.axis for value in itertools.chain(*found) if value.axis}
        for value in itertools.chain(*found):
            name, of = _name(value), value.label or value.value
            values.setdefault(name, {})[_key(of)] = of
        rules = []
        for place, entry in entries:
            rule: dict[str, list[str]] | None = {}
            for field, wanted in entry.items():
                wanted = wanted if isinstance(wanted, list) else [wanted]
                keys = [_key(str(one) if field in labelled else one) for one in wanted]
                overridden, fixed = self._override(field)
                if overridden:
                    rule = rule if _key(fixed) in keys else None
                elif field not in values:
                    self._wrong((*place, field), registry.unknown("swept field", field, values))
                else:
                    for key in set(keys) - set(values[field]):
                        shown = [str(one) for one in values[field].values()]
                        self._wrong((*place, field), registry.unknown("value", str(json.loads(key)), shown))
                    if rule is not None:
                        rule[field] = keys
                if rule is None:
                    break
            if rule is not None:
                rules.append(rule)
        return rules

    @staticmethod
    def matches(combination: Combination, rule: Mapping[str, Sequence[str]]) -> bool:
        """Whether every field of a rule has one of its values here."""
        here = {_name(value): _key(value.label or value.value) for value in combination}
        return all(here[field] in keys for field, keys in rule.items() if field in here)

    def extra(
        self, entries: Sequence[tuple[Path_, dict[str, Any]]], fields: list[str], found: Sequence[Combination]
    ) -> list[Combination]:
        """The points of `include`; each has a value for every swept field."""
        points: list[Combination] = []
        have = {_point_key(one) for one in found}
        for place, entry in entries:
            given = {field: value for field, value in entry.items() if not self._override(field)[0]}
            fields = fields or list(given)
            for field in given.keys() - set(fields):
                self._wrong((*place, field), registry.unknown("swept field", field, fields))
            missing = [field for field in fields if field not in given]
            if missing:
                self._wrong(place, f"a point has a value for every swept field; this one lacks {', '.join(missing)}")
            if missing or given.keys() - set(fields):
                continue
            point = tuple(Value(field, given[field], (*place, field)) for field in fields)
            if _point_key(point) not in have:
                have.add(_point_key(point))
                points.append(point)
            elif not self._overrides:
                self._wrong(place, "the sweep has this point already")
        return points


def _name(value: Value) -> str:
    return value.axis or value.field


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _point_key(combination: Combination) -> str:
    return _key([[value.field, value.value] for value in combination])
