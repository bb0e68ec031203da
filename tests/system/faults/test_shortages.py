"""Commands that run short of something, or are disturbed, lose nothing, and the same command completes the campaign."""

from __future__ import annotations

import pytest

from tests.support.faults.shortages import DISTURBANCES, SHORTAGES, Bench

pytestmark = pytest.mark.slow("every shortage of a machine")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("shortages"))


@pytest.mark.emulated
@pytest.mark.shares_cpu
@pytest.mark.parametrize("name", SHORTAGES)
def test_a_shortage_is_told_and_the_same_command_goes_on(bench: Bench, name: str) -> None:
    assert bench.shortage(SHORTAGES[name]) == []


@pytest.mark.parametrize("name", DISTURBANCES)
def test_a_disturbed_command_loses_nothing(bench: Bench, name: str) -> None:
    assert bench.disturbance(name) == []
