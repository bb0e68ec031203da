"""From a campaign file to runs: overrides, sweeps, repetitions, seeds, scenarios, run ids."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from experiments.language import registry, source, topologies
from experiments.language.problems import CampaignError, Problem
from experiments.language.schema import FIELD, Campaign, CaptureSpec, MechanismError, Stack
from experiments.language.source import Path_
from experiments.language.sweep import MOST_RUNS, SWEEP, Combination, Value, combinations, same_field, split_field
from testbed import kernel_links, kernel_tcp, node_binary
from testbed.addressing import make_plan
from testbed.errors import TestbedError
from testbed.kernel_tcp import is_kernel_stack
from testbed.scenario import LinkSpec

#: Of the scenario as it enters a run's id; raised when the same scenario would give other results.
FORMAT = 1
FIRST_PORT = 5001
#: What a run calls the telemetry of its links; a flow's has its name.
LINKS = "links"
#: Fields that are no point's own.
WHOLE_CAMPAIGN = frozenset({"name", "title", "description", "repetitions", "artefact", "measures", "split", "figure"})

#: Swept fields of a point, by the path that each was put at.
Places = dict[Path_, Value]


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
    def longest_s(self) -> float:
        """Duration of its longest run."""
        return max(float(run.scenario["duration_s"]) for run in self.runs)

    @property
    def run_ids(self) -> list[str]:
        """Of its runs, each once: points that come to the same scenario share theirs."""
        return list(dict.fromkeys(run.id for run in self.runs))

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
    token = registry.FILES.set(file.file)
    try:
        return _expand(file, overrides)
    finally:
        registry.FILES.reset(token)


def _expand(file: source.Source, overrides: Sequence[str]) -> Plan:
    told = [text.partition("=")[2].strip() for text in overrides if text.partition("=")[0].strip() == "backend"]
    backend = (told or [str(file.values.get("backend", "emulated"))])[-1]
    file = source.for_backend(file, backend, [entry.name for entry in registry.of_kind("backend")])
    expansion = _Expansion(file)
    values = copy.deepcopy(file.values)
    # Defaults that a field such as stack.sack must find in its place.
    values.setdefault("stack", "reno")
    given = {}
    for text in overrides:
        field, value = expansion.override(values, text)
        given[field] = value
    points: list[Point] = []
    runs: list[Run] = []
    campaign: Campaign | None = None
    for number, combination in enumerate(expansion.combinations(values.pop(SWEEP, None), values)):
        point_values = copy.deepcopy(values)
        where = expansion.place(point_values, combination)
        if where is None:
            continue
        campaign = expansion.validate(point_values, where)
        points.append(Point(number, dict(itertools.chain.from_iterable(map(_parameters, combination)))))
        if campaign is not None and len(runs) + campaign.repetitions > MOST_RUNS:
            expansion.fail_if_any()
            expansion.refuse(("repetitions",), f"this makes more than {MOST_RUNS} runs, the most a campaign can have")
        if campaign is not None:
            runs += expansion.runs(campaign, number)
    if campaign is not None and campaign.figure is not None and set(given) <= {"backend"}:
        # An override may take an axis out of the sweep; the figure then shows what is left.
        axes: dict[str, list[str]] = {}
        for point in points:
            for name, label in point.parameters.items():
                axes.setdefault(name, []).append(label)
        for problem in campaign.figure.problems(campaign.measures, axes):
            expansion.note_of_figure(problem)
    expansion.fail_if_any()
    assert campaign is not None
    return Plan(
        name=campaign.name, title=campaign.title or campaign.name, file=file.name, text=file.text, overrides=given,
        backend=campaign.backend, seed=campaign.seed, repetitions=campaign.repetitions, points=points, runs=runs,
    )  # fmt: skip


class _Expansion:
    """Collects every problem of a file, so that all are told at once."""

    def __init__(self, file: source.Source) -> None:
        self._file = file
        self._problems: list[Problem] = []
        self._overridden: dict[Path_, str] = {}
        self._unswept = False

    def note_of_figure(self, message: str) -> None:
        self._note(("figure",), message)

    def fail_if_any(self) -> None:
        if self._problems:
            raise CampaignError(self._file.name, self._problems)

    def refuse(self, path: Path_, message: str) -> NoReturn:
        self._note(path, message)
        raise CampaignError(self._file.name, self._problems)

    def override(self, values: dict[str, Any], text: str) -> tuple[str, str]:
        field, equals, value = text.partition("=")
        field = field.strip()
        # An axis is named whole: its field's dots are no steps.
        path = (SWEEP, field.removeprefix("sweep.")) if field.startswith("sweep.") else split_field(field)
        if not equals or (path[0] != SWEEP and not all(FIELD.fullmatch(str(part)) for part in path)):
            wanted = "is not FIELD=VALUE, such as network.reverse.rate='9.6 kbit/s'"
            self._problems.append(Problem(0, "", f"'{text}' {wanted}", "--set"))
            return field, value
        try:
            parsed = source.parse("--set", f"value: {value}").values["value"]
            path = _resolve(values, path)
            _assign(values, path, parsed)
        except CampaignError:
            self._problems.append(Problem(0, field, f"'{value}' cannot be read as a YAML value", "--set"))
        except ValueError as error:
            self._problems.append(Problem(0, field, str(error), "--set"))
        self._overridden[path] = text
        return field, value.strip()

    def combinations(self, sweep: Any, values: Mapping[str, Any]) -> list[Combination]:
        """The points of the sweep; after a mistake in it, what is left of it cannot be judged."""
        fixed = {same_field(path): _look_up(values, path) for path in self._overridden if path and path[0] != SWEEP}
        before = len(self._problems)
        found = combinations(sweep, fixed, self._note)
        # After a mistake in the sweep the rest of the file is still judged, as far as it goes without swept values.
        self._unswept = len(self._problems) > before
        return [()] if self._unswept else found

    def place(self, values: dict[str, Any], combination: Combination) -> Places | None:
        """Puts a point's values into the fields; None, with a problem noted, where a field does not exist."""
        where: Places = {}
        good = True
        for one in combination:
            try:
                path = _resolve(values, split_field(one.field))
                if path[0] in WHOLE_CAMPAIGN:
                    raise ValueError(f"'{path[0]}' belongs to the campaign as a whole and cannot be swept")
                _assign(values, path, copy.deepcopy(one.value))
            except ValueError as error:
                self._note(one.place, str(error), one.field)
                good = False
            else:
                where[path] = one
        return where if good else None

    def validate(self, values: dict[str, Any], where: Places) -> Campaign | None:
        try:
            campaign = Campaign.model_validate(values)
        except ValidationError as error:
            for one in error.errors(include_url=False):
                self._note_pydantic(dict(one), where)
            return None
        self._cross_check(campaign)
        return campaign

    @staticmethod
    def _kernel_link_refusal(links: Sequence[Mapping[str, Any]], backend: str) -> str | None:
        kernels = [link for link in links if link["kind"] == kernel_links.KIND]
        if kernels and backend == "sim":
            return f"link '{kernels[0]['name']}': virtual time has no kernel link; emulated and physical have it"
        here = backend == "emulated"
        specs = [LinkSpec.model_validate(link) for link in kernels]
        return next((reason for spec in specs if (reason := kernel_links.refusal(spec, here))), None)

    def _cross_check(self, campaign: Campaign) -> None:
        """What no single field can know."""
        network = campaign.network
        if network.rtt is not None and network.rtt[0] < 2 * topologies.near_half_s(network):
            least_ms = 2000 * topologies.near_half_s(network)
            self._note(("network", "rtt"), f"the line and the clients' wires alone take {least_ms:g} ms both ways")
            return
        nodes, links = topologies.build(network, campaign.workload, random.Random(0))
        try:
            make_plan(nodes, links)
        except TestbedError as error:
            self._note(("network",), str(error))
            return
        for link in links:
            late = [
                change["at_s"]
                for way in ("forward", "reverse")
                for change in link[way].get("schedule", [])
                if change["at_s"] >= campaign.duration
            ]
            if late:
                self._note(("network",), f"link {link['name']} changes at {late[0]:g} s, when the run is over")
        reason = self._kernel_link_refusal(links, campaign.backend)
        links = [link for link in links if link["kind"] != kernel_links.KIND]
        reason = reason or _link_refusal(json.dumps(links, sort_keys=True))
        if reason:
            self._note(("network",), reason)
        for path, stack in _stacks(campaign):
            backends = registry.find("stack", stack.name).backends
            if backends and campaign.backend not in backends:
                there = [
                    one.name
                    for one in registry.of_kind("stack")
                    if campaign.backend in (one.backends or [campaign.backend])
                ]
                self._note(
                    path,
                    f"stack {stack.name} does not run on the {campaign.backend} backend, which has: {', '.join(there)}",
                )
            elif is_kernel_stack(stack.name):
                lack = kernel_tcp.lack(stack.name) if campaign.backend == "emulated" else None
                if lack:
                    self._note(path, lack)
            else:
                reason = _refusal(json.dumps(stack.as_scenario(), sort_keys=True))
                if reason:
                    self._note(path, reason)
        own = {node.name: node.stack for node in campaign.network.nodes}
        for number, flow in enumerate(campaign.workload):
            # The kernel and the research stack cannot both own a host's address.
            for end in (flow.from_, flow.to):
                of_host = (own.get(end) or campaign.stack).name
                if flow.stack is not None and is_kernel_stack(of_host) != is_kernel_stack(flow.stack.name):
                    self._note(
                        ("workload", number, "stack"),
                        f"stack {flow.stack.name} cannot run beside {of_host} on host {end}: one is the kernel's, "
                        "the other the research stack's",
                    )
                    break
        hosts = topologies.host_names(network, nodes)
        if campaign.warm_up >= campaign.duration:
            self._note(("warm_up",), "nothing is left to measure: the warm-up ends with the run")
        members = topologies.members(network, campaign.workload)
        names = [member.name for member in members]
        for member in members:
            if names.count(member.name) > 1 and member.group is not None:
                self._note(("workload", member.entry, "name"), f"there are two flows called '{member.name}'")
                break
        seen: set[str] = set()
        for number, flow in enumerate(campaign.workload):
            backends = registry.find("workload", flow.kind).backends
            if backends and campaign.backend not in backends:
                why = f"workload {flow.kind} does not run on the {campaign.backend} backend, only on: {backends[0]}"
                self._note(("workload", number, "kind"), why)
            for key, name in (("from", flow.from_), ("to", flow.to)):
                if name not in hosts:
                    self._note(("workload", number, key), registry.unknown("host", name, hosts))
            if flow.from_ == flow.to:
                self._note(("workload", number, "to"), f"flow {flow.name} goes from '{flow.from_}' to itself")
            if flow.start[1] >= campaign.duration:
                self._note(("workload", number, "start"), f"flow {flow.name} may start after the run has ended")
            if flow.name in seen:
                self._note(("workload", number, "name"), f"there are two flows called '{flow.name}'")
            if flow.name == LINKS:
                why = f"no flow can be called '{LINKS}': the telemetry of the links is, in every run"
                self._note(("workload", number, "name"), why)
            seen.add(flow.name)
        places = {f"{end}:{link['name']}" for link in links for end in link["ends"]}
        if not campaign.capture.telemetry and campaign.backend != "sim":
            self._note(("capture", "telemetry"), f"the {campaign.backend} backend always keeps its telemetry")
        if campaign.capture.counters is not None:
            if campaign.backend != "sim":
                self._note(("capture", "counters"), f"the {campaign.backend} backend has captures and no counters")
            names = [str(link["name"]) for link in links]
            for number, name in enumerate(campaign.capture.counters.at):
                if name not in names:
                    self._note(("capture", "counters", "at", number), registry.unknown("link", name, names))
        for number, place in enumerate(campaign.capture.at):
            if place not in places and place != "none":
                self._note(("capture", "at", number), registry.unknown("interface", place, sorted(places)))

    def runs(self, campaign: Campaign, point: int) -> Iterator[Run]:
        for repetition in range(campaign.repetitions):
            # Equal over the points of a sweep: repetitions are paired.
            seed = _derive(campaign.seed, repetition)
            scenario = make_scenario(campaign, seed)
            run_id = run_identity(campaign.backend, scenario)
            yield Run(run_id, point, repetition, campaign.backend, scenario)

    def _note(self, path: Path_, message: str, field: str = "") -> None:
        for overridden, text in self._overridden.items():
            if path[: len(overridden)] == overridden:
                self._problems.append(Problem(0, field or _dotted(path), message, f"--set {text}"))
                return
        self._problems.append(self._file.problem(path, field or _dotted(path), message))

    def _note_pydantic(self, error: dict[str, Any], where: Places) -> None:
        if self._unswept and error["type"] == "missing":
            return
        inner = error.get("ctx", {}).get("error")
        if isinstance(inner, MechanismError):
            found = [((*error["loc"], *path), message) for path, message in inner.problems]
        else:
            found = [(error["loc"], _message(error, error["loc"]))]
        for path, message in found:
            swept = [one for field, one in where.items() if path[: len(field)] == field]
            if swept:
                # The longest: a field inside another that is swept too.
                place = max(swept, key=lambda one: len(one.field)).place
                self._note(place, message, _dotted(path))
            else:
                self._note(path, message)


