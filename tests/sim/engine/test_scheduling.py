"""What ends a campaign, and what it must not lose."""

from __future__ import annotations

import errno
import io
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from analysis.store import Store
from experiments.engine import batch as select, core, pace, scheduling
from experiments.engine.core import JobLost
from experiments.engine.execution import Finish, Worker
from experiments.engine.executors import Post, this_machine
from experiments.engine.jobs import Job, Machine
from experiments.engine.options import Options
from experiments.engine.scheduling import Outcome, run_campaign, run_campaigns
from experiments.language import runs
from experiments.language.campaign import Plan, Run, load
from experiments.language.problems import CampaignError
from experiments.terminal import TerminalReporter
from testbed.errors import HostLost, TestbedError, Unavailable
from testbed.virtual_kernel.build import build_for_runs
from tests.support.campaign_texts import one_line
from tests.support.waiting import wait_until

FILE = one_line("engine", "repetitions: 2\nsweep: {network.forward.delay: [10 ms, 20 ms]}")


def run(tmp_path: Path, text: str = FILE, console: Console | None = None, jobs: int = 2, **more: Any) -> Outcome:
    """Runs a campaign with these options; the console gets its reports."""
    file = tmp_path / "engine.yaml"
    file.write_text(text)
    options = Options(tmp_path / "results", jobs=jobs, **more)
    return run_campaign(load(file), options, TerminalReporter(console or Console(quiet=True)))


def run_batch(tmp_path: Path, plans: list[Plan], **more: Any) -> list[Outcome]:
    options = Options(tmp_path / "results", jobs=1, **more)
    return run_campaigns(plans, options, TerminalReporter(Console(quiet=True)))


def ids(tmp_path: Path) -> list[str]:
    return [run.id for run in load(tmp_path / "engine.yaml").runs]


def valid(tmp_path: Path) -> set[str]:
    with Store.open(tmp_path / "results") as store:
        return set(store.valid_runs(ids(tmp_path)))


def test_a_full_disk_ends_the_campaign_and_the_rest_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Worker.run
    calls: list[str] = []

    def breaks(self: Worker, run: Run, attempt: int, folder: Path) -> Finish:
        calls.append(run.id)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(self, run, attempt, folder)

    monkeypatch.setattr(Worker, "run", breaks)
    with pytest.raises(TestbedError, match="the campaign stopped: No space left on device; stored runs are kept"):
        run(tmp_path)
    landed = valid(tmp_path)
    # Those that were at work beside the third may have ended before it or not.
    assert 1 <= len(landed) <= 3
    monkeypatch.undo()
    outcome = run(tmp_path)
    assert outcome.complete
    assert (outcome.reused, outcome.landed) == (len(landed), 4 - len(landed))


def test_whoever_runs_a_campaign_learns_the_machines_pace(tmp_path: Path) -> None:
    assert pace.of("sim") == pace.UNMEASURED
    run(tmp_path)
    assert pace.of("sim").runs == 4
    again = run(tmp_path)
    assert (again.landed, pace.of("sim").runs) == (0, 4), "stored runs say nothing new"


def test_a_kernel_that_the_machine_lacks_is_built_before_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def build(name: str, say: Callable[[str], None]) -> None:
        say(f"building {name}")
        raise Unavailable("no compiler")

    monkeypatch.setattr("testbed.virtual_kernel.build.build", build)
    text = one_line("engine", 'kernel: "6.12"', backend="virtual-kernel", stack="reno")
    console = Console(record=True, file=io.StringIO())
    with pytest.raises(Unavailable, match="no compiler"):
        run(tmp_path, text, console)
    assert console.export_text() == "building 6.12\n"
    with Store.open(tmp_path / "results") as store:
        assert store.campaigns() == [], "nothing was entered"
    # One of the user's own can be built only by the user.
    with pytest.raises(
        Unavailable, match="this machine has no kernel 'linux-mine-0123': build it from the same source"
    ):
        build_for_runs("linux-mine-0123", print)


