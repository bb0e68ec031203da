"""Commands that are disturbed at random moments: the fault, the wait for their end, and the judgement of it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.support.faults.leftovers import Watch, state

#: How long a command may wait for anything but the CPU, in s.
PATIENCE_S = 240.0
#: Time between two looks for a process to disturb, which may live for a few milliseconds; and for a command's end.
LOOK_S, IDLE_LOOK_S = 0.002, 0.5


class Command(Protocol):
    """A running command: subprocess.Popen, or a fork of tests.support.starter."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """The exit status; None while it runs."""

    def kill(self) -> None:
        """Ends it at once."""

    def communicate(self, *, timeout: float | None = None) -> tuple[str, Any]:
        """What it wrote, once it has ended; raises TimeoutExpired."""


@dataclass(frozen=True)
class Ended:
    """How a command ended. It hung if it had to be killed."""

    status: int
    output: str
    hung: bool = False


def output_of(command: Command, watch: Watch) -> Ended:
    """Waits for the end of a command, and kills one that hangs.

    Only time in which none of its processes wants the CPU counts: on a busy machine a command at low priority may have
    to wait for minutes.
    """
    idle_s = 0.0
    while idle_s < PATIENCE_S:
        try:
            output, _ = command.communicate(timeout=IDLE_LOOK_S)
            return Ended(command.returncode or 0, output)
        except subprocess.TimeoutExpired:
            wants_cpu = any(state(pid) in ("R", "D") for pid in watch.processes())
            idle_s += 0.0 if wants_cpu else IDLE_LOOK_S
    command.kill()
    output, _ = command.communicate()
    return Ended(command.returncode or 0, output, hung=True)


def strike(
    command: Command, candidates: Callable[[], list[int]], within_s: float, rng: random.Random,
    fault: signal.Signals = signal.SIGKILL,
) -> int:  # fmt: skip
    """Sends a signal to one of the candidates at a random moment, or to the first that appears after it.

    Args:
        command: nothing happens after its end.
        candidates: processes of a part, as they are now.
        within_s: the moment is at most so far away, in s.
        rng: of the moment and the choice.
        fault: the signal.

    Returns:
        The process; 0 if there was none before the command ended.
    """
    moment_s = time.monotonic() + rng.uniform(0, within_s)
    while command.poll() is None:
        left_s = moment_s - time.monotonic()
        victims = candidates() if left_s <= 0 else []
        if victims:
            victim = rng.choice(victims)
            # It ended meanwhile: the next one.
            with suppress(ProcessLookupError):
                os.kill(victim, fault)
                return victim
        time.sleep(min(max(left_s, LOOK_S), IDLE_LOOK_S))
    return 0


@dataclass
class Count:
    """Outcomes of the kills, or stops, of one part."""

    kills: int = 0
    #: Commands that ended before the moment of the kill.
    missed: int = 0
    #: Commands that completed their campaign although a part was killed.
    completed: int = 0
    #: Commands that ended with a sentence.
    sentences: int = 0
    #: Completed simulated campaigns whose results equal those of an uninterrupted one.
    compared: int = 0
    #: Everything that was wrong, as sentences.
    findings: list[str] = field(default_factory=list)

    def judge(self, ended: Ended, what: str) -> None:
        """Counts the end of a disturbed command, which must have completed its campaign, told why not in a sentence, or
        been killed itself.
        """
        if ended.hung:
            self.findings.append(f"after the {what}, the command did not end although it waited for {PATIENCE_S:g} s")
        elif ended.status == 0:
            self.completed += 1
        elif ended.status == -signal.SIGKILL:
            return
        elif ended.status < 0 or "Traceback" in ended.output or not ended.output.strip():
            self.findings.append(f"after the {what}: status {ended.status}, {ended.output[-1500:]!r}")
        else:
            self.sentences += 1

    def judge_completion(self, ended: Ended, digest: Callable[[], str], reference: str) -> None:
        """Counts the end of a command that nothing disturbed. It must have completed the campaign with the results of
        the reference; an empty reference is none.
        """
        if ended.hung:
            self.findings.append("the same command hangs")
        elif ended.status != 0:
            self.findings.append(f"the same command did not complete the campaign: {ended.output[-1500:]}")
        elif reference and digest() != reference:
            self.findings.append("the results differ from those without a fault")
        elif reference:
            self.compared += 1
