"""Checksums of rows that carry results. They are written with the row and compared by whoever reads it.

A file system returns damaged bytes as if nothing had happened, and SQLite checks the form of a page but not its values.
A row of `metric` and `replaced` has the checksum of its values. A row of `run` has those of its documents, the sums of
the checksums of its values and files, which show that none is missing, and one of its other columns with all these. A
row of `campaign` has one of itself, its parameter combinations and its members.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import sqlalchemy as sa

from analysis.errors import REPEAT
from analysis.store.database import RowDamaged, batched
from analysis.store.schema import campaign, file, membership, metric, point, replaced, run

#: Columns of a run that its checksum covers, in this order, after its id.
OF_RUN = (
    run.c.backend,
    run.c.seed,
    run.c.duration_s,
    run.c.state,
    run.c.problems,
    run.c.attempt,
    run.c.landed,
    run.c.documents_sum,
    run.c.metrics_sum,
    run.c.files_sum,
)
OF_METRIC = (metric.c.run_id, metric.c.name, metric.c.subject, metric.c.value, metric.c.unit)
OF_REPLACED = tuple(column for column in replaced.c if column.name != "checksum")
OF_FILE = (file.c.run_id, file.c.path, file.c.bytes, file.c.sha256)
#: Progress changes every two seconds and is not part of the results.
OF_CAMPAIGN = tuple(column for column in campaign.c if column.name not in ("progress", "checksum"))


def of(*values: object) -> int:
    """The checksum of plain values. ASCII is the same in each version of Python, and repr is not."""
    return zlib.crc32(ascii(values).encode())


def of_document(document: object) -> int:
    """The checksum of a JSON document."""
    return zlib.crc32(json.dumps(document, sort_keys=True).encode())


@lru_cache(maxsize=1024)
def _of_text(text: str) -> int:
    return of_document(json.loads(text))


def of_json(value: object) -> int:
    """The checksum of a JSON column as the driver returns it: a text from SQLite.

    Raises:
        ValueError: it is no JSON.
    """
    return _of_text(value) if isinstance(value, str) else of_document(value)


def of_run(run_id: str, values: Sequence[Any]) -> int:
    """The checksum of a run's row, from the columns OF_RUN as the driver returns them."""
    backend, seed, duration_s, state, problems, *others = values
    return of(run_id, backend, seed, duration_s, state, of_json(problems), *others)


def of_documents(scenario: object, manifest: object) -> int:
    """The checksum of a run's documents."""
    return of_document([scenario, manifest])


class Members(NamedTuple):
    """What belongs to a campaign: (number, parameters) and (point, repetition, run id), in any order."""

    points: Iterable[tuple[int, Any]]
    members: Iterable[tuple[int, int, str]]


def of_campaign(row: Mapping[str, Any], belonging: Members) -> int:
    """The checksum of a campaign, from its columns OF_CAMPAIGN with decoded JSON."""
    values = [row[column.name] for column in OF_CAMPAIGN if column.name != "overrides"]
    points = sum(of(number, of_json(parameters)) for number, parameters in belonging.points)
    return of(*values, of_document(dict(row["overrides"])), points, sum(of(*member) for member in belonging.members))


def damaged_run(run_id: str, what: str = "its row differs from its checksum") -> RowDamaged:
    """A run whose rows are not those that were stored."""
    message = f"run {run_id}: {what}; {REPEAT}; './backchannel verify' checks all runs"
    return RowDamaged(message, run_id, what)


def damaged_campaign(campaign_id: str) -> RowDamaged:
    """A campaign whose rows are not those that were stored."""
    return RowDamaged(
        f"campaign {campaign_id}: its rows differ from their checksum; 'run FILE' enters it again, and takes the runs "
        "that are in the store"
    )


def check_campaign(row: Mapping[str, Any], belonging: Members) -> None:
    """Raises RowDamaged if a campaign, from its columns OF_CAMPAIGN and `checksum`, is not what was stored."""
    try:
        if of_campaign(row, belonging) == row["checksum"]:
            return
    except (TypeError, ValueError):
        # Its JSON cannot be decoded.
        pass
    raise damaged_campaign(str(row["id"]))