def test_a_forced_run_keeps_its_result_until_it_ends_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path).landed == 4

    def breaks(*_: object) -> Finish:
        raise TestbedError("nothing goes today")

    monkeypatch.setattr(Worker, "run", breaks)
    outcome = run(tmp_path, force=True)
    assert len(outcome.failed) == 4
    assert valid(tmp_path) == set(ids(tmp_path))
    monkeypatch.undo()
    assert run(tmp_path, force=True).landed == 4


def test_virtual_time_is_not_tried_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def breaks(self: Worker, run: Run, attempt: int, folder: Path) -> Finish:
        calls.append(run.id)
        raise TestbedError("it does not fit")

    monkeypatch.setattr(Worker, "run", breaks)
    outcome = run(tmp_path)
    assert not outcome.complete
    assert sorted(calls) == sorted(ids(tmp_path))


def test_ended_runs_keep_no_typed_scenario(tmp_path: Path) -> None:
    file = tmp_path / "engine.yaml"
    file.write_text(FILE)
    plan = load(file)
    assert run_campaign(plan, Options(tmp_path / "results", jobs=2), TerminalReporter(Console(quiet=True))).landed == 4
    assert not [run.id for run in plan.runs if "scenario" in vars(run.document)]


def recorder(calls: list[str], failing: set[str] | None = None) -> Any:
    real = Worker.run

    def record(self: Worker, run: Run, attempt: int, folder: Path) -> Finish:
        calls.append(run.id)
        if failing and run.id in failing:
            (folder / "agent.log").write_text("it went wrong here\n")
            raise TestbedError("the line was cut; nobody knows by whom")
        return real(self, run, attempt, folder)

    return record


def test_limit_and_only_leave_the_rest_for_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(Worker, "run", recorder(calls))
    first = run(tmp_path, limit=1)
    assert (first.landed, first.left_out, first.complete) == (1, 3, False)
    second = run(tmp_path, only=["delay=20 ms"])
    plan = load(tmp_path / "engine.yaml")
    of_20_ms = {run.id for run in plan.runs if run.point == 1}
    assert second.landed == len(of_20_ms - set(calls[:1]))
    assert of_20_ms <= set(calls)
    (other,) = (run.id for run in plan.runs if run.point == 0 and run.repetition == 1)
    is_missing = other not in calls
    third = run(tmp_path, only=["repetition=2", "delay=10 ms"])
    assert third.landed == int(is_missing)
    assert other in calls
    assert run(tmp_path).complete
    assert sorted(calls) == sorted(ids(tmp_path))


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("dealy=20 ms", "did you mean"), ("delay=30 ms", "unknown value of network.forward.delay"),
        ("repetition=3", "allowed: 1 to 2"), ("repetition=first", "allowed: 1 to 2"), ("abc", "neither FIELD=VALUE"),
    ],
)  # fmt: skip
def test_a_condition_that_names_nothing_is_a_mistake(tmp_path: Path, condition: str, message: str) -> None:
    with pytest.raises(CampaignError, match=message) as caught:
        run(tmp_path, only=[condition])
    assert f"--only {condition}" in str(caught.value)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("backend", ["sim", "physical"])
def test_conditions_that_no_run_meets_are_a_mistake(tmp_path: Path, backend: str) -> None:
    sweep = """sweep:
  network.forward.delay: [10 ms, 20 ms]
  network.forward.rate: [1 Mbit/s, 2 Mbit/s]
  exclude: [{network.forward.delay: 10 ms, network.forward.rate: 2 Mbit/s}]
"""
    text = FILE.partition("sweep:")[0].replace("backend: sim", f"backend: {backend}") + sweep
    with pytest.raises(
        CampaignError, match="--only delay=10 ms --only rate=2 Mbit/s: no run of the campaign meets all"
    ):
        run(tmp_path, text, only=["delay=10 ms", "rate=2 Mbit/s"])
    assert not (tmp_path / "results").exists()


