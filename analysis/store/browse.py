"""What the site asks of the store: one page at a time, counted and averaged by the database."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import sqlalchemy as sa

from analysis.results import ValueRow
from analysis.statistics import mean, sd
from analysis.store.database import batched
from analysis.store.rows import (
    MISSING,
    CampaignRow,
    CauseRow,
    LandedRow,
    ListedRunRow,
    MemberRow,
    MetricKind,
    MetricRow,
    PlaceRow,
    PointRow,
    TableRow,
)
from analysis.store.schema import attempt, campaign, membership, metric, point, run
from analysis.store.store import Store
from testbed.scenario import Scenario, ScenarioDocument

#: A campaign without its text, for lists.
_LISTED = [column for column in campaign.c if column.name not in ("text", "overrides")]
#: Invalid and failed runs each whose causes are counted.
MOST_CAUSED = 1000
_STATE = sa.func.coalesce(run.c.state, MISSING)


@dataclass(frozen=True)
class RunQuery:
    """Which of a campaign's runs to list, and in which order."""

    #: valid, invalid, missing; empty: all.
    state: str = ""
    #: Words that a run's parameters or id hold, all of them.
    words: Sequence[str] = ()
    #: Points and ids of runs that are listed; None: all.
    points: tuple[int, ...] | None = None
    only: tuple[str, ...] | None = None
    #: "point", "repetition", "state", "landed", or "METRIC/SUBJECT"; "point" follows `ranking`, if there is one.
    sort: str = "point"
    #: Numbers of the points in their order.
    ranking: tuple[int, ...] = ()
    descending: bool = False
    page: int = 1
    per_page: int = 50


def campaigns(store: Store, words: Sequence[str] = (), *, limit: int, offset: int = 0) -> list[CampaignRow]:
    """Campaigns, newest first, with `runs`, `valid` and `invalid`."""
    chosen = _matching(sa.select(*_LISTED), words).order_by(campaign.c.started.desc()).limit(limit).offset(offset)
    return _counted(store, chosen)


def count_campaigns(store: Store, words: Sequence[str] = ()) -> int:
    """How many there are."""
    return int(store.scalars(_matching(sa.select(sa.func.count(campaign.c.id)), words))[0])


def campaign_head(store: Store, campaign_id: str) -> CampaignRow | None:
    """One campaign with `runs`, `valid` and `invalid`, without its points."""
    rows = _counted(store, sa.select(campaign).where(campaign.c.id == campaign_id))
    return rows[0] if rows else None


def active(store: Store) -> list[CampaignRow]:
    """Campaigns that run."""
    query = sa.select(*_LISTED).where(campaign.c.state == "running").order_by(campaign.c.started.desc())
    return _counted(store, query)


def _matching(query: sa.Select[Any], words: Sequence[str]) -> sa.Select[Any]:
    searched = sa.func.lower(campaign.c.id + " " + campaign.c.name + " " + campaign.c.title)
    for word in words:
        query = query.where(searched.contains(word.lower(), autoescape=True))
    return query


def _counted(store: Store, chosen: sa.Select[Any]) -> list[CampaignRow]:
    """The chosen campaigns with the numbers of their runs."""
    listed = store.read(chosen, partial(CampaignRow, runs=0, valid=0, invalid=0))
    query = (
        sa.select(membership.c.campaign_id, _STATE.label("state"), sa.func.count().label("n"))
        .select_from(membership.outerjoin(run, run.c.id == membership.c.run_id))
        .where(membership.c.campaign_id.in_([row.id for row in listed]))
        .group_by(membership.c.campaign_id, "state")
    )
    counts: dict[str, dict[str, int]] = {}
    for campaign_id, state, n in store.tuples(query):
        counts.setdefault(campaign_id, {})[state] = n
    rows = []
    for row in listed:
        of_state = counts.get(row.id, {})
        valid, invalid = of_state.get("valid", 0), of_state.get("invalid", 0)
        rows.append(replace(row, runs=sum(of_state.values()), valid=valid, invalid=invalid))
    return rows


def points(store: Store, campaign_id: str) -> list[PointRow]:
    """A campaign's points: number, parameters."""
    query = sa.select(point.c.number, point.c.parameters).where(point.c.campaign_id == campaign_id)
    return store.read(query.order_by(point.c.number), PointRow)


