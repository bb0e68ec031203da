"""A store on SQLite, or on an empty PostgreSQL server, and what lands in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from analysis.results import MetricValue
from analysis.store import PendingRun, Store
from analysis.store.database import Database
from analysis.store.documents import Documents
from analysis.store.rows import NewCampaign

#: Of an empty server, where the same is tested with a database of its own (tests/system/dask).
POSTGRESQL = os.environ.get("BACKCHANNEL_TEST_POSTGRESQL")


def opened(tmp_path: Path) -> Store:
    if POSTGRESQL is None:
        return Store.open(tmp_path / "results")
    return Store.open(POSTGRESQL, f"file://{tmp_path}/artefacts")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    if POSTGRESQL is not None:
        engine = sa.create_engine(sa.make_url(POSTGRESQL).set(drivername="postgresql+psycopg"))
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP SCHEMA public CASCADE")
            connection.exec_driver_sql("CREATE SCHEMA public")
        engine.dispose()
    result = opened(tmp_path)
    yield result
    result.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time of everything that the store records: `now_s`, which a test sets."""
    result = SimpleNamespace(now_s=1000.0)
    result.time = lambda: result.now_s
    monkeypatch.setattr("analysis.store.commit.time", result)
    monkeypatch.setattr(Database, "now", lambda _: result.now_s)
    return result


def campaign_fields(**changes: Any) -> dict[str, Any]:
    fields = {
        "id": "c1", "name": "demo", "title": "Demo", "file": "demo.yaml", "text": "name: demo", "overrides": {},
        "backend": "emulated", "seed": 1, "repetitions": 2,
    }  # fmt: skip
    return fields | changes


def begin(store: Store, **changes: Any) -> None:
    points = [[("stack", "reno")], [("stack", "cubic")]]
    members = [(0, 0, "r00"), (0, 1, "r01"), (1, 0, "r10"), (1, 1, "r11")]
    store.begin_campaign(NewCampaign(**campaign_fields(**changes)), points, members)


def enter(store: Store, campaign_id: str, *run_ids: str, complete: bool = True) -> None:
    """A campaign of one point, whose runs others may have too."""
    new = NewCampaign(**campaign_fields(id=campaign_id, name=campaign_id, repetitions=1))
    store.begin_campaign(new, [[]], [(0, number, run_id) for number, run_id in enumerate(run_ids)])
    if complete:
        store.end_campaign(campaign_id, complete=True)


def pending_run(
    store: Store, run_id: str, value: float, problems: tuple[str, ...] = (), attempt: int = 1, capture: bytes = b"abc"
) -> PendingRun:
    folder = store.staging_folder(run_id)
    (folder / "captures").mkdir()
    (folder / "captures/a.pcap").write_bytes(capture)
    return PendingRun(
        run_id=run_id, backend="emulated", documents=Documents({"seed": 1, "duration_s": 3.0}, {"kernel": "6"}),
        metrics=[MetricValue("throughput", "bulk", value, "rate")],
        problems=list(problems), attempt=attempt, folder=folder,
    )  # fmt: skip
