"""From a campaign file to a plan: overrides, sweep, repetitions and their runs."""

from __future__ import annotations

import copy
import hashlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, overload

from pydantic import ValidationError

from analysis.declared import INCLUDE
from experiments.language import checks, located, sections, source
from experiments.language.backends import Backend
from experiments.language.fields import assign, look_up, resolve
from experiments.language.messages import rejected
from experiments.language.problems import CampaignError, Problem, dotted
from experiments.language.runs import Install, Run as Run, Runs, count_runs, programs_of
from experiments.language.schema import Campaign
from experiments.language.sweep import (
    MAX_RUNS,
    SWEEP,
    Combination,
    Value,
    combinations,
    same_field,
    split_field,
    with_every_value,
)
from experiments.language.yaml_text import FieldPath
from testbed.scenario import Scenario

#: One step of a field's path, as `--set` takes it.
_STEP = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*|\d+")

#: Fields of the campaign as a whole, which cannot be swept.
WHOLE_CAMPAIGN = frozenset(
    {"name", "title", "description", "repetitions", "artefact", "measures", "split", "question", "figure"}
)

#: Problems, the same ones at several points counted apart, after which the expansion ends.
MAX_PROBLEMS = 200

#: Points that are validated together, and validated points that a plan keeps.
POINTS_AT_ONCE = 256
CAMPAIGNS_KEPT = 256

#: The swept fields of a point by their paths.
Places = dict[FieldPath, Value]


@dataclass(frozen=True)
class Point:
    """One combination of a sweep's values."""

    number: int
    #: Values as the file writes them, by field, in the order of the sweep.
    parameters: Mapping[str, str]
    #: Whether every repetition would be the same run, so that there is only one.
    is_exact: bool = False


class Points(Sequence[Point]):
    """The points of a campaign, made when they are asked for.

    Args:
        combinations: of the sweep.
        counts: number of runs of each.
        repetitions: of the campaign.
    """

    def __init__(self, combinations: Sequence[Combination], counts: Sequence[int], repetitions: int) -> None:
        self._combinations = combinations
        self._counts = counts
        self._repetitions = repetitions

    def __len__(self) -> int:
        return len(self._combinations)

    @overload
    def __getitem__(self, index: int) -> Point: ...
    @overload
    def __getitem__(self, index: slice) -> list[Point]: ...
    def __getitem__(self, index: int | slice) -> Point | list[Point]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        parameters = dict(itertools.chain.from_iterable(map(_parameters, self._combinations[number])))
        return Point(number, parameters, self._counts[number] < self._repetitions)


class Member(NamedTuple):
    """A run of a plan, without its scenario."""

    point: int
    repetition: int
    id: str
    duration_s: float
    #: Its place in the plan's runs.
    number: int