def kinds(store: Store, campaign_id: str) -> list[MetricKind]:
    """Metrics that a campaign's valid runs have: name, subject, unit. One run of each point speaks for the others."""
    joined = membership.join(run, run.c.id == membership.c.run_id)
    speakers = (
        sa.select(sa.func.min(membership.c.run_id))
        .select_from(joined)
        .where(membership.c.campaign_id == campaign_id, run.c.state == "valid")
        .group_by(membership.c.point)
    )
    query = sa.select(metric.c.name, metric.c.subject, metric.c.unit).where(metric.c.run_id.in_(speakers)).distinct()
    return store.read(query, MetricKind)


def summary(
    store: Store,
    campaign_id: str,
    only: Sequence[tuple[str, str]] | None = None,
    numbers: Sequence[int] | None = None,
) -> list[TableRow]:
    """Means over each point's valid runs, as Store.table gives them.

    Args:
        store: where they are.
        campaign_id: whose.
        only: (name, subject) of the metrics wanted; None: all.
        numbers: of the points wanted; None: all.
    """
    conditions = [membership.c.campaign_id == campaign_id, run.c.state == "valid"]
    if only is not None:
        conditions.append(metric.c.name.in_({name for name, _ in only}))
        conditions.append(metric.c.subject.in_({subject for _, subject in only}))
    if numbers is not None:
        conditions.append(membership.c.point.in_(numbers))
    query = (
        sa.select(
            membership.c.point, metric.c.name, metric.c.subject, metric.c.unit, membership.c.repetition, metric.c.value
        )
        .select_from(membership.join(run, run.c.id == membership.c.run_id).join(metric, metric.c.run_id == run.c.id))
        .where(*conditions)
    )
    wanted = None if only is None else set(only)
    groups: dict[tuple[int, str, str, str], list[tuple[int, float]]] = {}
    # Grouped here and not by the database: it would go over all of them twice, for a variance that does not cancel.
    for number, name, subject, unit, repetition, value in store.tuples(query):
        if wanted is None or (name, subject) in wanted:
            groups.setdefault((number, name, subject, unit), []).append((repetition, value))
    rows = []
    for (number, name, subject, unit), of_runs in groups.items():
        values = [value for _, value in sorted(of_runs)]
        rows.append(TableRow(number, name, subject, unit, len(values), mean(values), sd(values), values))
    return rows


def members(store: Store, campaign_id: str, numbers: Sequence[int]) -> list[MemberRow]:
    """Runs of some points: point, repetition, run_id, state, landed."""
    query = (
        sa.select(membership.c.point, membership.c.repetition, membership.c.run_id, _STATE.label("state"), run.c.landed)
        .select_from(membership.outerjoin(run, run.c.id == membership.c.run_id))
        .where(membership.c.campaign_id == campaign_id, membership.c.point.in_(numbers))
        .order_by(membership.c.point, membership.c.repetition)
    )
    return store.read(query, MemberRow)


def runs(
    store: Store, campaign_id: str, wanted: RunQuery, matching: Sequence[int] | None
) -> tuple[list[ListedRunRow], int]:
    """A page of a campaign's runs, and how many match in all.

    Args:
        store: where they are.
        campaign_id: whose runs.
        wanted: what to list.
        matching: points whose parameters hold the words that no run id does; None when there is no search.
    """
    chosen: list[Any] = [membership.c.campaign_id == campaign_id]
    if wanted.state:
        chosen.append(wanted.state == _STATE)
    if matching is not None:
        by_id = [membership.c.run_id.startswith(word, autoescape=True) for word in wanted.words]
        chosen.append(sa.or_(membership.c.point.in_(matching), *by_id))
    if wanted.points is not None:
        chosen.append(membership.c.point.in_(wanted.points))
    if wanted.only is not None:
        chosen.append(membership.c.run_id.in_(wanted.only))
    joined = membership.outerjoin(run, run.c.id == membership.c.run_id)
    total = int(store.scalars(sa.select(sa.func.count()).select_from(joined).where(*chosen))[0])
    place: list[Any] = [membership.c.point, membership.c.repetition]
    columns = {"point": place, "repetition": [membership.c.repetition], "state": [_STATE], "landed": [run.c.landed]}
    order = columns.get(wanted.sort)
    if wanted.ranking:
        order = [
            sa.case({number: rank for rank, number in enumerate(wanted.ranking)}, value=membership.c.point),
            *place,
        ]
    if order is None:
        name, _, subject = wanted.sort.partition("/")
        joined = joined.outerjoin(
            metric, (metric.c.run_id == run.c.id) & (metric.c.name == name) & (metric.c.subject == subject)
        )
        order = [metric.c.value]
    # Runs without the metric come last in both orders.
    keys = [(column.desc() if wanted.descending else column.asc()).nulls_last() for column in order]
    query = (
        sa.select(
            membership.c.point, membership.c.repetition, membership.c.run_id, _STATE.label("state"),
            run.c.problems, run.c.landed, run.c.seed,
        )
        .select_from(joined).where(*chosen).order_by(*keys, *place)
        .limit(wanted.per_page).offset((wanted.page - 1) * wanted.per_page)
    )  # fmt: skip
    rows = store.read(query, ListedRunRow)
    values = metrics_of(store, [row.run_id for row in rows])
    return [replace(row, metrics=values.get(row.run_id, {})) for row in rows], total


