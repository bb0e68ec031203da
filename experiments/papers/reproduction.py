"""The campaign files that reproduce the papers' artefacts: which there are, what they would take, and running them.

An artefact's campaign is `experiments/PAPER/*.yaml` with the field `artefact`. Targets play no part here.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from analysis.backend_blocks import block_for
from experiments import catalogue, lab
from experiments.engine.forecast import Forecaster
from experiments.inventory import read as read_inventory
from experiments.language import registry
from experiments.language.backends import Backend
from experiments.language.campaign import Plan, Run, expand
from experiments.language.located import Source
from experiments.language.problems import CampaignError
from experiments.language.sections import BACKENDS
from experiments.language.source import read
from experiments.papers import choices
from experiments.papers.defaults import default_values

if TYPE_CHECKING:
    from analysis.store import Store
    from experiments.engine.options import Options
    from experiments.engine.scheduling import Outcome
    from experiments.terminal import TerminalReporter

T = TypeVar("T")
#: The field of a campaign file.
ARTEFACT = re.compile(r"^artefact: ([\w-]+)$", re.MULTILINE)
#: Campaigns from which several processes count faster than one.
MANY = 12


@dataclass(frozen=True)
class Reproduction:
    """A campaign file that reproduces an artefact."""

    artefact: str
    paper: str
    file: Path

    @cached_property
    def source(self) -> Source:
        """The file, read when it is first asked for.

        Raises:
            CampaignError: it cannot be read.
        """
        return read(self.file)

    def plan(self, backend: str | None, *, defaults: bool = False) -> Plan:
        """Its runs on its default backend (None) or on another; `defaults` undoes what was chosen for it.

        Raises:
            CampaignError: the file is invalid, or cannot run on that backend.
        """
        overrides = [] if backend is None else [f"backend={backend}"]
        if not defaults:
            return expand(self.source, overrides)
        values = default_values(self.source.values, self.artefact, choices.choices(self.chosen))
        values["name"] += choices.SUFFIX
        plan = expand(replace(self.source, values=values), overrides)
        # `--set` rejects this field, so the unchanged file cannot run under this name.
        return replace(plan, overrides={**plan.overrides, choices.OVERRIDE: choices.FILE})

    @property
    def chosen(self) -> Path:
        """The file that lists what was chosen for the artefacts of its paper."""
        return self.file.with_name(choices.FILE)

    def supports(self, backend: str | None) -> bool:
        """Whether the file is written for a backend: its default (None), or one that it has a `backends` block for."""
        if backend is None or backend == str(self.source.values.get("backend", "emulated")):
            return True
        return block_for(self.source.values.get(BACKENDS) or {}, backend) is not None


def reproductions() -> list[Reproduction]:
    """Every campaign file with the field `artefact`, sorted by paper and file name."""
    found = []
    for path in sorted(catalogue.FOLDER.glob("*/*.yaml")):
        # Reading all fields of all files takes half a second.
        artefact = ARTEFACT.search(path.read_text(encoding="utf-8"))
        if artefact is not None and path.name not in catalogue.NOT_CAMPAIGNS:
            found.append(Reproduction(artefact[1], path.parent.name, path))
    return found


def select_named(
    items: Sequence[T], names: Sequence[str], names_of: Callable[[T], tuple[str, str]], kind: str
) -> list[T]:
    """The items of some papers and artefacts; all items without a name.

    Args:
        items: to choose from.
        names: of papers and artefacts.
        names_of: returns an item's paper and artefact.
        kind: of such a name, for the error message.

    Raises:
        ValueError: no item has that name.
    """
    papers, artefacts = zip(*map(names_of, items), strict=True)
    for name in names:
        if name not in papers + artefacts:
            raise ValueError(registry.unknown(kind, name, dict.fromkeys(papers + artefacts)))
    return [item for item in items if not names or not set(names).isdisjoint(names_of(item))]


def select_reproductions(
    names: Sequence[str] = (), backend: str | None = None, *, defaults: bool = False, inventory: Path | None = None
) -> list[Reproduction]:
    """The reproductions of some papers and artefacts; all without a name.

    With a backend, files that are not written for it are left out, unless their artefact is named; with an inventory
    likewise those whose topology its hosts cannot play. `defaults` leaves out those for which nothing with a default
    was chosen.

    Raises:
        ValueError: no paper or artefact has that name, or none of them supports the backend or fits the hosts.
        CampaignError: a file, or the inventory, cannot be read.
    """
    selected = select_named(
        reproductions(), names, lambda item: (item.paper, item.artefact), "paper or artefact with a campaign file"
    )
    fitting = [item for item in selected if item.artefact in names or item.supports(backend)]
    if defaults:
        affected = choices.with_defaults()
        fitting = [item for item in fitting if item.artefact in affected]
    if not fitting and defaults:
        raise ValueError(f"nothing that was chosen for {' or '.join(names)} has a default")
    if not fitting:
        raise ValueError(f"no artefact of {' or '.join(names) or 'any paper'} has fields for the {backend} backend")
    if inventory is not None:
        read_inventory(inventory)
        fitting = [item for item in fitting if item.artefact in names or _fits(item, backend, inventory)]
        if not fitting:
            raise ValueError(
                f"the hosts of {inventory} can play the topology of no artefact of "
                f"{' or '.join(names) or 'any paper'}; name one to see why"
            )
    return fitting


def _fits(item: Reproduction, backend: str | None, inventory: Path) -> bool:
    try:
        lab.require_fit(inventory, item.plan(backend))
    except CampaignError:
        return False
    return True


def _plans(
    chosen_ones: Sequence[Reproduction],
    backend: str | None,
    defaults: bool,
    inventory: Path | None,
    warn: Callable[[str], None],
) -> list[Plan | str]:
    """The runs of each, in a lab with that lab's ids, or why it cannot run.

    Raises:
        TestbedError: a host of the lab does not answer, or is held.
    """
    found: list[Plan | str] = []
    for chosen_one in chosen_ones:
        try:
            plan = chosen_one.plan(backend, defaults=defaults)
            if plan.backend.in_lab and inventory is not None:
                lab.require_fit(inventory, plan)
        except CampaignError as error:
            found.append(str(error))
        else:
            found.append(plan)
    bare = [plan for plan in found if isinstance(plan, Plan) and plan.backend.in_lab]
    if not bare or inventory is None:
        return found
    installed = iter(lab.in_lab(inventory, bare, warn))
    return [next(installed) if isinstance(plan, Plan) and plan.backend.in_lab else plan for plan in found]


@dataclass
class Done:
    """How one reproduction went."""

    reproduction: Reproduction
    outcome: Outcome | None
    #: Why it was not run; empty if it was.
    refused: str = ""


@dataclass(frozen=True)
class ExpectedArtefact:
    """What `papers run` would run of an artefact."""

    artefact: str
    points: int
    repetitions: int
    runs: int
    #: Those of them that neither the results folder nor an artefact before it has.
    to_run: int
    time_s: float
    cells: int
    #: Why it cannot run; empty if it can.
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
    inventory: Path | None = None,
    warn: Callable[[str], None] = print,
) -> tuple[list[ExpectedArtefact], float]:
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
        inventory: of the lab whose runs count as done.
        warn: is told of sets of hosts that do not answer.
    """
    by_file, batches = dict[Path, ExpectedArtefact](), dict[str, list[Run]]()
    seen: dict[str, set[int]] = {}
    room = math.inf if limit is None else limit
    # Histories have thousands of runs, each with its scenario: they are read once a backend.
    forecasters = cache(lambda which: Forecaster(which, store.history(which) if store is not None else [], cpus, jobs))
    counted = list[tuple[Reproduction, _Counted]]()
    if inventory is None:
        each = _each_counted(chosen_ones, backend, defaults, cpus)
    else:
        plans = _plans(chosen_ones, backend, defaults, inventory, warn)
        each = (plan if isinstance(plan, str) else _count_of(plan) for plan in plans)
    for chosen_one, of_one in zip(chosen_ones, each, strict=True):
        if isinstance(of_one, str):
            by_file[chosen_one.file] = ExpectedArtefact(chosen_one.artefact, 0, 0, 0, 0, 0.0, 0, of_one)
        else:
            counted.append((chosen_one, of_one))
    firsts = [point.first.id for _, of_one in counted for point in of_one.points]
    done = store.valid_repetitions(firsts) if store is not None and not force else {}
    for chosen_one, of_one in sorted(counted, key=lambda item: -item[1].longest_s):
        to_do = list[Run]()
        for point in of_one.points:
            known = seen.setdefault(point.first.id, set(done.get(point.first.id, ())))
            missing = [repetition for repetition in range(point.repetitions) if repetition not in known]
            missing = missing[: int(min(room, len(missing)))]
            known.update(missing)
            room -= len(missing)
            to_do += [point.first] * len(missing)
        batches.setdefault(of_one.backend, []).extend(to_do)
        cost = forecasters(of_one.backend).forecast(to_do)
        by_file[chosen_one.file] = ExpectedArtefact(
            chosen_one.artefact,
            len(of_one.points),
            of_one.repetitions,
            of_one.runs,
            len(to_do),
            cost.time_s,
            cost.cells,
        )
    whole_s = sum(forecasters(which).forecast(runs).time_s for which, runs in batches.items())
    return [by_file[chosen_one.file] for chosen_one in chosen_ones], whole_s