def test_retry_failed_makes_what_failed_and_keeps_its_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    (tmp_path / "engine.yaml").write_text(FILE)
    bad = ids(tmp_path)[1]
    monkeypatch.setattr(Worker, "run", recorder(calls, {bad}))
    outcome = run(tmp_path, only=["repetition=2"])
    assert outcome.failed == {bad: "the line was cut; nobody knows by whom"}
    left = tmp_path / "results/failed" / bad
    assert (left / "agent.log").read_text() == "it went wrong here\n"
    assert "the line was cut" in (left / "reason.txt").read_text()
    monkeypatch.undo()
    calls.clear()
    monkeypatch.setattr(Worker, "run", recorder(calls))
    again = run(tmp_path, retry_failed=True)
    assert calls == [bad]
    assert (again.landed, again.left_out) == (1, 2)
    assert not left.exists()
    assert run(tmp_path, retry_failed=True).landed == 0


class Deadly:
    """An executor whose workers all die of a run."""

    def __init__(self, post: Post) -> None:
        self._machine = this_machine()
        self._post = post
        self.allowed = 0

    def machines(self) -> list[Machine]:
        return [self._machine]

    def submit(self, machine_id: str, job: Job) -> None:
        assert self.allowed > 0, "how many may be at work was said before"
        self._post(JobLost(machine_id, job, "the worker tcp://10.0.0.7 is gone"))

    def allow(self, machine_id: str, cells: int) -> None:
        self.allowed = cells

    def stop(self) -> None:
        pass

    close = stop


def test_retry_failed_makes_what_took_its_workers_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.engine.scheduling.open_executor", lambda store, state, post: Deadly(post))
    outcome = run(tmp_path, only=["repetition=2"])
    why = "the worker tcp://10.0.0.7 is gone, for the 4th time with this run"
    assert set(outcome.failed.values()) == {why}
    monkeypatch.undo()
    with Store.open(tmp_path / "results") as store:
        assert store.last_problems(ids(tmp_path)) == dict.fromkeys(outcome.failed, [why])
    again = run(tmp_path, retry_failed=True)
    assert (again.landed, again.left_out) == (2, 2)
    assert valid(tmp_path) == set(outcome.failed)


def test_fail_fast_ends_with_the_first_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    text = FILE.replace("repetitions: 2", "repetitions: 30")
    (tmp_path / "engine.yaml").write_text(text)
    monkeypatch.setattr(Worker, "run", recorder(calls, set(ids(tmp_path))))
    outcome = run(tmp_path, text, jobs=1, fail_fast=True)
    assert (outcome.ended_early, outcome.interrupted, outcome.complete) == (True, False, False)
    assert len(outcome.failed) <= 3
    assert len(calls) < 10
    assert outcome.left_out == 60 - outcome.landed - len(outcome.failed)


def test_a_run_that_is_never_valid_is_tried_as_often_as_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def cut(self: Worker, run: Run, attempt: int, folder: Path) -> Finish:
        tried.append(attempt)
        raise TestbedError("the line was cut")

    monkeypatch.setattr(Worker, "run", cut)
    monkeypatch.setattr("experiments.engine.scheduling.require_emulation", lambda: None)
    outcome = run(tmp_path, FILE.replace("backend: sim", "backend: emulated"), jobs=1, attempts=3, limit=1)
    assert tried == [1, 2, 3]
    assert (len(outcome.failed), outcome.landed) == (1, 0)


def parked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: Callable[[int], bool], **more: float) -> list[int]:
    """Attempts of a campaign of four runs in a lab with a host that does or does not answer at the nth attempt."""
    tried: list[int] = []
    simulate = Worker.run

    def on_hosts(self: Worker, run: Run, attempt: int, folder: Path) -> Finish:
        tried.append(attempt)
        if not answers(len(tried)):
            raise HostLost("host pc2 was lost: it does not answer")
        return simulate(self, run, attempt, folder)

    monkeypatch.setattr(Worker, "run", on_hosts)
    for name, value in more.items():
        monkeypatch.setattr(core, name, value)
    return tried


