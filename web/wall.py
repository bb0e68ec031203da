"""Small figures of the scorecard: the published values of an artefact beside the measured ones, in one picture each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from analysis.metrics import METRICS
from analysis.statistics import Interval, exact_interval
from experiments.papers import wording
from experiments.papers.scorecard import Artefact, OrderingScore, ValueScore, slack
from testbed.units import in_unit, number_of
from web.picture import Box, Label, Picture, Wire

WIDTH, HEIGHT = 260.0, 138.0
LEFT, RIGHT, TOP, BOTTOM = 2.0, 258.0, 32.0, 116.0
#: Value to vertical position, in points.
Height = Callable[[float], float]
#: Backends in the order of their marks, and the colour of each.
COLOUR_OF = {"sim": "s1", "emulated": "s0", "virtual-kernel": "s2", "theory": "s3"}
BACKENDS = tuple(COLOUR_OF)
#: An axis is logarithmic if its greatest value is this many times the least.
LOG_FROM = 50.0
#: Width of a character below the axis, in points.
CHARACTER = 4.9


@dataclass(frozen=True)
class _Column:
    """One place of the horizontal axis: a published value, and what each backend measured."""

    name: str
    value: ValueScore | None
    #: Backend to mean, 95 % interval and whether it agrees.
    measured: Mapping[str, tuple[float, Interval, bool]]

    @property
    def reach(self) -> list[float]:
        """Every number that is drawn."""
        values = [] if self.value is None else [self.value.published]
        if self.value is not None and self.value.relation in ("eq", "approx"):
            most = slack(self.value.published, self.value.tolerance)
            values += [self.value.published - most, self.value.published + most]
        return values + [end for _, interval, _ in self.measured.values() for end in (interval.low, interval.high)]


def draw(artefact: Artefact) -> Picture | None:
    """The picture of an artefact's first measure, or of its first ordering; None before it was run."""
    scores = {name: artefact.scores[name] for name in BACKENDS if name in artefact.scores}
    if not scores:
        return None
    first = next(iter(scores.values()))
    if first.values:
        stated = first.stated or first.values
        measure = Counter(value.measure for value in stated).most_common(1)[0][0]
        unit = next(value.unit for value in stated if value.measure == measure)
        at = [number for number, value in enumerate(first.values) if value.measure == measure and value.unit == unit]
        rest = len({value.measure for value in first.values}) - 1
        columns = [_of_values(artefact, number) for number in at]
    elif first.orderings:
        measure, rest = first.orderings[0].measure, len(first.orderings) - 1
        unit = {"rate": "bit/s", "time": "s"}.get(METRICS[measure].unit if measure in METRICS else "", "")
        columns = _of_ordering({name: score.orderings[0] for name, score in scores.items()})
    else:
        return None
    title = wording.words(measure) + (f" and {rest} more" if rest else "")
    return _picture(title, unit, columns, f"{artefact.title}: {wording.words(measure)}, published and measured")


def _of_values(artefact: Artefact, number: int) -> _Column:
    measured = {}
    for backend in BACKENDS:
        score = artefact.scores.get(backend)
        score_value = score.values[number] if score is not None else None
        if score_value is not None and score_value.measured is not None:
            interval = score_value.interval or exact_interval(score_value.measured)
            measured[backend] = score_value.measured, interval, score_value.within
    value = next(iter(artefact.scores.values())).values[number]
    return _Column(" ".join(str(label) for label in value.cell.values()), value, measured)


def _of_ordering(by_backend: Mapping[str, OrderingScore]) -> list[_Column]:
    first = next(iter(by_backend.values()))
    columns = []
    for number, label in enumerate(first.order):
        means = {name: score.measured[number] for name, score in by_backend.items()}
        values = {
            name: (mean, exact_interval(mean), by_backend[name].holds)
            for name, mean in means.items()
            if mean is not None
        }
        columns.append(_Column(str(label), None, values))
    return columns


def _picture(title: str, unit: str, columns: Sequence[_Column], description: str) -> Picture:
    picture = Picture(WIDTH, HEIGHT, description)
    picture.labels.append(Label(LEFT, 8, title, size=11, centred=False, bold=True))
    numbers = [number for column in columns for number in column.reach]
    if not numbers:
        picture.labels.append(Label((LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2, "no value yet", "soft"))
        return picture
    low, high, logarithmic = _limits(numbers)

    def height(value: float) -> float:
        value = min(max(value, low), high)
        share = math.log(value / low) / math.log(high / low) if logarithmic else (value - low) / (high - low)
        return BOTTOM - share * (BOTTOM - TOP)

    for edge in (low, high):
        picture.wires.append(Wire(LEFT, height(edge), RIGHT, height(edge), "h1", 0.8))
    reference = max(map(abs, numbers))
    picture.labels.append(Label(LEFT, TOP - 7, in_unit(high, unit, reference), "soft", 9, centred=False))
    picture.labels.append(Label(LEFT, BOTTOM - 7, in_unit(low, unit, reference), "soft", 9, centred=False))
    step = (RIGHT - LEFT - 50) / len(columns)
    wide = min(step * 0.7, 16.0)
    for number, column in enumerate(columns):
        x = LEFT + 50 + (number + 0.5) * step
        if column.value is not None:
            _published(picture, column.value, x, wide, height)
        for place, (backend, (mean, interval, agrees)) in enumerate(column.measured.items()):
            at = x + (place - (len(column.measured) - 1) / 2) * min(7.0, wide / 2)
            picture.wires.append(Wire(at, height(interval.low), at, height(interval.high), COLOUR_OF[backend], 1.2))
            # A circle agrees, a square does not.
            picture.boxes.append(Box(at - 2.5, height(mean) - 2.5, 5, 5, COLOUR_OF[backend], 2.5 if agrees else 0))
    if max(len(column.name) for column in columns) * CHARACTER <= step:
        for number, column in enumerate(columns):
            picture.labels.append(Label(LEFT + 50 + (number + 0.5) * step, BOTTOM + 10, column.name, "soft", 9))
    else:
        places = number_of(len(columns), "place")
        picture.labels.append(Label((LEFT + 50 + RIGHT) / 2, BOTTOM + 10, places, "soft", 9))
    return picture


def _published(picture: Picture, value: ValueScore, x: float, wide: float, height: Height) -> None:
    """A published value as a dash, on a band of its tolerance; the band of a bound has no other end."""
    most = slack(value.published, value.tolerance)
    ends = [value.published - most, value.published + most]
    if value.relation == "le":
        ends[0] = -math.inf
    if value.relation == "ge":
        ends[1] = math.inf
    picture.wires.append(Wire(x, height(ends[0]), x, height(ends[1]), "h1", wide))
    at = height(value.published)
    picture.wires.append(Wire(x - wide / 2, at, x + wide / 2, at, "ink", 2))


def _limits(numbers: Sequence[float]) -> tuple[float, float, bool]:
    """The ends of the vertical axis, and whether it is logarithmic. It has zero unless all values are far from it."""
    low, high = min(numbers), max(numbers)
    if low > 0 and high / low > LOG_FROM:
        return low / 1.2, high * 1.2, True
    if low >= 0 and low < 0.6 * high:
        return 0.0, high, False
    room = (high - low) * 0.15 or abs(high) * 0.1 or 1.0
    return low - room, high + room, False
