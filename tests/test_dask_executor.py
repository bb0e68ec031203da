"""The executor on a cluster of this machine, without any run."""

from __future__ import annotations

import time
from pathlib import Path

import dask
import pytest

from analysis.store import Store
from experiments.dask_executor import DaskExecutor
from experiments.engine import Options
from experiments.pool import Beat, Job, Result


class Deaf:
    """Hears what must not be said."""

    def __init__(self) -> None:
        self.lost: list[str] = []

    def on_beat(self, machine_id: str, beat: Beat) -> None:
        pass

    def on_result(self, machine_id: str, job: Job, result: Result) -> None:
        pass

    def on_lost(self, machine_id: str, job: Job, reason: str) -> None:
        self.lost.append(reason)


def test_workers_that_live_are_never_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(tmp_path).close()
    # Dask's client writes over its own copy of who is there, without the workers, as often as this says.
    with dask.config.set({"distributed.client.scheduler-info-interval": "1ms"}):
        executor = DaskExecutor(None, Options(tmp_path), Deaf())
    try:
        monkeypatch.setattr("experiments.dask_executor.LOOK_S", 0.0)
        seen = []
        until_s = time.monotonic() + 3
        while time.monotonic() < until_s:
            executor.machines()
            seen.append(len(executor._workers))
        assert len(seen) > 100
        assert set(seen) == {seen[0]}
        assert seen[0] > 0
    finally:
        executor.close()
