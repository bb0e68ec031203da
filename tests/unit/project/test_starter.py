"""What tests are told of a command that a starter has forked."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.starter import Forked


def test_a_command_that_ended_before_its_id_was_read_has_ended(tmp_path: Path) -> None:
    # One write, as if the command had ended before this process got the CPU again.
    at_once = ["sh", "-c", "read request; printf '7\\n3\\n'; read request"]
    with subprocess.Popen(at_once, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as starter:
        command = Forked(starter, ["validate"], tmp_path / "log")
        assert (command.pid, command.poll()) == (7, 3)
