"""`./backchannel compare A B`: two campaigns, or two dates of one, held against each other."""

from __future__ import annotations

import datetime
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis.intervals import Difference, holm, paired, welch
from analysis.store import Store, is_url
from experiments.language import registry

#: Which way each metric is better: 1 for more, -1 for less. Of others, a difference is no regression.
BETTER = {
    "throughput": 1,
    "aggregate_throughput": 1,
    "packet_throughput": 1,
    "goodput": 1,
    "fairness_index": 1,
    "completion_time": -1,
    "retransmissions": -1,
    "timeouts": -1,
}


class CompareError(ValueError):
    """What was asked for cannot be compared; the message is a sentence."""


@dataclass(frozen=True)
class Line:
    """One metric of one point in both campaigns. Values in the metric's SI unit."""

    point: Mapping[str, str]
    metric: str
    #: A flow, or "" for the whole run.
    subject: str
    unit: str
    n_a: int
    n_b: int
    mean_a: float
    mean_b: float
    difference: Difference
    #: Holm's p over all lines; None where there are too few values to tell.
    p_adjusted: float | None
    #: "same", "better", "worse", "different" (where neither way is better), or "unknown": too few values.
    verdict: str

    @property
    def relative(self) -> float | None:
        """The difference over A's mean."""
        return self.difference.difference / abs(self.mean_a) if self.mean_a else None


@dataclass(frozen=True)
class Comparison:
    """Two campaigns."""

    a: str
    b: str
    confidence: float
    tolerance: float
    lines: tuple[Line, ...]
    #: Points that only one of them has.
    only_a: tuple[Mapping[str, str], ...]
    only_b: tuple[Mapping[str, str], ...]

    @property
    def regressions(self) -> list[Line]:
        """Lines that are worse in B."""
        return [line for line in self.lines if line.verdict == "worse"]

    def as_json(self) -> str:
        """For scripts."""
        document = asdict(self)
        for line, whole in zip(document["lines"], self.lines, strict=True):
            line["relative"] = whole.relative
        document["regressions"] = len(self.regressions)
        return json.dumps(document, indent=2)


def compare(
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    names: tuple[str, str],
    confidence: float = 0.95,
    tolerance: float = 0.01,
    metrics: Sequence[str] = (),
) -> Comparison:
    """Holds B against A, point by point.

    Repetitions of one seed are compared pair by pair, which is what the seeds of a campaign are made for; what has no
    such pairs is compared by Welch's interval. A difference counts when it is greater than the tolerance
    and would be rare without a cause even among as many lines as there are (Holm).

    Args:
        a: "points" (list of parameters) and "values" (rows of Store.values).
        b: the same.
        names: what messages call them.
        confidence: of the intervals, and of the verdicts together.
        tolerance: share of A's mean; a smaller difference is none.
        metrics: names of those to compare; all without any.

    Raises:
        CompareError: they have no point in common.
    """
    points_a, points_b = ([dict(point) for point in one["points"]] for one in (a, b))
    both = [point for point in points_a if point in points_b]
    if not both:
        raise CompareError(f"{names[0]} and {names[1]} have no point in common: their sweeps are different")
    found: list[tuple[dict[str, str], str, str, str, list[float], list[float], Difference]] = []
    for point in both:
        values_a = _by_metric(a["values"], points_a.index(point))
        values_b = _by_metric(b["values"], points_b.index(point))
        for key in values_a:
            if key in values_b and (not metrics or key[0] in metrics):
                here, there = values_a[key], values_b[key]
                found.append((point, *key, list(here.values()), list(there.values()), _held(here, there, confidence)))
    tested = [one for one in found if one[6].p is not None]
    adjusted = dict(zip(map(id, tested), holm([one[6].p or 0.0 for one in tested]), strict=True))
    lines = []
    for one in found:
        point, metric, subject, unit, in_a, in_b, difference = one
        mean_a = statistics.fmean(in_a)
        p = adjusted.get(id(one))
        verdict = _verdict(metric, difference.difference, mean_a, p, 1 - confidence, tolerance)
        lines.append(
            Line(
                point,
                metric,
                subject,
                unit,
                len(in_a),
                len(in_b),
                mean_a,
                statistics.fmean(in_b),
                difference,
                p,
                verdict,
            )
        )
    return Comparison(
        *names, confidence, tolerance, tuple(lines),
        tuple(point for point in points_a if point not in points_b),
        tuple(point for point in points_b if point not in points_a),
    )  # fmt: skip


