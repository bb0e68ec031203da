"""Waits for a condition and for the end of a process, and its CPU time, for tests of what others do."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

#: Time between two looks at the condition.
LOOK_S = 0.02
#: Bound of a wait that ends by itself. Half a minute was too short for a test with a twentieth of a CPU.
HANGS_S = 600.0


def wait_until(condition: Callable[[], T], what: str = "the condition", timeout_s: float = HANGS_S) -> T:
    """The condition's first true value.

    Raises:
        AssertionError: there is none within `timeout_s`, which only a failing test waits for.
    """
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(LOOK_S)
    return value


def pause(process: subprocess.Popen[Any]) -> None:
    """Stops a process of this one, and returns when it no longer runs. SIGCONT continues it."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def cpu_s(pid: int) -> float:
    """CPU time that a process has used; 0 once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def interrupted_by_sigterm() -> None:
    """SIGTERM ends this program as Ctrl-C does. So does SIGINT, which programs in the background of a shell ignore."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def end(process: subprocess.Popen[Any], within_s: float = 30.0) -> None:
    """Asks a process to end, and kills it if it has not ended after `within_s`."""
    process.terminate()
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
