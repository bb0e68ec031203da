"""The scorecard: published values and orderings beside the results of campaigns.

Targets (experiments/PAPER/targets.yaml) hold the published values with tolerances, and the orderings, of each artefact.
A campaign whose file names an artefact is compared with them by its stored results alone. Nothing that runs a campaign
reads targets.

An artefact passes if all its orderings hold and at least 80 % of its stated values lie within their tolerance. A
derived value (computed from the paper's numbers, not printed there) is shown, and counts only where there is nothing
else. A reversed ordering counts as a tie if the means' intervals overlap (analysis/statistics.py).

A value is inconclusive if its interval crosses a limit of the tolerance, and an ordering if two means are tied or their
difference is not significant. What has no interval, such as a single run, is inconclusive too. A verdict is
inconclusive if these could reverse it.
"""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Literal, get_args

from analysis.figures.campaign import PublishedValue
from analysis.handle import OpenResults, StoredCampaign
from analysis.results import CellLabel, by_point
from analysis.statistics import LEVEL, MARGIN, Difference, Interval, difference, exact_interval
from analysis.store.rows import CampaignRow
from experiments.language.measures import Configured, Metric
from experiments.papers import theory
from experiments.papers.choices import OVERRIDE, with_defaults
from experiments.papers.declared import CampaignFile
from experiments.papers.table import Table, TableCell
from experiments.papers.targets import Expected, Ordering, Target, all_targets, expected_of

#: Share of an artefact's stated values that must lie within tolerance.
ENOUGH = 0.8
#: Overrides that do not change what a campaign reproduces.
HARMLESS = frozenset({"backend"})


@dataclass(frozen=True)
class ValueScore:
    """A published value beside the measured one."""

    measure: str
    cell: Mapping[str, CellLabel]
    #: eq, approx, le or ge.
    relation: str
    published: float
    unit: str
    tolerance: Mapping[Literal["rel", "abs"], float]
    #: stated or derived.
    origin: str
    #: Mean over the runs; None without a value.
    measured: float | None
    runs: int
    #: 95 % confidence interval of what was measured; None for a single run and without a value.
    interval: Interval | None
    within: bool
    #: There is an interval, and no limit of the tolerance lies in it.
    conclusive: bool = True


@dataclass(frozen=True)
class OrderingScore:
    """A published ordering and whether the measured one is the same."""

    measure: str
    axis: str
    order: Sequence[object]
    where: Mapping[str, CellLabel]
    min_ratio: float | None
    #: Means in that order; None without a value.
    measured: Sequence[float | None]
    #: A reversal lies within the 95 % confidence intervals: it holds as a tie.
    tie: bool
    holds: bool
    #: The difference of each two neighbours is significant, or one that contradicts the order is.
    conclusive: bool = True
    #: The means of a tie are shown to be less than MARGIN apart: an effect of that size is refuted.
    refuted: bool = False


@dataclass(frozen=True)
class Score:
    """One artefact on one backend; "theory" for arithmetic."""

    backend: str
    #: The campaign's id; empty for arithmetic.
    campaign: str
    #: Runs that the campaign contains, and valid ones among them.
    asked: int
    valid: int
    values: Sequence[ValueScore]
    orderings: Sequence[OrderingScore]

    @property
    def is_complete(self) -> bool:
        """Whether every run of the campaign has a valid result."""
        return self.valid == self.asked

    @property
    def stated(self) -> list[ValueScore]:
        """The values that count."""
        return [value for value in self.values if value.origin == "stated"]

    @property
    def within(self) -> int:
        """Number of the stated values within their tolerance."""
        return sum(value.within for value in self.stated)

    @property
    def hold(self) -> int:
        """Number of the orderings that hold."""
        return sum(ordering.holds for ordering in self.orderings)

    @property
    def tied(self) -> int:
        """Number of the orderings that hold as ties."""
        return sum(ordering.tie for ordering in self.orderings)

    @property
    def refuted(self) -> int:
        """Number of the ties for which the runs refute an effect of MARGIN."""
        return sum(ordering.refuted for ordering in self.orderings)

    @property
    def passes(self) -> bool:
        """Whether the campaign is complete, enough values are within tolerance, and every ordering holds."""
        return self._passes(value.within for value in self._counting) and self.hold == len(self.orderings)

    @property
    def verdict(self) -> Verdict:
        """ "incomplete" where runs without a valid result leave it open."""
        return "pass" if self.passes else "fail" if self.is_complete else "incomplete"

    @property
    def conclusive(self) -> bool:
        """Whether the verdict is the same at the worst and at the best of its inconclusive values and orderings."""
        worst = self._passes(value.within and value.conclusive for value in self._counting) and all(
            ordering.holds and ordering.conclusive for ordering in self.orderings
        )
        best = self._passes(value.within or not value.conclusive for value in self._counting) and all(
            ordering.holds or not ordering.conclusive for ordering in self.orderings
        )
        return worst == best

    @property
    def _counting(self) -> Sequence[ValueScore]:
        """Stated values; derived ones where there is nothing else."""
        return self.stated or (self.values if not self.orderings else [])

    def _passes(self, within: Iterable[bool]) -> bool:
        return self.is_complete and sum(within) >= ENOUGH * len(self._counting)