#: Values of one metric by repetition and seed.
_Values = dict[tuple[int, int], float]


def _by_metric(rows: Sequence[Mapping[str, Any]], point: int) -> dict[tuple[str, str, str], _Values]:
    found: dict[tuple[str, str, str], _Values] = {}
    for row in rows:
        if row["point"] == point:
            key = (row["name"], row["subject"], row["unit"])
            found.setdefault(key, {})[row["repetition"], row["seed"]] = row["value"]
    return found


def _held(a: _Values, b: _Values, confidence: float) -> Difference:
    pairs = [key for key in a if key in b]
    if len(pairs) >= 2 and len(pairs) >= min(len(a), len(b)) / 2:
        return paired([a[key] for key in pairs], [b[key] for key in pairs], confidence)
    return welch(list(a.values()), list(b.values()), confidence)


def _verdict(metric: str, difference: float, mean_a: float, p: float | None, level: float, tolerance: float) -> str:
    if p is None:
        return "unknown"
    if p >= level or abs(difference) <= tolerance * abs(mean_a):
        return "same"
    way = BETTER.get(metric, 0) * (1 if difference > 0 else -1)
    return {1: "better", -1: "worse", 0: "different"}[way]


def load(text: str, results: str, artefacts: str | None = None) -> tuple[str, dict[str, Any]]:
    """A campaign from a store, with what `compare` takes.

    Args:
        text: a campaign's name or id in `results`; FOLDER for the only campaign of another results folder, or
            FOLDER:NAME; after any of these @DATE (2026-11-21, or with a time: 2026-11-21T08:00) for the results that
            were there then: of campaigns of one name, those that landed last.
        results: the store of names without a folder.
        artefacts: of a PostgreSQL store.

    Returns: what messages call it, and its data.

    Raises:
        CompareError: there is no such campaign.
        StoreError: the store cannot be used.
    """
    what, at, date = text.partition("@")
    folder, name = results, what
    if Path(what).is_dir() and (Path(what) / "results.sqlite").is_file():
        folder, name = what, ""
    elif ":" in what and not is_url(what):
        folder, _, name = what.rpartition(":")
    if not is_url(folder) and not (Path(folder) / "results.sqlite").is_file():
        raise CompareError(f"{folder} is no results folder")
    store = Store.open(folder if is_url(folder) else Path(folder), artefacts if is_url(folder) else None)
    try:
        moment = _moment(date) if at else math.inf
        known = store.campaigns()
        names = list(dict.fromkeys(str(one["name"]) for one in known))
        if not name and len(names) != 1:
            raise CompareError(f"{folder} has the campaigns {', '.join(names)}: say {folder}:NAME")
        found = [one for one in known if not name or name in (one["id"], one["name"])]
        if not found:
            raise CompareError(registry.unknown(f"campaign in {folder}", name, names))
        dated = [(one["id"], store.values_at(one["id"], moment)) for one in (found if at else found[:1])]
        campaign_id, values = max(dated, key=lambda one: max((row["landed"] for row in one[1]), default=-math.inf))
        if at and not values:
            raise CompareError(f"of campaign {found[0]['name']} in {folder}, nothing had landed by {date}")
        campaign = store.campaign(campaign_id)
        assert campaign is not None
    finally:
        store.close()
    return text, {"points": [dict(point["parameters"]) for point in campaign["points"]], "values": values}


def _moment(date: str) -> float:
    try:
        moment = datetime.datetime.fromisoformat(date)
    except ValueError:
        raise CompareError(f"'{date}' is no date: it is written like 2026-11-21 or 2026-11-21T08:00") from None
    if len(date) == len("2026-11-21"):
        moment += datetime.timedelta(days=1)
    return moment.timestamp()
