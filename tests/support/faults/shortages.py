"""Commands that run short of something: a full disk, no inodes, a read-only folder, no descriptors, no memory for the
node binary; and commands whose processes stop for a while, whose clock jumps, or whose terminal goes away.

A command with a shortage must end in a sentence, a disturbed one may also complete its campaign. Then the fault is
gone, and the same command must complete the campaign with the results of an undisturbed one.
"""

from __future__ import annotations

import bisect
import fcntl
import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testbed import node_binary
from tests.support.faults.commands import PATIENCE_S, output_of
from tests.support.faults.kills import simulated
from tests.support.faults.leftovers import Watch, command_line
from tests.support.faults.stores import damage, digest

#: Stands in `limits` for a node binary whose simulations can allocate almost nothing.
SMALL_NODE = "SMALL_NODE"
#: Moves the wall clock of a command.
CLOCK = Path(__file__).with_name("clock.c")
CAMPAIGN = simulated("5 s", 2)


@dataclass(frozen=True)
class Shortage:
    """A command that lacks something from its start.

    Attributes:
        word: that the sentence must contain.
        limits: shell commands before the command.
        mount: options of the results' file system with the fault; empty: none.
        healed: options that end it.
        begun: whether a part of the campaign runs before the fault.
    """

    word: str
    limits: str = ""
    mount: str = ""
    healed: str = ""
    begun: bool = False


SHORTAGES: Mapping[str, Shortage] = {
    "disk full from the start": Shortage("full", mount="size=64k", healed="size=500M"),
    "disk full": Shortage("full|No space left", mount="size=1M", healed="size=500M"),
    "no inodes": Shortage("No space left", mount="nr_inodes=30", healed="nr_inodes=10000"),
    "read-only folder": Shortage("Read-only file system", mount="ro", healed="rw", begun=True),
    "no descriptors": Shortage("Too many open files", limits="ulimit -n 8"),
    "few descriptors": Shortage("Too many open files", limits="ulimit -n 16"),
    "files limited to 100 kB": Shortage("disk I/O error|File too large", limits="ulimit -f 100"),
    "no memory for the node binary": Shortage("memory allocation", limits=f"export BACKCHANNEL_NODE={SMALL_NODE}"),
}
#: Faults of a running command, by name; see `Disturbed`.
DISTURBANCES = ("stopped for a while", "terminal gone", "clock jumps", "two commands at once")