@dataclass(frozen=True)
class Plan:
    """An expanded campaign."""

    name: str
    title: str
    file: str
    text: str
    overrides: Mapping[str, str]
    backend: Backend
    seed: int
    repetitions: int
    points: Sequence[Point]
    runs: Sequence[Run]
    #: The first word of every program that its flows run (kind `command`), each once.
    programs: Sequence[str] = ()

    def in_lab(self, install: Install) -> Plan:
        """The same campaign on the hosts of a lab. Its runs have ids of that lab."""
        assert isinstance(self.runs, Runs)
        return replace(self, runs=self.runs.installed(install))

    @cached_property
    def members(self) -> Sequence[Member]:
        """The runs without their scenarios, which a large campaign does not keep: making them takes longest."""
        return self._members(lambda done, runs: None)

    def find_ids(self, show: Callable[[int, int], None]) -> None:
        """Computes `members` and says how far it is: it takes about half a millisecond a run.

        Args:
            show: called with the number of runs so far, and of all.
        """
        vars(self)["members"] = self._members(show)

    def _members(self, show: Callable[[int, int], None]) -> Sequence[Member]:
        members = []
        for number, run in enumerate(self.runs):
            members.append(Member(run.point, run.repetition, run.id, run.duration_s, number))
            show(number + 1, len(self.runs))
        return members

    def runs_of(self, members: Sequence[Member]) -> list[Run]:
        """These runs with their scenarios."""
        return [self.runs[member.number] for member in members]

    @cached_property
    def id(self) -> str:
        """A hash of the name and the runs."""
        return hashlib.sha256("\n".join([self.name, *(run.id for run in self.members)]).encode()).hexdigest()[:16]

    @property
    def longest_s(self) -> float:
        """Duration of the longest run, in s."""
        return max(run.duration_s for run in self.members)

    def first_scenarios(self) -> Iterator[tuple[int, Scenario]]:
        """The scenario of every point without the variation of repetitions, by the point's number."""
        assert isinstance(self.runs, Runs)
        return ((number, self.runs.scenario_of(number)) for number in range(len(self.points)))

    def campaigns(self) -> Iterator[Campaign]:
        """The fields of every point, validated."""
        assert isinstance(self.runs, Runs)
        return (self.runs.campaign(number) for number in range(len(self.points)))

    @property
    def run_ids(self) -> list[str]:
        """Ids of the runs, each once: points with the same scenario share their runs."""
        return list(dict.fromkeys(run.id for run in self.members))

    @property
    def duration_s(self) -> float:
        """Sum of the durations of all runs, in s."""
        return sum(run.duration_s for run in self.members)


def load(path: Path, overrides: Sequence[str] = ()) -> Plan:
    """Reads, validates and expands a campaign file.

    Args:
        path: the file.
        overrides: "field=value" texts, as `--set` takes them.

    Raises:
        CampaignError: lists every problem with its line.
    """
    return expand(source.read(path), overrides)


def expand(file: located.Source, overrides: Sequence[str] = ()) -> Plan:
    """Validates and expands a file that was read. Arguments and errors are those of `load`."""
    backend = str(file.values.get("backend", Backend.EMULATED))
    for text in overrides:
        field, _, value = text.partition("=")
        backend = value.strip() if field.strip() == "backend" else backend
    file = sections.for_backend(file, backend)
    expansion = _Expansion(file)
    values = copy.deepcopy(file.values)
    # An override such as stack.sack needs the default stack.
    values.setdefault("stack", "reno")
    applied = dict(expansion.override(values, text) for text in overrides)
    combinations = expansion.combinations(values.pop(SWEEP, None), values)
    counts: list[int] = []
    total = 0
    campaign: Campaign | None = None
    kept: list[Campaign] = []
    firsts: list[Scenario | None] = []
    programs: dict[str, None] = {}
    few = with_every_value(combinations)
    # Most errors of a large sweep lie in a value that many of its points share. The points of one axis share none.
    if POINTS_AT_ONCE < len(combinations) > 2 * len(few):
        expansion.validate(values, few)
        expansion.raise_problems()
    for start in range(0, len(combinations), POINTS_AT_ONCE):
        for campaign in expansion.validate(values, combinations[start : start + POINTS_AT_ONCE]):
            count, first = count_runs(campaign)
            counts.append(count)
            if len(kept) < CAMPAIGNS_KEPT:
                kept.append(campaign)
                firsts.append(first)
            programs |= dict.fromkeys(programs_of(campaign))
            total += counts[-1]
        expansion.raise_problems(more_than=MAX_PROBLEMS)
        repetitions = 1 if campaign is None else campaign.repetitions
        # Where the first points have all of their repetitions, the others are not validated to count theirs.
        if max(total, len(combinations) * repetitions if total == len(counts) * repetitions else 0) > MAX_RUNS:
            message = f"the sweep and the repetitions make more than {MAX_RUNS} runs, the maximum of a campaign"
            expansion.report(("repetitions",), message)
            expansion.raise_problems()
    points = Points(combinations, counts, 1 if campaign is None else campaign.repetitions)
    if campaign is not None and campaign.figure is not None and set(applied) <= {"backend"}:
        # An override may remove an axis that the figure uses. The figure then shows the other axes.
        axes: dict[str, list[str]] = {}
        for combination in combinations:
            for name, label in itertools.chain.from_iterable(map(_parameters, combination)):
                axes.setdefault(name, []).append(label)
        for problem in campaign.figure.problems(campaign.measures, axes):
            expansion.report(("figure",), problem)
    expansion.raise_problems()
    assert campaign is not None

    @lru_cache(maxsize=CAMPAIGNS_KEPT)
    def campaign_of(number: int) -> Campaign:
        if number < len(kept):
            return kept[number]
        point_values = dict(values)
        expansion.assign(point_values, combinations[number])
        return Campaign.model_validate(point_values, context=file.file)

    runs = Runs(counts, campaign_of, firsts)
    if campaign.question is not None:
        for field, problem in campaign.question.problems(runs.scenario_of(0)):
            expansion.report(("question", field), problem)
        expansion.raise_problems()
    return Plan(
        name=campaign.name,
        title=campaign.title or campaign.name,
        file=file.name,
        text=file.text,
        overrides=applied,
        backend=campaign.backend,
        seed=campaign.seed,
        repetitions=campaign.repetitions,
        points=points,
        runs=runs,
        programs=tuple(programs),
    )


