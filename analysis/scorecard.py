"""The scorecard: published values and orderings beside the results of campaigns.

Targets (experiments/PAPER/targets.yaml) hold the published values with tolerances, and the orderings, of each artefact.
A campaign whose file names an artefact is compared with them by its stored results alone. Nothing that runs a campaign
reads targets.

An artefact passes if all its orderings hold and at least 80 % of its stated values lie within their tolerance. A
derived value (computed from the paper's numbers, not printed there) is shown, and counts only where there is nothing
else. A reversed ordering counts as a tie if the means' intervals overlap (analysis/statistics.py).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from analysis import theory
from analysis.measures import Measure, Split, Table
from analysis.results import by_point
from analysis.statistics import half_width, overlap, sd
from analysis.store import Store, browse
from analysis.store.rows import CampaignRow

_MEASURES, _SPLITS = TypeAdapter(dict[str, Measure]), TypeAdapter(list[Split])
#: Share of an artefact's stated values that must lie within tolerance.
ENOUGH = 0.8
#: Overrides that do not change what a campaign reproduces.
HARMLESS = frozenset({"backend"})


@dataclass(frozen=True)
class ValueScore:
    """A published value beside the measured one."""

    measure: str
    cell: Mapping[str, object]
    #: eq, approx, le or ge.
    relation: str
    published: float
    unit: str
    tolerance: Mapping[str, float]
    #: stated or derived.
    origin: str
    #: Mean over the runs; None without a value.
    measured: float | None
    runs: int
    #: Half of the mean's 95 % confidence interval; None for fewer than two runs.
    half_interval: float | None
    within: bool


@dataclass(frozen=True)
class OrderingScore:
    """A published ordering and whether the measured one is the same."""

    measure: str
    axis: str
    order: Sequence[object]
    where: Mapping[str, object]
    min_ratio: float | None
    #: Means in that order; None without a value.
    measured: Sequence[float | None]
    #: A reversal lies within the 95 % confidence intervals: it holds as a tie.
    tie: bool
    holds: bool


@dataclass(frozen=True)
class Score:
    """One artefact on one backend; "theory" for arithmetic."""

    backend: str
    #: The campaign's id; empty for arithmetic.
    campaign: str
    #: Runs that the campaign contains, and valid ones among them.
    asked: int
    there: int
    values: Sequence[ValueScore]
    orderings: Sequence[OrderingScore]

    @property
    def stated(self) -> list[ValueScore]:
        """The values that count."""
        return [value for value in self.values if value.origin == "stated"]

    @property
    def passes(self) -> bool:
        """Whether the campaign is complete, enough values are within tolerance, and every ordering holds."""
        stated = self.stated or (list(self.values) if not self.orderings else [])
        enough = sum(value.within for value in stated) >= ENOUGH * len(stated)
        return self.there == self.asked and enough and all(ordering.holds for ordering in self.orderings)


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

    @property
    def passes(self) -> bool:
        """Whether it passes on every backend on which it was run, and was run on at least one."""
        return bool(self.scores) and all(score.passes for score in self.scores.values())


#: Returns the score made under a key before, or makes it.
Keep = Callable[[tuple[Any, ...], Callable[[], Score]], Score]


def scorecard(store: Store, experiments: Path, keep: Keep = lambda _, make: make()) -> list[Artefact]:
    """Every artefact of every targets file below `experiments`, in the files' order, with the newest campaign of
    each backend.

    Args:
        store: with the campaigns.
        experiments: with the targets.
        keep: a cache of scores. A score's key names everything that it depends on, except the targets.
    """
    campaigns = _newest(store)
    landed = browse.last_landed(store, [row.id for row in campaigns.values()])
    found = []
    for path in sorted(experiments.glob("*/targets.yaml")):
        for target in targets(path):
            scores = {
                backend: keep(
                    (target["id"], backend, row.id, row.started, row.runs, row.valid, landed[row.id]),
                    partial(_score, target, backend, store, row),
                )
                for (artefact, backend), row in campaigns.items()
                if artefact == target["id"]
            }
            computed = theory.results(target["id"])
            if computed is not None:
                scores["theory"] = _hold(target, "theory", "", 1, 1, computed)
            found.append(
                Artefact(
                    target["id"], target["paper"], target["title"], str(target["section"]), target["source"],
                    len(target["expected"]), len(target["orderings"]), scores,
                )
            )  # fmt: skip
    return found


def published(experiments: Path, text: str) -> list[dict[str, Any]]:
    """Published values of the artefact that a campaign file names, where a measure is a metric as it is stored.

    Returns:
        Of each, metric, subject, cell (labels), value in the SI unit.
    """
    file = file_of(text)
    artefact = file.get("artefact")
    if artefact is None:
        return []
    measures = {name: Measure.model_validate(one) for name, one in file.get("measures", {}).items()}
    return [
        {
            "metric": measures[one["metric"]].metric,
            "subject": measures[one["metric"]].of,
            "cell": {str(axis): str(label) for axis, label in one["cell"].items()},
            "value": float(one["value"]) / (100 if one["unit"] == "%" else 1),
        }
        for path in sorted(experiments.glob("*/targets.yaml"))
        for target in targets(path)
        if target["id"] == artefact
        for one in target["expected"]
        if one["metric"] in measures and measures[one["metric"]].metric is not None
    ]


@cache
def targets(path: Path) -> list[dict[str, Any]]:
    """The artefacts of a targets file."""
    return list(YAML(typ="safe").load(path.read_text()))


def document(artefacts: Sequence[Artefact]) -> dict[str, Any]:
    """The scorecard for scripts, with the totals."""
    return {
        "artefacts": [
            {
                **{key: value for key, value in asdict(artefact).items() if key != "scores"},
                "passes": artefact.passes,
                "scores": {
                    backend: {
                        **asdict(score), "passes": score.passes, "within": sum(value.within for value in score.stated),
                        "stated": len(score.stated),
                    }
                    for backend, score in artefact.scores.items()
                },
            }
            for artefact in artefacts
        ],
        "count": count(artefacts),
        "between_backends": between_backends(artefacts),
    }  # fmt: skip


def between_backends(artefacts: Sequence[Artefact]) -> dict[str, Any] | None:
    """Agreement of real packets with virtual time, over the values that both measured; None without any.

    Returns:
        `values`: their number; `median`: of the differences, as shares of the simulated value; `within_5_percent`;
        `apart`: those that differ by more than 0.1 % and whose 95 % confidence intervals do not overlap, the largest
        difference first, as {artefact, measure, cell, sim, emulated}.
    """
    pairs = [
        (artefact.id, in_time, real)
        for artefact in artefacts
        if {"sim", "emulated"} <= artefact.scores.keys()
        for in_time, real in zip(artefact.scores["sim"].values, artefact.scores["emulated"].values, strict=True)
    ]
    apart, shares = [], []
    for artefact_id, one, other in pairs:
        if one.measured is None or other.measured is None:
            continue
        difference = abs(other.measured - one.measured)
        share = difference / abs(one.measured) if one.measured else float(difference > 0)
        shares.append(share)
        # Intervals of counts and constants may have no width.
        if share > 0.001 and difference > (one.half_interval or 0.0) + (other.half_interval or 0.0):
            told = {"artefact": artefact_id, "measure": one.measure, "cell": dict(one.cell)}
            apart.append((share, {**told, "sim": one.measured, "emulated": other.measured}))
    if not shares:
        return None
    return {
        "values": len(shares),
        "median": statistics.median(shares),
        "within_5_percent": sum(share <= 0.05 for share in shares),
        "apart": [told for _, told in sorted(apart, key=lambda pair: -pair[0])],
    }


def count(artefacts: Sequence[Artefact]) -> dict[str, int]:
    """Totals: artefacts, and over all scores the stated values and the orderings."""
    scores = [score for artefact in artefacts for score in artefact.scores.values()]
    return {
        "artefacts": len(artefacts),
        "run": sum(bool(artefact.scores) for artefact in artefacts),
        "pass": sum(artefact.passes for artefact in artefacts),
        "values": sum(len(score.stated) for score in scores),
        "values_within": sum(value.within for score in scores for value in score.stated),
        "orderings": sum(len(score.orderings) for score in scores),
        "orderings_hold": sum(ordering.holds for score in scores for ordering in score.orderings),
    }


def _newest(store: Store) -> dict[tuple[str, str], CampaignRow]:
    """By artefact and backend the campaign that was started last, of those without overrides that matter."""
    found: dict[tuple[str, str], CampaignRow] = {}
    for row in store.campaigns():
        if not set(row.overrides) <= HARMLESS or not row.valid:
            continue
        artefact = file_of(row.text).get("artefact")
        if artefact is not None:
            found.setdefault((str(artefact), row.backend), row)
    return found


def file_on(text: str, backend: str) -> dict[str, Any]:
    """The measures and the figure of a campaign's file on a backend (`backends` in docs/campaigns.md)."""
    file = dict(file_of(text))
    own = (file.get("backends") or {}).get(backend) or {}
    for name in ("measures", "figure"):
        if name in own:
            file[name] = {**(file.get(name) or {}), **own[name]}
    return file


