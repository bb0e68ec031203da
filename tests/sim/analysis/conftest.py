"""A campaign in virtual time for every test of what becomes of results."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import CAMPAIGN
from tests.support.simulated import ran

SIMULATED = CAMPAIGN.replace("workload:", "backend: sim\nstack: newreno\nworkload:")
#: For tests that run it themselves.
SHORT = SIMULATED.replace("duration: 6", "duration: 3")


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ran(tmp_path_factory.mktemp("sim"), "small.yaml", SIMULATED).results
