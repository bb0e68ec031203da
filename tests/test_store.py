"""The store: whole landings, campaigns, tables, migrations."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from analysis.store import Landing, Store, StoreError
from analysis.store.schema import metadata


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "results")


def campaign_fields(**changes: Any) -> dict[str, Any]:
    fields = {
        "id": "c1", "name": "demo", "title": "Demo", "file": "demo.yaml", "text": "name: demo", "overrides": {},
        "backend": "emulated", "seed": 1, "repetitions": 2,
    }  # fmt: skip
    return fields | changes


def begin(store: Store, **changes: Any) -> None:
    points = [[("stack", "reno")], [("stack", "cubic")]]
    members = [(0, 0, "r00"), (0, 1, "r01"), (1, 0, "r10"), (1, 1, "r11")]
    store.begin_campaign(campaign_fields(**changes), points, members)


def landing(store: Store, run_id: str, value: float, problems: tuple[str, ...] = (), attempt: int = 1) -> Landing:
    folder = store.incoming(run_id)
    (folder / "captures").mkdir()
    (folder / "captures/a.pcap").write_bytes(b"abc")
    return Landing(
        run_id=run_id, backend="emulated", scenario={"seed": 1, "duration_s": 3.0}, manifest={"kernel": "6"},
        metrics=[{"metric": "throughput", "subject": "bulk", "value": value, "unit": "rate"}],
        problems=list(problems), attempt=attempt, folder=folder,
    )  # fmt: skip


def test_migrations_make_exactly_the_declared_tables(store: Store) -> None:
    with store._engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_a_run_lands_whole(store: Store) -> None:
    begin(store)
    store.land(landing(store, "r00", 5.0))
    run = store.run("r00")
    assert run is not None
    assert run["state"] == "valid"
    assert [(file["path"], file["bytes"]) for file in run["files"]] == [("captures/a.pcap", 3)]
    assert (store.run_folder("r00") / "captures/a.pcap").read_bytes() == b"abc"
    assert run["campaigns"][0]["parameters"] == [["stack", "reno"]]
    assert store.valid_runs(["r00", "r01"]) == {"r00"}


def test_a_landing_that_fails_leaves_nothing(store: Store) -> None:
    begin(store)
    broken = landing(store, "r00", 5.0)
    bad = Landing(**{**broken.__dict__, "metrics": [*broken.metrics, *broken.metrics]})
    with pytest.raises(sa.exc.IntegrityError):
        store.land(bad)
    assert store.run("r00") is None
    assert not store.run_folder("r00").exists()
    store.land(landing(store, "r00", 5.0))
    assert store.valid_runs(["r00"]) == {"r00"}


def test_invalid_runs_stay_out_of_every_mean(store: Store) -> None:
    begin(store)
    store.land(landing(store, "r00", 4.0))
    store.land(landing(store, "r01", 1000.0, problems=("it was late",)))
    (row,) = store.table("c1")
    assert (row["mean"], row["sd"], row["n"]) == (4.0, None, 1)
    store.land(landing(store, "r01", 6.0, attempt=2))
    (row,) = store.table("c1")
    assert (row["mean"], row["n"]) == (5.0, 2)
    assert row["sd"] == pytest.approx(2**0.5)
    run = store.run("r01")
    assert run is not None
    assert [one["outcome"] for one in run["attempts"]] == ["invalid"]


def test_an_invalid_run_never_replaces_a_valid_one(store: Store) -> None:
    begin(store)
    store.land(landing(store, "r00", 4.0))
    store.land(landing(store, "r00", 9.0, problems=("late",), attempt=2))
    run = store.run("r00")
    assert run is not None
    assert (run["state"], run["metrics"][0]["value"]) == ("valid", 4.0)


def test_campaigns_count_their_valid_runs_and_share_them(store: Store) -> None:
    begin(store)
    begin(store, id="c2", name="other")
    store.land(landing(store, "r00", 4.0))
    store.land(landing(store, "r10", 4.0, problems=("late",)))
    assert {row["id"]: (row["runs"], row["valid"]) for row in store.campaigns()} == {
        "c1": (4, 1),
        "c2": (4, 1),
    }
    campaign = store.campaign("c1")
    assert campaign is not None
    assert [[member["state"] for member in point["members"]] for point in campaign["points"]] == [
        ["valid", "missing"],
        ["invalid", "missing"],
    ]
    store.end_campaign("c1", complete=False)
    assert store.campaign("c1")["state"] == "incomplete"  # type: ignore[index]
    assert store.campaign("nowhere") is None
    assert store.run("nowhere") is None


def test_many_writers_wait_for_each_other(store: Store) -> None:
    begin(store)
    other = Store.open(store.folder)
    landings = [landing(store, f"run{number}", float(number)) for number in range(20)]

    def land_some(into: Store, some: list[Landing]) -> None:
        for one in some:
            into.land(one)

    threads = [
        threading.Thread(target=land_some, args=(into, some))
        for into, some in ((store, landings[::2]), (other, landings[1::2]))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.valid_runs([f"run{number}" for number in range(20)])) == 20


def test_many_open_a_new_store_at_once(tmp_path: Path) -> None:
    stores: list[Store] = []
    threads = [threading.Thread(target=lambda: stores.append(Store.open(tmp_path / "new"))) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 12
    with stores[0]._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def test_leftovers_of_dead_runners_are_swept(store: Store) -> None:
    mine = store.incoming("r00")
    dead = store.folder / "incoming" / "r01-999999999"
    dead.mkdir()
    store.sweep_incoming()
    assert mine.exists()
    assert not dead.exists()


def test_a_store_of_a_newer_version_and_a_broken_one_are_refused(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "newer")
    with store._engine.connect() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match="newer version"):
        Store.open(tmp_path / "newer")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/results.sqlite").write_bytes(b"this is no database, whatever its name says" * 50)
    with pytest.raises(StoreError, match="cannot be opened"):
        Store.open(tmp_path / "broken")
