"""Screened runs: metrics of simulations that nobody kept files of, a row each.

A search makes many runs to find the few that are worth a look. What it knows of a run is its metrics, by the id that
the run has everywhere. They are not results: no table, figure or export has them, and `run` makes the run as if they
were not there, with its captures. Rows of a batch are written in one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from analysis.results import Quantity
from analysis.store import checksums
from analysis.store.database import RowDamaged, batched
from analysis.store.schema import screened
from analysis.store.store import Store


@dataclass(frozen=True)
class Screened:
    """What is known of a screened run."""

    run_id: str
    #: In SI units; only the metrics that were asked for.
    values: Mapping[Quantity, float]
    #: What makes it invalid; empty: it is valid.
    problems: Sequence[str] = ()
    #: Metrics that were measured, also those without a value.
    names: frozenset[str] = frozenset()


def keep(store: Store, runs: Iterable[Screened]) -> None:
    """Stores runs in one transaction. A run that is there gets the new values beside those of other metrics."""
    new = {run.run_id: run for run in runs}
    before = known(store, list(new))
    rows = [_row(_merged(before.get(run_id), run)) for run_id, run in sorted(new.items())]
    if not rows:
        return
    with store.writing() as connection:
        store.database.upsert(connection, screened, rows)


def _merged(before: Screened | None, now: Screened) -> Screened:
    if before is None:
        return now
    return Screened(now.run_id, {**before.values, **now.values}, now.problems, before.names | now.names)


def known(store: Store, run_ids: Sequence[str]) -> dict[str, Screened]:
    """Those of these runs that were screened.

    Raises:
        RowDamaged: a row is not what was stored.
    """
    rows: dict[str, Screened] = {}
    for ids in batched(run_ids):
        query = sa.select(*screened.c).where(screened.c.run_id.in_(ids))
        for run_id, metrics, problems, checksum in store.tuples(query):
            if checksums.of(run_id, metrics, problems) != checksum:
                raise RowDamaged(f"the screened run {run_id} differs from its checksum; delete its row", run_id)
            rows[run_id] = read(run_id, metrics, problems)
    return rows


def read(run_id: str, metrics: str, problems: str) -> Screened:
    """A run from the columns of its row, which nobody has compared with their checksum."""
    of = json.loads(metrics)
    values = {
        Quantity(metric, subject, unit): float(value) for metric, rows in of.items() for subject, unit, value in rows
    }
    return Screened(run_id, values, tuple(json.loads(problems)), frozenset(of))


def _row(run: Screened) -> dict[str, object]:
    metrics: dict[str, list[list[object]]] = {name: [] for name in sorted(run.names)}
    for (metric, subject, unit), value in run.values.items():
        metrics.setdefault(metric, []).append([subject, unit, value])
    texts = (json.dumps(metrics, separators=(",", ":")), json.dumps(list(run.problems)))
    return {
        "run_id": run.run_id,
        "metrics": texts[0],
        "problems": texts[1],
        "checksum": checksums.of(run.run_id, *texts),
    }
