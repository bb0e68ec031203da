"""The papers' artefacts as campaigns: which files there are, and running what is missing of them.

One file an artefact, `experiments/PAPER/*.yaml` with the field `artefact`. Targets play no part here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis.store import Store
from experiments import registry
from experiments.campaign import Plan, Run, expand
from experiments.engine import Options, Outcome, run_campaigns
from experiments.forecast import forecast
from experiments.problems import CampaignError
from experiments.select import unique
from experiments.show import Reporter
from experiments.source import BACKENDS, Source, read

#: Where the campaign files of the papers are.
FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Reproduction:
    """A campaign file that reproduces an artefact."""

    artefact: str
    paper: str
    file: Path
    source: Source

    def plan(self, backend: str | None) -> Plan:
        """Its runs, on its own backend or another.

        Raises:
            CampaignError: the file is wrong, or cannot run on that backend.
        """
        return expand(self.source, [] if backend is None else [f"backend={backend}"])

    def is_for(self, backend: str | None) -> bool:
        """Whether it is reproduced on a backend: its own, or one that it has fields for."""
        own = str(self.source.values.get("backend", "emulated"))
        return backend in (None, own) or backend in (self.source.values.get(BACKENDS) or {})


def reproductions(folder: Path = FOLDER) -> list[Reproduction]:
    """Every campaign file that names an artefact, by paper and file name.

    Raises:
        CampaignError: a file cannot be read.
    """
    found = []
    for path in sorted(folder.glob("*/*.yaml")):
        if path.name == "targets.yaml":
            continue
        source = read(path)
        artefact = source.values.get("artefact")
        if artefact is not None:
            found.append(Reproduction(str(artefact), path.parent.name, path, source))
    return found


def chosen(what: str, folder: Path = FOLDER, backend: str | None = None) -> list[Reproduction]:
    """Those of a paper, of an artefact, or all for ""; on another backend than their own those that have fields for it
    (`backends` in the file). An artefact by name is taken as it is.

    Raises:
        ValueError: there is no such paper or artefact.
        CampaignError: a file cannot be read.
    """
    everything = reproductions(folder)
    found = [one for one in everything if what in ("", one.paper, one.artefact)]
    if not found:
        names = dict.fromkeys([one.paper for one in everything] + [one.artefact for one in everything])
        raise ValueError(registry.unknown("paper or artefact with a campaign file", what, names))
    fitting = [one for one in found if what == one.artefact or one.is_for(backend)]
    if not fitting:
        raise ValueError(f"no artefact of {what or 'any paper'} has fields for the {backend} backend")
    return fitting


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
    chosen_ones: Sequence[Reproduction], backend: str | None, store: Store | None, cpus: int, jobs: int | None
) -> tuple[list[Expected], float]:
    """What each would take by itself, in order, runs that two artefacts share counted once; and seconds for all of them
    as one batch.
    """
    found, seen, batches = [], set[str](), dict[str, list[Run]]()
    # Of thousands of runs, each with its scenario: read once a backend.
    history = cache(lambda which: store.history(which) if store is not None else [])
    for one in chosen_ones:
        try:
            plan = one.plan(backend)
        except CampaignError as error:
            found.append(Expected(one.artefact, 0, 0, 0, 0, 0.0, 0, str(error)))
            continue
        done = store.valid_runs([run.id for run in plan.runs]) if store is not None else set()
        to_do = [run for run in unique(plan.runs) if run.id not in done | seen]
        seen |= {run.id for run in to_do}
        batches.setdefault(plan.backend, []).extend(to_do)
        told = forecast(to_do, history(plan.backend), cpus, jobs)
        found.append(
            Expected(
                one.artefact, len(plan.points), plan.repetitions, len(plan.runs), len(to_do), told.time_s, told.cells
            )
        )
    whole_s = sum(forecast(runs, history(which), cpus, jobs).time_s for which, runs in batches.items())
    return found, whole_s


def reproduce(
    chosen_ones: Sequence[Reproduction], backend: str | None, options: Options, reporter: Reporter
) -> list[Done]:
    """Runs what the results folder lacks, as one batch for each backend; a campaign that the backend does not carry is
    told and passed over. Ends early when interrupted.

    Raises:
        As `run_campaigns`.
    """
    done = []
    batches: dict[str, list[tuple[Reproduction, Plan]]] = {}
    for one in chosen_ones:
        try:
            plan = one.plan(backend)
        except CampaignError as error:
            done.append(Done(one, None, str(error)))
        else:
            batches.setdefault(plan.backend, []).append((one, plan))
    for batch in batches.values():
        outcomes = run_campaigns([plan for _, plan in batch], options, reporter)
        done += [Done(one, outcome) for (one, _), outcome in zip(batch, outcomes, strict=True)]
        if any(outcome.interrupted for outcome in outcomes):
            break
    return done
