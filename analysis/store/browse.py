"""What the site asks of the store: one page at a time, counted and averaged by the database."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from analysis.store.database import CHANNEL, POSTGRESQL
from analysis.store.rows import MISSING, CampaignRow, MemberRow, MetricKind, PointRow, TableRow
from analysis.store.schema import attempt, campaign, membership, metric, point, run
from analysis.store.store import Store

#: A campaign without its text, for lists.
_LISTED = [column for column in campaign.c if column.name not in ("text", "overrides")]
_STATE = sa.func.coalesce(run.c.state, MISSING)


@dataclass(frozen=True)
class RunQuery:
    """Which of a campaign's runs to list, and in which order."""

    #: valid, invalid, missing; empty: all.
    state: str = ""
    #: Words that a run's parameters or id hold, all of them.
    words: Sequence[str] = ()
    #: "point", "repetition", "state", "landed", or "METRIC/SUBJECT".
    sort: str = "point"
    descending: bool = False
    page: int = 1
    per_page: int = 50


def campaigns(store: Store, words: Sequence[str] = (), limit: int = 50, offset: int = 0) -> list[CampaignRow]:
    """Campaigns, newest first, with `runs`, `valid` and `invalid`."""
    chosen = _matching(sa.select(*_LISTED), words).order_by(campaign.c.started.desc()).limit(limit).offset(offset)
    return _counted(store, store.rows(chosen))


def count_campaigns(store: Store, words: Sequence[str] = ()) -> int:
    """How many there are."""
    return int(store.rows(_matching(sa.select(sa.func.count(campaign.c.id).label("n")), words))[0]["n"])


def campaign_head(store: Store, campaign_id: str) -> CampaignRow | None:
    """One campaign with `runs`, `valid` and `invalid`, without its points."""
    found = _counted(store, store.rows(sa.select(campaign).where(campaign.c.id == campaign_id)))
    return found[0] if found else None


def active(store: Store) -> list[CampaignRow]:
    """Campaigns that run."""
    query = sa.select(*_LISTED).where(campaign.c.state == "running").order_by(campaign.c.started.desc())
    return _counted(store, store.rows(query))


def _matching(query: sa.Select[Any], words: Sequence[str]) -> sa.Select[Any]:
    told = sa.func.lower(campaign.c.id + " " + campaign.c.name + " " + campaign.c.title)
    for word in words:
        query = query.where(told.contains(word.lower(), autoescape=True))
    return query


def _counted(store: Store, found: list[dict[str, Any]]) -> list[CampaignRow]:
    query = (
        sa.select(membership.c.campaign_id, _STATE.label("state"), sa.func.count().label("n"))
        .select_from(membership.outerjoin(run, run.c.id == membership.c.run_id))
        .where(membership.c.campaign_id.in_([one["id"] for one in found]))
        .group_by(membership.c.campaign_id, "state")
    )
    counts: dict[str, dict[str, int]] = {}
    for row in store.rows(query):
        counts.setdefault(row["campaign_id"], {})[row["state"]] = row["n"]
    rows = []
    for row in found:
        n = counts.get(row["id"], {})
        rows.append(CampaignRow(**row, runs=sum(n.values()), valid=n.get("valid", 0), invalid=n.get("invalid", 0)))
    return rows


def points(store: Store, campaign_id: str) -> list[PointRow]:
    """A campaign's points: number, parameters."""
    query = sa.select(point.c.number, point.c.parameters).where(point.c.campaign_id == campaign_id)
    return [PointRow(**row) for row in store.rows(query.order_by(point.c.number))]


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
    return [MetricKind(**row) for row in store.rows(query)]


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
    for (number, name, subject, unit), found in groups.items():
        values = [value for _, value in sorted(found)]
        n, mean = len(values), math.fsum(values) / len(values)
        sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1)) if n > 1 else None
        rows.append(TableRow(number, name, subject, unit, n, mean, sd, values))
    return rows


def members(store: Store, campaign_id: str, numbers: Sequence[int]) -> list[MemberRow]:
    """Runs of some points: point, repetition, run_id, state, landed."""
    query = (
        sa.select(membership.c.point, membership.c.repetition, membership.c.run_id, _STATE.label("state"), run.c.landed)
        .select_from(membership.outerjoin(run, run.c.id == membership.c.run_id))
        .where(membership.c.campaign_id == campaign_id, membership.c.point.in_(numbers))
        .order_by(membership.c.point, membership.c.repetition)
    )
    return [MemberRow(**row) for row in store.rows(query)]


