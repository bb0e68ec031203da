"""Runs of the store in one list: of a campaign or of all, by state, swept values, backend and tag."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from analysis.errors import AnalysisError, unknown
from analysis.naming import SHORT
from analysis.store import notes
from analysis.store.rows import MISSING
from analysis.swept import condition
from experiments.labels import point_label
from experiments.plain_table import plain_table

if TYPE_CHECKING:
    from analysis.handle import OpenResults, StoredCampaign

STATES = ("valid", "invalid", MISSING)


@dataclass(frozen=True)
class Wanted:
    """Which runs are listed; empty fields choose nothing."""

    #: Empty: those in the store.
    state: str = ""
    #: FIELD=VALUE of swept fields, or of their last words.
    where: Sequence[str] = ()
    backend: str = ""
    tag: str = ""


@dataclass(frozen=True)
class ListedRun:
    """A run of a campaign."""

    run_id: str
    campaign: str
    campaign_id: str
    parameters: dict[str, str]
    #: Counted from 1, as on the site.
    repetition: int
    state: str
    #: Seconds since the epoch; None for a missing run.
    landed: float | None
    tags: tuple[str, ...]


def listed(store: OpenResults, campaigns: Sequence[StoredCampaign] | None, wanted: Wanted) -> list[ListedRun]:
    """The runs, the newest first; missing ones last.

    Args:
        store: of the results.
        campaigns: whose runs; None: all.
        wanted: which of them.

    Raises:
        AnalysisError: unknown state, field or value.
    """
    if wanted.state and wanted.state not in STATES:
        raise unknown("state of a run", wanted.state, STATES)
    chosen = [store[row.id] for row in store.store.campaigns()] if campaigns is None else campaigns
    runs: list[ListedRun] = []
    errors = []
    for campaign in chosen:
        try:
            runs += _of(campaign, wanted, [condition(text, campaign.axes) for text in wanted.where])
        except AnalysisError as error:
            # Another campaign may have the field and the value.
            errors.append(error)
    if errors and len(errors) == len(chosen):
        fields = {name for campaign in chosen for name in campaign.axes}
        several = f"no campaign has {' and '.join(wanted.where)}; swept fields: {', '.join(sorted(fields)) or 'none'}"
        raise errors[0] if len(errors) == 1 else AnalysisError(several)
    return sorted(runs, key=lambda run: -(run.landed or 0.0))


def _of(campaign: StoredCampaign, wanted: Wanted, where: Sequence[tuple[str, str]]) -> Iterator[ListedRun]:
    row = campaign.row
    if wanted.backend and row.backend != wanted.backend:
        return
    remarks = notes.of_campaign(campaign.store, row.id)
    points = {point.number: dict(point.parameters) for point in row.points}
    matching = [
        number for number, parameters in points.items() if all(parameters.get(field) == value for field, value in where)
    ]
    for member in campaign.store.members(row.id, matching):
        note = remarks.get(member.run_id)
        tags = tuple(note.tags) if note else ()
        is_wanted = member.state == wanted.state if wanted.state else member.state != MISSING
        if is_wanted and (not wanted.tag or wanted.tag in tags):
            yield ListedRun(
                member.run_id,
                row.name,
                row.id,
                points[member.point],
                member.repetition + 1,
                member.state,
                member.landed,
                tags,
            )


def table(runs: Sequence[ListedRun], named: bool = False) -> Table:
    """A row for each run.

    Args:
        runs: to list.
        named: whether the reader named the campaign, which each row would repeat.
    """
    ids: dict[str, set[str]] = {}
    for run in runs:
        ids.setdefault(run.campaign, set()).add(run.campaign_id)
    # A column that tells nothing apart would fold the others.
    telling = {"campaign": not named, "tags": any(run.tags for run in runs)}
    columns = ("id", "campaign", "combination", "rep.", "state", "landed (UTC)", "tags")
    heads = [name for name in columns if telling.get(name, True)]
    made = plain_table(*heads, right=["rep."], whole=["id", "rep.", "state", "landed (UTC)"])
    for run in runs:
        landed = "" if run.landed is None else time.strftime("%Y-%m-%d %H:%M", time.gmtime(run.landed))
        # Campaigns of one name are told apart by their ids.
        campaign = run.campaign if len(ids[run.campaign]) == 1 else f"{run.campaign} {run.campaign_id[:SHORT]}"
        parts = {
            "id": run.run_id[:12],
            "campaign": campaign,
            "combination": point_label(run.parameters),
            "rep.": str(run.repetition),
            "state": run.state,
            "landed (UTC)": landed,
            "tags": ", ".join(run.tags),
        }
        made.add_row(*(Text(parts[name]) for name in heads))
    return made
