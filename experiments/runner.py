"""`./backchannel serve runner`: runs what people ask for on the site, one by one, with its user's rights."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from analysis.store import Store, StoreError, requests
from analysis.store.rows import RequestRow
from experiments import exits
from experiments.engine.options import Options
from experiments.engine.scheduling import Outcome, interruptible, run_campaign
from experiments.language import source
from experiments.language.campaign import expand
from experiments.terminal import TerminalReporter
from testbed.capability import missing_for_emulation
from testbed.errors import TestbedError
from testbed.units import number_of

#: Between two looks for a request.
LOOK_S = 1.0


class Runner:
    """One runner; several may share a results folder.

    Args:
        results: folder or URL.
        jobs: most runs at a time; None: as many as the machine serves.
        attempts: attempts of a run.
        console: for messages.
        allow_commands: run campaigns whose flows are programs (kind `command`), which is to run any code.
    """

    def __init__(
        self, results: Path | str, jobs: int | None, attempts: int, console: Console, allow_commands: bool = False
    ) -> None:
        self._allow_commands = allow_commands
        self._results = results
        self._jobs = jobs
        self._attempts = attempts
        self._console = console
        self._id = f"{socket.gethostname()}:{os.getpid()}"
        self._stop = threading.Event()

    def serve(self, once: bool = False) -> int:
        """Until it is interrupted; with `once`, until nothing waits. Gives how many requests failed.

        Raises:
            StoreError: the results folder cannot be used.
        """
        lacks = missing_for_emulation()
        failed = 0
        with Store.open(self._results) as store, self._there(store, lacks), interruptible(self._stop.set):
            self._console.print(f"Taking requests from {self._results} (Ctrl-C ends it)", highlight=False)
            if lacks:
                self._console.print(
                    f"Campaigns of the backend emulated cannot be run here: {'; '.join(lacks)}", highlight=False
                )
            while not self._stop.is_set():
                requests.release_lost(store)
                request = requests.take(store, self._id)
                if request is None:
                    if once:
                        break
                    self._stop.wait(LOOK_S)
                    continue
                failed += not self._do(store, request)
        return failed

    def _do(self, store: Store, request: RequestRow) -> bool:
        number = request.id
        self._console.print(f"Request {number}: {request.file}", highlight=False)
        try:
            plan = expand(source.parse(request.file, request.text), request.overrides)
            if plan.programs and not self._allow_commands:
                raise TestbedError(
                    f"this campaign runs programs ({', '.join(plan.programs)}), and this runner runs none; whoever "
                    "starts the runner decides (./backchannel serve runner --allow-commands)"
                )
            requests.name_campaign(store, number, plan.id)
            options = Options(self._results, self._jobs, bool(request.force), attempts=self._attempts)
            outcome = run_campaign(plan, options, TerminalReporter(self._console))
        except Exception as error:
            explained = exits.of_error(error)
            if explained is None:
                # Ends the request, so that the site does not wait for ever. The traceback goes to the terminal.
                requests.finish(
                    store, number, requests.FAILED, f"internal error: {type(error).__name__}: {error}; please report it"
                )
                raise
            message, _ = explained
            requests.finish(store, number, requests.FAILED, message)
            self._console.print(f"Request {number} failed: {message}", style="yellow", highlight=False)
            return False
        if outcome.interrupted and not requests.stop_wanted(store, [plan.id]):
            # The engine has caught the signal that was meant for this process as well.
            self._stop.set()
        state = requests.DONE if outcome.complete else requests.FAILED
        requests.finish(store, number, state, _error_text(outcome))
        return outcome.complete

    @contextlib.contextmanager
    def _there(self, store: Store, lacks: list[str]) -> Iterator[None]:
        """Shows this runner to the site while it lives."""
        gone = threading.Event()
        started = time.time()

        def show() -> None:
            while True:
                # A store that fails for a while must not make this runner look gone for good.
                with contextlib.suppress(StoreError):
                    requests.show_runner(store, self._id, started, lacks)
                if gone.wait(requests.SEEN_EVERY_S):
                    return

        requests.show_runner(store, self._id, started, lacks)
        thread = threading.Thread(target=show, name="presence", daemon=True)
        thread.start()
        try:
            yield
        finally:
            gone.set()
            thread.join()
            requests.remove_runner(store, self._id)


def _error_text(outcome: Outcome) -> str:
    summary = f"{number_of(outcome.landed, 'run')} made, {outcome.reused} taken from the store"
    if outcome.interrupted:
        return f"stopped: {summary}"
    return f"{summary}, {len(outcome.failed)} without a valid result" if outcome.failed else summary
