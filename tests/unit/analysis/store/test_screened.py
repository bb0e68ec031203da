"""Rows of screened runs, on SQLite and, with tests/system/dask, on PostgreSQL."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from analysis.results import Quantity
from analysis.store import RowDamaged, Store
from analysis.store.schema import screened
from analysis.store.screened import Screened, keep, known

SPEED, DELAY = Quantity("throughput", "f", "rate"), Quantity("round_trip", "f", "time")


def row(run_id: str, value: float, quantity: Quantity = SPEED, problems: tuple[str, ...] = ()) -> Screened:
    return Screened(run_id, {quantity: value}, problems, frozenset({quantity.metric}))


def test_what_is_kept_is_known(store: Store) -> None:
    rows = [row("a", 1e6), row("b", 0.1, DELAY, ("it was late",))]
    keep(store, rows)
    assert known(store, ["a", "b", "c"]) == {each.run_id: each for each in rows}
    keep(store, [])
    assert known(store, []) == {}


def test_a_run_that_is_there_gets_new_values_beside_those_of_other_metrics(store: Store) -> None:
    keep(store, [row("a", 1e6, problems=("old",))])
    keep(store, [row("a", 0.1, DELAY), row("b", 2e6)])
    assert known(store, ["a"])["a"] == Screened(
        "a", {SPEED: 1e6, DELAY: 0.1}, (), frozenset({"throughput", "round_trip"})
    )
    keep(store, [row("a", 3e6)])
    assert known(store, ["a"])["a"].values == {SPEED: 3e6, DELAY: 0.1}


def test_more_runs_than_a_query_takes(store: Store) -> None:
    ids = [f"{number:04d}" for number in range(1200)]
    keep(store, [row(run_id, float(number)) for number, run_id in enumerate(ids)])
    found = known(store, ids)
    assert [found[run_id].values[SPEED] for run_id in ids] == [float(number) for number in range(1200)]


def test_a_changed_row_is_refused(store: Store) -> None:
    keep(store, [row("a", 1e6)])
    with store.writing() as connection:
        changed = sa.func.replace(screened.c.metrics, "1000000", "2000000")
        connection.execute(sa.update(screened).values(metrics=changed))
    with pytest.raises(RowDamaged, match="screened run a differs from its checksum"):
        known(store, ["a"])
