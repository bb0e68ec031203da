"""Runs campaigns: selects the runs that the store lacks, enters the campaigns in the store, and carries out what
experiments.engine.core decides.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from analysis.store import Store, StoreError, requests
from analysis.store.claims import Claims
from analysis.store.rows import NewCampaign
from experiments import lab
from experiments.engine import batch, core, forecast
from experiments.engine.batch import Outcome as Outcome, PlannedCampaign
from experiments.engine.executors import Executor, LocalExecutor, Post
from experiments.engine.options import Options
from experiments.engine.progress import Observer, Progress
from experiments.language.campaign import Member, Plan, Run
from experiments.language.problems import CampaignError, Problem
from testbed.capability import require_emulation
from testbed.errors import TestbedError
from testbed.virtual_kernel.build import build_for_runs

#: Interval between two exchanges with the store: progress, claims and requests to stop, in s.
STORE_INTERVAL_S = 2.0
#: Longest time between two looks at the machines, in s.
LOOK_S = 0.1


def run_campaign(plan: Plan, options: Options, observer: Observer) -> Outcome:
    """Makes every run of a plan that the store lacks.

    Raises:
        CampaignError: a condition of `only` names nothing, or no run meets all of them.
        Unavailable: this machine cannot run the backend, or there is no cluster.
        StoreError: the store cannot be used.
        TestbedError: the failure is not one run's own, such as a full disk. Landed runs stay.
    """
    return run_campaigns([plan], options, observer)[0]


def run_campaigns(plans: Sequence[Plan], options: Options, observer: Observer) -> list[Outcome]:
    """Makes every run of several plans of one backend that the store lacks, as one batch: a cell that one campaign does
    not need serves the next.

    A run that several plans contain is made once. Plans with the longest runs come first. `limit` applies to the batch.

    Raises:
        As run_campaign.
    """
    backend = plans[0].backend
    selected = {plan.id: batch.unique(batch.chosen(plan, options.only)) for plan in plans}
    if not any(selected.values()):
        conditions = " ".join(f"--only {text}" for text in options.only)
        raise CampaignError(
            plans[0].file, [Problem(0, "", "no run of the campaign meets all of these conditions", conditions)]
        )
    is_new_folder = isinstance(options.results, Path) and not options.results.exists()
    if backend.in_lab and any(plan.runs[0].installation is None for plan in plans):
        raise CampaignError("--inventory", [Problem(0, "", lab.NEEDS_INVENTORY)])
    is_remote = options.scheduler is not None
    if backend.in_cell and not is_remote and is_new_folder:
        # A new folder has nothing to reuse: reject before creating it.
        require_emulation()
    with Store.open(options.results, options.artefacts) as store:
        store.sweep()
        campaigns = _plan_batch(store, plans, selected, options)
        missing = [run for campaign in campaigns for run in campaign.runs]
        if missing and backend.in_cell and not is_remote:
            require_emulation()
        if not is_remote:
            _require_kernels(missing, observer)
        for campaign in campaigns:
            _enter(store, campaign.plan)
        # What the store has already need not wait for the others of the batch.
        _end(store, [campaign for campaign in campaigns if campaign.is_finished])
        try:
            if missing:
                _Loop(store, campaigns, options, observer).run()
        except BaseException:
            # The cause, such as a full disk, may stop this as well. The user needs the first error.
            with contextlib.suppress(StoreError, OSError):
                _end(store, campaigns)
            raise
        _end(store, campaigns)
        if not is_remote and any(campaign.outcome.landed for campaign in campaigns):
            forecast.learn(store, backend)
    outcomes = {campaign.plan.id: campaign.outcome for campaign in campaigns}
    return [outcomes[plan.id] for plan in plans]


def _end(store: Store, campaigns: Sequence[PlannedCampaign]) -> None:
    """Marks campaigns in the store as complete or incomplete."""
    for campaign in campaigns:
        if not campaign.closed:
            lacking = set(campaign.plan.run_ids) - store.valid_runs(campaign.plan.run_ids)
            campaign.outcome.left_out = len(lacking - campaign.outcome.failed.keys())
            store.end_campaign(campaign.plan.id, not lacking)
            campaign.closed = True


def _require_kernels(runs: Sequence[Run], observer: Observer) -> None:
    for name in sorted({str(run.document.document["kernel"]) for run in runs if run.backend.has_own_kernel}):
        build_for_runs(name, observer.say)


def _plan_batch(
    store: Store, plans: Sequence[Plan], selected: Mapping[str, Sequence[Member]], options: Options
) -> list[PlannedCampaign]:
    """What is to be made for each plan; those with the longest runs first."""
    planned: set[str] = set()
    room = options.limit
    campaigns = []
    for plan in sorted(plans, key=lambda plan: -plan.longest_s):
        valid = store.valid_runs(plan.run_ids)
        done = set() if options.force else valid
        missing = batch.to_make(selected[plan.id], done, store.tried_runs if options.retry_failed else None)
        order_seed = None if options.file_order else plan.seed
        shared = {run.id for run in missing} & planned
        missing = [run for run in batch.ordered(missing, order_seed) if run.id not in planned][:room]
        to_run = {run.id for run in missing}
        planned |= to_run
        room = None if room is None else room - len(to_run)
        outcome = Outcome(plan.id, reused=len(valid - to_run))
        campaigns.append(PlannedCampaign(plan, outcome, plan.runs_of(missing), order_seed, valid & to_run, shared))
    return campaigns


def _enter(store: Store, plan: Plan) -> None:
    points = [list(point.parameters.items()) for point in plan.points]
    store.begin_campaign(NewCampaign.of(plan), points, [(run.point, run.repetition, run.id) for run in plan.members])


class _Loop:
    """Takes the events of a batch one after another, and carries out what follows from each."""

    def __init__(
        self, store: Store, campaigns: Sequence[PlannedCampaign], options: Options, observer: Observer
    ) -> None:
        self._store = store
        self._observer = observer
        self._claims = Claims(store)
        self._state = core.State(campaigns, options, time.monotonic())
        self._events: queue.SimpleQueue[core.Event] = queue.SimpleQueue()

    def run(self) -> None:
        """Returns when all runs have ended, or when the batch is stopped."""
        state, post = self._state, self._events.put
        plans = [campaign.plan for campaign in state.campaigns]
        total_s = sum(campaign.total_s for campaign in state.campaigns)
        with (
            interruptible(lambda: post(core.Interrupted())),
            self._observer.watch(plans, len(state.waiting), total_s) as show,
        ):
            executor = open_executor(self._store, state, post)
            try:
                stored_s = time.monotonic()
                while not state.is_over:
                    self._handle(core.MachinesSeen(executor.machines()), executor)
                    self._handle_posted(executor, LOOK_S)
                    show(self._progress(state.campaigns))
                    if time.monotonic() - stored_s > STORE_INTERVAL_S:
                        stored_s = time.monotonic()
                        self._exchange(executor)
            finally:
                if state.stop is not None:
                    executor.stop()
                executor.close()
                # Runs that were being analysed have landed meanwhile.
                self._handle_posted(executor, 0)
                core.note_stop(state)
                # A store that failed is the error to report.
                with contextlib.suppress(StoreError):
                    self._claims.release()
            show(self._progress(state.campaigns))
        if state.stop is not None and state.stop.error is not None:
            _raise(state.stop.error)

    def _handle(self, event: core.Event, executor: Executor) -> None:
        for action in core.step(self._state, event, time.monotonic()):
            match action:
                case core.Allow():
                    executor.allow(action.machine_id, action.cells)
                case core.Submit():
                    executor.submit(action.machine_id, action.job)
                case core.Claim():
                    mine = self._claims.take(action.run_ids)
                    self._handle(core.Claimed(action.run_ids, mine), executor)
                case core.ReleaseClaim():
                    self._claims.end(action.run_id)
                case core.NoteFailure():
                    self._store.note_failure(action.run_id, action.attempt, action.problem)
                case core.Report():
                    self._observer.on_event(action.event, is_batch=len(self._state.campaigns) > 1)

    def _handle_posted(self, executor: Executor, timeout_s: float) -> None:
        """Handles all posted events, after waiting for the first."""
        with contextlib.suppress(queue.Empty):
            self._handle(self._events.get(timeout_s > 0, timeout_s), executor)
            while True:
                self._handle(self._events.get_nowait(), executor)

    def _exchange(self, executor: Executor) -> None:
        """Renews claims, reads what other runners have made, stores progress, and stops on a request to cancel."""
        state = self._state
        self._claims.renew()
        if state.elsewhere:
            self._handle(core.SettledElsewhere(*self._claims.settled(list(state.elsewhere))), executor)
        waiting = []
        for campaign in state.campaigns:
            if campaign.is_finished:
                _end(self._store, [campaign])
            else:
                progress = self._progress([campaign])
                # A campaign that waits for its turn has no progress yet.
                if progress.cells or campaign.finished:
                    self._store.set_progress(campaign.plan.id, progress.row())
                else:
                    waiting.append(campaign.plan.id)
        if waiting:
            self._store.set_waiting(waiting)
        open_ids = [campaign.plan.id for campaign in state.campaigns if not campaign.closed]
        if requests.stop_wanted(self._store, open_ids):
            self._events.put(core.Interrupted())

    def _progress(self, campaigns: Sequence[PlannedCampaign]) -> Progress:
        return core.progress(self._state, campaigns, time.monotonic(), os.getpid())


def open_executor(store: Store, state: core.State, post: Post) -> Executor:
    """Where a batch is executed: a lab, a Dask cluster, or this machine."""
    if state.backend.in_lab:
        return LocalExecutor(store, post, lab.cells(state.options.inventory, state.campaigns[0].plan.name))
    if state.options.scheduler is None:
        return LocalExecutor(store, post)
    # Importing Dask takes longer than a small campaign.
    from experiments.engine.dask_executor import DaskExecutor

    return DaskExecutor(state.options.scheduler, state.options, post)


def _raise(error: BaseException) -> NoReturn:
    """Raises what stopped a batch as an error for the user."""
    if isinstance(error, TestbedError | StoreError):
        raise error
    # The operating system's words, or the database's.
    words = getattr(error, "strerror", None) or getattr(error, "orig", None)
    cause = words or f"{type(error).__name__}: {error}"
    if file := getattr(error, "filename", None):
        cause = f"{cause} ({file})"
    raise TestbedError(
        f"the campaign stopped: {cause}; stored runs are kept, and the same command continues"
    ) from error


@contextmanager
def interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """SIGINT and SIGTERM call a function instead of ending the process."""

    def handle(_: int, __: FrameType | None) -> None:
        stop()

    old = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
