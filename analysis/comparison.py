"""Comparisons of stored results: two campaigns point by point (`compare`), the values of a swept field (`contrast`).

Both take differences by the pairing rule of analysis/statistics.py.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from analysis.errors import AnalysisError, unknown
from analysis.results import Parameters, Quantity, Results, Values
from analysis.statistics import LEVEL, MARGIN, Compared, Difference, compare_all, mean
from analysis.store import Store, is_url

Verdict = Literal["same", "better", "worse", "different", "cannot tell"]


class CompareError(AnalysisError):
    """The campaigns cannot be compared."""


@dataclass(frozen=True)
class Line:
    """One quantity of one point in both campaigns, in SI units."""

    point: Parameters
    metric: str
    subject: str
    unit: str
    n_a: int
    n_b: int
    mean_a: float
    mean_b: float
    compared: Compared
    #: "different" where neither way is better.
    verdict: Verdict

    @property
    def difference(self) -> Difference:
        """B's mean less A's."""
        return self.compared.difference

    @property
    def relative(self) -> float | None:
        """The difference over A's mean; None if that is 0."""
        return self.difference.relative


@dataclass(frozen=True)
class Comparison:
    """Campaign B against campaign A."""

    a: str
    b: str
    #: Of all intervals together, and of all verdicts together.
    confidence: float
    #: Greatest difference of what is called the same, as a share of A's mean.
    margin: float
    lines: tuple[Line, ...]
    #: Points that one campaign alone has.
    only_a: tuple[Parameters, ...]
    only_b: tuple[Parameters, ...]

    @property
    def regressions(self) -> list[Line]:
        """Lines that are worse in B."""
        return [line for line in self.lines if line.verdict == "worse"]

    def as_json(self) -> str:
        """The comparison for scripts."""
        document = {
            "a": self.a, "b": self.b, "confidence": self.confidence, "margin": self.margin,
            "comparisons": len(self.lines), "lines": [_line_document(line) for line in self.lines],
            "only_a": self.only_a, "only_b": self.only_b, "regressions": len(self.regressions),
        }  # fmt: skip
        return json.dumps(document, indent=2)


def _line_document(line: Line) -> dict[str, Any]:
    difference = line.difference
    return {
        "point": line.point, "metric": line.metric, "subject": line.subject, "unit": line.unit, "n_a": line.n_a,
        "n_b": line.n_b, "mean_a": line.mean_a, "mean_b": line.mean_b,
        "difference": {
            "difference": difference.value,
            "low": None if difference.interval is None else difference.interval.low,
            "high": None if difference.interval is None else difference.interval.high,
            "level": difference.level, "p": difference.p, "method": difference.method,
        },
        "p_adjusted": line.compared.p_adjusted,
        "equivalence_p_adjusted": line.compared.equivalence_p_adjusted,
        "verdict": line.verdict, "relative": line.relative,
    }  # fmt: skip


@dataclass(frozen=True)
class Contrast:
    """One quantity at one point: a value of the swept field against the reference value."""

    #: The other swept fields.
    point: Parameters
    quantity: Quantity
    #: The field's values.
    first: str
    second: str
    compared: Compared
    verdict: Verdict


# Two campaigns -----------------------------------------------------------------------------------------------


def compare(
    a: Results, b: Results, confidence: float = LEVEL, margin: float = MARGIN, metrics: Sequence[str] = ()
) -> Comparison:
    """Compares B with A, point by point.

    Args:
        a: the reference.
        b: the campaign under test.
        confidence: of all intervals and of all verdicts together.
        margin: greatest difference of what is called the same, as a share of A's mean.
        metrics: names of the metrics to compare; all if empty.

    Raises:
        CompareError: they have no point in common.
    """
    both = [point for point in a.points if point in b.points]
    if not both:
        raise CompareError(f"{a.name} and {b.name} have no point in common: their sweeps are different")
    pairs: list[tuple[Parameters, Quantity, Values, Values]] = []
    for point in both:
        values_a = a.values.get(a.points.index(point), {})
        values_b = b.values.get(b.points.index(point), {})
        for quantity, in_a in values_a.items():
            if quantity in values_b and (not metrics or quantity.metric in metrics):
                pairs.append((point, quantity, in_a, values_b[quantity]))
    judged = compare_all([(in_a, in_b) for _, _, in_a, in_b in pairs], confidence, margin)
    lines = tuple(
        Line(
            point, *quantity, len(in_a), len(in_b), mean(list(in_a.values())), mean(list(in_b.values())), judgement,
            verdict(quantity.metric, judgement),
        )
        for (point, quantity, in_a, in_b), judgement in zip(pairs, judged, strict=True)
    )  # fmt: skip
    return Comparison(
        a.name, b.name, confidence, margin, lines,
        tuple(point for point in a.points if point not in b.points),
        tuple(point for point in b.points if point not in a.points),
    )  # fmt: skip


def verdict(metric: str, compared: Compared) -> Verdict:
    """Whether the second mean is better, worse, or different where the metric declares no better direction."""
    from analysis.metrics import METRICS

    better = METRICS[metric].better if metric in METRICS else None
    if compared.verdict != "different" or better is None:
        return compared.verdict
    return "better" if (compared.difference.value > 0) == (better == "more") else "worse"


