"""Comparisons of stored results: two campaigns point by point (`compare`), the values of a swept field (`contrast`).

Both take differences by the pairing rule of analysis/statistics.py.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from analysis import naming
from analysis.errors import AnalysisError, unknown
from analysis.estimates import LEAST_FOR_INTERVAL, plus_minus, relative_text
from analysis.question import Asked, Question, is_detail, of_stored
from analysis.results import Parameters, Quantity, Results, Values, of_subject
from analysis.statistics import LEVEL, MARGIN, Compared, Difference, mean
from analysis.store import Store, is_url
from analysis.swept import field_of
from testbed import units

if TYPE_CHECKING:
    from analysis.metrics.registry import Better

Verdict = Literal["worse", "better", "different", "same", "cannot tell"]
#: In the order in which they are counted.
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
#: Of these, those of comparisons that show a difference.
DIFFERING = VERDICTS[:3]


class CompareError(AnalysisError):
    """The campaigns cannot be compared."""


@dataclass(frozen=True)
class MetricComparison:
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
    #: Whether the campaigns do not ask about it.
    exploratory: bool
    #: Comparisons that share the error with this one.
    family: int

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
    #: The question's lines first.
    lines: tuple[MetricComparison, ...]
    #: Points that one campaign alone has.
    only_a: tuple[Parameters, ...]
    only_b: tuple[Parameters, ...]
    #: Metrics, not details, of which one campaign alone has a value at a common point, such as the completion time of a
    #: transfer that does not end in the other.
    unmatched_a: tuple[str, ...]
    unmatched_b: tuple[str, ...]

    @property
    def regressions(self) -> list[MetricComparison]:
        """Lines that are worse in B."""
        return [line for line in self.lines if line.verdict == "worse"]

    def as_json(self) -> dict[str, Any]:
        """The comparison for scripts."""
        return {
            "a": self.a,
            "b": self.b,
            "confidence": self.confidence,
            "margin": self.margin,
            "comparisons": len(self.lines),
            "lines": [_line_document(line) for line in self.lines],
            "only_a": self.only_a,
            "only_b": self.only_b,
            "regressions": len(self.regressions),
        }


def _line_document(line: MetricComparison) -> dict[str, Any]:
    difference, of_line = line.difference, ("point", "metric", "subject", "unit", "n_a", "n_b", "mean_a", "mean_b")
    low, high = difference.ends
    return {
        **{name: getattr(line, name) for name in of_line},
        "difference": {
            **{"difference": difference.value, "low": low, "high": high},
            **{name: getattr(difference, name) for name in ("level", "p", "method")},
        },
        **{name: getattr(line.compared, name) for name in ("p_adjusted", "equivalence_p_adjusted")},
        **{name: getattr(line, name) for name in ("verdict", "relative", "exploratory")},
    }


@dataclass(frozen=True)
class Contrast:
    """One quantity at one point: a value of the swept field against the reference value."""

    #: The other swept fields.
    point: Parameters
    quantity: Quantity
    #: The field's values.
    baseline: str
    value: str
    compared: Compared
    verdict: Verdict
    exploratory: bool


# Two campaigns -----------------------------------------------------------------------------------------------


def compare(
    a: Asked, b: Asked, confidence: float | None = None, margin: float = MARGIN, metrics: Sequence[str] = ()
) -> Comparison:
    """Compares B with A, point by point.

    The question is A's. Its comparisons share the error among the points, all others among points and metrics.

    Args:
        a: the reference.
        b: the campaign under test.
        confidence: of all intervals and of all verdicts of a family; None: the question's.
        margin: greatest difference of what is called the same, as a share of A's mean.
        metrics: names of the metrics to compare; all if empty.

    Raises:
        CompareError: they have no point in common.
    """
    both = [point for point in a.points if point in b.points]
    if not both:
        raise CompareError(f"{a.name} and {b.name} have no combination in common: their sweeps are different")
    pairs: list[tuple[Parameters, Quantity, Values, Values]] = []
    unmatched_a, unmatched_b = dict[Quantity, None](), dict[Quantity, None]()
    for point in both:
        values_a = a.values.get(a.points.index(point), {})
        values_b = b.values.get(b.points.index(point), {})
        for quantity, in_a in values_a.items():
            if quantity in values_b and (not metrics or quantity.metric in metrics):
                pairs.append((point, quantity, in_a, values_b[quantity]))
        unmatched_a |= dict.fromkeys(quantity for quantity in values_a if quantity not in values_b)
        unmatched_b |= dict.fromkeys(quantity for quantity in values_b if quantity not in values_a)

    def named(quantities: Iterable[Quantity]) -> tuple[str, ...]:
        return tuple(
            of_subject(each.metric, each.subject)
            for each in quantities
            if (each.metric in metrics if metrics else not is_detail(each.metric))
        )

    asked = a.question.to(b.question) if a.question and b.question else None
    if asked is not None and confidence is not None:
        asked = replace(asked, level=confidence)
    lines = [
        _line(asked, point, quantity, in_a, in_b, margin) for point, quantity, in_a, in_b in pairs if asked is not None
    ]
    return Comparison(
        a.name,
        b.name,
        asked.level if asked else confidence or LEVEL,
        margin,
        tuple(sorted(lines, key=lambda line: line.exploratory)),
        tuple(point for point in a.points if point not in b.points),
        tuple(point for point in b.points if point not in a.points),
        named(unmatched_a),
        named(unmatched_b),
    )


def _line(
    asked: Question, point: Parameters, quantity: Quantity, in_a: Values, in_b: Values, margin: float
) -> MetricComparison:
    compared = asked.judged(quantity, in_a, in_b, margin)
    return MetricComparison(
        point,
        *quantity,
        len(in_a),
        len(in_b),
        mean(list(in_a.values())),
        mean(list(in_b.values())),
        compared,
        verdict(asked.better_of(quantity), compared),
        asked.is_exploratory(quantity),
        asked.comparisons(quantity),
    )


def verdict(better: Better | None, compared: Compared) -> Verdict:
    """Whether the second mean is better, worse, or different where no direction is better."""
    if compared.verdict != "different" or better is None:
        return compared.verdict
    return "better" if (compared.difference.value > 0) == (better == "more") else "worse"


def difference_text(compared: Compared, unit: str, with_reason: bool = True) -> str:
    """The second mean less the first, for people: "+1.2 ± 0.3 Mbit/s (+27 %)"; of shares in percentage points.

    Where the interval says nothing, the reason: "+13 points; 3 runs cannot tell, about 12 would".
    """
    gap = compared.difference
    half = None if _says_nothing(compared, unit) else gap.half
    # Shares differ by percentage points.
    scale, name = (0.01, "points") if unit == "fraction" else units.scale_of(max(abs(gap.value), half or 0.0), unit)
    sign = "−" if gap.value < 0 else "+" if gap.value else ""
    size = abs(gap.value) / scale
    text = f"{sign}{plus_minus(size, half / scale, most=3) if half else f'{size:.3g}'} {name}".strip()
    text += relative_text(gap.relative) if unit != "fraction" else ""
    return f"{text}; {runs_text(compared)}" if with_reason and compared.verdict == "cannot tell" else text


def runs_text(compared: Compared) -> str:
    """That the runs cannot tell, and how many would if difference and spread stay as they are."""
    n, needed = compared.runs, compared.runs_needed
    runs = "one run" if n == 1 else f"{n} runs"
    cannot = f"{runs} cannot tell"
    if compared.difference.error is None:
        return (
            f"{cannot}, at least {LEAST_FOR_INTERVAL} are needed" if n == 1 else f"{cannot}: none differs from another"
        )
    if not needed or needed <= n:
        return cannot
    return f"{cannot}, about {needed} would"


def _says_nothing(compared: Compared, unit: str) -> bool:
    """Whether an interval reaches farther than the means themselves, or beyond what a share can be."""
    gap = compared.difference
    if compared.verdict != "cannot tell" or gap.half is None:
        return False
    if unit == "fraction":
        return gap.value - gap.half < -gap.mean_first or gap.value + gap.half > 1.0 - gap.mean_first
    return gap.half > max(abs(gap.mean_first), abs(gap.mean_second))


def load(
    text: str, results: str, artefacts: str | None = None, say: Callable[[str], None] = lambda sentence: None
) -> Asked:
    """A campaign's results from a store.

    Args:
        text: a campaign's name or id in `results`; FOLDER for the only campaign of another results folder, or
            FOLDER:NAME. A PostgreSQL URL may stand for FOLDER. After any of these @DATE (2026-11-21, or with a time:
            2026-11-21T08:00) selects the results that were stored then; of campaigns with one name, the one with the
            latest result.
        results: the store of names without a folder.
        artefacts: artefact store of a PostgreSQL store.
        say: is called with which campaign was taken, where the name left a choice.

    Raises:
        AnalysisError: unknown campaign.
        StoreError: the store cannot be used.
    """
    what, at, date = text.rpartition("@")
    if not at or "/" in date:
        # Names of folders may have the sign.
        what, at, date = text, "", ""
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
        raise CompareError(f"{folder} is not a results folder")
    with Store.open(folder, artefacts if is_url(folder) else None) as store:
        moment = _moment(date) if at else math.inf
        campaigns = store.campaigns(texts=True)
        names = list(dict.fromkeys(str(campaign.name) for campaign in campaigns))
        if not name and len(names) != 1:
            raise CompareError(f"{folder} has the campaigns {', '.join(names)}: give {folder}:NAME")
        taken = naming.found(campaigns, name, folder) if name else campaigns[0]
        # Each of several campaigns of one name may be meant by a date.
        dated = [row for row in campaigns if at and name != row.id and row.name == taken.name] or [taken]
        values = [(row, store.values_at(row.id, moment)) for row in dated]
        campaign, rows = max(values, key=lambda item: max((row.landed for row in item[1]), default=-math.inf))
        if at and not rows:
            raise CompareError(f"campaign {taken.name} in {folder} had no results by {date}")
        if note := naming.took(campaigns, name or campaign.id, campaign):
            say(note)
        points = store.points(campaign.id)
        asked = of_stored(store, campaign)
    return Asked.of(Results.of_rows(text, [dict(point.parameters) for point in points], rows), asked)


def _moment(date: str) -> float:
    """The UNIX time of a date; of one without a time, the end of that day."""
    try:
        moment = datetime.datetime.fromisoformat(date)
    except ValueError:
        raise CompareError(f"'{date}' is not a date: write 2026-11-21 or 2026-11-21T08:00") from None
    if len(date) == len("2026-11-21"):
        moment += datetime.timedelta(days=1)
    return moment.timestamp()


# The values of a swept field ---------------------------------------------------------------------------------


def contrast(
    results: Asked, field: str = "", baseline: str = "", metrics: Sequence[str] = (), margin: float = MARGIN
) -> list[Contrast]:
    """Compares each value of a swept field with a baseline, for every combination of the other fields.

    Args:
        results: the campaign's.
        field: the swept field, or its last words; may be empty if there is only one.
        baseline: a value of the field; the first value of the sweep if empty.
        metrics: names of the metrics to compare; all if empty. The question's come first.
        margin: greatest difference of what is called the same, as a share of the baseline's mean.

    Raises:
        AnalysisError: unknown field or value, or the field has one value only.
    """
    swept = list(dict.fromkeys(name for point in results.points for name in point))
    if len(swept) > 1 and not field:
        raise AnalysisError(f"several fields are swept: choose one with --field; swept fields: {', '.join(swept)}")
    axis = swept[0] if swept and not field else field_of(field, swept)
    points = {at: point for at, point in enumerate(results.points) if axis in point and at in results.values}
    values_of_axis = list(dict.fromkeys(point[axis] for point in points.values()))
    declared = list(dict.fromkeys(point[axis] for point in results.points if axis in point))
    if baseline and baseline not in declared:
        raise unknown(f"value of {axis}", baseline, declared)
    if len(declared) < 2:
        raise AnalysisError(f"{axis} has one value only: there is nothing to compare")
    if len(values_of_axis) < 2 or (baseline and baseline not in values_of_axis):
        without = ", ".join(value for value in declared if value not in values_of_axis)
        raise AnalysisError(f"there is nothing to compare: {axis} has no valid run with {without}")
    base, asked = baseline or values_of_axis[0], results.question
    sides: dict[tuple[tuple[tuple[str, str], ...], Quantity], dict[str, Values]] = {}
    for number, point in points.items():
        rest = tuple((name, value) for name, value in point.items() if name != axis)
        for quantity, values in sorted(results.values[number].items()):
            if metrics and quantity.metric not in metrics:
                continue
            sides.setdefault((rest, quantity), {})[point[axis]] = values
    contrasts = []
    for (rest, quantity), by_value in sides.items():
        for other in values_of_axis:
            if asked is not None and other != base and base in by_value and other in by_value:
                compared = asked.judged(quantity, by_value[base], by_value[other], margin)
                word = verdict(asked.better_of(quantity), compared)
                exploratory = asked.is_exploratory(quantity)
                contrasts.append(Contrast(dict(rest), quantity, base, other, compared, word, exploratory))
    return sorted(contrasts, key=lambda row: row.exploratory)
