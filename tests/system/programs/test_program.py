"""The supervisor of a campaign's program (`backchannel-node program`) and the verdict on what it reports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from testbed import commands, node_binary
from testbed.report import ProblemKind, Report
from testbed.scenario import Scenario
from tests.conftest import two_hosts
from tests.support.faults.leftovers import nothing_left
from tests.support.free_ports import free_ports
from tests.support.processes import marked
from tests.support.waiting import HANGS_S, wait_until


def words(folder: Path, program: list[str], *options: str, limit: int = 1000) -> list[str]:
    environment = {"PATH": os.environ["PATH"], "MARK": f"program-{folder.name}"}
    return [
        node_binary.path(), "program", "--words", json.dumps(program), "--environment", json.dumps(environment),
        "--cwd", str(folder), "--output", str(folder / "out"), "--errors", str(folder / "err"),
        "--limit-bytes", str(limit), *options,
    ]  # fmt: skip


def run(folder: Path, program: list[str], *options: str, limit: int = 1000) -> tuple[dict[str, Any], str]:
    """Its report, empty after a failure, and its standard error. Nothing of the program is left."""
    with nothing_left(folder / "watched") as environment:
        done = subprocess.run(
            words(folder, program, *options, limit=limit), capture_output=True, text=True, check=False, timeout=HANGS_S,
            env=environment,
        )  # fmt: skip
    assert not marked(f"MARK=program-{folder.name}")
    return (json.loads(done.stdout) if done.returncode == 0 else {}), done.stderr


def in_ns(seconds: float) -> str:
    return str(time.monotonic_ns() + round(seconds * 1e9))


def test_status_and_outputs_are_kept(tmp_path: Path) -> None:
    report, _ = run(tmp_path, ["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (report["ended"], report["exit_status"], report["signal"]) == ("itself", 3, None)
    assert (report["output_bytes"], report["error_bytes"], report["left_behind"]) == (4, 4, 0)
    assert ((tmp_path / "out").read_text(), (tmp_path / "err").read_text()) == ("out\n", "err\n")


def test_a_program_has_no_variables_but_its_own(tmp_path: Path) -> None:
    run(tmp_path, ["env"])
    assert {line.split("=")[0] for line in (tmp_path / "out").read_text().splitlines()} == {"PATH", "MARK"}


def test_a_signal_is_reported(tmp_path: Path) -> None:
    report, _ = run(tmp_path, ["sh", "-c", "kill -9 $$"])
    assert (report["exit_status"], report["signal"]) == (None, signal.SIGKILL)


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (["no-such-program"], "program 'no-such-program' not found on this host: check its spelling, or install it"),
        (["./missing"], "program './missing' not found on this host: check its path"),
        (["./data"], "is not executable"),
        (["./script"], "cannot start './script': No such file"),
    ],
)
def test_what_cannot_be_started_is_a_sentence(tmp_path: Path, program: list[str], sentence: str) -> None:
    (tmp_path / "data").write_text("")
    (tmp_path / "script").write_text("#!/no/such/interpreter\n")
    (tmp_path / "script").chmod(0o700)
    report, errors = run(tmp_path, program)
    assert not report
    assert sentence in errors


def test_a_flood_is_cut_and_its_program_ended(tmp_path: Path) -> None:
    report, _ = run(tmp_path, ["yes"], limit=5000)
    assert report["ended"] == "flooded"
    assert (tmp_path / "out").stat().st_size == 5000
    assert report["output_bytes"] > 5000


def test_what_forks_into_the_background_is_ended_and_counted(tmp_path: Path) -> None:
    report, _ = run(tmp_path, ["sh", "-c", "setsid sh -c 'setsid sleep 60 & sleep 60' & exit 0"])
    assert report["exit_status"] == 0
    # Two that sleep, and a shell where it waits for one of them.
    assert report["left_behind"] in (2, 3)


def test_a_helper_that_ends_by_itself_is_no_leftover(tmp_path: Path) -> None:
    report, _ = run(tmp_path, ["sh", "-c", "sleep 0.3 & exit 0"])
    assert report["left_behind"] == 0


def test_a_program_that_ignores_sigterm_ends_at_its_stop_time(tmp_path: Path) -> None:
    program = ["sh", "-c", "trap '' TERM; (trap '' TERM; sleep 60) & sleep 60; sleep 60"]
    # Time in which the shells have set their traps.
    report, _ = run(tmp_path, program, "--stop-at-ns", in_ns(4.0))
    assert (report["ended"], report["signal"], report["left_behind"]) == ("stopped", signal.SIGKILL, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_its_program_ends_with_the_supervisor(tmp_path: Path, number: int) -> None:
    supervisor = subprocess.Popen(words(tmp_path, ["sleep", "60"]), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: bool(marked(f"MARK=program-{tmp_path.name}")), "the program")
    supervisor.send_signal(number)
    supervisor.communicate(timeout=HANGS_S)
    wait_until(lambda: not marked(f"MARK=program-{tmp_path.name}"), "the end of the program")


def test_its_program_ends_with_the_one_that_started_the_supervisor(tmp_path: Path) -> None:
    line = " ".join(f"'{word}'" for word in words(tmp_path, ["sleep", "60"]))
    parent = subprocess.Popen(["sh", "-c", f"{line} & wait"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: bool(marked(f"MARK=program-{tmp_path.name}")), "the program")
    parent.kill()
    parent.wait()
    wait_until(lambda: not marked(f"MARK=program-{tmp_path.name}"), "the end of the program")


@pytest.mark.parametrize(
    ("program", "options", "within_s", "sentence"),
    [
        (["sleep", "60"], ["tcp"], 0.5, "the server did not serve within 0.5 s: it has no TCP socket on port PORT"),
        (["sleep", "60"], ["udp"], 0.5, "it has no UDP socket on port PORT"),
        # The others have time to come as far as that, on a busy machine too.
        (["sh", "-c", "echo bad config >&2; exit 4"], ["tcp"], HANGS_S,
         "the server ended with status 4 before it served; its last output: bad config"),
        (["sh", "-c", "echo starting; sleep 60"], ["line", "--line", "serving"], 4.0,
         "no line of its output contains 'serving'; its last output: starting"),
        (["yes"], ["tcp"], HANGS_S, "the server wrote more output than is kept before it served"),
    ],
)  # fmt: skip
def test_a_server_that_never_serves_fails(
    tmp_path: Path, program: list[str], options: list[str], within_s: float, sentence: str
) -> None:
    (port,) = free_ports(1)
    report, errors = run(tmp_path, program, "--port", str(port), "--within-s", str(within_s), "--ready", *options)
    assert not report
    assert sentence.replace("PORT", str(port)) in errors


def test_a_server_that_serves_is_ready_at_once(tmp_path: Path) -> None:
    report, errors = run(
        tmp_path, ["sh", "-c", "echo serving on 5; exec sleep 60"], "--ready", "line", "--line", "serving",
        "--stop-at-ns", in_ns(4.0), "--within-s", "50",
    )  # fmt: skip
    assert "ready on " in errors
    assert report["ended"] == "stopped"


# The verdict -----------------------------------------------------------------------------------------------------

PROGRAM = {
    "ended": "itself", "exit_status": 0, "signal": None, "started_late_s": 0, "started_monotonic_ns": 1,
    "ended_monotonic_ns": 2, "output_bytes": 0, "error_bytes": 0, "left_behind": 0,
}  # fmt: skip
SERVER = {**PROGRAM, "ended": "stopped", "exit_status": None, "signal": 15}


@pytest.mark.parametrize(
    ("client", "server", "stop_s", "sentence"),
    [
        ({}, {}, None, ""),
        ({"exit_status": 4}, {}, None, "its client ended with status 4 (bad port: {prt}); its output"),
        ({"exit_status": None, "signal": 9}, {}, None, "its client was killed by SIGKILL (bad port"),
        ({"ended": "stopped", "exit_status": None, "signal": 15}, {}, None, "had not ended after 10 s"),
        ({"ended": "stopped", "exit_status": None, "signal": 15}, {}, 5.0, ""),
        ({"ended": "flooded", "exit_status": None, "signal": 15}, {}, None, "wrote more than 100 bytes"),
        ({"left_behind": 1}, {}, None, "its client left 1 process in the background"),
        ({}, {"ended": "itself", "exit_status": 0, "signal": None}, None,
         "its server ended with status 0 before its client had ended"),
    ],
)  # fmt: skip
def test_a_run_is_valid_only_if_its_programs_did_well(
    client: dict[str, Any], server: dict[str, Any], stop_s: float | None, sentence: str, tmp_path: Path
) -> None:
    document = two_hosts(duration_s=10)
    (flow,) = document["workload"]
    command = {"client_at": "to", "client": ["x"], "output_bytes": 100}
    flow |= {"kind": "command", "command": command, **({} if stop_s is None else {"stop_s": stop_s})}
    of_flow = {"client": {**PROGRAM, **client}, "server": {**SERVER, **server}, "started_s": 0, "ended_s": 1}
    errors = tmp_path / commands.FOLDER / commands.output_file(flow["name"], "client", commands.ERRORS)
    errors.parent.mkdir()
    errors.write_text("Traceback\nbad port: {prt}\n")
    report = Report.read({"t0_epoch_ns": 0, "flows": {flow["name"]: {"command": of_flow}}})
    found = list(commands.problems(Scenario.read(document), report, tmp_path))
    if sentence:
        (problem,) = found
        assert problem.kind is ProblemKind.COMMAND
        assert sentence in problem.sentence
    else:
        assert not found


def test_only_known_placeholders_are_filled() -> None:
    values = {"server": "10.1.0.1", "port": "5001"}
    assert commands.filled("{server}:{port} %{json} {x} {", values) == "10.1.0.1:5001 %{json} {x} {"