class _Expansion:
    """Expands a file and collects all of its problems."""

    def __init__(self, file: located.Source) -> None:
        self._file = file
        self._problems: list[Problem] = []
        self._overridden: dict[FieldPath, str] = {}
        self._sweep_failed = False

    def raise_problems(self, more_than: int = 0) -> None:
        """Raises CampaignError if there are more problems than that."""
        if len(self._problems) > more_than:
            raise CampaignError(self._file.name, self._problems)

    def override(self, values: dict[str, Any], text: str) -> tuple[str, str]:
        """Applies "field=value" to the file's values. Returns field and value."""
        field, equals, value = text.partition("=")
        field = field.strip()
        # The key of an axis is a field's whole path, dots included.
        path = (SWEEP, field.removeprefix("sweep.")) if field.startswith("sweep.") else split_field(field)
        if not equals or (path[0] != SWEEP and not all(_STEP.fullmatch(str(part)) for part in path)):
            message = f"'{text}' is not FIELD=VALUE, such as network.reverse.rate='9.6 kbit/s'"
            self._problems.append(Problem(0, "", message, "--set"))
            return field, value
        try:
            parsed = source.parse("--set", f"value: {value}").values["value"]
            path = resolve(values, path)
            assign(values, path, parsed)
        except CampaignError:
            self._problems.append(Problem(0, field, f"'{value}' is not a YAML value", "--set"))
        except ValueError as error:
            self._problems.append(Problem(0, field, str(error), "--set"))
        self._overridden[path] = text
        return field, value.strip()

    def combinations(self, sweep: Any, values: Mapping[str, Any]) -> list[Combination]:
        """The points of the sweep; a single point without swept values if the sweep has an error."""
        fixed = {same_field(path): look_up(values, path) for path in self._overridden if path and path[0] != SWEEP}
        before = len(self._problems)
        expanded = combinations(sweep, fixed, self.report, values)
        # The other fields are validated nevertheless.
        self._sweep_failed = len(self._problems) > before
        return [()] if self._sweep_failed else expanded

    def assign(self, values: dict[str, Any], combination: Combination) -> Places | None:
        """Sets a point's fields. Returns their places; None, after reporting, if a field cannot be set."""
        places: Places = {}
        for swept in combination:
            try:
                path = resolve(values, split_field(swept.field))
                if path in places:
                    raise ValueError(f"'{swept.field}' is swept twice; remove one of the axes")
                if path[0] in WHOLE_CAMPAIGN:
                    raise ValueError(f"'{path[0]}' belongs to the campaign as a whole and cannot be swept")
                assign(values, path, swept.value)
            except ValueError as error:
                self.report(swept.place, str(error), swept.field)
            else:
                places[path] = swept
        return places if len(places) == len(combination) else None

    def validate(self, values: Mapping[str, Any], combinations: Sequence[Combination]) -> list[Campaign]:
        """Validates points, and reports every problem. The result has the points whose fields are valid one by one."""
        campaigns: list[Campaign] = []
        valid: list[tuple[Combination, Places]] = []
        for combination in combinations:
            point_values = dict(values)
            places = self.assign(point_values, combination)
            if places is None:
                continue
            try:
                campaigns.append(Campaign.model_validate(point_values, context=self._file.file))
                valid.append((combination, places))
            except ValidationError as error:
                self._report_invalid(error, places)
                self.raise_problems(more_than=MAX_PROBLEMS)
        having: dict[tuple[checks.Finding, FieldPath], list[Combination]] = {}
        for (combination, places), problems in zip(valid, checks.problems(campaigns), strict=True):
            for path, text in problems:
                having.setdefault(((path, text), _written_at(path, places)), []).append(combination)
        for ((path, text), written), some in having.items():
            # What is wrong with all of them is wrong without the sweep.
            where = "" if len(some) == len(valid) else f" (where {_shared(some)})"
            self.report(written, f"{text}{where}", dotted(path))
        return campaigns

    def report(self, path: FieldPath, message: str, field: str = "") -> None:
        """Adds a problem.

        Args:
            path: the value with the problem.
            message: a sentence.
            field: name of the field, if it is not the path's.
        """
        for overridden, text in self._overridden.items():
            if path[: len(overridden)] == overridden:
                self._problems.append(Problem(0, field or dotted(path), message, f"--set {text}"))
                return
        self._problems.append(self._file.problem(path, message, field))

    def _report_invalid(self, error: ValidationError, places: Places) -> None:
        """Reports every rejected value at its place: in the sweep, if the value is swept."""
        extra = (SWEEP, INCLUDE, sections.DEFAULTS, sections.BACKENDS)
        for path, message in rejected(error, Campaign, extra, missing=not self._sweep_failed):
            written = _written_at(path, places)
            if written == path and path not in self._file.places:
                # The sweep made the mapping around its field.
                written = next((value.place for field, value in places.items() if field[: len(path)] == path), path)
            self.report(written, message, dotted(path))