@dataclass(frozen=True)
class _Repeated:
    """A point by its first run, whose id stands for those of all repetitions: they follow from the same scenario and
    seed. Making thousands of scenarios only to count them takes half a minute.
    """

    first: Run
    repetitions: int


@dataclass(frozen=True)
class _Counted:
    """The points of a campaign with their numbers of runs."""

    backend: Backend
    repetitions: int
    points: list[_Repeated]

    @property
    def runs(self) -> int:
        return sum(point.repetitions for point in self.points)

    @property
    def longest_s(self) -> float:
        """Duration of its longest run."""
        return max(point.first.duration_s for point in self.points)


def _each_counted(
    chosen_ones: Sequence[Reproduction], backend: str | None, defaults: bool, cpus: int
) -> Iterator[_Counted | str]:
    """What each campaign would run, or why it cannot; many are counted by a process for each CPU."""
    count = partial(_counted, backend, defaults)
    if len(chosen_ones) < MANY or cpus < 2:
        yield from map(count, chosen_ones)
        return
    # They inherit what this process has imported and read.
    with ProcessPoolExecutor(cpus, get_context("fork")) as pool:
        yield from pool.map(count, chosen_ones, chunksize=4)


def _counted(backend: str | None, defaults: bool, chosen_one: Reproduction) -> _Counted | str:
    try:
        return _count_of(chosen_one.plan(backend, defaults=defaults))
    except CampaignError as error:
        return str(error)


