"""Waits for a condition, and for the end of a process, for tests of what other processes and threads do."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

#: Time between two looks at the condition.
LOOK_S = 0.02


def wait_until(condition: Callable[[], T], what: str = "the condition", timeout_s: float = 120.0) -> T:
    """The condition's first true value.

    Raises:
        AssertionError: there is none within `timeout_s`, which only a failing test waits for.
    """
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(LOOK_S)
    return value


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
