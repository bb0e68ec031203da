"""From a campaign file to runs: overrides, sweeps, repetitions, seeds, scenarios, run ids."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from experiments import registry, source, topologies
from experiments.problems import CampaignError, Problem
from experiments.schema import FIELD, SWEEP, Campaign
from testbed.addressing import make_plan
from testbed.errors import TestbedError

#: Of the scenario as it enters a run's id; raised when the same scenario would give other results.
FORMAT = 1
FIRST_PORT = 5001


@dataclass(frozen=True)
class Run:
    """One repetition of one point: everything that determines its result."""

    id: str
    point: int
    repetition: int
    backend: str
    #: JSON for core::scenario::Scenario.
    scenario: Mapping[str, Any]


@dataclass(frozen=True)
class Point:
    """One combination of a sweep's values."""

    number: int
    #: Field to value, as the file writes them; in the order of the sweep.
    parameters: Mapping[str, str]


@dataclass(frozen=True)
class Plan:
    """A campaign, ready to run."""

    name: str
    title: str
    file: str
    text: str
    overrides: Mapping[str, str]
    backend: str
    seed: int
    repetitions: int
    points: Sequence[Point]
    runs: Sequence[Run]

    @property
    def id(self) -> str:
        """Equal for equal runs under the same name."""
        return hashlib.sha256("\n".join([self.name, *(run.id for run in self.runs)]).encode()).hexdigest()[:16]

    @property
    def duration_s(self) -> float:
        """Of all runs, one after another."""
        return sum(float(run.scenario["duration_s"]) for run in self.runs)


def load(path: Path, overrides: Sequence[str] = ()) -> Plan:
    """Reads, validates and expands a campaign file.

    Args:
        path: the file.
        overrides: "field=value" texts, as `--set` takes them.

    Raises:
        CampaignError: with every problem, each with its line.
    """
    return expand(source.read(path), overrides)


def expand(file: source.Source, overrides: Sequence[str] = ()) -> Plan:
    """The same for a file that was read."""
    expansion = _Expansion(file)
    values = copy.deepcopy(file.values)
    given = {}
    for text in overrides:
        field, value = expansion.override(values, text)
        given[field] = value
    axes = expansion.axes(values.pop(SWEEP, None))
    expansion.fail_if_any()
    points: list[Point] = []
    runs: list[Run] = []
    campaign: Campaign | None = None
    for number, combination in enumerate(itertools.product(*(axis for _, axis in axes))):
        point_values = copy.deepcopy(values)
        where = {}
        for (field, _), (index, value) in zip(axes, combination, strict=True):
            path = split_field(field)
            _assign(point_values, path, copy.deepcopy(value))
            where[path] = (SWEEP, field, index)
        campaign = expansion.validate(point_values, where)
        parameters = {field: _label(value) for (field, _), (_, value) in zip(axes, combination, strict=True)}
        points.append(Point(number, parameters))
        if campaign is not None:
            runs += expansion.runs(campaign, number)
    expansion.fail_if_any()
    assert campaign is not None
    return Plan(
        name=campaign.name, title=campaign.title or campaign.name, file=file.name, text=file.text, overrides=given,
        backend=campaign.backend, seed=campaign.seed, repetitions=campaign.repetitions, points=points, runs=runs,
    )  # fmt: skip


def split_field(field: str) -> tuple[str | int, ...]:
    """ "network.reverse.rate" or "workload.0.start" as a path."""
    return tuple(int(part) if part.isdigit() else part for part in field.split("."))


