"""Kills parts of running commands at seeded random moments; checks what stays behind and how the command goes on."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from analysis.store import Store, requests
from analysis.store.rows import RequestRow
from testbed import node_binary
from tests.faults.leftovers import Watch, command_line, parent, state
from tests.faults.stores import damage, digest

#: How long a command may wait for anything but the CPU, in s.
PATIENCE_S = 240.0
LOOK_S, IDLE_LOOK_S = 0.01, 0.5
#: For how long a part is stopped, in s: longer than a valid run may stall.
STOPPED_S = 1.0

SIMULATED = """\
name: faults
backend: sim
network: {topology: line, forward: {rate: 10 Mbit/s, delay: 10 ms}}
stack: newreno
workload:
  - {name: bulk, from: left, to: right}
duration: 10 s
sweep: {network.forward.delay: [10 ms, 20 ms]}
repetitions: 3
"""
EMULATED = """\
name: faults
backend: emulated
network: {topology: line, forward: {rate: 1 Mbit/s, delay: 10 ms}}
stack: reno
workload:
  - {name: bulk, from: left, to: right}
duration: 3 s
repetitions: 3
fidelity: {rate: 10 %, delay: 200 ms, lateness: 200 ms, stall: 500 ms, stalled: 20 %}
"""


def _runs(*words: str) -> Callable[[int], bool]:
    """Processes whose command line contains these words one after another."""
    return lambda pid: " ".join(words) in " ".join(command_line(pid))


def _agent(pid: int) -> bool:
    """An agent is a fork of the process that builds the network."""
    return _runs("testbed.cellmain")(pid) and _runs("testbed.cellmain")(parent(pid))


def _first(pid: int) -> bool:
    return _runs("-m experiments run")(pid)


#: Parts that can be killed, by name: which processes they are.
SIMULATED_PARTS: Mapping[str, Callable[[int], bool]] = {
    "runner": _first,
    "node binary": _runs("backchannel-node"),
    "Dask worker": _runs("spawn_main"),
}
EMULATED_PARTS: Mapping[str, Callable[[int], bool]] = {
    "runner": _first,
    "cell": _runs("backchannel-node cell"),
    "cell's Python": lambda pid: _runs("testbed.cellmain")(pid) and not _agent(pid) and not _runs("cell --")(pid),
    "emulator": _runs("backchannel-node emulate"),
    "agent": _agent,
    "tcpdump": lambda pid: command_line(pid)[:1] == ["tcpdump"],
}
SITE_PARTS = ("site", "site's runner")


def output_of(command: subprocess.Popen[str], watch: Watch) -> str | None:
    """What a command wrote, once it has ended; None if it hangs.

    Only time in which none of its processes wants the CPU counts: on a busy machine a command at low priority may have
    to wait for minutes.
    """
    idle_s = 0.0
    while idle_s < PATIENCE_S:
        try:
            return command.communicate(timeout=IDLE_LOOK_S)[0]
        except subprocess.TimeoutExpired:
            wants_cpu = any(state(pid) in ("R", "D") for pid in watch.processes())
            idle_s += 0.0 if wants_cpu else IDLE_LOOK_S
    return None


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


class Campaign:
    """A campaign that is killed again and again until it is complete, and then begun again.

    Args:
        folder: for all files.
        text: of the campaign file.
        rng: of the moments.
    """

    def __init__(self, folder: Path, text: str, rng: random.Random) -> None:
        self._folder = folder
        self._rng = rng
        self.watch = Watch(folder)
        self._file = folder / "faults.yaml"
        self._file.write_text(text)
        self._results = folder / "results"
        started = time.monotonic()
        reference = self._start(folder / "reference")
        output = output_of(reference, self.watch)
        if reference.returncode != 0:
            raise SystemExit(f"the campaign does not run without faults either: {output}")
        self._length_s = time.monotonic() - started
        self._reference = digest(folder / "reference") if "backend: sim" in text else ""

    def _start(self, results: Path, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "experiments", "run", str(self._file), "--results", str(results), *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=node_binary.ROOT,
            env=self.watch.environment,
        )  # fmt: skip

    def kill_once(self, part: str, is_part: Callable[[int], bool], count: Count, words: Sequence[str] = ()) -> None:
        """Starts the command, kills one process of a part, and checks the rest."""
        command, victim = self._strike(is_part, signal.SIGKILL, words)
        self._end(command, f"{part} was killed", bool(victim), count)

    def stop_once(self, part: str, is_part: Callable[[int], bool], count: Count) -> None:
        """Starts the command, stops one process of a part for a while, and checks the rest."""
        command, victim = self._strike(is_part, signal.SIGSTOP, ())
        if victim:
            # The fault itself.
            time.sleep(STOPPED_S)
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGCONT)
        self._end(command, f"{part} was stopped", bool(victim), count)

    def _strike(
        self, is_part: Callable[[int], bool], fault: signal.Signals, words: Sequence[str]
    ) -> tuple[subprocess.Popen[str], int]:
        """Starts the command and sends a signal to a process at a random moment. Returns the process, 0 if it was too
        late.
        """
        command = self._start(self._results, *words)
        moment_s = time.monotonic() + self._rng.uniform(0, 1.1 * self._length_s)
        victim = 0
        while command.poll() is None and not victim:
            candidates = [pid for pid in self.watch.processes() if is_part(pid)] if time.monotonic() > moment_s else []
            if candidates:
                victim = self._rng.choice(candidates)
                with suppress(ProcessLookupError):
                    os.kill(victim, fault)
            else:
                time.sleep(LOOK_S)
        return command, victim

    def _end(self, command: subprocess.Popen[str], what: str, is_hit: bool, count: Count) -> None:
        output = output_of(command, self.watch)
        if output is None:
            command.kill()
            command.communicate()
            count.findings.append(f"after the {what}, the command did not end although it waited for {PATIENCE_S:g} s")
            output = ""
        count.kills += is_hit
        count.missed += not is_hit
        status = command.returncode
        if status == 0:
            count.completed += 1
        elif "Traceback" in output or (not output.strip() and status != -signal.SIGKILL):
            count.findings.append(f"after the {what}: status {status}, {output[-1500:]!r}")
        elif status != -signal.SIGKILL:
            count.sentences += 1
        count.findings += [f"after the {what}: {finding}" for finding in self.watch.left() + damage(self._results)]
        if status == 0:
            self.check_complete(count)

    def check_complete(self, count: Count) -> None:
        """Completes the campaign, compares its results with the reference, and begins again."""
        done = self._start(self._results)
        output = output_of(done, self.watch)
        if output is None:
            done.kill()
            done.communicate()
            count.findings.append("the same command hangs")
        elif done.returncode != 0:
            count.findings.append(f"the same command did not complete the campaign: {output[-1500:]}")
        elif self._reference and digest(self._results) != self._reference:
            count.findings.append("the results differ from those without a fault")
        elif self._reference:
            count.compared += 1
        incoming = self._results / "incoming"
        count.findings += [f"{path.name} stays in incoming" for path in incoming.iterdir()] if incoming.exists() else []
        count.findings += damage(self._results) + self.watch.left() + self.watch.folders()
        shutil.rmtree(self._results, ignore_errors=True)


class Site:
    """A site and its runner on one results folder, with requests that wait."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._rng = rng
        self.watch = Watch(folder)
        self._results = folder / "results"
        self._log = folder / "log"
        self._store = Store.open(self._results)

    def _start(self, *words: str) -> subprocess.Popen[str]:
        with self._log.open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "experiments", *words, "--results", str(self._results)],
                stdout=subprocess.PIPE, stderr=log, text=True, cwd=node_binary.ROOT, env=self.watch.environment,
            )  # fmt: skip

    def _serve(self) -> tuple[subprocess.Popen[str], str]:
        site = self._start("serve", "--port", "0")
        assert site.stdout is not None
        address = re.search(r"http://\S+", site.stdout.readline())
        if address is None:
            raise SystemExit(f"the site did not start: {self._log.read_text()[-2000:]}")
        return site, address.group()

    def kill_once(self, part: str, seed: int, count: Count) -> None:
        """Kills the site or its runner while a request is being run, starts it again, and waits for the result."""
        text = SIMULATED.replace("name: faults", f"name: faults\nseed: {seed}").replace("10 s", "5 s")
        number = requests.ask_run(self._store, "faults.yaml", text)
        site, address = self._serve()
        runner = self._start("runner")
        stop_s = time.monotonic() + self._rng.uniform(0.5, 6.0)
        while time.monotonic() < stop_s:
            with suppress(OSError):
                urllib.request.urlopen(address, timeout=10).read()
        victim = site if part == "site" else runner
        victim.kill()
        victim.communicate()
        count.kills += 1
        if part == "site":
            site, address = self._serve()
        else:
            runner = self._start("runner")
        request = self._ended(number)
        if part != "site" and request is not None and request.message.startswith("its runner went away"):
            # As a visitor resumes the campaign.
            request = self._ended(requests.ask_run(self._store, "faults.yaml", text))
        if request is None:
            count.findings.append(f"request {number} did not end after the {part} was killed")
        elif request.state == "done":
            count.completed += 1
        else:
            count.findings.append(f"request {number} is {request.state}: {request.message}")
        try:
            urllib.request.urlopen(address, timeout=20).read()
        except (OSError, urllib.error.HTTPError) as error:
            count.findings.append(f"the site does not answer: {error}")
        for process in (site, runner):
            process.send_signal(signal.SIGINT)
        for process in (site, runner):
            process.communicate(timeout=PATIENCE_S)
        if "Traceback" in (log := self._log.read_text()):
            count.findings.append(f"after the {part} was killed: {log[-1500:]}")
            self._log.write_text("")
        count.findings += damage(self._results) + self.watch.left() + self.watch.folders()

    def _ended(self, number: int) -> RequestRow | None:
        """A request once it has ended; None if it does not."""
        deadline = time.monotonic() + PATIENCE_S
        while (request := requests.find(self._store, number)) is None or request.state in ("waiting", "running"):
            if time.monotonic() > deadline:
                return None
            time.sleep(0.2)
        return request

    def close(self) -> None:
        """Closes the store."""
        self._store.close()