def duration(store: Store, run_id: str) -> float:
    """Seconds that a run lasts; 0 for one that is not there."""
    durations = store.scalars(sa.select(run.c.duration_s).where(run.c.id == run_id))
    return float(durations[0]) if durations else 0.0


def siblings(store: Store, campaign_id: str, number: int) -> list[MemberRow]:
    """The repetitions of a point that are there: run_id, repetition, state."""
    return [row for row in members(store, campaign_id, [number]) if row.state != MISSING]


def scenario(store: Store, run_id: str) -> Scenario | None:
    """A run's scenario alone."""
    documents = store.scalars(sa.select(run.c.scenario).where(run.c.id == run_id))
    return ScenarioDocument(documents[0]).scenario if documents else None


def first_scenario(store: Store, campaign_id: str) -> Scenario | None:
    """The scenario of a campaign's first run that is there."""
    query = (
        sa.select(run.c.scenario)
        .join(membership, membership.c.run_id == run.c.id)
        .where(membership.c.campaign_id == campaign_id)
        .order_by(membership.c.point, membership.c.repetition)
        .limit(1)
    )
    documents = store.scalars(query)
    return ScenarioDocument(documents[0]).scenario if documents else None


def scenarios(store: Store, campaign_id: str) -> dict[int, Scenario]:
    """Point to the scenario of one of its runs that is there."""
    speakers = (
        sa.select(membership.c.point, sa.func.min(membership.c.run_id).label("run_id"))
        .select_from(membership.join(run, run.c.id == membership.c.run_id))
        .where(membership.c.campaign_id == campaign_id)
        .group_by(membership.c.point)
        .subquery()
    )
    query = sa.select(speakers.c.point, run.c.scenario).join(run, run.c.id == speakers.c.run_id)
    with store.connect() as connection:
        return {number: ScenarioDocument(document).scenario for number, document in connection.execute(query)}


def last_landed(store: Store, campaign_ids: Sequence[str]) -> dict[str, float | None]:
    """When the newest run of each campaign landed; None where none has."""
    query = (
        sa.select(membership.c.campaign_id, sa.func.max(run.c.landed).label("landed"))
        .join(run, run.c.id == membership.c.run_id)
        .where(membership.c.campaign_id.in_(campaign_ids))
        .group_by(membership.c.campaign_id)
    )
    times = dict(store.tuples(query))
    return {campaign_id: times.get(campaign_id) for campaign_id in campaign_ids}


def metrics_of(store: Store, run_ids: Sequence[str]) -> dict[str, dict[tuple[str, str], MetricRow]]:
    """Metrics of some runs: run id to name and subject."""
    by_run: dict[str, dict[tuple[str, str], MetricRow]] = {}
    for some in batched(run_ids):
        query = sa.select(metric).where(metric.c.run_id.in_(some))
        for row in store.read(query, MetricRow):
            by_run.setdefault(row.run_id, {})[row.name, row.subject] = row
    return by_run


def point_metrics(store: Store, campaign_id: str, number: int) -> list[ValueRow]:
    """Every value of a point's valid runs."""
    query = (
        sa.select(
            membership.c.point, membership.c.repetition, membership.c.run_id, run.c.seed, metric.c.name,
            metric.c.subject, metric.c.unit, metric.c.value,
        )
        .join(run, run.c.id == membership.c.run_id)
        .join(metric, metric.c.run_id == run.c.id)
        .where(membership.c.campaign_id == campaign_id, membership.c.point == number, run.c.state == "valid")
        .order_by(membership.c.repetition)
    )  # fmt: skip
    return store.read(query, ValueRow)


