"""What is known of points: the question's number in each repetition, from screened runs."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.results import Quantity
from analysis.statistics import Interval, mean, t_interval
from analysis.store import Store
from experiments.engine import screen as screening
from experiments.language.campaign import Plan, Run, expand
from experiments.language.problems import CampaignError, Problem
from experiments.search.file import Question, SearchFile
from experiments.search.space import Point
from testbed.scenario import Scenario

#: Axis of the points of a batch.
_POINT, _VARIANT = "point", "variant"


@dataclass(frozen=True)
class Candidate:
    """A campaign of one combination: the base with fields set, flows removed, and another duration."""

    fields: tuple[tuple[str, Any], ...]
    without: frozenset[str] = frozenset()
    duration: str = ""

    @classmethod
    def at(cls, point: Point) -> Candidate:
        """The base at a point."""
        return cls(tuple(point.items()))

    @property
    def key(self) -> str:
        """Equal for equal candidates."""
        return repr((sorted(map(repr, self.fields)), sorted(self.without), self.duration))


@dataclass(frozen=True)
class Evaluated:
    """A candidate with its repetitions. More of `samples` is what is searched for, once they have their sign."""

    candidate: Candidate
    #: By repetition. One without a value has none.
    samples: Mapping[int, float]
    #: Ids of its runs.
    runs: tuple[str, ...]
    #: Why it has no samples.
    problem: str = ""

    @property
    def mean(self) -> float:
        """Of the samples."""
        return mean(list(self.samples.values()))

    def interval(self, level: float = 0.95) -> Interval | None:
        """Of the mean; None for fewer than two repetitions."""
        return t_interval(list(self.samples.values()), level)

    def shows(self, level: float = 0.95) -> bool:
        """Whether the interval lies above 0."""
        interval = self.interval(level)
        return interval is not None and interval.low > 0

    def may_show(self) -> bool:
        """Whether the interval leaves room above 0."""
        interval = self.interval()
        return interval is None or interval.high > 0

    def signed(self, sign: float) -> Evaluated:
        """With the samples' sign changed."""
        return self if sign > 0 else replace(self, samples={at: -value for at, value in self.samples.items()})

    def less(self, other: Evaluated) -> Evaluated:
        """With its differences from another candidate, of the repetitions that have a value of both."""
        both = self.samples.keys() & other.samples.keys()
        return replace(self, samples={at: self.samples[at] - other.samples[at] for at in sorted(both)})


def campaign_values(file: SearchFile, candidate: Candidate) -> dict[str, Any]:
    """The base campaign's values without the flows that a candidate removes, with its duration."""
    values = copy.deepcopy(file.base.values)
    if candidate.without:
        values["workload"] = [flow for flow in values["workload"] if flow.get("name") not in candidate.without]
    return values | ({"duration": candidate.duration} if candidate.duration else {})


class Evaluator:
    """Evaluates candidates by screened runs, each run once.

    Args:
        file: the search.
        store: of the screened runs.
        jobs: most runs at a time.
    """

    def __init__(self, file: SearchFile, store: Store, jobs: int | None) -> None:
        self._file, self._store, self._jobs = file, store, jobs
        #: Runs asked for so far, whether the store had them or not: a search that is resumed does the same.
        self.runs = 0
        self._seen: set[str] = set()

    def evaluate(self, candidates: Sequence[Candidate], repetitions: int, seed: int) -> list[Evaluated]:
        """The candidates with so many repetitions.

        Raises:
            CampaignError: a combination is not valid.
        """
        question = self._file.question
        groups = _alike(candidates)
        plans = [self._plan(group, repetitions, seed) for group in groups]
        runs = [run for plan in plans for run in plan.runs]
        new = {run.id for run in runs} - self._seen
        self._seen |= new
        self.runs += len(new)
        metrics = question.expression.metrics
        have, progress = screening.screen(self._store, runs, metrics, self._jobs)
        values = {run_id: row.values for run_id, row in have.items() if not row.problems}
        variants = len(question.variants)
        evaluated: dict[str, Evaluated] = {}
        for plan, group in zip(plans, groups, strict=True):
            by_point: dict[int, list[Run]] = {}
            for run in plan.runs:
                by_point.setdefault(run.point, []).append(run)
            for at, candidate in enumerate(group):
                of_variants = [by_point[at * variants + number] for number in range(variants)]
                problem = next(
                    (progress.failed[run.id] for of in of_variants for run in of if run.id in progress.failed), ""
                )
                evaluated[candidate.key] = sampled(question, candidate, of_variants, values, problem)
        return [evaluated[candidate.key] for candidate in candidates]

    def scenario(self, candidate: Candidate) -> Scenario:
        """The scenario of a candidate's first repetition.

        Raises:
            CampaignError: it is not valid.
        """
        return self._plan([candidate], 1, self._file.seed).runs[0].scenario

    def duration_s(self, candidate: Candidate) -> float:
        """How long its runs are. Raises CampaignError if it is not valid."""
        return self._plan([candidate], 1, self._file.seed).runs[0].duration_s

    def _plan(self, group: Sequence[Candidate], repetitions: int, seed: int) -> Plan:
        values = campaign_values(self._file, group[0])
        points = {f"p{number}": dict(candidate.fields) for number, candidate in enumerate(group)}
        axes: dict[str, Any] = {_POINT: points}
        if self._file.question.between is not None:
            axes[_VARIANT] = {f"v{number}": fields for number, fields in enumerate(self._file.question.variants)}
        sweep = {"axes": axes}
        if not any(points.values()):
            sweep = {"axes": {name: axis for name, axis in axes.items() if name != _POINT}}
        values |= {"repetitions": repetitions, "seed": seed}
        if sweep["axes"]:
            values["sweep"] = sweep
        try:
            return expand(replace(self._file.base, values=values))
        except CampaignError as error:
            # The base is valid (`check`), so an axis or the question has the value.
            problems = [replace(problem, line=0, where="") for problem in error.problems]
            raise CampaignError(self._file.path, problems) from None


def _alike(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Groups that one campaign can have: equal flows and durations, each candidate once, those without fields alone."""
    groups: dict[tuple[frozenset[str], str, bool], dict[str, Candidate]] = {}
    for candidate in candidates:
        key = (candidate.without, candidate.duration, bool(candidate.fields))
        groups.setdefault(key, {}).setdefault(candidate.key, candidate)
    return [list(group.values()) for group in groups.values()]


def sampled(
    question: Question,
    candidate: Candidate,
    of_variants: Sequence[Sequence[Run]],
    values: Mapping[str, Mapping[Quantity, float]],
    problem: str = "",
) -> Evaluated:
    """A candidate with its samples: repetition by repetition over the question's variants."""
    samples: dict[int, float] = {}
    for at, runs in enumerate(zip(*of_variants, strict=False)):
        numbers = [
            question.expression.value(values[run.id], run.scenario) if run.id in values else None for run in runs
        ]
        if all(number is not None for number in numbers):
            samples[at] = question.sample([number for number in numbers if number is not None])
    ids = tuple(run.id for runs in of_variants for run in runs)
    if not samples and not problem:
        problem = f"no run has a value of {question.expression.text}"
    return Evaluated(candidate, samples, ids, problem)


def check(file: SearchFile) -> Run:
    """The base campaign's run, which has everything that the expression names.

    Raises:
        CampaignError: it is not valid, or lacks what the expression names.
    """
    run = expand(replace(file.base, values=file.base.values | {"repetitions": 1})).runs[0]
    try:
        file.question.expression.check(run.scenario)
    except ValueError as error:
        raise CampaignError(file.path, [Problem(0, "question", str(error))]) from None
    return run
