"""A program that ends between two looks of the agent at it: what it wrote before counts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.capture import Capture
from agents.errors import AgentError
from agents.traffic import TrafficProcess

Script = Callable[[str], list[str]]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Makes the command line of a shell script that writes nothing until the agent asks whether it has ended."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def poll(process: subprocess.Popen[bytes]) -> int:
        if process.returncode is None:
            gate.write_text("go\n")
        return process.wait()

    monkeypatch.setattr(subprocess.Popen, "poll", poll)
    return lambda text: ["sh", "-c", f"read -r go < {gate}; {text}"]


def test_a_program_that_ended_after_it_was_ready_was_ready(tmp_path: Path, script: Script) -> None:
    program = TrafficProcess("f.server", script("echo 'ready on it' >&2; echo '{\"ended\": \"itself\"}'"), tmp_path)
    program.wait_until_ready()
    assert program.wait(5) == {"ended": "itself"}


def test_a_program_that_ended_before_it_was_ready_gives_its_reason(tmp_path: Path, script: Script) -> None:
    program = TrafficProcess("f.server", script("echo 'error: no port is free' >&2; exit 1"), tmp_path)
    with pytest.raises(AgentError, match="f.server ended before it was ready: no port is free"):
        program.wait_until_ready()


def test_a_capture_that_ends_at_once_gives_its_reason(tmp_path: Path, script: Script) -> None:
    with pytest.raises(AgentError, match="tcpdump on eth7 ended at once: eth7: No such device"):
        Capture("eth7", tmp_path / "eth7.pcap", 128, prefix=script("echo 'eth7: No such device' >&2; exit 1"))