def newest(store: Store, limit: int = 8) -> list[LandedRow]:
    """The runs that landed last, each with a campaign that asked for it."""
    last = sa.select(run.c.id, run.c.state, run.c.backend, run.c.landed).order_by(run.c.landed.desc()).limit(limit)
    return _with_place(store, last)


def invalid(store: Store, limit: int, campaign_id: str = "") -> list[LandedRow]:
    """The latest invalid runs, with their problems; of one campaign, if it is named."""
    query = sa.select(run.c.id, run.c.state, run.c.backend, run.c.landed, run.c.problems)
    if campaign_id:
        query = query.where(run.c.id.in_(_members_of(campaign_id)))
    query = query.where(run.c.state == "invalid").order_by(run.c.landed.desc()).limit(limit)
    return _with_place(store, query)


def failed(store: Store, limit: int, campaign_id: str = "") -> list[LandedRow]:
    """The latest attempts without a result, of runs that still have none; of one campaign, if it is named."""
    last = (
        sa.select(sa.func.max(attempt.c.id))
        .select_from(attempt.outerjoin(run, run.c.id == attempt.c.run_id))
        .where(attempt.c.outcome == "failed", run.c.id.is_(None))
        .group_by(attempt.c.run_id)
    )
    if campaign_id:
        last = last.where(attempt.c.run_id.in_(_members_of(campaign_id)))
    query = (
        sa.select(
            attempt.c.run_id.label("id"), attempt.c.at.label("landed"), attempt.c.problems,
            sa.literal("failed").label("state"),
        )
        .where(attempt.c.id.in_(last))
        .order_by(attempt.c.at.desc())
        .limit(limit)
    )  # fmt: skip
    return _with_place(store, query)


def causes(store: Store, campaign_id: str = "") -> list[CauseRow]:
    """Why runs have no valid result: the latest runs by campaign, state and first problem, the most frequent first.

    Problems that differ only in their numbers are one cause.
    """
    groups: dict[tuple[str, str, str], list[LandedRow]] = {}
    for landed in invalid(store, MOST_CAUSED, campaign_id) + failed(store, MOST_CAUSED, campaign_id):
        where = campaign_id or (landed.place.campaign_id if landed.place else "")
        problem = landed.problems[0] if landed.problems else ""
        groups.setdefault((where, landed.state, re.sub(r"\d[\d.]*", "0", problem)), []).append(landed)
    rows = [
        CauseRow(where, some[0].place.title if some[0].place else "", state, some[0].problems[0], len(some), some[0].id)
        for (where, state, problem), some in groups.items()
        if problem
    ]
    return sorted(rows, key=lambda row: -row.runs)


def _members_of(campaign_id: str) -> sa.Select[Any]:
    return sa.select(membership.c.run_id).where(membership.c.campaign_id == campaign_id)


def last_problems(store: Store, run_ids: Sequence[str]) -> dict[str, list[str]]:
    """Why the last attempt of each of these runs gave no valid result."""
    problems: dict[str, list[str]] = {}
    with store.connect() as connection:
        for some in batched(run_ids):
            query = sa.select(attempt.c.run_id, attempt.c.problems).where(attempt.c.run_id.in_(some))
            problems |= {row.run_id: row.problems for row in connection.execute(query.order_by(attempt.c.at))}
    return problems


def unfinished(store: Store, limit: int) -> list[CampaignRow]:
    """Campaigns that ended without all of their runs."""
    query = sa.select(*_LISTED).where(campaign.c.state == "incomplete").order_by(campaign.c.started.desc())
    return _counted(store, query.limit(limit))


def counts(store: Store) -> dict[str, int]:
    """Runs in the store by state."""
    return dict(store.tuples(sa.select(run.c.state, sa.func.count()).group_by(run.c.state)))


def _with_place(store: Store, chosen: sa.Select[Any]) -> list[LandedRow]:
    """The chosen runs, each with the campaign that asked for it last."""
    rows = store.read(chosen, LandedRow)
    query = (
        sa.select(
            membership.c.run_id, membership.c.repetition, campaign.c.title, campaign.c.id.label("campaign_id"),
            point.c.parameters,
        )
        .join(campaign, campaign.c.id == membership.c.campaign_id)
        .join(point, (point.c.campaign_id == campaign.c.id) & (point.c.number == membership.c.point))
        .where(membership.c.run_id.in_([row.id for row in rows]))
        .order_by(campaign.c.started)
    )  # fmt: skip
    places = {place.run_id: place for place in store.read(query, PlaceRow)}
    return [replace(row, place=places.get(row.id)) for row in rows]