class _Expansion:
    """Collects every problem of a file, so that all are told at once."""

    def __init__(self, file: source.Source) -> None:
        self._file = file
        self._problems: list[Problem] = []
        self._overridden: dict[tuple[str | int, ...], str] = {}

    def fail_if_any(self) -> None:
        if self._problems:
            raise CampaignError(self._file.name, self._problems)

    def override(self, values: dict[str, Any], text: str) -> tuple[str, str]:
        field, equals, value = text.partition("=")
        field = field.strip()
        path = split_field(field)
        if not equals or not all(isinstance(part, int) or FIELD.fullmatch(part) for part in path):
            self._problems.append(
                Problem(0, "", f"'{text}' is not FIELD=VALUE, such as network.reverse.rate='9.6 kbit/s'", "--set")
            )
            return field, value
        try:
            parsed = source.parse("--set", f"value: {value}").values["value"]
            _assign(values, path, parsed)
        except CampaignError:
            self._problems.append(Problem(0, field, f"'{value}' cannot be read as a YAML value", "--set"))
        except ValueError as error:
            self._problems.append(Problem(0, field, str(error), "--set"))
        self._overridden[path] = text
        return field, value.strip()

    def axes(self, sweep: Any) -> list[tuple[str, list[tuple[int, Any]]]]:
        """Each axis: its field and its numbered values."""
        if sweep is None:
            return []
        if not isinstance(sweep, dict):
            self._note((SWEEP,), "a sweep maps fields to lists of values, such as stack: [reno, cubic]")
            return []
        axes = []
        for field, values in sweep.items():
            if split_field(field) in self._overridden:
                continue
            if not isinstance(values, list) or not values:
                self._note((SWEEP, field), "an axis is a list of at least one value")
            elif len({json.dumps(value, sort_keys=True) for value in values}) < len(values):
                self._note((SWEEP, field), "an axis has the same value twice")
            else:
                axes.append((field, list(enumerate(values))))
        return axes

    def validate(
        self, values: dict[str, Any], where: Mapping[tuple[str | int, ...], tuple[str | int, ...]]
    ) -> Campaign | None:
        try:
            campaign = Campaign.model_validate(values)
        except ValidationError as error:
            for one in error.errors(include_url=False):
                self._note_pydantic(dict(one), where)
            return None
        self._cross_check(campaign)
        return campaign

    def _cross_check(self, campaign: Campaign) -> None:
        """What no single field can know."""
        nodes, links = topologies.build(campaign.network)
        try:
            make_plan(nodes, links)
        except TestbedError as error:
            self._note(("network",), str(error))
            return
        hosts = [node["name"] for node in nodes if node["kind"] == "host"]
        seen: set[str] = set()
        for number, flow in enumerate(campaign.workload):
            for key, name in (("from", flow.from_), ("to", flow.to)):
                if name not in hosts:
                    self._note(("workload", number, key), registry.unknown("host", name, hosts))
            if flow.from_ == flow.to:
                self._note(("workload", number, "to"), f"flow {flow.name} goes from '{flow.from_}' to itself")
            if flow.start[1] >= campaign.duration:
                self._note(("workload", number, "start"), f"flow {flow.name} may start after the run has ended")
            if flow.name in seen:
                self._note(("workload", number, "name"), f"there are two flows called '{flow.name}'")
            seen.add(flow.name)
        places = {f"{end}:{link['name']}" for link in links for end in link["ends"]}
        for number, place in enumerate(campaign.capture.at):
            if place not in places and place != "none":
                self._note(("capture", "at", number), registry.unknown("interface", place, sorted(places)))

    def runs(self, campaign: Campaign, point: int) -> Iterator[Run]:
        for repetition in range(campaign.repetitions):
            # Equal over the points of a sweep: repetitions are paired.
            seed = _derive(campaign.seed, repetition)
            scenario = make_scenario(campaign, seed)
            identity = json.dumps(
                {"format": FORMAT, "backend": campaign.backend, "scenario": scenario},
                sort_keys=True,
                separators=(",", ":"),
            )
            run_id = hashlib.sha256(identity.encode()).hexdigest()[:24]
            yield Run(run_id, point, repetition, campaign.backend, scenario)

    def _swept(self, place: tuple[str | int, ...]) -> Any:
        value: Any = self._file.values
        for part in place:
            value = value[part]
        return value

    def _note(self, path: tuple[str | int, ...], message: str) -> None:
        for overridden, text in self._overridden.items():
            if path[: len(overridden)] == overridden:
                self._problems.append(Problem(0, _dotted(path), message, f"--set {text}"))
                return
        self._problems.append(Problem(self._file.line(path), _dotted(path), message))

    def _note_pydantic(
        self, error: dict[str, Any], where: Mapping[tuple[str | int, ...], tuple[str | int, ...]]
    ) -> None:
        path = tuple(
            part for part in error["loc"] if not (isinstance(part, str) and part.startswith(("function-", "tagged-")))
        )
        message = _message(error, path)
        for field, place in where.items():
            # A mechanism is judged as a whole: its mistake stands at the mapping that the swept field belongs to.
            swept = _label(self._swept(place))
            if path[: len(field)] == field or (field[: len(path)] == path and f"'{swept}'" in message):
                self._problems.append(Problem(self._file.line(place), _dotted(path), message))
                return
        self._note(path, message)


