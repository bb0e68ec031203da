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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from analysis.store import Store, requests
from analysis.store.rows import RequestRow
from tests.support.campaign_texts import one_line
from tests.support.faults.commands import PATIENCE_S, Command, Count, output_of, strike
from tests.support.faults.leftovers import Watch, command_line, parent
from tests.support.faults.stores import damage, digest
from tests.support.starter import Forked, Starter

#: For how long a part is stopped, in s: longer than a valid run may stall.
STOPPED_S = 1.0


def simulated(duration: str = "10 s", repetitions: int = 3, more: str = "") -> str:
    """A simulated campaign of two points. `more` adds fields."""
    fields = f"sweep: {{network.forward.delay: [10 ms, 20 ms]}}\nrepetitions: {repetitions}\n{more}"
    return one_line("faults", fields, "rate: 10 Mbit/s, delay: 10 ms", duration)


def emulated(duration: str = "3 s", repetitions: int = 3) -> str:
    """A campaign with real packets whose runs are valid although parts of them are killed or stopped."""
    limits = "{rate: 10 %, delay: 200 ms, lateness: 200 ms, stall: 500 ms, stalled: 20 %}"
    fields = f"repetitions: {repetitions}\nfidelity: {limits}"
    return one_line("faults", fields, duration=duration, backend="emulated", stack="reno")


def _runs(*words: str) -> Callable[[int], bool]:
    """Processes whose command line contains these words one after another."""
    return lambda pid: " ".join(words) in " ".join(command_line(pid))


def _agent(pid: int) -> bool:
    """An agent is a fork of the process that builds the network."""
    return _runs("testbed.cellmain")(pid) and _runs("testbed.cellmain")(parent(pid))


def _builder(pid: int) -> bool:
    return _runs("testbed.cellmain")(pid) and not _agent(pid) and not _runs("cell --")(pid)


@dataclass(frozen=True)
class Part:
    """A part of a command that can be killed.

    Attributes:
        name: for people.
        is_part: which of the command's processes it has; None: the command itself.
        most: kills while one command runs.
    """

    name: str
    is_part: Callable[[int], bool] | None
    most: int = 1


RUNNER = Part("runner", None)
NODE = Part("node binary", _runs("backchannel-node"), most=4)
SIMULATED_PARTS = (RUNNER, NODE)
#: In this order again and again.
SIMULATED_TURNS = (RUNNER, RUNNER, NODE)
TCPDUMP = Part("tcpdump", lambda pid: command_line(pid)[:1] == ["tcpdump"], most=2)
EMULATOR = Part("emulator", _runs("backchannel-node emulate"), most=2)
EMULATED_PARTS = (
    RUNNER,
    Part("cell", _runs("backchannel-node cell"), most=2),
    Part("cell's Python", _builder, most=2),
    EMULATOR,
    Part("agent", _agent, most=2),
    TCPDUMP,
)
SITE_PARTS = ("site", "site's runner")


class Campaign:
    """A campaign that is killed again and again until it is complete, and then begun again.

    Args:
        folder: for all files.
        text: of the campaign file.
        rng: of the moments.
        share: a kill comes within this share of the time that the whole campaign takes, after the start of the command
            or after the kill before.
    """

    def __init__(self, folder: Path, text: str, rng: random.Random, share: float = 1.1) -> None:
        self._rng = rng
        self.watch = Watch(folder)
        self._file = folder / "faults.yaml"
        self._file.write_text(text)
        self._results = folder / "results"
        self._starter = Starter(self.watch.environment, folder / "log")
        self.watch.exempt(self._starter.pid)
        started = time.monotonic()
        ended = output_of(self._start(folder / "reference"), self.watch)
        if ended.status != 0:
            self.close()
            raise SystemExit(f"the campaign does not run without faults either: {ended.output}")
        self._within_s = share * (time.monotonic() - started)
        self._reference = digest(folder / "reference") if "backend: sim" in text else ""

    def close(self) -> None:
        """Ends the starter."""
        self._starter.close()

    def _start(self, results: Path, *words: str) -> Forked:
        return self._starter.start(["run", str(self._file), "--results", str(results), *words])

    def kill(self, part: Part, count: Count, most: int | None = None) -> None:
        """Starts the command, kills processes of a part, at most `most`, and checks the rest."""
        command = self._start(self._results)
        struck = 0
        while struck < (part.most if most is None else min(most, part.most)) and self._strike(command, part):
            struck += 1
        self._end(command, f"{part.name} was killed", struck, count)

    def stop(self, part: Part, count: Count) -> None:
        """Starts the command, stops one process of a part for a while, and checks the rest."""
        command = self._start(self._results)
        victim = self._strike(command, part, signal.SIGSTOP)
        if victim:
            # The fault itself.
            time.sleep(STOPPED_S)
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGCONT)
        self._end(command, f"{part.name} was stopped", int(bool(victim)), count)

    def _strike(self, command: Command, part: Part, fault: signal.Signals = signal.SIGKILL) -> int:
        def candidates() -> list[int]:
            if part.is_part is None:
                return [command.pid]
            return [pid for pid in self.watch.processes() if part.is_part(pid)]

        return strike(command, candidates, self._within_s, self._rng, fault)

    def _end(self, command: Command, what: str, struck: int, count: Count) -> None:
        ended = output_of(command, self.watch)
        count.kills += struck
        count.missed += not struck
        count.judge(ended, what)
        count.findings += [f"after the {what}: {finding}" for finding in self.watch.left() + damage(self._results)]
        if ended.status == 0:
            self.check_complete(count)

    def check_complete(self, count: Count) -> None:
        """Completes the campaign, compares its results with the reference, and begins again."""
        ended = output_of(self._start(self._results), self.watch)
        count.judge_completion(ended, lambda: digest(self._results), self._reference)
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
                stdout=subprocess.PIPE, stderr=log, text=True, env=self.watch.environment,
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
        text = simulated("5 s", more=f"seed: {seed}")
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
            urllib.request.urlopen(address, timeout=PATIENCE_S).read()
        except (OSError, urllib.error.HTTPError) as error:
            count.findings.append(f"the site does not answer: {error}")
        for process in (site, runner):
            process.send_signal(signal.SIGINT)
        for name, process in zip(SITE_PARTS, (site, runner), strict=True):
            if output_of(process, self.watch).hung:
                count.findings.append(f"the {name} does not end when it is interrupted")
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
