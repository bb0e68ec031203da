"""A few of the kills of `./backchannel bench faults`, and what its checks must notice."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.conftest import backchannel
from tests.support.faults import commands
from tests.support.faults.commands import Count
from tests.support.faults.kills import EMULATOR, NODE, RUNNER, TCPDUMP, Campaign, emulated, simulated
from tests.support.faults.leftovers import Watch
from tests.support.faults.stores import damage, digest
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow("kills every part of a campaign")


@pytest.fixture
def once(tmp_path: Path) -> Iterator[Callable[[str], Campaign]]:
    """Makes a campaign with one repetition."""
    with ExitStack() as stack:

        def made(text: str) -> Campaign:
            campaign = Campaign(tmp_path, text, random.Random(3))
            return stack.enter_context(closing(campaign))

        yield made


def test_a_killed_simulated_campaign_continues_to_equal_results(once: Callable[[str], Campaign]) -> None:
    campaign, count = once(simulated(repetitions=1)), Count()
    for part in (RUNNER, NODE):
        campaign.kill(part, count)
    campaign.check_complete(count)
    assert count.findings == []
    assert count.compared >= 1


@pytest.mark.emulated
def test_a_killed_campaign_with_real_packets_leaves_nothing(once: Callable[[str], Campaign]) -> None:
    campaign, count = once(emulated(repetitions=1)), Count()
    for part in (RUNNER, TCPDUMP):
        campaign.kill(part, count)
    campaign.check_complete(count)
    assert count.findings == []


@pytest.mark.emulated
def test_a_campaign_whose_emulator_is_stopped_for_a_while_ends_and_continues(once: Callable[[str], Campaign]) -> None:
    campaign, count = once(emulated(repetitions=1)), Count()
    campaign.stop(EMULATOR, count)
    campaign.check_complete(count)
    assert count.findings == []


def test_the_checks_find_what_is_left(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    sleeper = subprocess.Popen(["sleep", "100"], env=watch.environment)
    (tmp_path / "tmp/backchannel.left").mkdir()
    try:
        # For a moment after its start a program's environment reads as empty.
        wait_until(watch.processes, "the process to be found")
        assert watch.left(patience_s=0) == [f"process {sleeper.pid}: sleep 100"]
        assert watch.folders() == ["temporary backchannel.left"]
    finally:
        sleeper.kill()
        sleeper.wait()
    assert watch.left() == []


def namespace_of(process: subprocess.Popen[bytes]) -> str:
    """The network namespace that a process enters."""
    own = Path("/proc/self/ns/net").readlink()

    def entered() -> str:
        name = Path(f"/proc/{process.pid}/ns/net").readlink()
        return "" if name == own else str(name)

    return wait_until(entered, "a namespace")


@pytest.mark.emulated
@pytest.mark.shares_cpu
def test_a_namespace_that_got_the_number_of_another_is_not_left(tmp_path: Path) -> None:
    watch, words = Watch(tmp_path), ["unshare", "--net", "sleep", "100"]
    ours = subprocess.Popen(words, env=watch.environment)
    processes = [ours]
    try:
        name = namespace_of(ours)
        assert wait_until(watch.processes, "the process to be found") == [ours.pid]
        assert f"namespace {name}" in watch.left(patience_s=0)
        assert watch.processes() == [ours.pid]
        ours.kill()
        ours.wait()
        for _ in range(10):
            processes.append(subprocess.Popen(words))
            namespace_of(processes[-1])
            # The kernel frees the number of a namespace a moment after its last process has ended.
            time.sleep(0.05)
        assert watch.left(patience_s=0) == []
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_command_that_hangs_is_ended_and_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "PATIENCE_S", 0.2)
    watch, count = Watch(tmp_path), Count()
    command = subprocess.Popen(
        ["sh", "-c", "echo begun; exec sleep 100"], stdout=subprocess.PIPE, text=True, env=watch.environment
    )
    ended = commands.output_of(command, watch)
    assert ended == commands.Ended(-signal.SIGKILL, "begun\n", hung=True)
    assert watch.left() == []
    count.judge(ended, "runner was killed")
    count.judge_completion(ended, lambda: "", "")
    assert count == Count(
        findings=[
            "after the runner was killed, the command did not end although it waited for 0.2 s",
            "the same command hangs",
        ]
    )


def test_the_checks_find_damage(tmp_path: Path) -> None:
    file, results = tmp_path / "small.yaml", tmp_path / "results"
    file.write_text(simulated("2 s", 1))
    assert damage(results) == []
    assert backchannel("run", file, "--results", results, "--jobs", "1").returncode == 0
    assert damage(results) == []
    before = digest(results)
    run = next(results.glob("runs/*/*"))
    (run / "stray").touch()
    with (run / "summary.json").open("a") as summary:
        summary.write(" ")
    (run / "segments.parquet").unlink()
    assert sorted(damage(results)) == [
        f"run {run.name}: segments.parquet is missing",
        f"run {run.name}: stray has no row",
        f"run {run.name}: summary.json differs from its row",
    ]
    with sqlite3.connect(results / "results.sqlite") as store:
        store.execute("UPDATE metric SET value = value + 1 WHERE rowid = (SELECT min(rowid) FROM metric)")
    assert digest(results) != before
    with sqlite3.connect(results / "results.sqlite") as store:
        store.execute("INSERT INTO metric SELECT 'absent', name, subject, value, unit, checksum FROM metric LIMIT 1")
    assert any(finding.startswith("foreign key") for finding in damage(results))
