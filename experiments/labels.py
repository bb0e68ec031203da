"""Names and numbers as text: labels of points and runs, durations, and mean ± standard deviation."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.store.rows import CampaignRow, SummaryRow, TableRow
from testbed import units

if TYPE_CHECKING:
    from experiments.language.campaign import Plan, Run


def duration_text(seconds: float) -> str:
    """ "50 s", "12 min", "3 h 20 min"."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def point_label(parameters: Mapping[str, str]) -> str:
    """ "policy=droptail, rate=1 Mbit/s": each parameter under the last part of its field's name."""
    return ", ".join(f"{field.rpartition('.')[2]}={value}" for field, value in parameters.items())


def run_label(plan: Plan, run: Run) -> str:
    """ "policy=droptail, repetition 2"."""
    point = point_label(plan.points[run.point].parameters)
    return f"{point + ', ' if point else ''}repetition {run.repetition + 1}"


def mean_sd(row: SummaryRow | None) -> str:
    """ "2.10 ± 0.31 Mbit/s", both in the mean's unit; "–" without a row.

    The standard deviation sets the number of decimals: two of its digits, at most three decimals.
    """
    if row is None:
        return "–"
    mean = units.show(row.mean, row.unit)
    if row.sd is None:
        return mean
    scale, unit = units.scale_of(row.mean, row.unit)
    sd = row.sd / scale
    digits = 2 if sd == 0 else min(max(1 - math.floor(math.log10(sd)), 0), 3)
    return f"{row.mean / scale:.{digits}f} ± {sd:.{digits}f}{' ' + unit if unit else ''}"


def results_json(campaign: CampaignRow, rows: Sequence[TableRow]) -> str:
    """A campaign's results as a JSON document, in SI units.

    Args:
        campaign: of Store.campaign.
        rows: of Store.table.
    """
    by_point: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        by_point.setdefault(row.point, []).append({key: value for key, value in vars(row).items() if key != "point"})
    document = {
        "campaign": campaign.id,
        "name": campaign.name,
        "state": campaign.state,
        "points": [
            {
                "parameters": dict(point.parameters),
                "runs": [
                    {key: getattr(member, key) for key in ("run_id", "repetition", "state")} for member in point.members
                ],
                "metrics": by_point.get(point.number, []),
            }
            for point in campaign.points
        ],
    }
    return json.dumps(document, indent=2)
