"""From a campaign file to a plan: overrides, sweep, repetitions and their runs."""

from __future__ import annotations

import copy
import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from experiments.language import checks, registry, source
from experiments.language.fields import assign, dotted, error_message, look_up, resolve
from experiments.language.identity import run_identity
from experiments.language.mechanisms import MechanismError
from experiments.language.problems import CampaignError, Problem
from experiments.language.scenarios import derive_seed, make_scenario
from experiments.language.schema import Campaign
from experiments.language.source import Path_
from experiments.language.sweep import MOST_RUNS, SWEEP, Combination, Value, combinations, same_field, split_field

#: One step of a field's path, as `--set` takes it.
_STEP = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*|\d+")

#: Fields that apply to the campaign and cannot be swept.
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
    """Collects every problem of a file, so that all of them are reported."""

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
        if not equals or (path[0] != SWEEP and not all(_STEP.fullmatch(str(part)) for part in path)):
            wanted = "is not FIELD=VALUE, such as network.reverse.rate='9.6 kbit/s'"
            self._problems.append(Problem(0, "", f"'{text}' {wanted}", "--set"))
            return field, value
        try:
            parsed = source.parse("--set", f"value: {value}").values["value"]
            path = resolve(values, path)
            assign(values, path, parsed)
        except CampaignError:
            self._problems.append(Problem(0, field, f"'{value}' cannot be read as a YAML value", "--set"))
        except ValueError as error:
            self._problems.append(Problem(0, field, str(error), "--set"))
        self._overridden[path] = text
        return field, value.strip()

    def combinations(self, sweep: Any, values: Mapping[str, Any]) -> list[Combination]:
        """The points of the sweep; after a mistake in it, what is left of it cannot be judged."""
        fixed = {same_field(path): look_up(values, path) for path in self._overridden if path and path[0] != SWEEP}
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
                path = resolve(values, split_field(one.field))
                if path[0] in WHOLE_CAMPAIGN:
                    raise ValueError(f"'{path[0]}' belongs to the campaign as a whole and cannot be swept")
                assign(values, path, copy.deepcopy(one.value))
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
        for path, text in checks.problems(campaign):
            self._note(path, text)
        return campaign

    def runs(self, campaign: Campaign, point: int) -> Iterator[Run]:
        for repetition in range(campaign.repetitions):
            # Equal over the points of a sweep: repetitions are paired.
            seed = derive_seed(campaign.seed, repetition)
            scenario = make_scenario(campaign, seed)
            run_id = run_identity(campaign.backend, scenario)
            yield Run(run_id, point, repetition, campaign.backend, scenario)

    def _note(self, path: Path_, message: str, field: str = "") -> None:
        for overridden, text in self._overridden.items():
            if path[: len(overridden)] == overridden:
                self._problems.append(Problem(0, field or dotted(path), message, f"--set {text}"))
                return
        self._problems.append(self._file.problem(path, field or dotted(path), message))

    def _note_pydantic(self, error: dict[str, Any], where: Places) -> None:
        if self._unswept and error["type"] == "missing":
            return
        inner = error.get("ctx", {}).get("error")
        if isinstance(inner, MechanismError):
            found = [((*error["loc"], *path), message) for path, message in inner.problems]
        else:
            found = [(error["loc"], error_message(error, error["loc"]))]
        for path, message in found:
            swept = [one for field, one in where.items() if path[: len(field)] == field]
            if swept:
                # The longest: a field inside another that is swept too.
                place = max(swept, key=lambda one: len(one.field)).place
                self._note(place, message, dotted(path))
            else:
                self._note(path, message)


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
