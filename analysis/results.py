"""Values of metrics: of one run, and of a campaign's valid runs by point, quantity and run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from analysis.statistics import RunKey

#: Names under which earlier versions stored a metric, and its name today.
RENAMED = {
    "commonest_gap_of_acks": "ack_gap_mode",
    "resent_per_loss": "retransmissions_per_loss",
    "active_aggregate_throughput": "active_total_packet_throughput",
    "cwnd_coefficient_of_variation": "cwnd_variation",
    "rtt_stddev": "rtt_sd",
    "share_acks": "ack_fraction",
    "share_data": "data_fraction",
    "utilisation_acks": "ack_share",
    "utilisation_data": "data_share",
}

#: Begins the names of values that programs of a campaign printed (analysis/outputs.py).
OUTPUT = "output."

#: What a campaign has whose valid runs have no metric.
NOTHING_MEASURED = "no metrics: it keeps neither captures nor counters (capture.at, capture.counters)"


def is_output(metric: str) -> bool:
    """Whether a program stated the value, rather than captures or counters."""
    return metric.startswith(OUTPUT)


#: A point's swept fields and their values.
Parameters = Mapping[str, str]
#: A label of a cell as a targets file writes it: a number, a name, or a range. Its text is the campaign's label, so a
#: range stays a list: '[60, 80]'.
CellLabel = int | str | list[int | float]
#: Values of one quantity at one point.
Values = dict[RunKey, float]


class Quantity(NamedTuple):
    """What a stored value is of."""

    metric: str
    #: A flow, a group, a line, a link, or "" for the whole run.
    subject: str
    unit: str

    @property
    def key(self) -> str:
        """As addresses write it."""
        return f"{self.metric}/{self.subject}"


@dataclass(frozen=True)
class MetricValue:
    """A value of a metric, in the SI unit."""

    metric: str
    #: A flow, a group, LINK/DIRECTION, a link, or "" for the run.
    subject: str
    value: float
    unit: str


@dataclass(frozen=True)
class ValueRow:
    """One metric of a campaign's run, as the store has it."""

    point: int
    repetition: int
    run_id: str
    seed: int
    name: str
    subject: str
    unit: str
    value: float


@dataclass(frozen=True)
class Results:
    """A campaign's points and the values of its valid runs, in SI units."""

    #: As messages call the campaign.
    name: str
    points: Sequence[Parameters]
    #: By index into `points`.
    values: Mapping[int, Mapping[Quantity, Values]]

    @classmethod
    def of_rows(cls, name: str, points: Sequence[Parameters], rows: Sequence[ValueRow]) -> Results:
        """From rows of Store.values."""
        return cls(name, [dict(point) for point in points], by_point(rows))


def of_subject(name: str, subject: str) -> str:
    """ "goodput of reverse"; the name alone if the value is of the whole run."""
    return f"{name} of {subject}" if subject else name


def line_name(subject: str) -> str:
    """LINK/DIRECTION of a line, also where an earlier version wrote LINK:DIRECTION."""
    return re.sub(r"^([\w-]+):(forward|reverse)$", r"\1/\2", subject)


def by_point(rows: Sequence[ValueRow]) -> dict[int, dict[Quantity, Values]]:
    """Rows of Store.values by point and quantity."""
    by_number: dict[int, dict[Quantity, Values]] = {}
    for row in rows:
        quantity = Quantity(row.name, row.subject, row.unit)
        of_quantity = by_number.setdefault(row.point, {}).setdefault(quantity, {})
        of_quantity[RunKey(row.repetition, row.seed)] = row.value
    return by_number