@cache
def file_of(text: str) -> dict[str, Any]:
    """A campaign file's text as values."""
    try:
        values = YAML(typ="safe").load(text)
    except YAMLError:
        # A bundle from elsewhere may hold something else than a campaign file.
        return {}
    return values if isinstance(values, dict) else {}


def _score(target: Mapping[str, Any], backend: str, store: Store, row: Mapping[str, Any]) -> Score:
    return _hold(target, backend, row["id"], row["runs"], row["valid"], results_table(store, row["id"], row["text"]))


def results_table(store: Store, campaign_id: str, text: str) -> Table:
    """A campaign's results as the measures that its file defines."""
    campaign = browse.campaign_head(store, campaign_id)
    assert campaign is not None
    file = file_on(text, campaign.backend)
    measures = _MEASURES.validate_python(file.get("measures") or {})
    configured = any(one.configured is not None for one in measures.values())
    return Table(
        measures,
        _SPLITS.validate_python(file.get("split") or []),
        {point.number: dict(point.parameters) for point in browse.points(store, campaign_id)},
        by_point(store.values(campaign_id)),
        browse.scenarios(store, campaign_id) if configured else {},
    )


def _hold(target: Mapping[str, Any], backend: str, campaign: str, asked: int, there: int, table: Table) -> Score:
    return Score(
        backend, campaign, asked, there,
        [_value(table, one) for one in target["expected"]],
        [_ordering(table, one) for one in target["orderings"]],
    )  # fmt: skip


