"""What is asked of a store: counted and averaged by the database, one page of a list at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import sqlalchemy as sa

from analysis.results import ValueRow
from analysis.statistics import mean, sd
from analysis.store.database import Database, Row, batched
from analysis.store.documents import Batch, Documents
from analysis.store.rows import (
    MISSING,
    AsideRow,
    AttemptRow,
    CampaignOfRun,
    CampaignRow,
    CauseRow,
    FileRow,
    HistoryRow,
    LandedRow,
    LandedValueRow,
    ListedRunRow,
    MemberRow,
    MetricKind,
    MetricRow,
    PlaceRow,
    PointRow,
    RunRow,
    TableRow,
)
from analysis.store.schema import aside, attempt, campaign, file, membership, metric, point, replaced, run
from testbed.scenario import Document, Scenario, ScenarioDocument

#: A campaign without its text, for lists.
_LISTED = [column for column in campaign.c if column.name not in ("text", "overrides")]
#: A run's position in a campaign.
MEMBER = (membership.c.point, membership.c.repetition, membership.c.run_id)
#: Runs that the expected time of others is taken from: the latest.
MOST_HISTORY = 400
#: Invalid and failed runs each whose causes are counted.
MOST_CAUSED = 1000
_STATE = sa.func.coalesce(run.c.state, MISSING)
#: Members of campaigns with their results: those that the store has, and all.
_LANDED = membership.join(run, run.c.id == membership.c.run_id)
_ALL = membership.outerjoin(run, run.c.id == membership.c.run_id)
#: A member's metrics, if it has landed.
_MEASURED = _LANDED.join(metric, metric.c.run_id == run.c.id)


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


class Queries:
    """The reading half of an open store.

    Args:
        database: of the store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def campaigns(
        self, words: Sequence[str] = (), *, state: str = "", limit: int | None = None, offset: int = 0,
        texts: bool = False, set_aside: str = "",
    ) -> list[CampaignRow]:  # fmt: skip
        """Campaigns, newest first, with `runs`, `valid` and `invalid`.

        Args:
            words: that id, name or title hold, all of them.
            state: running, complete or incomplete; empty: all.
            limit: of their number.
            offset: campaigns that are passed over.
            texts: whether they have `text` and `overrides`.
            set_aside: archived or deleted: those alone; empty: neither of them.
        """
        query = sa.select(campaign) if texts else sa.select(*_LISTED)
        query = query.where(_is_aside(set_aside) if set_aside else ~_is_aside())
        if state:
            query = query.where(campaign.c.state == state)
        chosen = _matching(query, words).order_by(campaign.c.started.desc()).limit(limit).offset(offset)
        return self._counted(chosen)

    def count_campaigns(self, words: Sequence[str] = ()) -> int:
        """How many there are."""
        query = sa.select(sa.func.count(campaign.c.id)).where(~_is_aside())
        return int(self.scalars(_matching(query, words))[0])

    def namesakes(self) -> list[CampaignRow]:
        """Listed campaigns whose name others have too, with `overrides` and without the numbers of their runs."""
        repeated = sa.select(campaign.c.name).where(~_is_aside()).group_by(campaign.c.name).having(sa.func.count() > 1)
        query = sa.select(*_LISTED, campaign.c.overrides).where(~_is_aside(), campaign.c.name.in_(repeated))
        return self.read(query, partial(CampaignRow, text="", runs=0, valid=0, invalid=0))

    def aside(self, campaign_id: str) -> AsideRow | None:
        """Whether a campaign is archived or deleted, and since when."""
        rows = self.read(sa.select(aside).where(aside.c.campaign_id == campaign_id), AsideRow)
        return rows[0] if rows else None

    def campaign_head(self, campaign_id: str) -> CampaignRow | None:
        """One campaign with `runs`, `valid` and `invalid`, without its points."""
        rows = self._counted(sa.select(campaign).where(campaign.c.id == campaign_id))
        return rows[0] if rows else None

    def campaign(self, campaign_id: str) -> CampaignRow | None:
        """One campaign, with its points and their members."""
        head = self.campaign_head(campaign_id)
        if head is None:
            return None
        points = self.points(campaign_id)
        query = (
            sa.select(*MEMBER, _STATE.label("state"), run.c.problems)
            .select_from(_ALL)
            .where(membership.c.campaign_id == campaign_id)
            .order_by(membership.c.point, membership.c.repetition)
        )
        members: dict[int, list[MemberRow]] = {row.number: [] for row in points}
        for member in self.read(query, MemberRow):
            members[member.point].append(member)
        return replace(head, points=[replace(row, members=members[row.number]) for row in points])

    def points(self, campaign_id: str) -> list[PointRow]:
        """A campaign's points: number, parameters."""
        query = sa.select(point.c.number, point.c.parameters).where(point.c.campaign_id == campaign_id)
        return self.read(query.order_by(point.c.number), PointRow)

    def kinds(self, campaign_id: str) -> list[MetricKind]:
        """Metrics that a campaign's valid runs have: name, subject, unit. A run of each point speaks for the others."""
        speakers = (
            sa.select(sa.func.min(membership.c.run_id))
            .select_from(_LANDED)
            .where(membership.c.campaign_id == campaign_id, run.c.state == "valid")
            .group_by(membership.c.point)
        )
        query = (
            sa.select(metric.c.name, metric.c.subject, metric.c.unit).where(metric.c.run_id.in_(speakers)).distinct()
        )
        return self.read(query, MetricKind)

    def table(
        self,
        campaign_id: str,
        numbers: Sequence[int] | None = None,
        only: Sequence[tuple[str, str]] | None = None,
    ) -> list[TableRow]:
        """Means over each point's valid runs, by point, name and subject.

        Args:
            campaign_id: whose.
            numbers: of the points wanted; None: all.
            only: (name, subject) of the metrics wanted; None: all.
        """
        conditions = [membership.c.campaign_id == campaign_id, run.c.state == "valid"]
        if only is not None:
            conditions.append(metric.c.name.in_({name for name, _ in only}))
            conditions.append(metric.c.subject.in_({subject for _, subject in only}))
        if numbers is not None:
            conditions.append(membership.c.point.in_(numbers))
        query = (
            sa.select(
                membership.c.point,
                metric.c.name,
                metric.c.subject,
                metric.c.unit,
                membership.c.repetition,
                metric.c.value,
            )
            .select_from(_MEASURED)
            .where(*conditions)
        )
        wanted = None if only is None else set(only)
        groups: dict[tuple[int, str, str, str], list[tuple[int, float]]] = {}
        # Grouped here and not by the database: it would go over all of them twice, for a variance that does not cancel.
        for number, name, subject, unit, repetition, value in self.tuples(query):
            if wanted is None or (name, subject) in wanted:
                groups.setdefault((number, name, subject, unit), []).append((repetition, value))
        rows = []
        for (number, name, subject, unit), of_runs in sorted(groups.items()):
            values = [value for _, value in sorted(of_runs)]
            rows.append(TableRow(number, name, subject, unit, len(values), mean(values), sd(values), values))
        return rows

    def values(
        self, campaign_id: str, numbers: Sequence[int] | None = None, only: Sequence[tuple[str, str]] | None = None
    ) -> list[ValueRow]:
        """Every metric of every valid run.

        Args:
            campaign_id: of a campaign.
            numbers: of the points wanted; None: all.
            only: (name, subject) of the metrics wanted; None: all.
        """
        order = (membership.c.point, metric.c.name, metric.c.subject, membership.c.repetition)
        query = _values_of(campaign_id)
        if numbers is not None:
            query = query.where(membership.c.point.in_(numbers))
        if only is not None:
            wanted = [(metric.c.name == name) & (metric.c.subject == subject) for name, subject in only]
            query = query.where(sa.or_(sa.false(), *wanted))
        return self.read(query.order_by(*order), ValueRow)

    def values_at(self, campaign_id: str, moment: float) -> list[LandedValueRow]:
        """Every metric of the results that were valid at an earlier time.

        Args:
            campaign_id: id of the campaign.
            moment: seconds since the UNIX epoch.
        """
        now = _values_of(campaign_id).add_columns(run.c.landed).where(run.c.landed <= moment)
        past = replaced.c
        earlier = (
            sa.select(*MEMBER, past.seed, past.name, past.subject, past.unit, past.value, past.landed)
            .join(replaced, past.run_id == membership.c.run_id)
            .where(membership.c.campaign_id == campaign_id, past.landed <= moment, past.until > moment)
        )
        rows = self.read(sa.union_all(now, earlier), LandedValueRow)
        return sorted(rows, key=lambda row: (row.point, row.name, row.subject, row.repetition))

    def members(self, campaign_id: str, numbers: Sequence[int]) -> list[MemberRow]:
        """Runs of some points: point, repetition, run_id, state, landed."""
        query = (
            sa.select(*MEMBER, _STATE.label("state"), run.c.landed)
            .select_from(_ALL)
            .where(membership.c.campaign_id == campaign_id, membership.c.point.in_(numbers))
            .order_by(membership.c.point, membership.c.repetition)
        )
        return self.read(query, MemberRow)

    def runs(
        self, campaign_id: str, wanted: RunQuery, matching: Sequence[int] | None
    ) -> tuple[list[ListedRunRow], int]:
        """A page of a campaign's runs, and how many match in all.

        Args:
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
        joined: Any = _ALL
        total = int(self.scalars(sa.select(sa.func.count()).select_from(joined).where(*chosen))[0])
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
            sa.select(*MEMBER, _STATE.label("state"), run.c.problems, run.c.landed, run.c.seed)
            .select_from(joined).where(*chosen).order_by(*keys, *place)
            .limit(wanted.per_page).offset((wanted.page - 1) * wanted.per_page)
        )  # fmt: skip
        rows = self.read(query, ListedRunRow)
        values = self.metrics_of([row.run_id for row in rows])
        return [replace(row, metrics=values.get(row.run_id, {})) for row in rows], total

    def siblings(self, campaign_id: str, number: int) -> list[MemberRow]:
        """The repetitions of a point that are there: run_id, repetition, state."""
        return [row for row in self.members(campaign_id, [number]) if row.state != MISSING]

    def duration(self, run_id: str) -> float:
        """Seconds that a run lasts; 0 for one that is not there."""
        durations = self.scalars(sa.select(run.c.duration_s).where(run.c.id == run_id))
        return float(durations[0]) if durations else 0.0

    def scenario(self, run_id: str) -> Scenario | None:
        """A run's scenario alone."""
        documents = self.scalars(sa.select(run.c.scenario).where(run.c.id == run_id))
        return ScenarioDocument(documents[0]).scenario if documents else None

    def first_scenario(self, campaign_id: str) -> Scenario | None:
        """The scenario of a campaign's first run that is there."""
        query = (
            sa.select(run.c.scenario)
            .select_from(_LANDED)
            .where(membership.c.campaign_id == campaign_id)
            .order_by(membership.c.point, membership.c.repetition)
            .limit(1)
        )
        documents = self.scalars(query)
        return ScenarioDocument(documents[0]).scenario if documents else None

    def scenarios(self, campaign_id: str) -> dict[int, Scenario]:
        """Point to the scenario of one of its runs that is there."""
        speakers = (
            sa.select(membership.c.point, sa.func.min(membership.c.run_id).label("run_id"))
            .select_from(_LANDED)
            .where(membership.c.campaign_id == campaign_id)
            .group_by(membership.c.point)
            .subquery()
        )
        query = sa.select(speakers.c.point, run.c.scenario).join(run, run.c.id == speakers.c.run_id)
        with self.connect() as connection:
            return {number: ScenarioDocument(document).scenario for number, document in connection.execute(query)}

    def last_landed(self, campaign_ids: Sequence[str]) -> dict[str, float | None]:
        """When the newest run of each campaign landed; None where none has."""
        query = (
            sa.select(membership.c.campaign_id, sa.func.max(run.c.landed).label("landed"))
            .select_from(_LANDED)
            .where(membership.c.campaign_id.in_(campaign_ids))
            .group_by(membership.c.campaign_id)
        )
        times = dict(self.tuples(query))
        return {campaign_id: times.get(campaign_id) for campaign_id in campaign_ids}

    def metrics_of(self, run_ids: Sequence[str]) -> dict[str, dict[tuple[str, str], MetricRow]]:
        """Metrics of some runs: run id to name and subject."""
        by_run: dict[str, dict[tuple[str, str], MetricRow]] = {}
        for some in batched(run_ids):
            query = sa.select(metric).where(metric.c.run_id.in_(some))
            for row in self.read(query, MetricRow):
                by_run.setdefault(row.run_id, {})[row.name, row.subject] = row
        return by_run

    def valid_runs(self, run_ids: Sequence[str]) -> set[str]:
        """Those of the runs that are in the store and valid."""
        valid = sa.select(run.c.id).where(run.c.state == "valid")
        return {run_id for some in batched(run_ids) for run_id in self.scalars(valid.where(run.c.id.in_(some)))}

    def valid_repetitions(self, first_runs: Sequence[str]) -> dict[str, set[int]]:
        """Repetitions with a valid run of the points whose first repetition is one of these runs, by that run."""
        first = membership.alias()
        query = (
            sa.select(first.c.run_id, membership.c.repetition)
            .join(
                membership,
                sa.and_(membership.c.campaign_id == first.c.campaign_id, membership.c.point == first.c.point),
            )
            .join(run, run.c.id == membership.c.run_id)
            .where(first.c.repetition == 0, run.c.state == "valid")
        )
        valid: dict[str, set[int]] = {}
        for some in batched(first_runs):
            for first_id, repetition in self.tuples(query.where(first.c.run_id.in_(some))):
                valid.setdefault(first_id, set()).add(repetition)
        return valid

    def run_ids(self, beginning: str, limit: int | None = None) -> list[str]:
        """Ids of the runs that begin so, sorted."""
        query = sa.select(run.c.id).where(run.c.id.startswith(beginning, autoescape=True))
        return self.scalars(query.order_by(run.c.id).limit(limit))

    def tried_runs(self, run_ids: Sequence[str]) -> set[str]:
        """Those of the runs that were tried and have no valid result."""
        query, of_run = sa.select(attempt.c.run_id), attempt.c.run_id
        tried = {run_id for some in batched(run_ids) for run_id in self.scalars(query.where(of_run.in_(some)))}
        return tried - self.valid_runs(run_ids)

    def history(self, backend: str) -> list[HistoryRow]:
        """What the latest valid runs of a backend took."""
        query = (
            sa.select(run.c.id, run.c.scenario, run.c.manifest)
            .where(run.c.backend == backend, run.c.state == "valid")
            .order_by(run.c.landed.desc())
            .limit(MOST_HISTORY)
        )
        with self.connect() as connection:
            latest = connection.execute(query).all()
        sizes = dict(
            self.tuples(
                sa.select(file.c.run_id, sa.func.sum(file.c.bytes))
                .where(file.c.run_id.in_([run_id for run_id, _, _ in latest]))
                .group_by(file.c.run_id)
            )
        )
        return [
            HistoryRow(
                ScenarioDocument(scenario), Batch.read(manifest.get("batch") or {}), manifest.get("took_s"),
                int(sizes.get(run_id, 0)), manifest.get("analysed_s"),
            )
            for run_id, scenario, manifest in latest
        ]  # fmt: skip

    def run(self, run_id: str) -> RunRow | None:
        """One run with its metrics, files and attempts, and the campaigns that contain it."""
        read = self.read
        rows = read(sa.select(run).where(run.c.id == run_id), _run_row)
        if not rows:
            return None
        metrics = sa.select(metric).where(metric.c.run_id == run_id).order_by(metric.c.name, metric.c.subject)
        files = sa.select(file).where(file.c.run_id == run_id).order_by(file.c.path)
        attempts = sa.select(attempt).where(attempt.c.run_id == run_id).order_by(attempt.c.at)
        campaigns = (
            sa.select(
                campaign.c.id, campaign.c.name, campaign.c.title, (campaign.c.text != "").label("planned"),
                membership.c.point, membership.c.repetition, point.c.parameters,
            )
            .join(membership, membership.c.campaign_id == campaign.c.id)
            .join(point, (point.c.campaign_id == campaign.c.id) & (point.c.number == membership.c.point))
            .where(membership.c.run_id == run_id)
            .order_by(campaign.c.started.desc())
        )  # fmt: skip
        return replace(
            rows[0],
            metrics=read(metrics, MetricRow),
            files=read(files, FileRow),
            attempts=read(attempts, AttemptRow),
            campaigns=read(campaigns, CampaignOfRun),
        )

    def runs_with(self, words: Sequence[str], limit: int) -> list[LandedRow]:
        """Runs of which each word begins the id or is in the swept values or the campaign's name; the newest first."""
        text = sa.func.lower(campaign.c.name + " " + sa.cast(point.c.parameters, sa.Text))
        members = (
            sa.select(membership.c.run_id)
            .join(campaign, campaign.c.id == membership.c.campaign_id)
            .join(point, (point.c.campaign_id == campaign.c.id) & (point.c.number == membership.c.point))
        )
        for word in words:
            begun = membership.c.run_id.startswith(word, autoescape=True)
            members = members.where(begun | text.contains(word, autoescape=True))
        query = sa.select(run.c.id, run.c.state, run.c.backend, run.c.landed).where(run.c.id.in_(members))
        return self._with_place(query.where(_is_listed(run.c.id)).order_by(run.c.landed.desc()).limit(limit))

    def newest(self, limit: int = 8) -> list[LandedRow]:
        """The runs that landed last, each with a campaign that asked for it."""
        query = sa.select(run.c.id, run.c.state, run.c.backend, run.c.landed).where(_is_listed(run.c.id))
        return self._with_place(query.order_by(run.c.landed.desc()).limit(limit))

    def invalid(self, limit: int, campaign_id: str = "") -> list[LandedRow]:
        """The latest invalid runs, with their problems; of one campaign, if it is named."""
        query = sa.select(run.c.id, run.c.state, run.c.backend, run.c.landed, run.c.problems)
        if campaign_id:
            query = query.where(run.c.id.in_(_members_of(campaign_id)))
        query = query.where(run.c.state == "invalid", _is_listed(run.c.id)).order_by(run.c.landed.desc()).limit(limit)
        return self._with_place(query)

    def failed(self, limit: int, campaign_id: str = "") -> list[LandedRow]:
        """The latest attempts without a result, of runs that still have none; of one campaign, if it is named."""
        last = (
            sa.select(sa.func.max(attempt.c.id))
            .select_from(attempt.outerjoin(run, run.c.id == attempt.c.run_id))
            .where(attempt.c.outcome == "failed", run.c.id.is_(None), _is_listed(attempt.c.run_id))
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
        return self._with_place(query)

    def causes(self, campaign_id: str = "") -> list[CauseRow]:
        """Why runs have no valid result: the latest runs by campaign, state and first problem, the most frequent first.

        Problems that differ only in their numbers are one cause.
        """
        groups: dict[tuple[str, str, str], list[LandedRow]] = {}
        for landed in self.invalid(MOST_CAUSED, campaign_id) + self.failed(MOST_CAUSED, campaign_id):
            where = campaign_id or (landed.place.campaign_id if landed.place else "")
            problem = landed.problems[0] if landed.problems else ""
            groups.setdefault((where, landed.state, re.sub(r"\d[\d.]*", "0", problem)), []).append(landed)
        rows = [
            CauseRow(
                where, some[0].place.title if some[0].place else "", state, some[0].problems[0], len(some), some[0].id
            )
            for (where, state, problem), some in groups.items()
            if problem
        ]
        return sorted(rows, key=lambda row: -row.runs)

    def last_problems(self, run_ids: Sequence[str]) -> dict[str, list[str]]:
        """Why the last attempt of each of these runs gave no valid result."""
        problems: dict[str, list[str]] = {}
        with self.connect() as connection:
            for some in batched(run_ids):
                query = sa.select(attempt.c.run_id, attempt.c.problems).where(attempt.c.run_id.in_(some))
                problems |= {row.run_id: row.problems for row in connection.execute(query.order_by(attempt.c.at))}
        return problems

    def counts(self) -> dict[str, int]:
        """Runs in the store by state."""
        return dict(self.tuples(sa.select(run.c.state, sa.func.count()).group_by(run.c.state)))

    def read(self, query: Any, row: Callable[..., Row]) -> list[Row]:
        """The rows of a query; `row` takes its columns by name."""
        return self._database.read(query, row)

    def scalars(self, query: Any) -> list[Any]:
        """The first column of a query."""
        return self._database.scalars(query)

    def tuples(self, query: Any) -> list[tuple[Any, ...]]:
        """The rows of a query as the driver returns them, without JSON columns: fast, for many rows."""
        return self._database.tuples(query)

    def connect(self) -> sa.Connection:
        """A connection, which the caller closes."""
        return self._database.engine.connect()

    def _counted(self, chosen: sa.Select[Any]) -> list[CampaignRow]:
        """The chosen campaigns with the numbers of their runs."""
        listed = self.read(chosen, partial(CampaignRow, text="", overrides={}, runs=0, valid=0, invalid=0))
        query = (
            sa.select(membership.c.campaign_id, _STATE.label("state"), sa.func.count().label("n"))
            .select_from(_ALL)
            .where(membership.c.campaign_id.in_([row.id for row in listed]))
            .group_by(membership.c.campaign_id, "state")
        )
        counts: dict[str, dict[str, int]] = {}
        for campaign_id, state, n in self.tuples(query):
            counts.setdefault(campaign_id, {})[state] = n
        rows = []
        for row in listed:
            of_state = counts.get(row.id, {})
            valid, invalid = of_state.get("valid", 0), of_state.get("invalid", 0)
            rows.append(replace(row, runs=sum(of_state.values()), valid=valid, invalid=invalid))
        return rows

    def _with_place(self, chosen: sa.Select[Any]) -> list[LandedRow]:
        """The chosen runs, each with the campaign that asked for it last."""
        rows = self.read(chosen, LandedRow)
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
        places = {place.run_id: place for place in self.read(query, PlaceRow)}
        return [replace(row, place=places.get(row.id)) for row in rows]


def _matching(query: sa.Select[Any], words: Sequence[str]) -> sa.Select[Any]:
    searched = sa.func.lower(campaign.c.id + " " + campaign.c.name + " " + campaign.c.title)
    for word in words:
        query = query.where(searched.contains(word.lower(), autoescape=True))
    return query


def _is_aside(state: str = "") -> sa.ColumnElement[bool]:
    """Whether a campaign is archived or deleted, or one of these."""
    ids = sa.select(aside.c.campaign_id)
    return campaign.c.id.in_(ids.where(aside.c.state == state) if state else ids)


def _is_listed(run_id: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Whether a run is not of deleted campaigns alone."""
    deleted = sa.select(aside.c.campaign_id).where(aside.c.state == "deleted")
    members = sa.select(membership.c.run_id)
    only = members.where(membership.c.campaign_id.in_(deleted))
    others = members.where(membership.c.campaign_id.not_in(deleted), membership.c.run_id.in_(only))
    return run_id.not_in(only) | run_id.in_(others)


def _members_of(campaign_id: str) -> sa.Select[Any]:
    return sa.select(membership.c.run_id).where(membership.c.campaign_id == campaign_id)


def _run_row(scenario: Document, manifest: Document, **columns: Any) -> RunRow:
    return RunRow(**columns, documents=Documents(scenario, manifest))


def _values_of(campaign_id: str) -> sa.Select[Any]:
    """Every metric of a campaign's valid runs."""
    return (
        sa.select(*MEMBER, run.c.seed, metric.c.name, metric.c.subject, metric.c.unit, metric.c.value)
        .select_from(_MEASURED)
        .where(membership.c.campaign_id == campaign_id, run.c.state == "valid")
    )
