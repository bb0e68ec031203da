"""Values of a campaign's valid runs: by point, by what they are of, and by run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from analysis.statistics import RunKey

#: A point's swept fields and their values.
Parameters = Mapping[str, str]
#: Values of one quantity at one point.
Values = dict[RunKey, float]


class Quantity(NamedTuple):
    """What a stored value is of."""

    metric: str
    #: A flow, a group, a line, a link, or "" for the whole run.
    subject: str
    unit: str


@dataclass(frozen=True)
class Results:
    """A campaign's points and the values of its valid runs, in SI units."""

    #: As messages call the campaign.
    name: str
    points: Sequence[Parameters]
    #: By index into `points`.
    values: Mapping[int, Mapping[Quantity, Values]]

    @classmethod
    def of_rows(cls, name: str, points: Sequence[Parameters], rows: Sequence[Mapping[str, Any]]) -> Results:
        """From rows of Store.values."""
        return cls(name, [dict(point) for point in points], by_point(rows))


def by_point(rows: Sequence[Mapping[str, Any]]) -> dict[int, dict[Quantity, Values]]:
    """Rows of Store.values by point and quantity."""
    found: dict[int, dict[Quantity, Values]] = {}
    for row in rows:
        quantity = Quantity(row["name"], row["subject"], row["unit"])
        of_quantity = found.setdefault(row["point"], {}).setdefault(quantity, {})
        of_quantity[RunKey(row["repetition"], row["seed"])] = row["value"]
    return found
