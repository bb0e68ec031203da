"""What ends a campaign, and what it must not lose."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from rich.console import Console

from analysis.store import Landing, Store
from experiments.campaign import Run, load
from experiments.engine import Options, Outcome, run_campaign
from experiments.execute import Worker
from experiments.show import Reporter
from testbed.errors import TestbedError

FILE = """
name: engine
backend: sim
network: {topology: line, forward: {rate: 1 Mbit/s, delay: 10 ms}}
stack: newreno
workload:
  - {name: bulk, from: left, to: right}
duration: 2 s
repetitions: 4
"""


def run(tmp_path: Path, force: bool = False) -> Outcome:
    file = tmp_path / "engine.yaml"
    file.write_text(FILE)
    return run_campaign(load(file), Options(tmp_path / "results", 2, force), Reporter(Console(quiet=True)))


def ids(tmp_path: Path) -> list[str]:
    return [one.id for one in load(tmp_path / "engine.yaml").runs]


def valid(tmp_path: Path) -> set[str]:
    store = Store.open(tmp_path / "results")
    try:
        return set(store.valid_runs(ids(tmp_path)))
    finally:
        store.close()


def test_a_full_disk_ends_the_campaign_with_a_sentence_and_the_rest_is_run_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Worker.run
    calls: list[str] = []

    def breaks(self: Worker, run: Run, attempt: int, folder: Path) -> Landing:
        calls.append(run.id)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(self, run, attempt, folder)

    monkeypatch.setattr(Worker, "run", breaks)
    with pytest.raises(TestbedError, match="the campaign stopped: No space left on device; what has landed stays"):
        run(tmp_path)
    landed = valid(tmp_path)
    assert len(landed) in (2, 3)
    monkeypatch.undo()
    outcome = run(tmp_path)
    assert outcome.complete
    assert (outcome.reused, outcome.landed) == (len(landed), 4 - len(landed))


def test_a_run_that_is_forced_keeps_its_old_result_until_the_new_one_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(tmp_path).landed == 4

    def breaks(*_: object) -> Landing:
        raise TestbedError("nothing goes today")

    monkeypatch.setattr(Worker, "run", breaks)
    outcome = run(tmp_path, force=True)
    assert len(outcome.failed) == 4
    assert valid(tmp_path) == set(ids(tmp_path))
    monkeypatch.undo()
    assert run(tmp_path, force=True).landed == 4


def test_virtual_time_is_not_tried_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def breaks(self: Worker, run: Run, attempt: int, folder: Path) -> Landing:
        calls.append(run.id)
        raise TestbedError("it does not fit")

    monkeypatch.setattr(Worker, "run", breaks)
    outcome = run(tmp_path)
    assert not outcome.complete
    assert sorted(calls) == sorted(ids(tmp_path))