def run_identity(backend: str, scenario: Mapping[str, Any]) -> str:
    """A run's id: a hash of everything that determines its result, the same on every machine.

    What a scenario leaves to the registry's defaults enters it as those defaults: a default that is written out makes
    no other run, and one that is changed does.
    """
    whole = {
        **scenario,
        "nodes": [
            {**node, "stack": _spelled_out("stack", node["stack"])} if "stack" in node else node
            for node in scenario["nodes"]
        ],
        "links": [
            {
                **link,
                **_spelled_out("link", {"name": link["kind"], "options": link["options"]}, ("options",)),
                **_spelled_out_boxes(link),
                "forward": _spelled_out_direction(link["forward"]),
                "reverse": _spelled_out_direction(link["reverse"]),
            }
            for link in scenario["links"]
        ],
        "workload": [_spelled_out_flow(flow) for flow in scenario["workload"]],
    }
    identity = {"format": FORMAT, "backend": backend, "scenario": whole}
    return hashlib.sha256(canonical_json(identity).encode()).hexdigest()[:24]


def canonical_json(value: Any) -> str:
    """One text for equal values: sorted keys, no spaces, ASCII, no whole number written as a fraction."""
    return json.dumps(_whole(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _whole(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def _spelled_out_flow(flow: Mapping[str, Any]) -> dict[str, Any]:
    if flow["kind"] == "bulk":
        return dict(flow)
    named = {"name": flow["kind"], "options": flow.get("options", {})}
    return {**flow, **_spelled_out("workload", named, ("options",))}


def _spelled_out(kind: str, named: Mapping[str, Any], keys: Sequence[str] = ("name", "options")) -> dict[str, Any]:
    entry = registry.find(kind, named["name"])
    defaults = {param.name: param.default for param in entry.params if param.default is not None}
    return {key: {**defaults, **named["options"]} if key == "options" else named[key] for key in keys}


def _spelled_out_boxes(link: Mapping[str, Any]) -> dict[str, Any]:
    if "middleboxes" not in link:
        return {}
    return {"middleboxes": [{**box, **_spelled_out("middlebox", box)} for box in link["middleboxes"]]}


def _spelled_out_direction(direction: Mapping[str, Any]) -> dict[str, Any]:
    whole = {**direction, "queue": _spelled_out("policy", direction["queue"])}
    if "errors" in direction:
        whole["errors"] = [_spelled_out("error-model", model) for model in direction["errors"]]
    return whole


@cache
def _refusal(stack: str) -> str | None:
    """Why the research stack cannot be put together as asked (a JSON of name and options); None when it can."""
    reason = node_binary.call("check", stdin=f"[{stack}]")[0]
    return None if reason is None else str(reason)


@cache
def _link_refusal(links: str) -> str | None:
    """Why the first of these links (JSON) that cannot be built cannot; None when all can."""
    reasons = node_binary.call("check", stdin=links)
    return next((str(reason) for reason in reasons if reason is not None), None)


def _stacks(campaign: Campaign) -> Iterator[tuple[Path_, Stack]]:
    """Every stack that a campaign names, and where."""
    yield ("stack",), campaign.stack
    for number, node in enumerate(campaign.network.nodes):
        if node.stack is not None:
            yield ("network", "nodes", number, "stack"), node.stack
    for number, flow in enumerate(campaign.workload):
        if flow.stack is not None:
            yield ("workload", number, "stack"), flow.stack


def make_scenario(campaign: Campaign, seed: int) -> dict[str, Any]:
    """The scenario of one repetition (core::scenario::Scenario)."""
    nodes, links = topologies.build(campaign.network, campaign.workload, random.Random(f"{seed}/network"))
    own_stacks = {node.name: node.stack for node in campaign.network.nodes}
    for node in nodes:
        if node["kind"] == "host":
            node["stack"] = (own_stacks.get(node["name"]) or campaign.stack).as_scenario()
    draws = random.Random(seed)
    flows = []
    for number, member in enumerate(topologies.members(campaign.network, campaign.workload)):
        flow = campaign.workload[member.entry]
        low, high = flow.start
        start_s = round(low + draws.random() * (high - low), 6)
        one: dict[str, Any] = {
            "name": member.name, "kind": flow.kind, "from": member.from_, "to": member.to, "start_s": start_s,
            "port": FIRST_PORT + number,
        }  # fmt: skip
        if member.group is not None:
            one["group"] = member.group
        if flow.stop is not None:
            one["stop_s"] = flow.stop
        if flow.size is not None:
            one["bytes"] = flow.size
        if flow.stack is not None:
            one["stack"] = {"name": flow.stack.name, **flow.stack.options}
        if flow.options:
            one["options"] = flow.options
        flows.append(one)
    return {
        "version": 1,
        "seed": seed,
        "duration_s": campaign.duration,
        **({"warm_up_s": campaign.warm_up} if campaign.warm_up else {}),
        "nodes": nodes,
        "links": links,
        "workload": flows,
        "capture": _capture(campaign.capture),
        **({"fidelity": own} if (own := _own_limits(campaign)) else {}),
    }


def _own_limits(campaign: Campaign) -> dict[str, float]:
    """In virtual time nothing deviates, and the same file gives the same runs with and without them."""
    return {} if campaign.backend == "sim" else campaign.fidelity.as_scenario()


def _capture(capture: CaptureSpec) -> dict[str, Any]:
    spec: dict[str, Any] = {"snaplen": capture.snaplen, "at": list(capture.at)}
    if capture.counters is not None:
        spec["counters"] = {"every_s": capture.counters.every, "at": list(capture.counters.at)}
    return spec if capture.telemetry else {**spec, "telemetry": False}


def _derive(seed: int, repetition: int) -> int:
    digest = hashlib.sha256(f"{seed}/{repetition}".encode()).digest()
    return int.from_bytes(digest[:6], "big")


def _resolve(values: Any, path: Path_) -> Path_:
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


def _look_up(values: Any, path: Path_) -> Any:
    for part in path:
        if isinstance(values, dict):
            values = values.get(str(part))
        elif isinstance(values, list) and isinstance(part, int) and part < len(values):
            values = values[part]
        else:
            return None
    return values


def _assign(values: dict[str, Any], path: Path_, value: Any) -> None:
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
            raise ValueError(f"{_dotted(path[: depth + 1])} is '{following}', which has no fields")
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


def _parameters(one: Value) -> Iterator[tuple[str, str]]:
    """What a point is told by: a field with its value, or the labels of a labelled axis, which may have several
    names.
    """
    if not one.axis:
        return iter([(one.field, _label(one.value))])
    names, labels = one.axis.split(", "), one.label.split(", ")
    return zip(names, labels, strict=True) if len(names) > 1 else iter([(one.axis, one.label)])


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
    return [*names, SWEEP, source.INCLUDE, source.DEFAULTS, source.BACKENDS] if model is Campaign else names


def _model_of(annotation: Any) -> Any:
    if hasattr(annotation, "model_fields"):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _model_of(inner)
        if found is not None:
            return found
    return None