def test_a_lost_host_parks_the_remaining_runs_until_it_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = parked(tmp_path, monkeypatch, lambda number: number == 1 or number > 9, PARKED_S=0.2)
    console = Console(record=True, width=200)
    outcome = run(tmp_path, console=console, jobs=1, attempts=2)
    assert (outcome.landed, outcome.failed) == (4, {})
    # No attempt was counted, and the host was not asked all the time.
    assert set(tried) == {1}
    assert len(tried) == 12
    (line,) = [line for line in console.export_text().splitlines() if "was lost" in line]
    assert line.endswith("host pc2 was lost: it does not answer; this run and those after it wait for the host")


def test_a_host_that_stays_lost_ends_the_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parked(tmp_path, monkeypatch, lambda number: number == 1, PARKED_S=0.1, MOST_PARKED_S=0.5)
    with pytest.raises(
        TestbedError, match="host pc2 was lost: .* stored runs are kept, and the same command continues"
    ):
        run(tmp_path)
    assert len(valid(tmp_path)) == 1


def test_runs_wait_while_the_host_takes_the_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[float] = []
    begun: list[int] = []

    def shares(before: Any, after: Any) -> dict[str, float]:
        # From the begin of the first run on, the host takes the CPUs for forty readings.
        beats.append(0.9 if begun and len(beats) < begun[0] + 40 else 0.0)
        return {"busy": 0.1, "niced": 0.0, "steal": beats[-1], "idle": 0.0}

    def cut(self: Worker, run: Run, attempt: int, folder: Path) -> Finish:
        begun.append(read := len(beats))
        wait_until(lambda: len(beats) > read + 10, "ten readings")
        raise TestbedError("the line was cut")

    monkeypatch.setattr("experiments.engine.pool.STATUS_INTERVAL_S", 0.02)
    monkeypatch.setattr("experiments.engine.pool.machine.cpu_shares", shares)
    monkeypatch.setattr(Worker, "run", cut)
    monkeypatch.setattr("experiments.engine.scheduling.require_emulation", lambda: None)
    outcome = run(tmp_path, FILE.replace("backend: sim", "backend: emulated"), jobs=1, attempts=1)
    assert len(outcome.failed) == 4
    assert begun[1] >= begun[0] + 40, "the second waited until the CPUs were free"


def plan_of(tmp_path: Path, points: int, repetitions: int) -> Plan:
    file = tmp_path / "order.yaml"
    delays = ", ".join(f"{number + 1} ms" for number in range(points))
    text = FILE.replace("repetitions: 2", f"repetitions: {repetitions}").replace("10 ms, 20 ms", delays)
    file.write_text(text)
    return load(file)


def test_order_is_drawn_from_the_seed_and_every_repetition_is_a_block(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, 12, 3)
    order = select.ordered(plan.members, 7)
    assert sorted(entry.id for entry in order) == sorted(run.id for run in plan.runs)
    assert [entry.repetition for entry in order] == sorted(entry.repetition for entry in order)
    blocks = [[entry.point for entry in order if entry.repetition == number] for number in range(3)]
    assert all(block != sorted(block) for block in blocks)
    assert blocks[0] != blocks[1]
    assert order == select.ordered(random.Random(1).sample(plan.members, len(plan.runs)), 7)
    assert order != select.ordered(plan.members, 8)
    assert [entry.point for entry in select.ordered(plan.members, None)][:12] == list(range(12))


def test_the_manifest_says_where_in_the_order_a_run_stood(tmp_path: Path) -> None:
    run(tmp_path)
    with Store.open(tmp_path / "results") as store:
        result = [store.run(run_id) for run_id in ids(tmp_path)]
    batches = [entry.documents.manifest.batch for entry in result if entry is not None]
    assert {batch.position for batch in batches} == {0, 1, 2, 3}
    assert len(batches) == 4
    assert {(batch.order_seed, batch.of) for batch in batches} == {(1, 4)}


