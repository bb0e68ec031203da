"""Uploads of qlog files: a run whose page states whose word it is, or a sentence with file, line and field."""

from __future__ import annotations

from pathlib import Path

import pytest
from flask.testing import FlaskClient

from analysis.store import StoreError
from tests.sim.web.test_safety import uploaded
from web.app import create_app

LOGS = Path(__file__).parents[2] / "fuzz/corpus/qlog"


@pytest.fixture
def client(tmp_path: Path) -> FlaskClient:
    return create_app(tmp_path / "results").test_client()


@pytest.mark.parametrize("name", ["quic-go-server", "aioquic-server"])
def test_a_log_becomes_a_run_whose_page_states_whose_word_it_is(name: str, client: FlaskClient) -> None:
    told = uploaded(client, (LOGS / name).read_bytes(), f"{name}.qlog")
    assert told["state"] == "done", told["said"]
    page = client.get(f"/runs/{told['runs'][0]}").text
    assert "Imported logs" in page
    assert "as reported by the endpoint that wrote the log" in page
    assert "Not TCP" not in page
    assert "server-client:1" in page


def test_an_upload_ends_while_the_store_is_busy(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy() -> None:
        raise StoreError("the store is busy")

    monkeypatch.setattr(client.application.extensions["store"], "sweep", busy)
    assert uploaded(client, b"no log", "mine.qlog")["state"] == "failed"


def test_what_is_wrong_with_a_log_is_named_as_the_visitor_knows_it(client: FlaskClient, tmp_path: Path) -> None:
    broken = (LOGS / "ngtcp2-client").read_bytes().replace(b'"packet_number":0', b'"packet_number":[]', 1)
    told = uploaded(client, broken, "mine.sqlog")
    assert told["state"] == "failed"
    assert told["said"].startswith("mine.sqlog, line 2: data.header.packet_number: an array is not a whole number"), (
        told
    )
    assert str(tmp_path) not in told["said"]
