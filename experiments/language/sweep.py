"""A campaign's sweep: from axes, zipped axes, exclusions and extra points to the list of points.

sweep:
  stack: [reno, cubic]                     # an axis: every combination with the other axes
  zip:                                     # axes that advance together
    - {network.forward.rate: [1 Mbit/s, 10 Mbit/s], network.reverse.rate: [9.6 kbit/s, 28.8 kbit/s]}
  axes:                                    # an axis with a name and a label for each step
    protocol: {Reno: {stack: reno-ns}, AF/SA: {stack: sa, network.reverse.queue.policy: ack-filtering}}
  exclude: [{stack: cubic, network.reverse.rate: 9.6 kbit/s}]
  include: [...]                           # more points; without an axis, the complete list of points
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from experiments.language import registry
from experiments.language.fields import resolve
from experiments.language.yaml_text import FieldPath

#: The key of the campaign file.
SWEEP = "sweep"
#: Maximum number of points, and of points times repetitions, of a campaign.
MAX_POINTS = MAX_RUNS = 100_000
#: Most values of one axis. Validating so many takes a second or two.
MAX_VALUES = 10_000
_AXES, _ZIP, _EXCLUDE, _INCLUDE = "axes", "zip", "exclude", "include"

#: Receives a problem's place in the file and its message.
Report = Callable[[FieldPath, str], None]


@dataclass(frozen=True)
class Value:
    """One swept field at one point, with its place in the file."""

    field: str
    value: Any
    place: FieldPath
    #: Name of the axis and label of the step; empty without a labelled axis.
    axis: str = ""
    label: str = ""


#: The swept fields of one point, in the order of the sweep.
Combination = tuple[Value, ...]


@lru_cache(maxsize=256)
def split_field(field: str) -> FieldPath:
    """ "network.reverse.rate" or "workload.0.start" as a path."""
    return tuple(int(part) if part.isdecimal() and part.isascii() else part for part in field.split("."))


def same_field(path: FieldPath) -> FieldPath:
    """A path that is equal for `queue` and `queue.policy`: either can set the name of a mechanism."""
    return (
        path[:-1]
        if path[-2:] in (("queue", "policy"), ("stack", "name"), ("link", "kind"), ("middlebox", "middlebox"))
        else path
    )


def combinations(
    sweep: Any, overrides: Mapping[FieldPath, Any], report: Report, values: Mapping[str, Any]
) -> list[Combination]:
    """Every point of a sweep; a single point without fields when nothing is swept.

    Args:
        sweep: the file's value of `sweep`.
        overrides: values of fields that the command line sets, by `same_field`. These fields are not swept.
        report: receives every problem.
        values: of the file; they say which entry of a list a name in a field means.
    """
    if sweep is None:
        return [()]
    if not isinstance(sweep, dict):
        report((SWEEP,), "expected a mapping of fields to lists of values, such as {stack: [reno, cubic]}")
        return []
    reader = _Reader(overrides, report, values)
    groups = reader.groups(sweep)
    extra = reader.mappings(sweep, _INCLUDE, "a list of combinations, such as [{stack: cubic}]")
    if reader.failed:
        return []
    size = math.prod(len(steps) for steps in groups)
    if size > MAX_POINTS:
        report((SWEEP,), f"the axes make {size} combinations, but a campaign has at most {MAX_POINTS}")
        return []
    expanded = [tuple(itertools.chain(*steps)) for steps in itertools.product(*groups)] if groups else []
    rules = reader.mappings(sweep, _EXCLUDE, "a list of mappings from swept fields to values")
    fields = [value.field for steps in groups for value in steps[0]]
    if extra and any(value.axis for steps in groups for value in steps[0]):
        report((SWEEP, _INCLUDE), "combinations cannot be added to labelled axes; add a label to the axis instead")
        return []
    if rules:
        exclusions = reader.rules(rules, groups)
        expanded = [point for point in expanded if not any(reader.matches(point, rule) for rule in exclusions)]
    if extra:
        expanded += reader.extra(extra, fields, expanded)
    if not expanded and not reader.failed:
        if groups:
            report((SWEEP, _EXCLUDE), "every combination is excluded; remove a rule")
        else:
            return [()]
    return expanded


def with_every_value(combinations_: Sequence[Combination]) -> list[Combination]:
    """A few of the points that together have every value of every axis."""
    seen: set[int] = set()
    chosen = []
    for combination in combinations_:
        new = {id(value) for value in combination} - seen
        if new:
            seen |= new
            chosen.append(combination)
    return chosen


class _Reader:
    def __init__(self, overrides: Mapping[FieldPath, Any], report: Report, values: Mapping[str, Any]) -> None:
        self._overrides = overrides
        self._report = report
        self._values = values
        #: Keys of the values of all axes, by `id`.
        self._keys: dict[int, str] = {}
        self.failed = False

    def _fail(self, place: FieldPath, message: str) -> None:
        self.failed = True
        self._report(place, message)

    def _path(self, field: str) -> FieldPath:
        """The path of a field, equal for all of its spellings."""
        path = split_field(field)
        try:
            return same_field(resolve(self._values, path))
        except ValueError:
            # Setting the field reports it.
            return same_field(path)

    def _override(self, field: str) -> tuple[bool, Any]:
        path = self._path(field)
        return path in self._overrides, self._overrides.get(path)

    def groups(self, sweep: Mapping[str, Any]) -> list[list[Combination]]:
        """The steps of every axis. A step of zipped axes has several values."""
        seen: set[FieldPath] = set()
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
            blocks: list[tuple[FieldPath, Any]] = [((SWEEP, _ZIP), values)]
            if isinstance(values, list):
                blocks = [((SWEEP, _ZIP, number), block) for number, block in enumerate(values)]
            for place, block in blocks:
                zipped = self._zip(block, place, seen)
                if zipped:
                    groups.append(zipped)
        names: set[str] = set()
        for steps in groups:
            # Results have a column for each name.
            of_group = {
                name for value in steps[0] for name in (value.axis.split(", ") if value.axis else [value.field])
            }
            for name in sorted(of_group & names):
                self._fail(steps[0][0].place[:3], f"two axes are called '{name}'; rename one of them")
            names |= of_group
        return groups

    def _labelled(self, axes: Any, seen: set[FieldPath]) -> list[list[Combination]]:
        """Axes with a name. Each of their steps has a label and sets any fields."""
        if not isinstance(axes, dict) or not axes:
            self._fail((SWEEP, _AXES), "expected a mapping such as {protocol: {Reno: {stack: reno-ns}, ...}, ...}")
            return []
        groups: list[list[Combination]] = []
        for name, steps in axes.items():
            place: FieldPath = (SWEEP, _AXES, name)
            if not isinstance(steps, dict) or not steps:
                self._fail(place, "expected a mapping of labels to fields, such as {Reno: {stack: reno-ns}}")
                continue
            if len(steps) > MAX_VALUES:
                self._fail(place, f"the axis has {len(steps)} labels, but an axis has at most {MAX_VALUES}")
                continue
            fields: set[FieldPath] = set()
            group: list[Combination] = []
            parts = name.count(", ") + 1
            misfits = [label for label in steps if parts > 1 and label.count(", ") != parts - 1]
            reason = f"the axis '{name}' has {parts} names, so each label needs {parts} parts: 'a, b'"
            if len(misfits) == len(steps):
                self._fail(place, f"{reason}; for an axis with one name, leave the comma out of its name")
                continue
            for label, values in steps.items():
                if label in misfits:
                    self._fail((*place, label), reason)
                    continue
                if not str(label).strip():
                    self._fail((*place, label), "the label is empty: tables and figures would show nothing for it")
                    continue
                if not isinstance(values, dict) or not values:
                    self._fail((*place, label), "expected a mapping of fields to values, such as {stack: reno-ns}")
                    continue
                fields |= {self._path(field) for field in values}
                step = tuple(
                    Value(field, value, (*place, label, field), str(name), str(label))
                    for field, value in values.items()
                    if not self._override(field)[0]
                )
                if step:
                    group.append(step)
            for path in fields & seen:
                self._fail(place, f"'{'.'.join(map(str, path))}' is swept twice; remove one of the axes")
            seen |= fields
            if group:
                groups.append(group)
        return groups

    def _zip(self, block: Any, place: FieldPath, seen: set[FieldPath]) -> list[Combination]:
        if not isinstance(block, dict) or not block:
            self._fail(place, "expected a mapping of fields to lists of equal length")
            return []
        axes = {field: self._axis(field, values, (*place, field), seen) for field, values in block.items()}
        axes = {field: axis for field, axis in axes.items() if axis}
        lengths = {field: len(axis) for field, axis in axes.items()}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{field} has {length}" for field, length in lengths.items())
            self._fail(place, f"zipped axes need the same number of values: {counts}")
            return []
        return list(zip(*axes.values(), strict=True)) if axes else []

    def _axis(
        self, field: str, values: Any, place: FieldPath, seen: set[FieldPath], distinct: bool = False
    ) -> list[Value]:
        if self._override(field)[0]:
            return []
        path = self._path(field)
        if path in seen:
            self._fail(place, f"'{field}' is swept twice; remove one of the axes")
        elif not isinstance(values, list) or not values:
            self._fail(place, f"expected a list of values for {field}, such as [a, b]")
        elif len(values) > MAX_VALUES:
            self._fail(place, f"the list has {len(values)} values, but an axis has at most {MAX_VALUES}")
        elif distinct and len({_key(value) for value in values}) < len(values):
            self._fail(place, "the list has the same value twice; remove one of them")
        else:
            seen.add(path)
            return [Value(field, value, (*place, number)) for number, value in enumerate(values)]
        return []

    def mappings(self, sweep: Mapping[str, Any], key: str, expected: str) -> list[tuple[FieldPath, dict[str, Any]]]:
        """The entries of `exclude` or `include` with their places."""
        entries = sweep.get(key)
        if entries is None:
            return []
        if not isinstance(entries, list):
            self._fail((SWEEP, key), f"expected {expected}")
            return []
        mappings: list[tuple[FieldPath, dict[str, Any]]] = []
        for number, entry in enumerate(entries):
            if isinstance(entry, dict) and entry:
                mappings.append(((SWEEP, key, number), entry))
            else:
                self._fail((SWEEP, key, number), f"expected '{key}' to be {expected}")
        return mappings

    def rules(
        self, entries: Sequence[tuple[FieldPath, dict[str, Any]]], groups: Sequence[Sequence[Combination]]
    ) -> list[dict[str, list[str]]]:
        """The exclusions that can apply: for each field, the keys of the excluded values."""
        values: dict[str, dict[str, Any]] = {}
        every_value = [value for steps in groups for value in itertools.chain(*steps)]
        labelled = {value.axis for value in every_value if value.axis}
        for value in every_value:
            shown = value.label or value.value
            key = self._keys[id(value)] = _key(shown)
            values.setdefault(_name(value), {})[key] = shown
        rules = []
        for place, entry in entries:
            rule: dict[str, list[str]] | None = {}
            for field, excluded in entry.items():
                listed = excluded if isinstance(excluded, list) else [excluded]
                keys = [_key(str(value) if field in labelled else value) for value in listed]
                overridden, fixed = self._override(field)
                if overridden:
                    rule = rule if _key(fixed) in keys else None
                elif field not in values:
                    self._fail((*place, field), registry.unknown("swept field", field, values))
                else:
                    for key in set(keys) - set(values[field]):
                        allowed = [str(value) for value in values[field].values()]
                        self._fail((*place, field), registry.unknown("value", str(json.loads(key)), allowed))
                    if rule is not None:
                        rule[field] = keys
                if rule is None:
                    break
            if rule is not None:
                rules.append(rule)
        return rules

    def matches(self, combination: Combination, rule: Mapping[str, Sequence[str]]) -> bool:
        """Whether a point has excluded values in every field of a rule."""
        point = {_name(value): self._keys[id(value)] for value in combination}
        return all(point[field] in keys for field, keys in rule.items() if field in point)

    def extra(
        self,
        entries: Sequence[tuple[FieldPath, dict[str, Any]]],
        fields: list[str],
        combinations_: Sequence[Combination],
    ) -> list[Combination]:
        """The points of `include`."""
        points: list[Combination] = []
        known = {_point_key(point) for point in combinations_}
        for place, entry in entries:
            values = {field: value for field, value in entry.items() if not self._override(field)[0]}
            fields = fields or list(values)
            for field in values.keys() - set(fields):
                self._fail((*place, field), registry.unknown("swept field", field, fields))
            missing = [field for field in fields if field not in values]
            if missing:
                self._fail(place, f"a combination needs a value for every swept field; add {', '.join(missing)}")
            if missing or values.keys() - set(fields):
                continue
            point = tuple(Value(field, values[field], (*place, field)) for field in fields)
            if _point_key(point) not in known:
                known.add(_point_key(point))
                points.append(point)
            elif not self._overrides:
                self._fail(place, "the sweep contains this combination already; remove it")
        return points


def _name(value: Value) -> str:
    return value.axis or value.field


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _point_key(combination: Combination) -> str:
    return _key([[value.field, value.value] for value in combination])
