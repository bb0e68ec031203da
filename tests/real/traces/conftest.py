"""The corpus with captures of the kernel's TCP, made once for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Finished
from tests.sim.traces import conftest as simulations
from tests.support.traces import corpus

simulated = simulations.simulated


@pytest.fixture(scope="session")
def captures(
    emulation: None, finished: Finished, simulated: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> list[Path]:
    """All of them."""
    folder = tmp_path_factory.mktemp("captures")
    result = [*corpus.of_campaigns(finished.results, folder), *corpus.of_the_kernel(folder), *simulated]
    assert len(result) >= 80
    return result
