"""`papers score` reads a store's runs."""

from __future__ import annotations

import json
from pathlib import Path

from testbed.node_binary import ROOT
from tests.conftest import backchannel


def test_score_reads_what_was_run_and_nothing_else(tmp_path: Path) -> None:
    file = ROOT / "experiments/aq/aq-fig3.yaml"
    backchannel("run", str(file), "--results", str(tmp_path), "--set", "duration=6 s")
    assert (
        json.loads(backchannel("papers", "score", "aq-fig3", "--json", "--results", str(tmp_path)).stdout)["count"][
            "run"
        ]
        == 0
    )
    text = backchannel("papers", "run", "aq-fig3", "--results", str(tmp_path)).stdout
    assert "Utilisation download at policy AQ" in text
    after = json.loads(backchannel("papers", "score", "aq-fig3", "--json", "--results", str(tmp_path)).stdout)
    scores = after["artefacts"][0]["scores"]["sim"]
    assert after["count"]["run"] == 1
    assert scores["asked"] == scores["valid"] == 10
    assert {value["measure"] for value in scores["values"]} == {"utilisation_upload", "utilisation_download"}
    assert all(value["runs"] == 5 and value["measured"] > 0.5 for value in scores["values"])
