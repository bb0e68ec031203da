"""`./backchannel shell` with real packets: its run, its exit status, and what faults leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.store import Store
from experiments.sessions.plan import plan_session
from experiments.sessions.session import Session
from tests.support.faults.leftovers import nothing_left
from tests.support.only_run import only_run
from tests.support.processes import marked
from tests.support.waiting import HANGS_S, wait_until

pytestmark = [pytest.mark.slow("shells in real time"), pytest.mark.emulated]

#: A fast line, so that a session is short.
LINE = ["--profile", "asymmetric-access"]


def words(results: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "experiments", "shell", "--results", str(results), *more]


def environment(mark: str) -> dict[str, str]:
    return {**os.environ, "BACKCHANNEL_TEST_MARK": mark}


def session(results: Path, *more: str) -> subprocess.CompletedProcess[str]:
    with nothing_left(results / "watched") as environment_:
        return subprocess.run(
            words(results, *LINE, *more), capture_output=True, text=True, check=False, timeout=HANGS_S,
            env=environment_,
        )  # fmt: skip


def test_a_command_runs_behind_the_line_and_is_kept_as_a_run(tmp_path: Path) -> None:
    end = tmp_path / "end"
    script = f"ping -c 3 -i 0.2 left; until [ -e {end} ]; do sleep 0.1; done; exit 7"
    control = subprocess.Popen(
        words(tmp_path, *LINE, "--", "sh", "-c", script),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment("shell-kept"),
    )  # fmt: skip

    def ask(*verb: str) -> subprocess.CompletedProcess[str]:
        name = str(control.pid)
        asking = [sys.executable, "-m", "experiments", "shell", "--session", name, *verb]
        return subprocess.run(asking, capture_output=True, text=True, check=False, timeout=HANGS_S)

    wait_until(lambda: ask("status").returncode == 0, "the session")
    changed = ask("set", "forward.rate=5 Mbit/s", "reverse.policy=codel")
    assert changed.returncode == 0, changed.stderr
    assert "line forward: rate 5 Mbit/s" in changed.stdout
    refused = ask("set", "rate=0 bit/s")
    assert refused.returncode == 1
    assert "loss=100%" in refused.stderr
    state = json.loads(ask("--json", "status").stdout)
    assert state["declared"]["line"]["forward"]["rate_bps"] == 5_000_000
    assert state["links"]["line"]["reverse"]["delivered_packets"] >= 3
    end.touch()
    output, errors = control.communicate(timeout=HANGS_S)
    assert control.returncode == 7, errors
    assert "3 received" in output
    run, folder = only_run(tmp_path)
    session_of_run = run.documents.manifest.session
    assert session_of_run is not None
    assert session_of_run.exit_status == 7
    assert [change.fields for change in session_of_run.changes] == [
        {"rate": "5 Mbit/s"}, {"queue": {"policy": "codel"}},
    ]  # fmt: skip
    assert run.documents.scenario.direction("line", "forward").schedule[0].rate_bps == 5_000_000
    assert (folder / "replay.yaml").is_file()
    assert sorted(path.name for path in (folder / "captures").iterdir()) == ["left-eth0.pcap.gz", "right-eth0.pcap.gz"]


def test_a_command_that_does_not_exist_starts_no_session(tmp_path: Path) -> None:
    done = session(tmp_path, "--", "no-such-program")
    assert done.returncode == 127
    assert "command 'no-such-program' not found" in done.stderr
    assert not (tmp_path / "results.sqlite").exists()


def test_a_word_that_is_no_verb_is_explained(tmp_path: Path) -> None:
    done = session(tmp_path, "curl")
    assert done.returncode == 2
    assert "a command follows --" in done.stderr


def test_what_a_command_leaves_in_the_background_ends_with_the_session(tmp_path: Path) -> None:
    done = session(tmp_path, "--", "sh", "-c", "setsid sleep 600 >/dev/null 2>&1 & exit 0")
    assert done.returncode == 0, done.stderr


def test_a_command_that_hangs_is_ended_at_its_limit(tmp_path: Path) -> None:
    done = session(tmp_path, "--time-limit", "1", "--", "sh", "-c", "trap '' TERM; while :; do sleep 1; done")
    assert done.returncode == 124
    assert "ran longer than 1 s" in done.stderr
    described = only_run(tmp_path)[0].documents.manifest.session
    assert described is not None
    assert described.exit_status == 124


def test_a_command_that_is_killed_has_the_status_of_its_signal(tmp_path: Path) -> None:
    assert session(tmp_path, "--", "sh", "-c", "kill -9 $$").returncode == 128 + signal.SIGKILL


def test_a_command_that_floods_its_output_is_kept(tmp_path: Path) -> None:
    done = session(tmp_path, "--", "sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' x")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) == 20_000_000


def test_the_record_ends_at_its_limit_and_the_line_goes_on(tmp_path: Path) -> None:
    flood = "ping -q -f -l 20 -s 100 -c 5000 left; sleep 2; ping -c 2 -i 0.2 left"
    done = session(tmp_path, "--record-limit", "1", "--", "sh", "-c", flood)
    assert done.returncode == 0, done.stderr
    assert "the record ended after" in done.stderr
    run, _ = only_run(tmp_path)
    described = run.documents.manifest.session
    assert described is not None
    assert described.lasted_s > run.documents.scenario.duration_s + 1.5


def test_nothing_is_left_of_a_session_that_is_killed(tmp_path: Path) -> None:
    mark = f"shell-killed-{os.getpid()}"
    process = subprocess.Popen(
        words(tmp_path, *LINE, "--", "sh", "-c", "echo ready; sleep 600"), stdout=subprocess.PIPE, text=True,
        env=environment(mark),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.wait()
    wait_until(lambda: not marked(mark), "the end of the session's processes")


def test_whoever_reads_that_a_session_is_open_can_end_it_at_once(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    unhandled: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: unhandled.append(number))
    try:
        plan = plan_session("asymmetric-access", None, [], None, False, 1)
        session_ = Session(plan, store, 10**8, None, lambda _: os.kill(os.getpid(), signal.SIGTERM))
        ended = session_.hold(["open"], 20.0, lambda _: None)
    finally:
        signal.signal(signal.SIGTERM, before)
        store.close()
    assert not unhandled
    assert ended.exit_status == 0
    assert ended.run is not None