def load(text: str, results: str, artefacts: str | None = None) -> Results:
    """A campaign's results from a store.

    Args:
        text: a campaign's name or id in `results`; FOLDER for the only campaign of another results folder, or
            FOLDER:NAME. A PostgreSQL URL may stand for FOLDER. After any of these @DATE (2026-11-21, or with a time:
            2026-11-21T08:00) selects the results that were stored then; of campaigns with one name, the one with the
            latest result.
        results: the store of names without a folder.
        artefacts: artefact store of a PostgreSQL store.

    Raises:
        CompareError: there is no such campaign.
        StoreError: the store cannot be used.
    """
    what, at, date = text.partition("@")
    folder, name = results, what
    if is_url(text):
        # The first @ and : may belong to user and port, before the database.
        server, _, database = text.partition("://")[2].partition("/")
        what, at, date = database.partition("@")
        database, _, name = what.partition(":")
        folder = f"{text.partition('://')[0]}://{server}/{database}"
    elif Path(what).is_dir() and (Path(what) / "results.sqlite").is_file():
        folder, name = what, ""
    elif ":" in what:
        folder, _, name = what.rpartition(":")
    if not is_url(folder) and not (Path(folder) / "results.sqlite").is_file():
        raise CompareError(f"{folder} is no results folder")
    with Store.open(folder, artefacts if is_url(folder) else None) as store:
        moment = _moment(date) if at else math.inf
        known = store.campaigns()
        names = list(dict.fromkeys(str(campaign.name) for campaign in known))
        if not name and len(names) != 1:
            raise CompareError(f"{folder} has the campaigns {', '.join(names)}: give {folder}:NAME")
        campaigns = [campaign for campaign in known if not name or name in (campaign.id, campaign.name)]
        if not campaigns:
            raise CompareError(str(unknown(f"campaign in {folder}", name, names)))
        dated = [
            (campaign.id, store.values_at(campaign.id, moment)) for campaign in (campaigns if at else campaigns[:1])
        ]
        campaign_id, rows = max(dated, key=lambda item: max((row.landed for row in item[1]), default=-math.inf))
        if at and not rows:
            raise CompareError(f"of campaign {campaigns[0].name} in {folder}, nothing had landed by {date}")
        campaign = store.campaign(campaign_id)
        assert campaign is not None
    return Results.of_rows(text, [dict(point.parameters) for point in campaign.points], rows)


def _moment(date: str) -> float:
    """The UNIX time of a date; of one without a time, the end of that day."""
    try:
        moment = datetime.datetime.fromisoformat(date)
    except ValueError:
        raise CompareError(f"'{date}' is no date: write 2026-11-21 or 2026-11-21T08:00") from None
    if len(date) == len("2026-11-21"):
        moment += datetime.timedelta(days=1)
    return moment.timestamp()


# The values of a swept field ---------------------------------------------------------------------------------


def contrast(
    results: Results, field: str = "", first: str = "", metrics: Sequence[str] = (), level: float = LEVEL,
    margin: float = MARGIN,
) -> list[Contrast]:  # fmt: skip
    """Compares each value of a swept field with a reference value, for every combination of the other fields.

    Args:
        results: the campaign's.
        field: the swept field, or its last words; may be empty if there is only one.
        first: the reference; the first value of the sweep if empty.
        metrics: names of the metrics to compare; all if empty.
        level: of all intervals and of all verdicts together.
        margin: greatest difference of what is called the same, as a share of the reference's mean.

    Raises:
        AnalysisError: there is no such field or value, or the field has one value only.
    """
    swept = list(dict.fromkeys(name for point in results.points for name in point))
    axes = [name for name in swept if not field or name == field or name.endswith("." + field)]
    if not axes or (field and len(axes) > 1):
        raise unknown("swept field", field, swept)
    if len(axes) > 1:
        raise AnalysisError(f"choose the swept field to compare; there are: {', '.join(swept)}")
    axis = axes[0]
    points = {at: point for at, point in enumerate(results.points) if axis in point and at in results.values}
    known = list(dict.fromkeys(point[axis] for point in points.values()))
    if first and first not in known:
        raise unknown(f"value of {axis}", first, known)
    if len(known) < 2:
        raise AnalysisError(f"{axis} has one value only: there is nothing to compare")
    base = first or known[0]
    sides: dict[tuple[tuple[tuple[str, str], ...], Quantity], dict[str, Values]] = {}
    for number, point in points.items():
        rest = tuple((name, value) for name, value in point.items() if name != axis)
        for quantity, values in sorted(results.values[number].items()):
            if metrics and quantity.metric not in metrics:
                continue
            sides.setdefault((rest, quantity), {})[point[axis]] = values
    pairs = [
        (dict(rest), quantity, other, (by_value[base], by_value[other]))
        for (rest, quantity), by_value in sides.items()
        for other in known
        if other != base and base in by_value and other in by_value
    ]
    judged = compare_all([sets for *_, sets in pairs], level, margin)
    return [
        Contrast(rest, quantity, base, other, judgement, verdict(quantity.metric, judgement))
        for (rest, quantity, other, _), judgement in zip(pairs, judged, strict=True)
    ]
