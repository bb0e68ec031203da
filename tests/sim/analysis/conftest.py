"""A campaign in virtual time for every test of what becomes of results."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import CAMPAIGN, backchannel


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sim")
    (folder / "small.yaml").write_text(CAMPAIGN.replace("workload:", "backend: sim\nstack: newreno\nworkload:"))
    done = backchannel("run", folder / "small.yaml", "--results", folder / "results", "--json")
    assert done.returncode == 0, done.stderr
    return folder / "results"
