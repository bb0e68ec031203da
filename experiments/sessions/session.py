"""A session from its start to its run in the store."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.store import PendingRun, Store
from analysis.store.documents import SessionChange, SessionDescription
from experiments.engine import machine
from experiments.sessions import control, program, record
from experiments.sessions.changes import parse_changes, typed
from experiments.sessions.outside import Uplink
from experiments.sessions.plan import SessionPlan, studied
from experiments.sessions.state import DeclaredDirection, EnteredNode, SessionControl, SessionState
from testbed.cell import Cell
from testbed.errors import TestbedError, unknown
from testbed.report import Report, SessionHost
from testbed.scenario import DIRECTIONS

#: How often the session looks at its command and its record, in s.
LOOK_S = 0.1
#: Readings of the record's size are this far apart, in s.
MEASURE_S = 1.0


@dataclass(frozen=True)
class Ended:
    """How a session ended."""

    #: Of the command.
    exit_status: int
    #: None if the session could not be kept.
    run: PendingRun | None
    #: Sentences for the user.
    notes: Sequence[str]


class Session:
    """One session. One thread makes and ends it, because the cell ends with the thread that made it.

    Args:
        plan: what it runs on.
        store: for its run.
        record_bytes: size of captures and telemetry at which the record ends; the lines go on.
        outside: what joins its network to others; None: nothing does. The session closes it.
        on_note: shows a sentence at once.
        interface: of this machine behind which the near node's devices are; None: there are none.
    """

    def __init__(
        self,
        plan: SessionPlan,
        store: Store,
        record_bytes: int,
        outside: Uplink | None,
        on_note: Callable[[str], None],
        interface: str | None = None,
    ) -> None:
        self._plan = plan
        self._store = store
        self._record_bytes = record_bytes
        self._outside = outside
        self._internet = outside is not None
        self._on_note = on_note
        self._interface = interface
        self._lock = threading.Lock()
        self._changes: list[SessionChange] = []
        self._report: Report | None = None
        self._started = time.time()
        self._cpu = machine.cpu_seconds()
        self.name = control.free_name()
        self._folder = store.staging_folder(f"shell-{self.name}-{int(self._started)}")
        self._control: control.ControlServer | None = None
        self._cell = Cell("the session")
        try:
            name_server = outside.name_server if outside else None
            self.hosts: Mapping[str, SessionHost] = self._cell.open(plan.scenario, self._folder, name_server)
            if outside:
                outside.open(self._cell.pid, self.hosts, plan)
            self._control = control.ControlServer(self.name, SessionControl, self)
        except BaseException:
            self._close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def run(self, command: Sequence[str], time_limit_s: float | None) -> Ended:
        """Runs the command, or a shell if there is none, to its end. Then it stores the session's run.

        Args:
            command: words; empty for an interactive shell.
            time_limit_s: the command is ended after this time; None: never.
        """
        variables = program.environment(self._plan.label, self._plan.host)
        words = list(command) or program.shell_words(variables)
        host = self.hosts[self._plan.host]
        entered = program.enter_words(self._cell.pid, host, words, Path.cwd())

        def wait() -> int:
            with _Signals() as signals:
                return self._wait(program.ForegroundProcess(entered, variables), signals, time_limit_s)

        return self._kept(command, wait)

    def hold(
        self, opening: Sequence[str], time_limit_s: float | None, on_second: Callable[[SessionState], None]
    ) -> Ended:
        """Keeps the lines open without a command, until a signal, the time limit or the end of the way outside.

        Args:
            opening: sentences that say how to use and end it. They are shown when signals end it in order, because who
                reads them may send one at once.
            time_limit_s: of the session; None: none.
            on_second: gets the session's state about once a second.
        """

        def wait() -> int:
            with _Signals(keyboard_ends=True) as signals:
                for sentence in opening:
                    self._on_note(sentence)
                return self._hold(signals, time_limit_s, on_second)

        return self._kept((), wait)

    def _kept(self, command: Sequence[str], wait: Callable[[], int]) -> Ended:
        """Waits for the session's end. Then it stores its run."""
        notes: list[str] = []
        status: int | None = None
        try:
            status = wait()
        except TestbedError as error:
            notes.append(str(error))
        run = None
        try:
            run = self._commit(command, status)
        except TestbedError as error:
            notes.append(f"the session's run is lost: {error}")
        finally:
            self._close()
            shutil.rmtree(self._folder, ignore_errors=True)
        return Ended(1 if status is None else status, run, notes)

    def _wait(self, running: program.ForegroundProcess, signals: _Signals, time_limit_s: float | None) -> int:
        began_s = measured_s = time.monotonic()
        while (status := running.wait(LOOK_S)) is None:
            now_s = time.monotonic()
            if time_limit_s is not None and now_s - began_s > time_limit_s:
                running.end()
                self._on_note(f"the command ran longer than {time_limit_s:g} s and was ended")
                return program.TIMED_OUT
            if signals.ending:
                running.end()
                return 128 + signals.ending
            if now_s - measured_s >= MEASURE_S:
                measured_s = now_s
                self._bound_record()
        return status

    def _hold(self, signals: _Signals, time_limit_s: float | None, on_second: Callable[[SessionState], None]) -> int:
        began_s = measured_s = time.monotonic()
        while not signals.ending:
            now_s = time.monotonic()
            if time_limit_s is not None and now_s - began_s > time_limit_s:
                return 0
            if now_s - measured_s >= MEASURE_S:
                measured_s = now_s
                if self._outside is not None and (problem := self._outside.problem()) is not None:
                    self._on_note(problem)
                    return 1
                self._bound_record()
                on_second(self.status())
            time.sleep(LOOK_S)
        return 0

    def _bound_record(self) -> None:
        with self._lock:
            if self._report is not None:
                return
            status = self._cell.status()
            if status.recorded_bytes is None or status.recorded_bytes < self._record_bytes:
                return
            self._report = self._cell.end_record()
        self._on_note(
            f"the record ended after {status.passed_s:.0f} s, because it has {self._record_bytes / 1e6:.0f} MB "
            "(--record-limit); the link goes on"
        )

    def status(self) -> SessionState:
        """Its lines as they are declared now, their counters and queues."""
        with self._lock:
            status = self._cell.status()
            declared = self._declared()
            changes = tuple(self._changes)
        return SessionState(
            name=self.name,
            label=self._plan.label,
            host=self._plan.host,
            started=self._started,
            changes=changes,
            declared=declared,
            passed_s=status.passed_s,
            recorded_bytes=status.recorded_bytes,
            links=status.links,
        )

    def _declared(self) -> dict[str, dict[str, DeclaredDirection]]:
        """What every direction is declared to be now."""
        declared: dict[str, dict[str, DeclaredDirection]] = {}
        for link in self._plan.scenario.links:
            for way, direction in link.directions():
                now: dict[str, Any] = {
                    "rate_bps": direction.rate_bps,
                    "delay_s": direction.delay_s,
                    "jitter_s": direction.jitter_s,
                    "policy": direction.queue.name,
                    "errors": [model.as_json() for model in direction.errors],
                }
                for change in self._changes:
                    if (change.link, change.direction) == (link.name, way):
                        changed = typed(change.fields, 0.0).as_json()
                        now |= {
                            key: changed[key] for key in ("rate_bps", "delay_s", "jitter_s", "errors") if key in changed
                        }
                        if "queue" in changed:
                            now["policy"] = changed["queue"]["name"]
                declared.setdefault(link.name, {})[way] = DeclaredDirection.read(now)
        return declared

    def change(self, link: str | None, words: Sequence[str]) -> tuple[SessionChange, ...]:
        """Changes a line; None: the one under study."""
        target = studied(self._plan.scenario) if link is None else self._plan.scenario.link(link)
        changes = parse_changes(words)
        applied = []
        with self._lock:
            for way in DIRECTIONS:
                if way in changes:
                    at_s = self._cell.change(target.name, way, typed(changes[way], 0.0))
                    applied.append(
                        SessionChange(at_s=round(at_s, 6), link=target.name, direction=way, fields=changes[way])
                    )
                    self._changes.append(applied[-1])
        return tuple(applied)

    def node(self, name: str | None) -> EnteredNode:
        """A node; None: the host of the session's command."""
        name = name or self._plan.host
        if name not in self.hosts:
            raise TestbedError(unknown("node", name, self.hosts))
        return EnteredNode(name=name, label=self._plan.label, cell_pid=self._cell.pid, host=self.hosts[name])

    def _commit(self, command: Sequence[str], status: int | None) -> PendingRun:
        with self._lock:
            lasted_s = self._cell.status().passed_s
            report = self._report or self._cell.end_record()
            self._report = report
        self._close()
        description = SessionDescription(
            label=self._plan.label,
            command=tuple(command),
            host=self._plan.host,
            internet=self._internet,
            exit_status=status,
            lasted_s=round(lasted_s, 6),
            changes=tuple(self._changes),
            interface=self._interface,
        )
        cpu = machine.cpu_shares(self._cpu, machine.cpu_seconds())
        return record.commit_session(self._store, self._plan, report, description, self._folder, self._started, cpu)

    def _close(self) -> None:
        for part in (self._control, self._outside, self._cell):
            if part is not None:
                part.close()
        self._control = self._outside = None


class _Signals:
    """A request to end ends the session in order. The keyboard's signals are the command's alone, if there is one.

    Args:
        keyboard_ends: whether they end the session, because no command runs.
    """

    def __init__(self, keyboard_ends: bool = False) -> None:
        self._keyboard_ends = keyboard_ends
        #: Number of the signal that asked this process to end; 0: none did.
        self.ending = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        # Handlers, because a child would inherit SIG_IGN.
        for number in (signal.SIGINT, signal.SIGQUIT):
            self._before[number] = signal.signal(number, self._end if self._keyboard_ends else lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._end)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _end(self, number: int, _frame: object) -> None:
        self.ending = number