def _value(table: Table, one: Mapping[str, Any]) -> ValueScore:
    values = table.values(one["metric"], one["cell"])
    mean = statistics.fmean(values) if values else None
    return ValueScore(
        measure=one["metric"], cell=one["cell"], relation=one["relation"], published=float(one["value"]),
        unit=one["unit"], tolerance=one["tolerance"], origin=one["origin"], measured=mean, runs=len(values),
        half_interval=half_interval(values),
        within=mean is not None and within(mean, one["relation"], float(one["value"]), one["tolerance"]),
    )  # fmt: skip


def within(measured: float, relation: str, published: float, tolerance: Mapping[str, float]) -> bool:
    """Whether a value is within tolerance of the published one: the larger of the relative and the absolute tolerance.

    For `le` and `ge` a value on the right side of it is within, too.
    """
    slack = max(tolerance.get("rel", 0.0) * abs(published), tolerance.get("abs", 0.0)) + 1e-9 * abs(published)
    match relation:
        case "le":
            return measured <= published + slack
        case "ge":
            return measured >= published - slack
    return abs(measured - published) <= slack


def _ordering(table: Table, one: Mapping[str, Any]) -> OrderingScore:
    groups = [table.values(one["metric"], {**one["where"], one["axis"]: label}) for label in one["order"]]
    least = one.get("min_ratio")
    holds, tie = all(groups), False
    sign = 1 if one["direction"] == "descending" else -1
    for first, second in zip(groups, groups[1:], strict=False):
        if not first or not second:
            continue
        greater, lesser = (first, second) if sign > 0 else (second, first)
        above, below = statistics.fmean(greater), statistics.fmean(lesser)
        if least is not None:
            holds &= above >= least * below
        elif above < below:
            apart = not overlap(greater, lesser)
            holds &= not apart
            tie |= not apart
    return OrderingScore(
        measure=one["metric"], axis=one["axis"], order=one["order"], where=one["where"], min_ratio=least,
        measured=[statistics.fmean(group) if group else None for group in groups], tie=tie and holds, holds=holds,
    )  # fmt: skip


def half_interval(values: Sequence[float]) -> float | None:
    """Half of the mean's 95 % confidence interval; None for fewer than two values."""
    return half_width(sd(values), len(values))
