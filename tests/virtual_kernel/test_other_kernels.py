"""Kernels beside the default one. Only `./backchannel test --vm` tries them, because a build takes minutes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testbed.virtual_kernel import kernels
from testbed.virtual_kernel.build import build
from tests.virtual_kernel.test_machine import made, scenario

pytestmark = pytest.mark.vm


@pytest.mark.parametrize("version", [series.name for series in kernels.SERIES[1:]])
@pytest.mark.parametrize("stack", ["cubic", "bbr", "newreno"])
def test_a_scenario_gives_the_same_bytes_twice(version: str, stack: str, tmp_path: Path) -> None:
    kernel = build(version, print)
    report, first = made(kernel, scenario(stack), tmp_path / "first")
    _, second = made(kernel, scenario(stack), tmp_path / "second")
    assert first == second
    assert report.flows["bulk"].receive.bytes > 100_000


@pytest.mark.parametrize("version", [series.name for series in kernels.SERIES[1:]])
def test_a_busy_machine_changes_no_byte(version: str, tmp_path: Path) -> None:
    kernel = build(version, print)
    with ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda number: made(kernel, scenario("bbr"), tmp_path / str(number))[1], range(20))
    assert len({tuple(sorted(digests.items())) for digests in results}) == 1