def runs(
    store: Store, campaign_id: str, wanted: RunQuery, matching: Sequence[int] | None
) -> tuple[list[dict[str, Any]], int]:
    """A page of a campaign's runs and how many match in all; each with its problems and metrics by (name, subject).

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
    joined = membership.outerjoin(run, run.c.id == membership.c.run_id)
    total = int(store.rows(sa.select(sa.func.count().label("n")).select_from(joined).where(*chosen))[0]["n"])
    place: list[Any] = [membership.c.point, membership.c.repetition]
    columns = {"point": place, "repetition": [membership.c.repetition], "state": [_STATE], "landed": [run.c.landed]}
    order = columns.get(wanted.sort)
    if order is None:
        name, _, subject = wanted.sort.partition("/")
        joined = joined.outerjoin(
            metric, (metric.c.run_id == run.c.id) & (metric.c.name == name) & (metric.c.subject == subject)
        )
        order = [metric.c.value]
    # What is not there stands last, whichever way.
    keys = [(one.desc() if wanted.descending else one.asc()).nulls_last() for one in order]
    query = (
        sa.select(
            membership.c.point, membership.c.repetition, membership.c.run_id, _STATE.label("state"),
            run.c.problems, run.c.landed, run.c.seed,
        )
        .select_from(joined).where(*chosen).order_by(*keys, *place)
        .limit(wanted.per_page).offset((wanted.page - 1) * wanted.per_page)
    )  # fmt: skip
    found = store.rows(query)
    values = metrics_of(store, [one["run_id"] for one in found])
    for one in found:
        one["metrics"] = values.get(one["run_id"], {})
    return found, total


def duration(store: Store, run_id: str) -> float:
    """Seconds that a run lasts; 0 for one that is not there."""
    found = store.rows(sa.select(run.c.duration_s).where(run.c.id == run_id))
    return float(found[0]["duration_s"]) if found else 0.0


def siblings(store: Store, campaign_id: str, number: int) -> list[MemberRow]:
    """The repetitions of a point that are there: run_id, repetition, state."""
    return [row for row in members(store, campaign_id, [number]) if row.state != MISSING]


def run_ids(store: Store, beginning: str, limit: int) -> list[str]:
    """Runs whose id begins so."""
    query = sa.select(run.c.id).where(run.c.id.startswith(beginning, autoescape=True)).limit(limit)
    return [row["id"] for row in store.rows(query)]


def scenario(store: Store, run_id: str) -> dict[str, Any] | None:
    """A run's scenario alone."""
    found = store.rows(sa.select(run.c.scenario).where(run.c.id == run_id))
    return found[0]["scenario"] if found else None


def first_scenario(store: Store, campaign_id: str) -> dict[str, Any] | None:
    """The scenario of a campaign's first run that is there."""
    query = (
        sa.select(run.c.scenario)
        .join(membership, membership.c.run_id == run.c.id)
        .where(membership.c.campaign_id == campaign_id)
        .order_by(membership.c.point, membership.c.repetition)
        .limit(1)
    )
    found = store.rows(query)
    return found[0]["scenario"] if found else None


def scenarios(store: Store, campaign_id: str) -> dict[int, dict[str, Any]]:
    """Point to the scenario of one of its runs that is there."""
    speakers = (
        sa.select(membership.c.point, sa.func.min(membership.c.run_id).label("run_id"))
        .select_from(membership.join(run, run.c.id == membership.c.run_id))
        .where(membership.c.campaign_id == campaign_id)
        .group_by(membership.c.point)
        .subquery()
    )
    query = sa.select(speakers.c.point, run.c.scenario).join(run, run.c.id == speakers.c.run_id)
    return {row["point"]: row["scenario"] for row in store.rows(query)}


def last_landed(store: Store, campaign_ids: Sequence[str]) -> dict[str, float | None]:
    """When the newest run of each campaign landed; None where none has."""
    query = (
        sa.select(membership.c.campaign_id, sa.func.max(run.c.landed).label("landed"))
        .join(run, run.c.id == membership.c.run_id)
        .where(membership.c.campaign_id.in_(campaign_ids))
        .group_by(membership.c.campaign_id)
    )
    found = {row["campaign_id"]: row["landed"] for row in store.rows(query)}
    return {one: found.get(one) for one in campaign_ids}


def metrics_of(store: Store, run_ids: Sequence[str]) -> dict[str, dict[tuple[str, str], dict[str, Any]]]:
    """Metrics of some runs: run id to {(name, subject): value and unit}."""
    found: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
    for start in range(0, len(run_ids), 500):
        query = sa.select(metric).where(metric.c.run_id.in_(run_ids[start : start + 500]))
        for row in store.rows(query):
            found.setdefault(row["run_id"], {})[row["name"], row["subject"]] = row
    return found


