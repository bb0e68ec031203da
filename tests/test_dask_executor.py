"""The executor on a cluster of this machine, without any run."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import dask
import pytest

from analysis.store import Store
from experiments import dask_executor, machine
from experiments.dask_executor import DaskExecutor
from experiments.engine import Options
from experiments.pool import Beat, Job, Result
from testbed import node_binary


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


def test_a_worker_with_other_code_says_so() -> None:
    """In words: what a worker raises, Dask writes to its log with a traceback."""
    said = dask_executor._introduce({"topic": "unused"}, "0" * 64)
    assert said == (
        f"its sources have the digest {machine.sources()[:12]} and the runner's {'0' * 12}: bring both to one commit, "
        "a worker that a role made by './backchannel testbed site'"
    )


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the code, which is now what runs here."""
    for name in machine.FOLDERS:
        shutil.copytree(node_binary.ROOT / name, tmp_path / name)
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(node_binary.ROOT / name, tmp_path / name)
    monkeypatch.setattr(node_binary, "ROOT", tmp_path)
    machine.sources.cache_clear()
    yield tmp_path
    machine.sources.cache_clear()


@pytest.mark.parametrize("name", ["testbed/links/src/lib.rs", "experiments/pool.py", "Cargo.lock"])
def test_code_is_other_code_where_one_source_differs(copied: Path, name: str) -> None:
    before = machine.sources()
    (copied / "experiments/quickstart.yaml").write_text("a campaign is no code")
    machine.sources.cache_clear()
    assert machine.sources() == before
    with (copied / name).open("a") as file:
        file.write("\n")
    machine.sources.cache_clear()
    assert machine.sources() != before


def test_a_release_without_commit_or_rust_sources_is_held_against_the_runner(copied: Path) -> None:
    shutil.rmtree(copied / "testbed" / "links")
    (copied / machine.RELEASED).write_text("1" * 64 + "\n")
    assert machine.version().count("commit") == 0
    said = dask_executor._introduce({"topic": "unused"}, "0" * 64)
    assert f"the digest {'1' * 12} and the runner's {'0' * 12}" in str(said)