def _campaign_row(connection: sa.Connection, campaign_id: str) -> tuple[dict[str, Any], Members] | None:
    """A campaign's row with what belongs to it, unchecked; None if there is none."""
    row = connection.execute(sa.select(campaign).where(campaign.c.id == campaign_id)).mappings().first()
    if row is None:
        return None
    points = connection.execute(sa.select(point.c.number, point.c.parameters).where(point.c.campaign_id == campaign_id))
    members = connection.execute(
        sa.select(membership.c.point, membership.c.repetition, membership.c.run_id).where(
            membership.c.campaign_id == campaign_id
        )
    )
    return dict(row), Members([tuple(row) for row in points], [tuple(row) for row in members])


def checked_campaign(connection: sa.Connection, campaign_id: str) -> tuple[dict[str, Any], Members] | None:
    """A campaign's row with what belongs to it; None if there is none.

    Raises:
        RowDamaged: it is not what was stored. Who changes it checks it first, because a new checksum hides damage.
    """
    row = _campaign_row(connection, campaign_id)
    if row is not None:
        check_campaign(*row)
    return row


def change_campaign(connection: sa.Connection, campaign_id: str, **values: Any) -> None:
    """Changes columns of a campaign, if it is there.

    Raises:
        RowDamaged: it is not what was stored.
    """
    stored = checked_campaign(connection, campaign_id)
    if stored is None:
        return
    row, belonging = stored
    values["checksum"] = of_campaign(row | values, belonging)
    connection.execute(sa.update(campaign).where(campaign.c.id == campaign_id).values(values))


def seal_campaign(connection: sa.Connection, campaign_id: str) -> None:
    """Writes the checksum of a campaign that was just written."""
    row = _campaign_row(connection, campaign_id)
    if row is not None:
        statement = sa.update(campaign).where(campaign.c.id == campaign_id)
        connection.execute(statement.values(checksum=of_campaign(*row)))


def seal_all(connection: sa.Connection) -> None:
    """Writes the checksums of every row: of a store that had none, or whose rows were changed on purpose."""
    for campaign_id in list(connection.scalars(sa.select(campaign.c.id))):
        seal_campaign(connection, campaign_id)
    for batch in batched(list(connection.scalars(sa.select(replaced.c.run_id).distinct()))):
        _seal_rows(connection, replaced, OF_REPLACED, batch)
    for batch in batched(list(connection.scalars(sa.select(run.c.id)))):
        metrics = _seal_rows(connection, metric, OF_METRIC, batch)
        files = sums(connection.execute(sa.select(*OF_FILE).where(file.c.run_id.in_(batch))))
        for row in connection.execute(sa.select(run).where(run.c.id.in_(batch))).mappings().all():
            written = {
                "metrics_sum": metrics.get(row["id"], 0),
                "files_sum": files.get(row["id"], 0),
                "documents_sum": of_documents(row["scenario"], row["manifest"]),
            }
            values = dict(row) | written
            written["checksum"] = of_run(row["id"], [values[column.name] for column in OF_RUN])
            connection.execute(sa.update(run).where(run.c.id == row["id"]).values(written))


def _seal_rows(
    connection: sa.Connection, table: sa.Table, columns: Sequence[sa.Column[Any]], run_ids: Sequence[str]
) -> dict[str, int]:
    """Writes the checksums of these runs' rows. Returns their sum by run."""
    keys = list(table.primary_key)
    rows = connection.execute(sa.select(*columns).where(table.c.run_id.in_(run_ids))).mappings().all()
    if rows:
        statement = sa.update(table).where(*(key == sa.bindparam(f"of_{key.name}") for key in keys))
        some = [{"sum": of(*row.values()), **{f"of_{key.name}": row[key.name] for key in keys}} for row in rows]
        connection.execute(statement.values(checksum=sa.bindparam("sum")), some)
    return sums(tuple(row.values()) for row in rows)


def sums(rows: Iterable[Sequence[Any]]) -> dict[str, int]:
    """The sum of the checksums of rows by run, whose id is the first column."""
    by_run: dict[str, int] = {}
    for row in rows:
        by_run[row[0]] = by_run.get(row[0], 0) + of(*row)
    return by_run
