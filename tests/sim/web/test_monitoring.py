"""The site's health and its metrics for Prometheus."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections import namedtuple
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from analysis.store import Store, requests
from tests.support.simulated import Simulated
from web.app import create_app
from web.monitoring import Damage

TOKEN = "correct horse battery staple"


@pytest.fixture
def fresh(tmp_path: Path) -> FlaskClient:
    return create_app(tmp_path).test_client()


def health(client: FlaskClient, status: int = 503) -> dict[str, Any]:
    """What a site that is not healthy, or has another status, says of its parts."""
    answer = client.get("/api/health")
    assert answer.status_code == status
    assert answer.json is not None
    return dict(answer.json)


def test_a_site_whose_parts_work_is_healthy(fresh: FlaskClient) -> None:
    assert health(fresh, 200) == {"healthy": True, "store": "ok", "results": "ok", "runner": "ok", "disk": "ok"}


def test_a_request_that_nobody_takes_is_reported(fresh: FlaskClient, tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    requests.ask_run(store, "a.yaml", "name: a")
    told = health(fresh)
    assert told["runner"] == "1 request waiting, but no runner is connected; start './backchannel serve runner'"
    requests.show_runner(store, "host:1", 0.0, [])
    assert fresh.get("/api/health").status_code == 200
    store.close()


def test_a_full_disk_is_reported(fresh: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("web.monitoring.shutil.disk_usage", lambda _: usage(10**12, 10**12, 5_000_000))
    assert health(fresh)["disk"] == "5 MB are free; runs need 200 MB"


def test_damaged_results_are_reported(simulated: Simulated, tmp_path: Path) -> None:
    shutil.copytree(simulated.results, tmp_path / "results")
    app = create_app(tmp_path / "results")
    damage: Damage = app.extensions["damage"]
    damage.look(app.extensions["store"])
    assert health(app.test_client(), 200)["results"] == "ok"
    with closing(sqlite3.connect(tmp_path / "results/results.sqlite")) as database, database:
        database.execute("UPDATE metric SET value = value + 1 WHERE run_id = ?", (simulated.run_id(),))
    damage.look(app.extensions["store"])
    assert health(app.test_client())["results"].startswith("1 run is damaged; './backchannel verify' names")


def test_a_damaged_store_is_reported(fresh: FlaskClient, tmp_path: Path) -> None:
    database = tmp_path / "results.sqlite"
    for path in tmp_path.glob("results.sqlite-*"):
        path.unlink()
    database.write_bytes(b"damaged" * (database.stat().st_size // 7))
    told = health(fresh)
    assert (told["store"], told["healthy"]) == ("the store cannot be written", False)


def test_metrics_are_in_prometheus_text_format(fresh: FlaskClient, tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    requests.ask_run(store, "a.yaml", "name: a")
    requests.show_runner(store, "host:1", 0.0, [])
    store.close()
    answer = fresh.get("/metrics")
    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.text.splitlines()
    assert 'backchannel_requests{state="waiting"} 1' in lines
    assert "backchannel_runners 1" in lines
    sample = re.compile(r'backchannel_[a-z_]+(\{state="[a-z]+"\})? \d+')
    assert all(line.startswith("# ") or sample.fullmatch(line) for line in lines)
    assert {line.split()[2] for line in lines if line.startswith("# TYPE")} == {
        "backchannel_runs", "backchannel_campaigns", "backchannel_requests", "backchannel_runners",
        "backchannel_disk_free_bytes", "backchannel_disk_size_bytes",
    }  # fmt: skip


def test_metrics_need_the_token_and_health_does_not(tmp_path: Path) -> None:
    locked = create_app(tmp_path, token=TOKEN).test_client()
    assert locked.get("/api/health").status_code == 200
    assert locked.get("/metrics").status_code == 401
    assert locked.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
