"""Names and numbers as text: labels of points and runs, durations, and means with their confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from testbed.units import number_of, show

if TYPE_CHECKING:
    from analysis.attempts import PointAttempts
    from analysis.handle import StoredCampaign
    from analysis.store.removal import Removal
    from analysis.store.rows import CampaignRow, PointRow, TableRow
    from experiments.language.campaign import Member, Plan, Run


def duration_text(seconds: float) -> str:
    """ "50 s", "12 min", "3 h 20 min"."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def point_label(parameters: Mapping[str, str]) -> str:
    """ "policy=droptail, rate=1 Mbit/s": each parameter under the last part of its field's name, or under the last two
    where they are needed: "forward.rate=1 Mbit/s, reverse.rate=64 kbit/s".
    """
    return ", ".join(
        f"{label}={value}" for label, value in zip(field_labels([*parameters]), parameters.values(), strict=True)
    )


def field_labels(fields: Sequence[str]) -> list[str]:
    """The last part of each field's name, or the last two where the last is not enough."""
    last = [field.rpartition(".")[2] for field in fields]
    return [
        word if last.count(word) == 1 else ".".join(field.split(".")[-2:])
        for field, word in zip(fields, last, strict=True)
    ]


def level_text(level: float) -> str:
    """A confidence level below 1 in percent, to two digits of what is missing: "95 %", "99.9961 %"."""
    places = max(-math.floor(math.log10(1 - level)) - 1, 0)
    return f"{100 * level:.{places}f}".removesuffix(".0") + " %"


def run_label(plan: Plan, run: Run | Member) -> str:
    """ "policy=droptail, repetition 2"."""
    point = point_label(plan.points[run.point].parameters)
    return f"{point + ', ' if point else ''}repetition {run.repetition + 1}"


#: "one run five times".
_TIMES = (
    "",
    "once",
    "twice",
    "three times",
    "four times",
    "five times",
    "six times",
    "seven times",
    "eight times",
    "nine times",
    "ten times",
)


def exact_note(plan: Plan) -> str:
    """Says that repetitions are not made because they would be equal; empty where they differ."""
    exact = sum(point.is_exact for point in plan.points)
    if not exact:
        return ""
    n = plan.repetitions
    times = _TIMES[n] if n < len(_TIMES) else f"{n} times"
    where = "" if exact == len(plan.points) else f" (at {exact} of {len(plan.points)} combinations)"
    return (
        f"{n} repetitions would be one run {times}{where}, because nothing in it is random. It is run once, without an "
        "interval. 'variation' makes repetitions differ (docs/campaigns.md)"
    )


def cell_text(row: TableRow | None, runs: int | None = None) -> str:
    """A metric at a point, as `Estimate.text` writes it; "–" without a row.

    Args:
        row: of the store.
        runs: valid runs of the point. A metric with fewer values says how many.
    """
    if row is None:
        return "–"
    from analysis.metrics.registry import estimate

    shown = estimate(row.name, row.unit, row.values).text(row.unit)
    return shown if runs in (None, row.n) else f"{shown}, n = {row.n}"


def comparisons_note(margin: float, levels: Mapping[int, float]) -> str:
    """What the verdicts mean, and how many comparisons share the error.

    Args:
        margin: greatest difference of what is called the same, as a share of the first mean.
        levels: number of comparisons that share the error, to the level of each interval.
    """
    families = " or ".join(
        f"{number_of(count, 'comparison')}, an interval at {level_text(level)}"
        for count, level in sorted(levels.items())
    )
    return (
        f"The error is shared by {families} (Bonferroni); exploratory metrics share it among themselves. "
        "Better, worse and different: the means are shown to be unequal. Same: they are shown to be less than "
        f"{margin * 100:.3g} % of the first mean apart. Cannot tell: none of these is shown."
    )


class Attempts(TypedDict):
    """Attempts at the runs of a parameter combination."""

    total: int
    #: Invalid and failed ones.
    thrown: int
    #: Why the valid runs may be a selection.
    marked: Sequence[str]


class RunOfPoint(TypedDict):
    """A run of a parameter combination."""

    run_id: str
    #: Counted from 0.
    repetition: int
    #: valid, invalid or missing.
    state: str


class Mean(TypedDict):
    """A metric over the valid runs of a parameter combination."""

    name: str
    #: Flow, group or link; empty for the run.
    subject: str
    unit: str
    n: int
    mean: float
    #: Sample standard deviation; null for one run.
    sd: float | None
    values: Sequence[float]
    #: Ends of the 95 % confidence interval; null where there is none.
    low_95: float | None
    high_95: float | None


class ResultsPoint(TypedDict):
    """A parameter combination with its runs and means."""

    parameters: Mapping[str, str]
    runs: Sequence[RunOfPoint]
    attempts: Attempts
    metrics: Sequence[Mean]


def point_document(point: PointRow, rows: Sequence[TableRow], attempts: Mapping[int, PointAttempts]) -> ResultsPoint:
    """A point's runs and means with their intervals, in SI units.

    Args:
        point: with its members.
        rows: of Store.table, of this point.
        attempts: of analysis.attempts, by point.
    """
    from analysis.metrics.registry import estimate

    metrics: list[Any] = []
    for row in rows:
        low, high = estimate(row.name, row.unit, row.values).ends
        fields = {key: value for key, value in vars(row).items() if key != "point"}
        metrics.append({**fields, "low_95": low, "high_95": high})
    took = attempts.get(point.number)
    return {
        "parameters": dict(point.parameters),
        "runs": [
            {"run_id": member.run_id, "repetition": member.repetition, "state": member.state}
            for member in point.members
        ],
        "attempts": {
            "total": 0 if took is None else took.total,
            "thrown": 0 if took is None else took.thrown,
            "marked": [] if took is None else took.reasons,
        },
        "metrics": metrics,
    }


def extent_text(removal: Removal) -> str:
    """ "3 runs with 12 MB of files; 1 run also in other campaigns, kept"."""
    shared = f"; {number_of(removal.shared, 'run')} also in other campaigns, kept" if removal.shared else ""
    return f"{number_of(removal.runs, 'run')} with {show(removal.bytes, 'bytes')} of files{shared}"


def campaign_summary(campaign: CampaignRow) -> dict[str, object]:
    """A campaign of Store.campaigns for scripts."""
    return {key: getattr(campaign, key) for key in ("id", "name", "title", "state", "runs", "valid")}


def results_document(campaign: StoredCampaign) -> dict[str, Any]:
    """A campaign's results for scripts, in SI units."""
    from analysis.attempts import attempts_of

    row, attempts = campaign.row, attempts_of(campaign.store, campaign.row.id)
    of_point: dict[int, list[TableRow]] = {}
    for value in campaign.store.table(row.id):
        of_point.setdefault(value.point, []).append(value)
    points = [point_document(point, of_point.get(point.number, []), attempts) for point in row.points]
    return {"campaign": row.id, "name": row.name, "state": row.state, "points": points}
