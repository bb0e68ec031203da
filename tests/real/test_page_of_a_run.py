"""The page of an emulated run."""

from __future__ import annotations

from typing import Any

from tests.conftest import Finished
from web.app import create_app


def test_an_emulated_run_shows_its_fidelity(finished: Finished) -> None:
    client = create_app(finished.results).test_client()
    run_id = finished.campaign["points"][0]["runs"][0]["run_id"]
    page = client.get(f"/runs/{run_id}").text
    for wanted in ("Fidelity", "Calibrated", "CPU during the run"):
        assert wanted in page
    crossing: Any = client.get(f"/api/runs/{run_id}/crossing?from=1&to=2").json
    assert len(crossing["packets"]) > 20