def _written_at(path: FieldPath, places: Places) -> FieldPath:
    """Where the file has a field's value: in the sweep, if the field is swept."""
    # A swept field may contain another swept field. The innermost has the value.
    swept = max((field for field in places if path[: len(field)] == field), key=len, default=None)
    return path if swept is None else places[swept].place


def _shared(combinations: Sequence[Combination]) -> str:
    """The swept values that all of some combinations have, or else those of the first: "network.link=wifi"."""
    several = [list(itertools.chain.from_iterable(map(_parameters, combination))) for combination in combinations]
    shared = [parameter for parameter in several[0] if all(parameter in others for others in several)]
    return ", ".join(f"{name}={label}" for name, label in shared or several[0])


def _parameters(swept: Value) -> Iterator[tuple[str, str]]:
    """The parameters of a point that a swept value sets: its field, or the names and labels of its axis."""
    if not swept.axis:
        return iter([(swept.field, _label(swept.value))])
    names, labels = swept.axis.split(", "), swept.label.split(", ")
    return zip(names, labels, strict=True) if len(names) > 1 else iter([(swept.axis, swept.label)])


def _label(value: Any) -> str:
    """A swept value as tables show it."""
    if isinstance(value, dict):
        return " ".join(map(_label, value.values()))
    if isinstance(value, list):
        return f"[{', '.join(map(_label, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