@dataclass(frozen=True)
class Artefact:
    """A published table, figure or claim, and its scores by backend."""

    id: str
    paper: str
    title: str
    section: str
    #: How the paper obtained it: measured, simulated or theory.
    source: str
    values: int
    orderings: int
    scores: Mapping[str, Score] = field(default_factory=dict)
    #: Scores with the defaults of what was chosen (experiments/papers/choices.py), by backend.
    defaults: Mapping[str, Score] = field(default_factory=dict)
    #: Whether a parameter with a default was chosen.
    has_choices: bool = False

    @property
    def passes(self) -> bool:
        """Whether it passes on every backend on which it was run, and was run on at least one."""
        return bool(self.scores) and all(score.passes for score in self.scores.values())

    @property
    def verdict_with_defaults(self) -> Verdict:
        """The verdict with the defaults of what was chosen; the ordinary one where nothing was."""
        return _verdict(self.defaults if self.has_choices else self.scores)

    @property
    def verdict(self) -> Verdict:
        """The verdict of all backends on which it was run."""
        return _verdict(self.scores)


Verdict = Literal["pass", "fail", "incomplete", "not run"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


def _verdict(scores: Mapping[str, Score]) -> Verdict:
    verdicts = [score.verdict for score in scores.values()]
    return min(verdicts, key=("fail", "incomplete", "pass").index, default="not run")


#: Returns the score made under a key before, or makes it.
Keep = Callable[[tuple[Any, ...], Callable[[], Score]], Score]


def scorecard(opened: OpenResults, keep: Keep = lambda _, make: make()) -> list[Artefact]:
    """Every artefact of every paper, in the order of their targets files, with the newest campaign of each backend.

    Args:
        opened: results with the campaigns.
        keep: a cache of scores. A score's key names everything that it depends on, except the targets.
    """
    campaigns, defaults = _newest(opened), _newest(opened, defaults=True)
    landed = opened.store.last_landed([row.id for row in (*campaigns.values(), *defaults.values())])
    free = with_defaults()

    def scores_of(target: Target, rows: Mapping[tuple[str, str], CampaignRow]) -> dict[str, Score]:
        return {
            backend: keep(
                (target.id, backend, row.id, row.started, row.runs, row.valid, landed[row.id]),
                partial(_score, target, StoredCampaign(opened.store, row)),
            )
            for (artefact, backend), row in rows.items()
            if artefact == target.id
        }

    artefacts_scored = []
    for target in all_targets():
        scores = scores_of(target, campaigns)
        computed = theory.results(target.id)
        if computed is not None:
            scores["theory"] = score_of(target, "theory", "", 1, 1, computed)
        artefacts_scored.append(artefact_of(target, scores, scores_of(target, defaults), target.id in free))
    return artefacts_scored


def artefact_of(
    target: Target, scores: Mapping[str, Score], defaults: Mapping[str, Score], has_choices: bool
) -> Artefact:
    """A target with its scores; the arguments are the fields of `Artefact`."""
    return Artefact(
        target.id,
        target.paper,
        target.title,
        target.section,
        target.source,
        len(target.expected),
        len(target.orderings),
        scores,
        defaults,
        has_choices,
    )


def published(text: str) -> list[PublishedValue]:
    """Published values of the artefact that a campaign file names, where a measure is a metric as it is stored."""
    file = CampaignFile(text)
    if file.artefact is None:
        return []
    measures, values = file.measures(""), []
    for expected in expected_of(file.artefact):
        measure = measures.get(expected.measure)
        if isinstance(measure, Metric):
            cell = {axis: str(label) for axis, label in expected.cell.items()}
            value = float(expected.value) / (100 if expected.unit == "%" else 1)
            values.append(PublishedValue(measure.metric, measure.of, cell, value))
    return values


def document(artefacts: Sequence[Artefact]) -> dict[str, Any]:
    """The scorecard for scripts, with the totals."""
    agreement = between_backends(artefacts)
    return {
        "artefacts": [
            {
                **{key: value for key, value in asdict(artefact).items() if key not in ("scores", "defaults")},
                "passes": artefact.passes,
                "with_defaults": artefact.verdict_with_defaults,
                "scores": {backend: _document(score) for backend, score in artefact.scores.items()},
                "defaults": {backend: _document(score) for backend, score in artefact.defaults.items()},
            }
            for artefact in artefacts
        ],
        "count": count(artefacts),
        "between_backends": None if agreement is None else asdict(agreement),
    }


def _document(score: Score) -> dict[str, Any]:
    counts = {"within": score.within, "stated": len(score.stated)}
    return {**asdict(score), "passes": score.passes, "conclusive": score.conclusive, **counts}


@dataclass(frozen=True)
class BackendDisagreement:
    """A value on which real packets and virtual time do not agree."""

    artefact: str
    measure: str
    cell: Mapping[str, CellLabel]
    sim: float
    emulated: float


@dataclass(frozen=True)
class Agreement:
    """Agreement of real packets with virtual time, over the values that both measured."""

    #: Their number.
    values: int
    #: Of the differences, as shares of the simulated value.
    median: float
    within_5_percent: int
    #: Values that differ by more than 0.1 % and whose 95 % confidence intervals do not overlap, the largest
    #: difference first.
    disagreements: Sequence[BackendDisagreement]


def between_backends(artefacts: Sequence[Artefact]) -> Agreement | None:
    """Agreement of the emulated with the sim backend; None without a value that both measured."""
    pairs = [
        (artefact.id, simulated, real)
        for artefact in artefacts
        if {"sim", "emulated"} <= artefact.scores.keys()
        for simulated, real in zip(artefact.scores["sim"].values, artefact.scores["emulated"].values, strict=True)
    ]
    disagreements: list[tuple[float, BackendDisagreement]] = []
    shares = []
    for artefact_id, simulated, real in pairs:
        if simulated.measured is None or real.measured is None:
            continue
        difference = abs(real.measured - simulated.measured)
        share = difference / abs(simulated.measured) if simulated.measured else float(difference > 0)
        shares.append(share)
        # Intervals of counts and constants may have no width.
        interval = simulated.interval or exact_interval(simulated.measured)
        if share > 0.001 and not interval.overlaps(real.interval or exact_interval(real.measured)):
            disagreement = BackendDisagreement(
                artefact_id, simulated.measure, simulated.cell, simulated.measured, real.measured
            )
            disagreements.append((share, disagreement))
    if not shares:
        return None
    return Agreement(
        len(shares),
        statistics.median(shares),
        sum(share <= 0.05 for share in shares),
        [disagreement for _, disagreement in sorted(disagreements, key=lambda pair: -pair[0])],
    )


def count(artefacts: Sequence[Artefact]) -> dict[str, int]:
    """Totals: artefacts, and over all scores the stated values and the orderings."""
    scores = [score for artefact in artefacts for score in artefact.scores.values()]
    return {
        "artefacts": len(artefacts),
        "run": sum(bool(artefact.scores) for artefact in artefacts),
        "pass": sum(artefact.passes for artefact in artefacts),
        # Verdicts of one backend.
        "inconclusive": sum(not score.conclusive for score in scores),
        # With the defaults of what was chosen.
        "defaults_pass": sum(artefact.verdict_with_defaults == "pass" for artefact in artefacts),
        "defaults_not_run": sum(artefact.verdict_with_defaults in ("not run", "incomplete") for artefact in artefacts),
        "values": sum(len(score.stated) for score in scores),
        "values_within": sum(score.within for score in scores),
        "orderings": sum(len(score.orderings) for score in scores),
        "orderings_hold": sum(score.hold for score in scores),
        # Of those that hold: reversals within the confidence intervals.
        "orderings_tied": sum(score.tied for score in scores),
    }


def _newest(opened: OpenResults, *, defaults: bool = False) -> dict[tuple[str, str], CampaignRow]:
    """By artefact and backend the campaign that was started last, of those without overrides that matter, or of those
    that `papers run --defaults` started.
    """
    newest: dict[tuple[str, str], CampaignRow] = {}
    for row in opened.store.campaigns(texts=True):
        is_selected = OVERRIDE in row.overrides if defaults else set(row.overrides) <= HARMLESS
        if not is_selected or not row.valid:
            continue
        artefact = CampaignFile(row.text).artefact
        if artefact is not None:
            newest.setdefault((artefact, row.backend), row)
    return dict(sorted(newest.items()))


def _score(target: Target, campaign: StoredCampaign) -> Score:
    row = campaign.row
    return score_of(target, row.backend, row.id, row.runs, row.valid, results_table(campaign))


def results_table(campaign: StoredCampaign) -> Table:
    """A campaign's results as the measures that its file defines."""
    store, row = campaign.store, campaign.row
    file = CampaignFile(row.text)
    measures = file.measures(row.backend)
    return Table(
        measures,
        file.splits(),
        {point.number: dict(point.parameters) for point in store.points(row.id)},
        by_point(store.values(row.id)),
        store.scenarios(row.id) if any(isinstance(measure, Configured) for measure in measures.values()) else {},
    )


def score_of(target: Target, backend: str, campaign: str, asked: int, valid: int, table: Table) -> Score:
    """A table beside what was published.

    Args:
        target: of the artefact.
        backend: that made the results.
        campaign: its id; empty for arithmetic.
        asked: runs of the campaign.
        valid: its valid runs.
        table: the campaign's results.
    """
    return Score(
        backend,
        campaign,
        asked,
        valid,
        [_value(table, value) for value in target.expected],
        [_ordering(table, ordering) for ordering in target.orderings],
    )


def _value(table: Table, expected: Expected) -> ValueScore:
    cell = table.cell(expected.measure, expected.cell)
    mean, interval = cell.mean if cell.values else None, cell.interval
    undecided = interval is None or (interval.half > 0 and any(limit in interval for limit in limits(expected)))
    return ValueScore(
        measure=expected.measure,
        cell=expected.cell,
        relation=expected.relation,
        published=float(expected.value),
        unit=expected.unit,
        tolerance=expected.tolerance,
        origin=expected.origin,
        measured=mean,
        runs=len(cell.values),
        interval=interval,
        within=mean is not None and within(mean, expected),
        conclusive=not undecided,
    )


def slack(published: float, tolerance: Mapping[Literal["rel", "abs"], float]) -> float:
    """The larger of the relative and the absolute tolerance, in the value's unit."""
    return max(tolerance.get("rel", 0.0) * abs(published), tolerance.get("abs", 0.0))


def limits(expected: Expected) -> tuple[float, float]:
    """Least and greatest value within tolerance of a published one. For `le` and `ge` every value on the right side of
    it is within, too.
    """
    published = float(expected.value)
    most = slack(published, expected.tolerance) + 1e-9 * abs(published)
    low = -math.inf if expected.relation == "le" else published - most
    high = math.inf if expected.relation == "ge" else published + most
    return low, high


def within(measured: float, expected: Expected) -> bool:
    """Whether a value is within tolerance of the published one."""
    low, high = limits(expected)
    return low <= measured <= high


def _ordering(table: Table, ordering: Ordering) -> OrderingScore:
    cells = [table.cell(ordering.measure, {**ordering.where, ordering.axis: label}) for label in ordering.order]
    least = ordering.min_ratio
    holds, tie, refuted = all(cell.values for cell in cells), False, False
    # Of each pair: it is significantly in order, it is significantly not (False), or neither (None).
    pairs: list[bool | None] = []
    sign = 1 if ordering.direction == "descending" else -1
    for first, second in pairwise(cells) if holds else ():
        greater, lesser = (first, second) if sign > 0 else (second, first)
        in_order = greater.mean >= (least or 1.0) * lesser.mean
        tied = least is None and not in_order and _overlap(greater, lesser)
        holds &= in_order or tied
        tie |= tied
        refuted |= tied and _are_the_same(greater, lesser)
        # More runs may end a tie either way.
        significant = not tied and _is_beyond_chance(greater, lesser.mapped(partial(operator.mul, least or 1.0)))
        pairs.append(in_order if significant else None)
    return OrderingScore(
        measure=ordering.measure,
        axis=ordering.axis,
        order=ordering.order,
        where=ordering.where,
        min_ratio=least,
        measured=[cell.mean if cell.values else None for cell in cells],
        tie=tie and holds,
        holds=holds,
        conclusive=None not in pairs or False in pairs,
        refuted=refuted and holds,
    )


def _overlap(first: TableCell, second: TableCell) -> bool:
    """Whether the intervals of two means overlap; False if one has none."""
    return first.interval is not None and second.interval is not None and first.interval.overlaps(second.interval)


def _is_beyond_chance(first: TableCell, second: TableCell) -> bool:
    """Whether the order of two means is significant: by Welch's test, or, where an interval is not that of values, if
    the two do not overlap. Intervals without width leave nothing to chance. A single run has no interval.
    """
    if first.interval is None or second.interval is None:
        return False
    if not first.interval.half and not second.interval.half:
        return True
    if first.other_interval or second.other_interval:
        return not first.interval.overlaps(second.interval)
    welch = _welch(first, second)
    return welch.interval is None or 0.0 not in welch.interval


def _are_the_same(first: TableCell, second: TableCell) -> bool:
    """Whether two means are shown to be less than MARGIN of the first apart, as `compare` shows it."""
    if first.other_interval or second.other_interval:
        return False
    welch = _welch(first, second)
    p = welch.equivalence_p(MARGIN * abs(welch.mean_first))
    return p is not None and p < 1 - LEVEL


def _welch(first: TableCell, second: TableCell) -> Difference:
    """The difference of two means, whose runs are not paired."""
    return difference(dict(enumerate(first.values)), {-1 - at: value for at, value in enumerate(second.values)})