def _count_of(plan: Plan) -> _Counted:
    counts = [1 if point.is_exact else plan.repetitions for point in plan.points]
    starts = itertools.accumulate(counts, initial=0)
    points = [_Repeated(plan.runs[start], count) for start, count in zip(starts, counts, strict=False)]
    return _Counted(plan.backend, plan.repetitions, points)


def reproduce(
    chosen_ones: Sequence[Reproduction],
    backend: str | None,
    options: Options,
    reporter: TerminalReporter,
    warn: Callable[[str], None],
    *,
    defaults: bool = False,
) -> list[Done]:
    """Runs what the results folder lacks, as one batch for each backend; a campaign that the backend or the lab does
    not carry is reported and left out. Ends early when interrupted. `defaults` undoes what was chosen for each.

    Raises:
        As `run_campaigns`; TestbedError also where a host of the lab does not answer.
    """
    # Estimates do without the engine.
    from experiments.engine.scheduling import run_campaigns

    done = []
    batches: dict[str, list[tuple[Reproduction, Plan]]] = {}
    plans = _plans(chosen_ones, backend, defaults, options.inventory, warn)
    for chosen_one, plan in zip(chosen_ones, plans, strict=True):
        if isinstance(plan, str):
            done.append(Done(chosen_one, None, plan))
        else:
            batches.setdefault(plan.backend, []).append((chosen_one, plan))
    for batch in batches.values():
        outcomes = run_campaigns([plan for _, plan in batch], options, reporter)
        done += [Done(item, outcome) for (item, _), outcome in zip(batch, outcomes, strict=True)]
        if any(outcome.interrupted for outcome in outcomes):
            break
    return done
