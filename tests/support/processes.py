"""The processes of a cell, found by a mark in their environment, and one of them paused during a run."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from testbed.cell import Cell
from testbed.report import Phase, Report
from testbed.scenario import Scenario
from tests.support.waiting import HANGS_S

PAUSE_S = 0.3


def marked(mark: str) -> list[int]:
    """Processes whose environment holds `mark`."""
    result = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if mark.encode() in (process / "environ").read_bytes():
                    result.append(int(process.name))
            except OSError:
                continue
    return result


def run_with_a_pause(scenario: Scenario, out: Path, mark: str, chosen: Callable[[list[bytes]], bool]) -> Report:
    """Runs a scenario. One second into it the marked process whose command is `chosen` stands still for PAUSE_S."""
    running = threading.Event()

    def pause() -> None:
        assert running.wait(HANGS_S)
        # The two sleeps are the experiment: when the pause begins, and how long it lasts.
        time.sleep(1.0)
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in marked(mark)}
        (pid,) = (pid for pid, words in commands.items() if chosen(words))
        os.kill(pid, signal.SIGSTOP)
        time.sleep(PAUSE_S)
        os.kill(pid, signal.SIGCONT)

    with Cell("cell", on_progress=lambda progress: running.set() if progress.phase is Phase.RUNNING else None) as cell:
        cell.build(scenario)
        pausing = threading.Thread(target=pause)
        pausing.start()
        report = cell.run(scenario, out)
        pausing.join()
    return report