def batch(tmp_path: Path) -> list[Plan]:
    """Two campaigns that share the runs of 20 ms, and one with longer runs."""
    texts = {
        "short": FILE.replace("name: engine", "name: short"),
        "shares": FILE.replace("name: engine", "name: shares").replace("10 ms, 20 ms", "20 ms, 30 ms"),
        "long": FILE.replace("name: engine", "name: long").replace("duration: 2 s", "duration: 3 s"),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return [load(tmp_path / f"{name}.yaml") for name in texts]


def states(tmp_path: Path) -> dict[str, str]:
    with Store.open(tmp_path / "results") as store:
        return {campaign.name: campaign.state for campaign in store.campaigns()}


def test_a_batch_makes_shared_runs_once_and_the_longest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(Worker, "run", recorder(calls))
    short, shares, long = batch(tmp_path)
    both = set(short.run_ids) & set(shares.run_ids)
    assert len(both) == 2
    outcomes = run_batch(tmp_path, [short, shares, long])
    assert set(calls[:4]) == set(long.run_ids)
    assert sorted(calls) == sorted({*short.run_ids, *shares.run_ids, *long.run_ids})
    assert [outcome.campaign_id for outcome in outcomes] == [short.id, shares.id, long.id]
    assert [outcome.landed for outcome in outcomes] == [4, 2, 4]
    assert all(outcome.complete for outcome in outcomes)
    assert states(tmp_path) == {"short": "complete", "shares": "complete", "long": "complete"}
    again = run_batch(tmp_path, [short, shares, long])
    assert [(entry.reused, entry.landed) for entry in again] == [(4, 0)] * 3


def test_campaigns_of_a_batch_say_that_they_wait_and_complete_ones_do_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, shares, long = batch(tmp_path)
    run_batch(tmp_path, [shares])
    monkeypatch.setattr(scheduling, "STORE_INTERVAL_S", 0.0)
    seen: list[dict[str, tuple[str, bool]]] = []
    real = Worker.run

    def watched(self: Worker, run: Run, attempt: int, folder: Path) -> Finish:
        def look() -> bool:
            with Store.open(tmp_path / "results") as store:
                rows = {row.name: (row.state, "updated" in row.progress) for row in store.campaigns()}
            seen.append(rows)
            return rows["short"][1]

        if run.id in set(long.run_ids):
            wait_until(look, "a sign of life of the campaign that waits", 20.0)
        return real(self, run, attempt, folder)

    monkeypatch.setattr(Worker, "run", watched)
    run_batch(tmp_path, [short, shares, long])
    assert seen[0]["shares"] == ("complete", False)
    assert seen[-1]["short"] == ("running", True)


def test_every_campaign_that_asks_for_a_run_hears_of_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short, shares, long = batch(tmp_path)
    bad = next(iter(set(short.run_ids) & set(shares.run_ids)))
    monkeypatch.setattr(Worker, "run", recorder([], {bad}))
    outcomes = run_batch(tmp_path, [short, shares, long])
    assert [list(outcome.failed) for outcome in outcomes] == [[bad], [bad], []]
    assert states(tmp_path) == {"short": "incomplete", "shares": "incomplete", "long": "complete"}


def test_a_limit_is_that_of_the_whole_batch(tmp_path: Path) -> None:
    outcomes = run_batch(tmp_path, batch(tmp_path), limit=5)
    assert [(outcome.landed, outcome.complete) for outcome in outcomes] == [(1, False), (0, False), (4, True)]


def test_a_campaign_that_is_too_large_to_be_kept_computes_ids_once_and_scenarios_of_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    real = runs.Runs._make

    def counted(self: runs.Runs, point: int, repetition: int) -> Run:
        made.append(point)
        return real(self, point, repetition)

    monkeypatch.setattr(runs.Runs, "_make", counted)
    monkeypatch.setattr(runs, "MAX_KEPT", 3)
    assert run(tmp_path, limit=1).landed == 1
    assert len(made) == 4 + 1
    assert run(tmp_path).landed == 3
    made.clear()
    assert run(tmp_path).reused == 4
    assert len(made) == 4
