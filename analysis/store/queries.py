"""What is asked of a store: counted and averaged by the database, one page of a list at a time."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import sqlalchemy as sa

from analysis.results import Quantity, ValueRow
from analysis.statistics import mean, sd
from analysis.store import checksums
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
    MetricRow,
    PlaceRow,
    PointRow,
    RunRow,
    TableRow,
)
from analysis.store.schema import aside, attempt, campaign, file, membership, metric, point, replaced, run
from testbed.scenario import Document, Scenario, ScenarioDocument

P = ParamSpec("P")
T = TypeVar("T")
#: A run without its checksums.
_RUN = [column for column in run.c if not column.name.endswith(("_sum", "checksum"))]
#: A run's position in a campaign.
MEMBER = (membership.c.point, membership.c.repetition, membership.c.run_id)
#: Runs that the expected time of others is taken from: the latest.
MOST_HISTORY = 400
#: Invalid and failed runs each whose causes are counted.
MOST_CAUSED = 1000


class Head(NamedTuple):
    """A member of a campaign, or a run alone, with the columns of its row that its checksum covers."""

    point: int
    repetition: int
    run_id: str
    backend: str
    seed: int | None
    duration_s: float
    #: valid, invalid or missing.
    state: str
    #: As the driver returns them: a JSON text from SQLite.
    problems: Any
    attempt: int
    landed: float | None
    documents_sum: int
    metrics_sum: int
    files_sum: int
    #: None of a missing run, as all of its columns.
    checksum: int | None

    @property
    def decoded_problems(self) -> Sequence[str] | None:
        """Why it is invalid; None for a missing run."""
        problems = json.loads(self.problems) if isinstance(self.problems, str) else self.problems
        return None if problems is None else list(problems)


#: Runs that are read, and compared with their checksums, before it is said how many are.
TOGETHER = 10_000


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


def _of_one_moment(method: Callable[Concatenate[Queries, P], T]) -> Callable[Concatenate[Queries, P], T]:
    """Reads rows and their checksums in one snapshot, because a run may be committed in between."""

    @wraps(method)
    def read(self: Queries, /, *args: P.args, **options: P.kwargs) -> T:
        with self._database.snapshot():
            return method(self, *args, **options)

    return read


def _place(head: Head) -> tuple[int, int]:
    return head.point, head.repetition


class Queries:
    """The reading half of an open store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        #: Is called while many runs are read, and then their values, with the number of runs so far and of all.
        self.show: Callable[[int, int], None] | None = None

    def moment(self) -> AbstractContextManager[None]:
        """What this thread reads inside is of one moment; members of a campaign are read once."""
        return self._database.snapshot()

    @_of_one_moment
    def heads(self, campaign_id: str, numbers: Collection[int] | None = None) -> list[Head]:
        """A campaign's members with their runs, in order.

        Args:
            campaign_id: of a campaign.
            numbers: of the points wanted; None: all.

        Raises:
            RowDamaged: a run's row is not what was stored.
        """
        key = ("heads", campaign_id)
        if numbers is None:
            return list(self._heads_by_campaign([campaign_id])[campaign_id])
        if key in self._database.kept:
            wanted_points = set(numbers)
            return [head for head in self._database.kept[key] if head.point in wanted_points]
        conditions = (membership.c.point.in_(some) for some in batched(sorted(set(numbers))))
        return [head for condition in conditions for _, head in self._members([campaign_id], condition)]

    def _heads_by_campaign(self, campaign_ids: Sequence[str]) -> dict[str, list[Head]]:
        """Members of campaigns with their runs, in order; each campaign is read once in a snapshot."""
        kept = self._database.kept
        new: dict[str, list[Head]] = {id_: [] for id_ in campaign_ids if ("heads", id_) not in kept}
        for campaign_id, head in self._members(list(new)):
            new.setdefault(campaign_id, []).append(head)
        kept.update({("heads", id_): heads for id_, heads in new.items()})
        return {id_: kept["heads", id_] for id_ in campaign_ids}

    def _members(self, campaign_ids: Sequence[str], *conditions: sa.ColumnElement[bool]) -> Iterator[tuple[str, Head]]:
        """Members of campaigns, each with the campaign's id; a campaign's are in order."""
        for some in batched(campaign_ids):
            query = (
                sa.select(membership.c.campaign_id, *MEMBER, *checksums.OF_RUN, run.c.checksum)
                .select_from(membership.outerjoin(run, run.c.id == membership.c.run_id))
                .where(membership.c.campaign_id.in_(some), *conditions)
            )
            members: list[tuple[str, Head]] = []
            total = sa.select(sa.func.count()).select_from(membership)
            runs = self.scalars(total.where(membership.c.campaign_id.in_(some), *conditions))[0]
            for rows in self._database.chunks(query, TOGETHER):
                heads = self._checked([Head(*row[1:]) for row in rows])
                members += zip((row[0] for row in rows), heads, strict=True)
                if self.show is not None:
                    self.show(len(members), runs)
            yield from sorted(members, key=lambda row: row[1][:2])

    def _heads_of(self, run_ids: Sequence[str]) -> dict[str, Head]:
        """Those of the runs that are in the store."""
        heads: dict[str, Head] = {}
        for some in batched(list(run_ids)):
            query = sa.select(run.c.id, *checksums.OF_RUN, run.c.checksum).where(run.c.id.in_(some))
            checked = self._checked([Head(0, 0, *row) for row in self.tuples(query)])
            heads |= {head.run_id: head for head in checked}
            self._refuse_orphans(set(some) - heads.keys())
        return heads

    def _checked(self, heads: Sequence[Head]) -> list[Head]:
        """Rows that were just read, if they are what was stored; those without a run are missing."""
        checked = []
        for head in heads:
            if head.checksum is None and all(value is None for value in head[3:]):
                checked.append(head._replace(state=MISSING))
                continue
            try:
                intact = checksums.of_run(head.run_id, head[3:-1]) == head.checksum
            except (TypeError, ValueError):
                intact = False
            if not intact:
                raise checksums.damaged_run(str(head.run_id))
            checked.append(head)
        self._refuse_orphans({head.run_id for head in checked if head.state == MISSING})
        return checked

    def _refuse_orphans(self, missing: Collection[str]) -> None:
        """Raises RowDamaged if a run that is missing has values: then its row was lost."""
        for some in batched(sorted(missing)):
            query = sa.select(metric.c.run_id).where(metric.c.run_id.in_(some)).limit(1)
            if orphans := self.scalars(query):
                raise checksums.damaged_run(orphans[0], "its row is missing")

    def _refuse_lost_campaigns(self, *conditions: sa.ColumnElement[bool]) -> None:
        """Raises RowDamaged if a campaign has members and no row."""
        owners = set(self.scalars(sa.select(membership.c.campaign_id).where(*conditions).distinct()))
        # Read without an index, as lists are.
        if owners and (lost := owners - {row[0] for row in self.tuples(sa.select(campaign.c.id, campaign.c.name))}):
            raise checksums.damaged_campaign(str(min(lost, key=str)))

    def _metric_tuples(
        self, heads: Collection[Head], only: Sequence[tuple[str, str]] | None = None
    ) -> Iterator[tuple[str, str, str, float, str]]:
        """Run id, name, subject, value and unit of metrics, each compared with its checksum, and all with their sum."""
        sums = {head.run_id: head.metrics_sum for head in heads}
        done = 0
        for some in batched(list(sums)):
            yield from self._metrics_of_some(some, sums, only)
            done += len(some)
            if self.show is not None:
                self.show(done, len(sums))

    def _metrics_of_some(
        self, run_ids: Sequence[str], sums: Mapping[str, int], only: Sequence[tuple[str, str]] | None
    ) -> Iterator[tuple[str, str, str, float, str]]:
        of_runs = metric.c.run_id.in_(run_ids)
        query = sa.select(*checksums.OF_METRIC, metric.c.checksum).where(of_runs)
        if only is not None:
            names, subjects = {name for name, _ in only}, {subject for _, subject in only}
            query = query.where(metric.c.name.in_(names), metric.c.subject.in_(subjects))
        rows = self.tuples(query)
        for *values, checksum in rows:
            # A damaged index leads to rows of other runs.
            if values[0] not in sums or checksums.of(*values) != checksum:
                raise checksums.damaged_run(str(values[0]), "a value differs from its checksum")
        if only is None:
            stored = Counter(dict.fromkeys(run_ids, 0))
            for row in rows:
                stored[row[0]] += row[-1]
            for run_id in run_ids:
                if stored[run_id] != sums[run_id]:
                    raise checksums.damaged_run(run_id, "its values differ from those that were stored")
            yield from (row[:-1] for row in rows)
            return
        selected = set(only)
        rows = list(dict.fromkeys(row for row in rows if row[1:3] in selected))
        # Whether a value was never there or is lost is shown by the others: their sum tells.
        counts = Counter(row[0] for row in rows)
        unsure = [run_id for run_id in run_ids if counts[run_id] < len(selected)]
        yield from (row[:-1] for row in rows if counts[row[0]] == len(selected))
        if unsure:
            yield from (row for row in self._metrics_of_some(unsure, sums, None) if row[1:3] in selected)

    def _metrics(self, heads: Collection[Head], only: Sequence[tuple[str, str]] | None = None) -> Iterator[MetricRow]:
        return (MetricRow(*values) for values in self._metric_tuples(heads, only))

    def _values(self, heads: Sequence[Head], only: Sequence[tuple[str, str]] | None = None) -> list[ValueRow]:
        """Metrics of members, by point, name, subject and repetition."""
        by_run: dict[str, list[MetricRow]] = {}
        for row in self._metrics(heads, only):
            by_run.setdefault(row.run_id, []).append(row)
        rows = [
            ValueRow(
                point=head.point,
                repetition=head.repetition,
                run_id=head.run_id,
                seed=head.seed or 0,
                name=row.name,
                subject=row.subject,
                unit=row.unit,
                value=row.value,
            )
            for head in heads
            for row in by_run.get(head.run_id, ())
        ]
        return sorted(rows, key=lambda row: (row.point, row.name, row.subject, row.repetition))

    @_of_one_moment
    def campaigns(
        self,
        words: Sequence[str] = (),
        *,
        state: str = "",
        limit: int | None = None,
        offset: int = 0,
        texts: bool = False,
        set_aside: str = "",
        counted: bool = True,
    ) -> list[CampaignRow]:
        """Campaigns, newest first, with `runs`, `valid` and `invalid`.

        Args:
            words: that id, name or title hold, all of them.
            state: running, complete or incomplete; empty: all.
            limit: of their number.
            offset: campaigns that are passed over.
            texts: whether they have `text` and `overrides`.
            set_aside: archived or deleted: those alone; empty: neither of them.
            counted: reads the runs of all of them, to count them and to compare the rows with their checksums. Without,
                the numbers are 0 and nothing is compared: for names, of which the chosen campaign is read again.
        """
        query = sa.select(campaign).where(_is_aside(set_aside) if set_aside else ~_is_aside())
        if state:
            query = query.where(campaign.c.state == state)
        chosen = _matching(query, words).order_by(campaign.c.started.desc(), campaign.c.id).limit(limit).offset(offset)
        rows = self._counted(chosen) if counted else self._uncounted(chosen)
        self._refuse_lost_campaigns()
        if state == "incomplete":
            rows = [row for row in rows if row.state == state]
        return rows if texts else [replace(row, text="", overrides={}) for row in rows]

    def count_campaigns(self, words: Sequence[str] = ()) -> int:
        """How many there are."""
        query = sa.select(sa.func.count(campaign.c.id)).where(~_is_aside())
        return int(self.scalars(_matching(query, words))[0])

    @_of_one_moment
    def namesakes(self) -> list[CampaignRow]:
        """Listed campaigns whose name others have too, with `overrides`."""
        repeated = sa.select(campaign.c.name).where(~_is_aside()).group_by(campaign.c.name).having(sa.func.count() > 1)
        return self._counted(sa.select(campaign).where(~_is_aside(), campaign.c.name.in_(repeated)))

    def aside(self, campaign_id: str) -> AsideRow | None:
        """Whether a campaign is archived or deleted, and since when."""
        rows = self.read(sa.select(aside).where(aside.c.campaign_id == campaign_id), AsideRow)
        return rows[0] if rows else None

    @_of_one_moment
    def campaign_head(self, campaign_id: str) -> CampaignRow | None:
        """One campaign with `runs`, `valid` and `invalid`, without its points."""
        rows = self._counted(sa.select(campaign).where(campaign.c.id == campaign_id))
        if not rows:
            self._refuse_lost_campaigns(membership.c.campaign_id == campaign_id)
        return rows[0] if rows else None

    @_of_one_moment
    def campaign(self, campaign_id: str) -> CampaignRow | None:
        """One campaign, with its points and their members."""
        row = self.campaign_head(campaign_id)
        if row is None:
            return None
        points = self.points(campaign_id)
        members: dict[int, list[MemberRow]] = {one.number: [] for one in points}
        for head in self.heads(campaign_id):
            members[head.point].append(
                MemberRow(head.point, head.repetition, head.run_id, head.state, head.decoded_problems)
            )
        return replace(row, points=[replace(one, members=members[one.number]) for one in points])

    def points(self, campaign_id: str) -> list[PointRow]:
        """A campaign's points: number, parameters."""
        query = sa.select(point.c.number, point.c.parameters).where(point.c.campaign_id == campaign_id)
        return self.read(query.order_by(point.c.number), PointRow)

    @_of_one_moment
    def kinds(self, campaign_id: str) -> list[Quantity]:
        """Quantities that a campaign's valid runs have values of. A run of each point speaks for the others."""
        kept, key = self._database.kept, ("kinds", campaign_id)
        if key not in kept:
            speakers: dict[int, Head] = {}
            for head in self.heads(campaign_id):
                if head.state == "valid":
                    speakers.setdefault(head.point, head)
            rows = self._metric_tuples(speakers.values())
            kept[key] = sorted({Quantity(name, subject, unit) for _, name, subject, _, unit in rows})
        return list(kept[key])

    @_of_one_moment
    def table(
        self, campaign_id: str, numbers: Sequence[int] | None = None, only: Sequence[tuple[str, str]] | None = None
    ) -> list[TableRow]:
        """Means over each point's valid runs, by point, name and subject.

        Args:
            campaign_id: whose.
            numbers: of the points wanted; None: all.
            only: (name, subject) of the metrics wanted; None: all.
        """
        groups: dict[tuple[int, str, str, str], list[tuple[int, float]]] = {}
        # Grouped here and not by the database: it would go over all of them twice, for a variance that does not cancel.
        heads = [head for head in self.heads(campaign_id, numbers) if head.state == "valid"]
        places = _places(heads)
        for run_id, name, subject, value, unit in self._metric_tuples(heads, only):
            for head in places[run_id]:
                groups.setdefault((head.point, name, subject, unit), []).append((head.repetition, value))
        rows = []
        for (number, name, subject, unit), of_runs in sorted(groups.items()):
            values = [value for _, value in sorted(of_runs)]
            rows.append(TableRow(number, name, subject, unit, len(values), mean(values), sd(values), values))
        return rows

    @_of_one_moment
    def values(
        self, campaign_id: str, numbers: Sequence[int] | None = None, only: Sequence[tuple[str, str]] | None = None
    ) -> list[ValueRow]:
        """Every metric of every valid run.

        Args:
            campaign_id: of a campaign.
            numbers: of the points wanted; None: all.
            only: (name, subject) of the metrics wanted; None: all.
        """
        heads = [head for head in self.heads(campaign_id, numbers) if head.state == "valid"]
        return self._values(heads, only)

    @_of_one_moment
    def values_at(self, campaign_id: str, moment: float) -> list[LandedValueRow]:
        """Every metric of the results that were valid at an earlier time.

        Args:
            campaign_id: id of the campaign.
            moment: seconds since the UNIX epoch.
        """
        heads = self.heads(campaign_id)
        now = [head for head in heads if head.state == "valid" and head.landed is not None and head.landed <= moment]
        landed = {(head.point, head.repetition): head.landed or 0.0 for head in now}
        rows = [LandedValueRow(**vars(row), landed=landed[row.point, row.repetition]) for row in self._values(now)]
        places = _places(heads)
        for some in batched(list(places)):
            query = sa.select(*checksums.OF_REPLACED, replaced.c.checksum).where(
                replaced.c.run_id.in_(some), replaced.c.landed <= moment, replaced.c.until > moment
            )
            with self._database.reading() as connection:
                for *values, checksum in connection.execute(query):
                    past = dict(zip((column.name for column in checksums.OF_REPLACED), values, strict=True))
                    if past["run_id"] not in places or checksums.of(*values) != checksum:
                        raise checksums.damaged_run(str(past["run_id"]), "an earlier value differs from its checksum")
                    del past["until"]
                    rows += [
                        LandedValueRow(**past, point=head.point, repetition=head.repetition)
                        for head in places[past["run_id"]]
                    ]
        return sorted(rows, key=lambda row: (row.point, row.name, row.subject, row.repetition))

    @_of_one_moment
    def members(self, campaign_id: str, numbers: Sequence[int]) -> list[MemberRow]:
        """Runs of some points: point, repetition, run_id, state, landed."""
        return [
            MemberRow(head.point, head.repetition, head.run_id, head.state, landed=head.landed)
            for head in self.heads(campaign_id, numbers)
        ]

    @_of_one_moment
    def runs(
        self, campaign_id: str, wanted: RunQuery, matching: Sequence[int] | None
    ) -> tuple[list[ListedRunRow], int]:
        """A page of a campaign's runs, and how many match in all.

        Args:
            campaign_id: whose runs.
            wanted: what to list.
            matching: points whose parameters hold the words that no run id does; None when there is no search.
        """
        heads = [head for head in self.heads(campaign_id) if _is_wanted(head, wanted, matching)]
        page = slice((wanted.page - 1) * wanted.per_page, wanted.page * wanted.per_page)
        shown = self._sorted(heads, wanted)[page]
        values = self._by_run([head for head in shown if head.state != MISSING])
        rows = [
            ListedRunRow(
                head.point,
                head.repetition,
                head.run_id,
                head.state,
                head.decoded_problems,
                head.landed,
                head.seed,
                values.get(head.run_id, {}),
            )
            for head in shown
        ]
        return rows, len(heads)

    def _sorted(self, heads: Sequence[Head], wanted: RunQuery) -> list[Head]:
        # A head has a list where the driver decodes JSON, as PostgreSQL's does, and lists cannot be keys.
        ranks = {number: rank for rank, number in enumerate(wanted.ranking)}
        match wanted.sort:
            case _ if wanted.ranking:
                keys: dict[tuple[int, int], Any] = {
                    _place(head): (ranks.get(head.point, len(ranks)), head.point, head.repetition) for head in heads
                }
            case "point":
                keys = {_place(head): (head.point, head.repetition) for head in heads}
            case "repetition" | "state" | "landed":
                keys = {_place(head): getattr(head, wanted.sort) for head in heads}
            case _:
                name, _, subject = wanted.sort.partition("/")
                there = [head for head in heads if head.state != MISSING]
                by_run = self._by_run(there, [(name, subject)])
                keys = {
                    _place(head): row.value
                    for head in there
                    if (row := by_run.get(head.run_id, {}).get((name, subject))) is not None
                }
        # Runs without a value come last in both orders.
        with_key = [head for head in heads if keys.get(_place(head)) is not None]
        without = [head for head in heads if keys.get(_place(head)) is None]
        return [*sorted(with_key, key=lambda head: keys[_place(head)], reverse=wanted.descending), *without]

    def siblings(self, campaign_id: str, number: int) -> list[MemberRow]:
        """The repetitions of a point that are there: run_id, repetition, state."""
        return [row for row in self.members(campaign_id, [number]) if row.state != MISSING]

    @_of_one_moment
    def duration(self, run_id: str) -> float:
        """Seconds that a run lasts; 0 for one that is not there."""
        head = self._heads_of([run_id]).get(run_id)
        return 0.0 if head is None else head.duration_s

    @_of_one_moment
    def scenario(self, run_id: str) -> Scenario | None:
        """A run's scenario alone."""
        return self._scenarios([run_id]).get(run_id)

    @_of_one_moment
    def first_scenario(self, campaign_id: str) -> Scenario | None:
        """The scenario of a campaign's first run that is there."""
        first = next((head.run_id for head in self.heads(campaign_id) if head.state != MISSING), None)
        return None if first is None else self.scenario(first)

    @_of_one_moment
    def scenarios(self, campaign_id: str) -> dict[int, Scenario]:
        """Point to the scenario of one of its runs that is there."""
        speakers: dict[int, str] = {}
        for head in self.heads(campaign_id):
            if head.state != MISSING:
                speakers.setdefault(head.point, head.run_id)
        by_run = self._scenarios(list(speakers.values()))
        return {number: by_run[run_id] for number, run_id in speakers.items() if run_id in by_run}

    def _scenarios(self, run_ids: Sequence[str]) -> dict[str, Scenario]:
        heads = self._heads_of(run_ids)
        scenarios = {}
        with self._database.reading() as connection:
            for some in batched(run_ids):
                query = sa.select(run.c.id, run.c.scenario, run.c.manifest).where(run.c.id.in_(some))
                for run_id, scenario, manifest in connection.execute(query):
                    head = heads.get(run_id)
                    if head is None or checksums.of_documents(scenario, manifest) != head.documents_sum:
                        raise checksums.damaged_run(str(run_id))
                    scenarios[run_id] = ScenarioDocument(scenario).scenario
        return scenarios

    @_of_one_moment
    def last_landed(self, campaign_ids: Sequence[str]) -> dict[str, float | None]:
        """When the newest run of each campaign landed; None where none has."""
        return {
            campaign_id: max((head.landed for head in heads if head.landed), default=None)
            for campaign_id, heads in self._heads_by_campaign(campaign_ids).items()
        }

    def _by_run(
        self, heads: Collection[Head], only: Sequence[tuple[str, str]] | None = None
    ) -> dict[str, dict[tuple[str, str], MetricRow]]:
        by_run: dict[str, dict[tuple[str, str], MetricRow]] = {}
        for row in self._metrics(heads, only):
            by_run.setdefault(row.run_id, {})[row.name, row.subject] = row
        return by_run

    @_of_one_moment
    def valid_runs(self, run_ids: Sequence[str]) -> set[str]:
        """Those of the runs that are in the store and valid."""
        return {run_id for run_id, head in self._heads_of(run_ids).items() if head.state == "valid"}

    @_of_one_moment
    def valid_repetitions(self, first_runs: Sequence[str]) -> dict[str, set[int]]:
        """Repetitions with a valid run of the points whose first repetition is one of these runs, by that run."""
        first = membership.alias()
        query = sa.select(first.c.run_id, membership.c.repetition, membership.c.run_id).join(
            membership, sa.and_(membership.c.campaign_id == first.c.campaign_id, membership.c.point == first.c.point)
        )
        valid: dict[str, set[int]] = {}
        for some in batched(first_runs):
            rows = self.tuples(query.where(first.c.repetition == 0, first.c.run_id.in_(some)))
            with_result = self.valid_runs([run_id for _, _, run_id in rows])
            for first_id, repetition, run_id in rows:
                if run_id in with_result:
                    valid.setdefault(first_id, set()).add(repetition)
        return valid

    def campaign_ids(self) -> list[str]:
        """Ids of all campaigns, also of those that only their members show: a row may be lost."""
        ids = {*self.scalars(sa.select(campaign.c.id)), *self.scalars(sa.select(membership.c.campaign_id).distinct())}
        return sorted(map(str, ids))

    def askers(self, run_ids: Sequence[str]) -> dict[str, tuple[str, dict[str, str]]]:
        """File and overrides of a campaign that asks for each run; without those that no file made. Unchecked."""
        askers: dict[str, tuple[str, dict[str, str]]] = {}
        query = sa.select(membership.c.run_id, campaign.c.file, campaign.c.overrides).join(campaign)
        with self._database.reading() as connection:
            for some in batched(run_ids):
                rows = connection.execute(query.where(campaign.c.text != "", membership.c.run_id.in_(some)))
                askers |= {run_id: (file, dict(overrides)) for run_id, file, overrides in rows}
        return askers

    def run_ids(self, beginning: str, limit: int | None = None) -> list[str]:
        """Ids of the runs that begin so, sorted."""
        query = sa.select(run.c.id).where(run.c.id.startswith(beginning, autoescape=True))
        return self.scalars(query.order_by(run.c.id).limit(limit))

    @_of_one_moment
    def tried_runs(self, run_ids: Sequence[str]) -> set[str]:
        """Those of the runs that were tried and have no valid result."""
        query, of_run = sa.select(attempt.c.run_id), attempt.c.run_id
        tried = {run_id for some in batched(run_ids) for run_id in self.scalars(query.where(of_run.in_(some)))}
        return tried - self.valid_runs(run_ids)

    @_of_one_moment
    def history(self, backend: str) -> list[HistoryRow]:
        """What the latest valid runs of a backend took."""
        query = (
            sa.select(run.c.id, run.c.scenario, run.c.manifest)
            .where(run.c.backend == backend, run.c.state == "valid")
            .order_by(run.c.landed.desc())
            .limit(MOST_HISTORY)
        )
        with self._database.reading() as connection:
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
                ScenarioDocument(scenario),
                Batch.read(manifest.get("batch") or {}),
                manifest.get("took_s"),
                int(sizes.get(run_id, 0)),
                manifest.get("analysed_s"),
            )
            for run_id, scenario, manifest in latest
        ]

    @_of_one_moment
    def run(self, run_id: str) -> RunRow | None:
        """One run with its metrics, files and attempts, and the campaigns that contain it."""
        read = self.read
        # Raises if its row is not what was stored.
        head = self._heads_of([run_id]).get(run_id)
        if head is None:
            return None
        (row,) = read(sa.select(*_RUN).where(run.c.id == run_id), _run_row)
        documents = row.documents
        if checksums.of_documents(documents.scenario_document, documents.manifest_document) != head.documents_sum:
            raise checksums.damaged_run(run_id)
        of_run = sa.select(file).where(file.c.run_id == run_id).order_by(file.c.path)
        files = read(of_run, FileRow)
        if sum(checksums.of(*(getattr(row, column.name) for column in checksums.OF_FILE)) for row in files) != (
            head.files_sum
        ):
            raise checksums.damaged_run(run_id, "the list of its files differs from its checksum")
        attempts = sa.select(attempt).where(attempt.c.run_id == run_id).order_by(attempt.c.at)
        campaigns = (
            sa.select(
                campaign.c.id,
                campaign.c.name,
                campaign.c.title,
                (campaign.c.text != "").label("planned"),
                membership.c.point,
                membership.c.repetition,
                point.c.parameters,
            )
            .join(membership, membership.c.campaign_id == campaign.c.id)
            .join(point, (point.c.campaign_id == campaign.c.id) & (point.c.number == membership.c.point))
            .where(membership.c.run_id == run_id)
            .order_by(campaign.c.started.desc())
        )
        return replace(
            row,
            metrics=sorted(self._metrics([head]), key=lambda row: (row.name, row.subject)),
            files=files,
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
                attempt.c.run_id.label("id"),
                attempt.c.at.label("landed"),
                attempt.c.problems,
                sa.literal("failed").label("state"),
            )
            .where(attempt.c.id.in_(last))
            .order_by(attempt.c.at.desc())
            .limit(limit)
        )
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
        with self._database.reading() as connection:
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

    def _uncounted(self, chosen: sa.Select[Any]) -> list[CampaignRow]:
        """The chosen campaigns, unchecked."""
        with self._database.reading() as connection:
            listed = [dict(row) for row in connection.execute(chosen).mappings()]
        for row in listed:
            del row["checksum"]
        return [CampaignRow(**row, runs=0, valid=0, invalid=0) for row in listed]

    def _counted(self, chosen: sa.Select[Any]) -> list[CampaignRow]:
        """The chosen campaigns with the numbers of their runs."""
        with self._database.reading() as connection:
            listed = [dict(row) for row in connection.execute(chosen).mappings()]
        ids = [row["id"] for row in listed]
        points: dict[str, list[tuple[int, Any]]] = {id_: [] for id_ in ids}
        for some in batched(ids):
            query = sa.select(point.c.campaign_id, point.c.number, point.c.parameters)
            for campaign_id, number, parameters in self.tuples(query.where(point.c.campaign_id.in_(some))):
                points.setdefault(campaign_id, []).append((number, parameters))
        members = self._heads_by_campaign(ids)
        rows = []
        for row in listed:
            heads = members[row["id"]]
            checksums.check_campaign(row, checksums.Members(points[row["id"]], [head[:3] for head in heads]))
            del row["checksum"]
            states = Counter(head.state for head in heads)
            # Another campaign may have made the runs that this one lacked.
            if row["state"] == "incomplete" and 0 < len(heads) == states["valid"]:
                row["state"] = "complete"
            rows.append(CampaignRow(**row, runs=len(heads), valid=states["valid"], invalid=states["invalid"]))
        return rows

    def _with_place(self, chosen: sa.Select[Any]) -> list[LandedRow]:
        """The chosen runs, each with the campaign that asked for it last."""
        rows = self.read(chosen, LandedRow)
        query = (
            sa.select(
                membership.c.run_id,
                membership.c.repetition,
                campaign.c.title,
                campaign.c.id.label("campaign_id"),
                point.c.parameters,
            )
            .join(campaign, campaign.c.id == membership.c.campaign_id)
            .join(point, (point.c.campaign_id == campaign.c.id) & (point.c.number == membership.c.point))
            .where(membership.c.run_id.in_([row.id for row in rows]))
            .order_by(campaign.c.started)
        )
        places = {place.run_id: place for place in self.read(query, PlaceRow)}
        return [replace(row, place=places.get(row.id)) for row in rows]


def _places(heads: Iterable[Head]) -> dict[str, list[Head]]:
    """The members that each run is: campaigns may have a run twice."""
    places: dict[str, list[Head]] = {}
    for head in heads:
        places.setdefault(head.run_id, []).append(head)
    return places


def _is_wanted(head: Head, wanted: RunQuery, matching: Sequence[int] | None) -> bool:
    return (
        wanted.state in ("", head.state)
        and (matching is None or head.point in matching or any(map(head.run_id.startswith, wanted.words)))
        and (wanted.points is None or head.point in wanted.points)
        and (wanted.only is None or head.run_id in wanted.only)
    )


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
