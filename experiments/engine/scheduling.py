"""Runs campaigns: selects the runs that the store lacks, enters the campaigns in the store, and dispatches the runs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from analysis.store import Store, StoreError
from analysis.store.rows import NewCampaign
from experiments import lab
from experiments.engine import selection
from experiments.engine.batch import Outcome as Outcome
from experiments.engine.batch import PlannedCampaign
from experiments.engine.dispatch import Dispatcher
from experiments.engine.options import Options
from experiments.engine.progress import Observer
from experiments.language.backends import EMULATED, VIRTUAL_KERNEL
from experiments.language.campaign import Plan, Run
from experiments.language.problems import CampaignError, Problem
from testbed.capability import require_emulation
from testbed.virtual_kernel import kernels


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
    selected = {plan.id: selection.unique(selection.chosen(plan, options.only)) for plan in plans}
    everything = [run for plan in plans for run in selected[plan.id]]
    if not everything:
        conditions = " ".join(f"--only {text}" for text in options.only)
        raise CampaignError(
            plans[0].file, [Problem(0, "", "no run of the campaign meets all of these conditions", conditions)]
        )
    is_new_folder = isinstance(options.results, Path) and not options.results.exists()
    if backend == "physical" and any(plan.runs[0].installation is None for plan in plans):
        raise CampaignError("--inventory", [Problem(0, "", lab.NEEDS_INVENTORY)])
    is_remote = options.scheduler not in (None, "none", "local")
    if _needs_emulation(everything) and not is_remote and is_new_folder:
        # A new folder has nothing to reuse: reject before creating it.
        require_emulation()
    with Store.open(options.results, options.artefacts) as store:
        store.sweep_incoming()
        campaigns = _plan_batch(store, plans, selected, options)
        missing = [run for campaign in campaigns for run in campaign.runs]
        if _needs_emulation(missing) and not is_remote:
            require_emulation()
        if not is_remote:
            _require_kernels(missing)
        for campaign in campaigns:
            _enter(store, campaign.plan)
        try:
            if missing:
                Dispatcher(store, campaigns, options, observer).run()
        except BaseException:
            # The cause, such as a full disk, may stop this as well. The user needs the first error.
            with contextlib.suppress(StoreError, OSError):
                _close(store, campaigns)
            raise
        _close(store, campaigns)
    outcomes = {campaign.plan.id: campaign.outcome for campaign in campaigns}
    return [outcomes[plan.id] for plan in plans]


def _close(store: Store, campaigns: Sequence[PlannedCampaign]) -> None:
    for campaign in campaigns:
        campaign.close(store)


def _needs_emulation(runs: Sequence[Run]) -> bool:
    return any(run.backend == EMULATED for run in runs)


def _require_kernels(runs: Sequence[Run]) -> None:
    for name in sorted({str(run.document.document["kernel"]) for run in runs if run.backend == VIRTUAL_KERNEL}):
        kernels.named(name)


def _plan_batch(
    store: Store, plans: Sequence[Plan], selected: Mapping[str, Sequence[Run]], options: Options
) -> list[PlannedCampaign]:
    """What is to be made for each plan; those with the longest runs first."""
    planned: set[str] = set()
    room = options.limit
    campaigns = []
    for plan in sorted(plans, key=lambda plan: -plan.longest_s):
        valid = store.valid_runs(plan.run_ids)
        known = set() if options.force else valid
        missing = selection.to_make(selected[plan.id], known, store.tried_runs if options.retry_failed else None)
        order_seed = None if options.file_order else plan.seed
        shared = {run.id for run in missing} & planned
        missing = [run for run in selection.ordered(missing, order_seed) if run.id not in planned][:room]
        made = {run.id for run in missing}
        planned |= made
        room = None if room is None else room - len(made)
        outcome = Outcome(plan.id, reused=len(valid - made), left_out=len(set(plan.run_ids) - valid - made - shared))
        campaigns.append(PlannedCampaign(plan, outcome, missing, order_seed, valid & made, shared))
    return campaigns


def _enter(store: Store, plan: Plan) -> None:
    new = NewCampaign(
        id=plan.id, name=plan.name, title=plan.title, file=plan.file, text=plan.text, overrides=dict(plan.overrides),
        backend=plan.backend, seed=plan.seed, repetitions=plan.repetitions,
    )  # fmt: skip
    points = [list(point.parameters.items()) for point in plan.points]
    store.begin_campaign(new, points, [(run.point, run.repetition, run.id) for run in plan.members])