def make_scenario(campaign: Campaign, seed: int) -> dict[str, Any]:
    """The scenario of one repetition (core::scenario::Scenario)."""
    nodes, links = topologies.build(campaign.network)
    own_stacks = {node.name: node.stack for node in campaign.network.nodes}
    for node in nodes:
        if node["kind"] == "host":
            node["stack"] = (own_stacks.get(node["name"]) or campaign.stack).as_scenario()
    draws = random.Random(seed)
    flows = []
    for number, flow in enumerate(campaign.workload):
        low, high = flow.start
        start_s = round(low + draws.random() * (high - low), 6)
        one: dict[str, Any] = {
            "name": flow.name, "kind": flow.kind, "from": flow.from_, "to": flow.to, "start_s": start_s,
            "port": FIRST_PORT + number,
        }  # fmt: skip
        if flow.stop is not None:
            one["stop_s"] = flow.stop
        if flow.size is not None:
            one["bytes"] = flow.size
        if flow.stack is not None:
            one["stack"] = {"name": flow.stack.name, **flow.stack.options}
        flows.append(one)
    return {
        "version": 1,
        "seed": seed,
        "duration_s": campaign.duration,
        "nodes": nodes,
        "links": links,
        "workload": flows,
        "capture": {"snaplen": campaign.capture.snaplen, "at": list(campaign.capture.at)},
    }


def _derive(seed: int, repetition: int) -> int:
    digest = hashlib.sha256(f"{seed}/{repetition}".encode()).digest()
    return int.from_bytes(digest[:6], "big")


def _assign(values: Any, path: tuple[str | int, ...], value: Any) -> None:
    """Sets a value deep in a mapping. A mechanism given by its name alone becomes a mapping when its option is set.

    Raises:
        ValueError: the path leads through something that is no mapping or list.
    """
    here = values
    for depth, part in enumerate(path[:-1]):
        if isinstance(here, list):
            if not isinstance(part, int) or part >= len(here):
                raise ValueError(f"{_dotted(path[: depth + 1])} is not in the list, which has {len(here)} entries")
            here = here[part]
        elif isinstance(here, dict):
            following = here.get(str(part))
            if isinstance(following, str):
                key = {"queue": "policy", "stack": "name"}.get(str(part))
                if key is None:
                    raise ValueError(f"{_dotted(path[: depth + 1])} is '{following}', which has no fields")
                following = {key: following}
                here[str(part)] = following
            elif following is None:
                following = {}
                here[str(part)] = following
            here = following
        else:
            raise ValueError(f"{_dotted(path[:depth])} has no fields")
    last = path[-1]
    if isinstance(here, list):
        if not isinstance(last, int) or last >= len(here):
            raise ValueError(f"{_dotted(path)} is not in the list, which has {len(here)} entries")
        here[last] = value
    elif isinstance(here, dict):
        # A policy swept by name keeps the queue's other options.
        old = here.get(str(last))
        if isinstance(value, str) and isinstance(old, dict) and str(last) in ("queue", "stack"):
            key = {"queue": "policy", "stack": "name"}[str(last)]
            here[str(last)] = {**old, key: value}
        else:
            here[str(last)] = value
    else:
        raise ValueError(f"{_dotted(path[:-1])} has no fields")


def _label(value: Any) -> str:
    """A sweep's value for tables."""
    if isinstance(value, dict):
        return " ".join(str(part) for part in value.values())
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _dotted(path: Sequence[str | int]) -> str:
    return ".".join(str(part) for part in path)


def _message(error: Mapping[str, Any], path: Sequence[str | int]) -> str:
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
    return [*names, SWEEP] if model is Campaign else names


def _model_of(annotation: Any) -> Any:
    if hasattr(annotation, "model_fields"):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _model_of(inner)
        if found is not None:
            return found
    return None
