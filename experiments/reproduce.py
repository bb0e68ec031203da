"""Runs what is missing of the papers' artefacts, and estimates what that takes. Targets play no part here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis.store import Store
from experiments.catalogue import Reproduction
from experiments.engine.batch import unique
from experiments.engine.forecast import Forecaster
from experiments.engine.options import Options
from experiments.engine.scheduling import Outcome, run_campaigns
from experiments.language.campaign import Plan, Run
from experiments.language.problems import CampaignError
from experiments.terminal import TerminalReporter


@dataclass
class Done:
    """How one reproduction went."""

    reproduction: Reproduction
    outcome: Outcome | None
    #: Why it was not run; empty if it was.
    refused: str = ""


@dataclass(frozen=True)
class Expected:
    """What one reproduction would run."""

    artefact: str
    points: int
    repetitions: int
    #: Of the campaign; those that neither the results folder nor an artefact before it has.
    runs: int
    to_run: int
    time_s: float
    cells: int
    refused: str = ""


def expected(
    chosen_ones: Sequence[Reproduction],
    backend: str | None,
    store: Store | None,
    cpus: int,
    jobs: int | None = None,
    force: bool = False,
    limit: int | None = None,
    *,
    defaults: bool = False,
) -> tuple[list[Expected], float]:
    """What each would take by itself, in order, runs that two artefacts share counted once; and seconds for all of them
    as one batch, of which the artefacts with the longest runs come first.

    Args:
        chosen_ones: artefacts.
        backend: another than their own; None for their own.
        store: what has been run; None if there is none.
        cpus: of this machine.
        jobs: runs at a time, if somebody asked for a number.
        force: count what the store has as to be run.
        limit: runs at most, of the whole batch.
        defaults: with the defaults of what was chosen.
    """
    by_file, seen, batches = dict[Path, Expected](), set[str](), dict[str, list[Run]]()
    # Histories have thousands of runs, each with its scenario: they are read once a backend.
    forecasters = cache(lambda which: Forecaster(which, store.history(which) if store is not None else [], cpus, jobs))
    plans = list[tuple[Reproduction, Plan]]()
    for chosen_one in chosen_ones:
        try:
            plans.append((chosen_one, chosen_one.plan(backend, defaults=defaults)))
        except CampaignError as error:
            by_file[chosen_one.file] = Expected(chosen_one.artefact, 0, 0, 0, 0, 0.0, 0, str(error))
    for chosen_one, plan in sorted(plans, key=lambda pair: -pair[1].longest_s):
        done = store.valid_runs(plan.run_ids) if store is not None and not force else set()
        room = None if limit is None else limit - len(seen)
        to_do = [run for run in unique(plan.runs) if run.id not in done | seen][:room]
        seen |= {run.id for run in to_do}
        batches.setdefault(plan.backend, []).extend(to_do)
        cost = forecasters(plan.backend).forecast(to_do)
        by_file[chosen_one.file] = Expected(
            chosen_one.artefact, len(plan.points), plan.repetitions, len(plan.runs), len(to_do), cost.time_s, cost.cells
        )
    whole_s = sum(forecasters(which).forecast(runs).time_s for which, runs in batches.items())
    return [by_file[chosen_one.file] for chosen_one in chosen_ones], whole_s


def reproduce(
    chosen_ones: Sequence[Reproduction],
    backend: str | None,
    options: Options,
    reporter: TerminalReporter,
    *,
    defaults: bool = False,
) -> list[Done]:
    """Runs what the results folder lacks, as one batch for each backend; a campaign that the backend does not carry is
    reported and left out. Ends early when interrupted. `defaults` undoes what was chosen for each artefact.

    Raises:
        As `run_campaigns`.
    """
    done = []
    batches: dict[str, list[tuple[Reproduction, Plan]]] = {}
    for chosen_one in chosen_ones:
        try:
            plan = chosen_one.plan(backend, defaults=defaults)
        except CampaignError as error:
            done.append(Done(chosen_one, None, str(error)))
        else:
            batches.setdefault(plan.backend, []).append((chosen_one, plan))
    for batch in batches.values():
        outcomes = run_campaigns([plan for _, plan in batch], options, reporter)
        done += [Done(item, outcome) for (item, _), outcome in zip(batch, outcomes, strict=True)]
        if any(outcome.interrupted for outcome in outcomes):
            break
    return done