class Bench:
    """Commands on results folders, and the results that an undisturbed one gives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.watch = Watch(folder)
        self._file = folder / "shortage.yaml"
        self._file.write_text(CAMPAIGN)
        self._reference_folder = folder / "reference"
        done = self._run(self._reference_folder)
        if done.returncode != 0:
            raise SystemExit(f"the campaign does not run without faults either: {done.stdout[-2000:]}")
        self._reference = digest(self._reference_folder)

    def _words(self, results: Path, *more: str) -> list[str]:
        return [
            sys.executable, "-m", "experiments", "run", str(self._file), "--results", str(results), "--jobs", "1",
            *more,
        ]  # fmt: skip

    def _run(self, results: Path, limits: str = "", *more: str) -> subprocess.CompletedProcess[str]:
        command = f"{limits or ':'}; exec {shlex.join(self._words(results, *more))}"
        return subprocess.run(
            ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=self.watch.environment, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def shortage(self, fault: Shortage) -> list[str]:
        """Runs a campaign with a shortage and then without. Returns what was wrong, as sentences."""
        place = self._folder / "disk"
        results = place / "results"
        place.mkdir(exist_ok=True)
        if fault.mount:
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", fault.mount if not fault.begun else "rw", "none", str(place)], check=True
            )
        # Knows this mount.
        self.watch = Watch(self._folder)
        try:
            return self._short(fault, results)
        finally:
            if fault.mount:
                subprocess.run(["umount", str(place)], check=True)
            shutil.rmtree(place)

    def _short(self, fault: Shortage, results: Path) -> list[str]:
        if fault.begun:
            self._run(results, "", "--limit", "1")
            subprocess.run(["mount", "-o", f"remount,{fault.mount}", str(results.parent)], check=True)
        limits = fault.limits
        if SMALL_NODE in limits:
            limits = limits.replace(SMALL_NODE, shlex.quote(str(self._small_node())))
        output = self._run(results, limits)
        result = _untold(output, fault.word)
        if fault.healed:
            subprocess.run(["mount", "-o", f"remount,{fault.healed}", str(results.parent)], check=True)
        return result + self._continued(results)

    def _small_node(self) -> Path:
        """A node binary whose simulations can allocate almost nothing."""
        node = node_binary.path()
        # Address space that its code alone takes, in KiB.
        least = bisect.bisect_left(range(1 << 20), True, key=lambda kib: _starts(node, kib))
        small = self._folder / "small-node"
        limit = f'[ "$1" != simulate ] || ulimit -v {least + 128}'
        small.write_text(f'#!/bin/sh\n{limit}\nexec {shlex.quote(node)} "$@"\n')
        small.chmod(0o755)
        return small

    def _continued(self, results: Path) -> list[str]:
        done = self._run(results)
        result = damage(results) + self.watch.left() + self.watch.folders()
        if done.returncode != 0:
            result.append(f"the same command did not complete the campaign: {done.stdout[-1500:]}")
        elif digest(results) != self._reference:
            result.append("the results differ from those without a fault")
        return result

    def disturbance(self, name: str) -> list[str]:
        """Runs a campaign that is disturbed, and then the same command. Returns what was wrong, as sentences."""
        results = self._folder / "disturbed"
        steps: Mapping[str, Callable[[Path], list[str]]] = {
            "stopped for a while": self._stopped,
            "terminal gone": self._without_terminal,
            "clock jumps": self._with_jumps,
            "two commands at once": self._twice,
        }
        try:
            return steps[name](results) + self._continued(results)
        finally:
            shutil.rmtree(results, ignore_errors=True)

    def _start(self, results: Path, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._words(results), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**self.watch.environment, **(environment or {})},
        )  # fmt: skip

    def _stopped(self, results: Path) -> list[str]:
        command = self._start(results)
        stopped: set[str] = set()
        while command.poll() is None:
            for pid in self.watch.processes():
                part = "node binary" if "backchannel-node" in " ".join(command_line(pid)) else "command"
                if part not in stopped and results.exists():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGSTOP)
                        # The fault itself: as long as a laptop that sleeps would be too long for a test.
                        time.sleep(1.0)
                        os.kill(pid, signal.SIGCONT)
                        stopped.add(part)
            time.sleep(0.01)
        result = [] if len(stopped) == 2 else [f"only these parts were stopped: {sorted(stopped)}"]
        return result + self._ended_well(command)

    def _with_jumps(self, results: Path) -> list[str]:
        library, offset = self._folder / "clock.so", self._folder / "offset"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, CLOCK, "-ldl"], check=True)
        offset.write_text("0")
        command = self._start(results, {"LD_PRELOAD": str(library), "WALL_CLOCK_OFFSET": str(offset)})
        jumps = ["18000", "-18000"]
        while command.poll() is None:
            if jumps and results.exists() and any(results.glob("runs/*/*")):
                offset.write_text(jumps.pop(0))
            # Until the next run has landed.
            time.sleep(0.2)
        result = ["the clock did not jump"] if len(jumps) == 2 else []
        return result + self._ended_well(command)

    def _without_terminal(self, results: Path) -> list[str]:
        ours, theirs = pty.openpty()
        command = subprocess.Popen(
            self._words(results), stdin=theirs, stdout=theirs, stderr=theirs,
            env=self.watch.environment, start_new_session=True,
            preexec_fn=lambda: _take_terminal(theirs),
        )  # fmt: skip
        os.close(theirs)
        while command.poll() is None and not any(results.glob("runs/*/*")):
            os.read(ours, 4096)
        os.close(ours)
        try:
            status = command.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            command.kill()
            command.wait()
            return ["the command does not end although its terminal is gone"]
        return [] if status in (0, 1, 130, -signal.SIGHUP) else [f"without a terminal the status is {status}"]

    def _twice(self, results: Path) -> list[str]:
        first, second = self._start(results), self._start(results)
        return self._ended_well(first) + self._ended_well(second)

    def _ended_well(self, command: subprocess.Popen[str]) -> list[str]:
        ended = output_of(command, self.watch)
        if ended.hung:
            return [f"the command did not end although it waited for {PATIENCE_S:g} s"]
        return [] if ended.status == 0 else [f"status {ended.status}: {ended.output[-1500:]}"]


def _starts(node: str, address_space_kib: int) -> bool:
    limited = f"ulimit -v {address_space_kib}; exec {shlex.quote(node)} --version"
    return subprocess.run(["sh", "-c", limited], capture_output=True, check=False).returncode == 0


def _take_terminal(descriptor: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)


def _untold(done: subprocess.CompletedProcess[str], words: str) -> list[str]:
    """Whether a command told what was wrong: one sentence that has one of the words, and status 1 to 3."""
    if done.returncode not in (1, 2, 3):
        return [f"status {done.returncode}: {done.stdout[-1500:]}"]
    if "Traceback" in done.stdout or "backtrace" in done.stdout:
        return [f"a traceback: {done.stdout[-1500:]}"]
    if not any(word in done.stdout for word in words.split("|")):
        return [f"the message has none of these words: {words}: {done.stdout[-1500:]}"]
    return []