def point_metrics(store: Store, campaign_id: str, number: int) -> list[dict[str, Any]]:
    """Every value of a point's valid runs: run_id, repetition, seed, name, subject, unit, value."""
    query = (
        sa.select(
            membership.c.run_id, membership.c.repetition, run.c.seed, metric.c.name, metric.c.subject, metric.c.unit,
            metric.c.value,
        )
        .join(run, run.c.id == membership.c.run_id)
        .join(metric, metric.c.run_id == run.c.id)
        .where(membership.c.campaign_id == campaign_id, membership.c.point == number, run.c.state == "valid")
        .order_by(membership.c.repetition)
    )  # fmt: skip
    return store.rows(query)


def newest(store: Store, limit: int = 8) -> list[dict[str, Any]]:
    """The runs that landed last, each with a campaign that asked for it."""
    last = sa.select(run.c.id, run.c.state, run.c.backend, run.c.landed).order_by(run.c.landed.desc()).limit(limit)
    return _with_place(store, store.rows(last))


def invalid(store: Store, limit: int = 8) -> list[dict[str, Any]]:
    """The latest invalid runs, with their problems."""
    query = sa.select(run.c.id, run.c.state, run.c.backend, run.c.landed, run.c.problems)
    query = query.where(run.c.state == "invalid").order_by(run.c.landed.desc()).limit(limit)
    return _with_place(store, store.rows(query))


def failed(store: Store, limit: int = 8) -> list[dict[str, Any]]:
    """The latest tries that gave nothing, of runs that still have no result."""
    last = (
        sa.select(sa.func.max(attempt.c.id))
        .select_from(attempt.outerjoin(run, run.c.id == attempt.c.run_id))
        .where(attempt.c.outcome == "failed", run.c.id.is_(None))
        .group_by(attempt.c.run_id)
    )
    query = (
        sa.select(attempt.c.run_id.label("id"), attempt.c.at.label("landed"), attempt.c.problems)
        .where(attempt.c.id.in_(last))
        .order_by(attempt.c.at.desc())
        .limit(limit)
    )
    return _with_place(store, [{**one, "state": "failed"} for one in store.rows(query)])


def unfinished(store: Store, limit: int = 8) -> list[CampaignRow]:
    """Campaigns that ended without all of their runs."""
    query = sa.select(*_LISTED).where(campaign.c.state == "incomplete").order_by(campaign.c.started.desc())
    return _counted(store, store.rows(query.limit(limit)))


def counts(store: Store) -> dict[str, int]:
    """Runs in the store by state."""
    query = sa.select(run.c.state, sa.func.count().label("n")).group_by(run.c.state)
    return {row["state"]: row["n"] for row in store.rows(query)}


def _with_place(store: Store, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    query = (
        sa.select(
            membership.c.run_id, membership.c.repetition, campaign.c.title, campaign.c.id.label("campaign_id"),
            point.c.parameters,
        )
        .join(campaign, campaign.c.id == membership.c.campaign_id)
        .join(point, (point.c.campaign_id == campaign.c.id) & (point.c.number == membership.c.point))
        .where(membership.c.run_id.in_([one["id"] for one in found]))
        .order_by(campaign.c.started)
    )  # fmt: skip
    places = {row["run_id"]: row for row in store.rows(query)}
    return [{**one, "place": places.get(one["id"])} for one in found]


class Pulse:
    """Tells whether anything in the store has changed since it was last asked; costs next to nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._connection = self._connect()
        self._last: Any = None

    def changed(self) -> bool:
        """True at first, and after any other connection wrote."""
        if self._connection.dialect.name == POSTGRESQL:
            return self._notified()
        # A number that SQLite keeps: it changes when another connection has changed the file.
        now = self._connection.exec_driver_sql("PRAGMA data_version").scalar()
        before, self._last = self._last, now
        return bool(before != now)

    def close(self) -> None:
        """Lets go of the connection."""
        self._connection.close()

    def _connect(self) -> sa.Connection:
        connection = self._store.connect()
        if connection.dialect.name == POSTGRESQL:
            # Outside of any transaction, so that the server tells at once and keeps nothing back for this one's sake.
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql(f"LISTEN {CHANNEL}")
        return connection

    def _notified(self) -> bool:
        """Every transaction that writes tells so as it is committed (Store.writing)."""
        try:
            driver: Any = self._connection.connection.driver_connection
            before, self._last = self._last, True
            # All of them are taken in, so that one change is told once.
            return len(list(driver.notifies(timeout=0))) > 0 or before is None
        except Exception:  # noqa: BLE001 (psycopg's own, if it is there; what was missed meanwhile is unknown)
            # As long as the server is away, what was opened last may never have been.
            with contextlib.suppress(sa.exc.SQLAlchemyError):
                self._connection.invalidate()
                self._connection.close()
            self._connection = self._connect()
            return True
