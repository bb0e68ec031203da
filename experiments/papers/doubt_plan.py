"""What `doubt` changes about a campaign, what each change costs, and what the runs of all say.

A change is a campaign of its own: with other seeds, half of the duration, perturbed lines, or on another backend.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.question import Asked, of_stored
from analysis.results import Results
from analysis.store import Store
from experiments.catalogue import read_named
from experiments.engine import pace
from experiments.engine.forecast import Forecaster
from experiments.labels import duration_text
from experiments.language import sections
from experiments.language.backends import Backend
from experiments.language.campaign import Plan, expand
from experiments.language.checks import nearest_in_simulation
from experiments.language.problems import CampaignError
from experiments.papers.doubt import Column, Doubt, conclusions, examine, halved_plan, repetitions_within
from experiments.papers.sensitivity import BY, perturbed_plan
from testbed import capability
from testbed.errors import Unavailable
from testbed.units import number_of

#: Fewer repetitions than these say too little to be worth a backend's time.
LEAST_REPETITIONS = 3
#: Makes a plan with so many repetitions; None: as the file says. CampaignError, ValueError: there is none, and why.
Make = Callable[[int | None], Plan]


@dataclass(frozen=True)
class Change:
    """Something that should not matter."""

    name: str
    what: str
    make: Make


@dataclass
class Planned:
    """A change with its plan, or why there is none."""

    column: Column
    plan: Plan | None = None
    expected_s: float = 0.0
    missing: int = 0


def _loader(file: Path, overrides: Sequence[str], backend: str, *more: str) -> Make:
    def make(repetitions: int | None) -> Plan:
        fewer = () if repetitions is None else (f"repetitions={repetitions}",)
        return expand(read_named(file), [*overrides, *more, *fewer, f"backend={backend}"])

    return make


def original(file: Path, overrides: Sequence[str], backend: str | None) -> Change:
    """The campaign as its file says, where it says a backend; in simulation otherwise, if that is possible; else on
    Linux in virtual time.

    Raises:
        CampaignError: the file is invalid.
    """
    stated = read_named(file).values.get("backend")
    if backend is not None or isinstance(stated, str):
        return Change("original", "as the file says", _loader(file, overrides, backend or str(stated)))
    try:
        return replace(_simulated(file, overrides), name="original")
    except CampaignError as problem:
        try:
            make = _loader(file, overrides, Backend.VIRTUAL_KERNEL)
            make(None)
        except CampaignError:
            raise problem from None
        return Change("original", "on Linux in virtual time", make)


def _simulated(file: Path, overrides: Sequence[str]) -> Change:
    """The campaign in simulation, by the nearest research stack if its own is the kernel's.

    Raises:
        CampaignError: it cannot be simulated.
    """
    make = _loader(file, overrides, Backend.SIM)
    try:
        make(None)
        return Change("sim", "simulated", make)
    except CampaignError as problem:
        values = sections.for_backend(read_named(file), Backend.SIM).values
        stack = str(values.get("stack", "reno"))
        near = nearest_in_simulation(stack)
        if near == stack or any(text.startswith("stack=") for text in overrides):
            raise
        make = _loader(file, overrides, Backend.SIM, f"stack={near}")
        try:
            make(None)
        except CampaignError:
            raise problem from None
        return Change("sim", f"simulated, with stack {near} instead of {stack}", make)


def changes(file: Path, overrides: Sequence[str], plan: Plan, perturbations: int) -> Iterator[Change]:
    """What should not matter.

    Args:
        file: of the campaign.
        overrides: FIELD=VALUE texts of the command line.
        plan: of the original.
        perturbations: number of perturbed copies.
    """
    # With what chose the backend, and the stack that it has.
    kept = [f"{field}={value}" for field, value in plan.overrides.items() if field != "backend"]
    same = _loader(file, kept, plan.backend)
    seed = plan.seed + 1

    def seeds(repetitions: int | None) -> Plan:
        other = _loader(file, kept, plan.backend, f"seed={seed}")(repetitions)
        return replace(other, name=f"{other.name}-seeds")

    yield Change("seeds", f"other seeds: seed {seed} instead of {plan.seed}", seeds)
    yield Change("half", "half of the measured time", lambda repetitions: halved_plan(same(repetitions)))

    def perturbed(number: int) -> Make:
        return lambda repetitions: perturbed_plan(same(repetitions), number, BY)

    for number in range(1, perturbations + 1):
        what = f"every rate, delay and buffer off by up to {BY:.1%}"
        yield Change(f"perturbed {number}", what, perturbed(number))
    if plan.backend is not Backend.SIM:
        try:
            yield _simulated(file, overrides)
        except CampaignError as error:
            yield _impossible("sim", "simulated", error)
    if plan.backend is not Backend.VIRTUAL_KERNEL:
        yield Change(
            "virtual-kernel", "Linux in virtual time over the emulator", _real(file, overrides, Backend.VIRTUAL_KERNEL)
        )
    for shaper, words in (("htb", "HTB"), ("netem", "netem")):
        yield Change(
            shaper,
            f"Linux in virtual time with its own {words} instead of the emulator",
            _real(file, overrides, Backend.VIRTUAL_KERNEL, *_shaped(file, f"{{kind: kernel, shaper: {shaper}}}")),
        )
    if plan.backend is not Backend.EMULATED:
        yield Change("emulated", "this machine's kernel in real time", _emulated(file, overrides))


def _shaped(file: Path, kind: str) -> list[str]:
    """Overrides that give a kind to the topology's link, or to every listed link that has none."""
    network = sections.for_backend(read_named(file), Backend.VIRTUAL_KERNEL).values["network"]
    if "links" not in network:
        return [f"network.link={kind}"]
    plain = [number for number, link in enumerate(network["links"]) if not {"kind", "profile"} & link.keys()]
    return [f"network.links.{number}.kind={kind}" for number in plain]


def _impossible(name: str, what: str, problem: CampaignError) -> Change:
    def make(repetitions: int | None) -> Plan:
        raise problem

    return Change(name, what, make)


def _real(file: Path, overrides: Sequence[str], backend: str, *more: str) -> Make:
    """With real packets. Counters and left-out telemetry exist in simulation only, and change no conclusion."""

    def make(repetitions: int | None) -> Plan:
        try:
            return _loader(file, overrides, backend, *more)(repetitions)
        except CampaignError as problem:
            if not all(one.field.startswith("capture.") for one in problem.problems):
                raise
            return _loader(file, overrides, backend, *more, "capture={snaplen: 128 B}")(repetitions)

    return make


def _emulated(file: Path, overrides: Sequence[str]) -> Make:
    make = _real(file, overrides, Backend.EMULATED)

    def checked(repetitions: int | None) -> Plan:
        if missing := capability.missing_for_emulation():
            raise ValueError("; ".join(missing))
        return make(repetitions)

    return checked


def named(candidates: Sequence[Change], only: Sequence[str]) -> list[Change]:
    """The changes of these names, such as `perturbed`; all without any.

    Raises:
        ValueError: unknown change.
    """
    names = dict.fromkeys(change.name.partition(" ")[0] for change in candidates)
    for name in only:
        if name not in names:
            raise ValueError(f"unknown change '{name}'; allowed: {', '.join(names)}")
    return [change for change in candidates if not only or change.name.partition(" ")[0] in only]


def planned(change: Change, within_s: float, store: Store | None, jobs: int | None) -> Planned:
    """A change with as many repetitions as its time allows, or why it is left out.

    Args:
        change: what is changed.
        within_s: the longest expected time.
        store: of the results; None: there is none yet.
        jobs: most runs at the same time; None: as many as this machine runs.
    """
    column = Column(change.name, change.what)
    try:
        plan = change.make(None)
        expected_s, missing = _expected(plan, store, jobs)
        fewer = repetitions_within(plan.repetitions, expected_s, within_s)
        if fewer < plan.repetitions:
            if fewer < min(LEAST_REPETITIONS, plan.repetitions):
                return Planned(replace(column, left_out=f"takes about {duration_text(expected_s)}; see --within"))
            plan = change.make(fewer)
            expected_s, missing = _expected(plan, store, jobs)
    except CampaignError as error:
        first, *others = error.problems
        more = f" (and {number_of(len(others), 'other problem')})" if others else ""
        return Planned(replace(column, left_out=f"{first.message}{more}"))
    except (ValueError, Unavailable) as error:
        return Planned(replace(column, left_out=str(error)))
    column = replace(column, campaign=plan.id, backend=plan.backend, runs=len(plan.run_ids))
    return Planned(column, plan, expected_s, missing)


def _expected(plan: Plan, store: Store | None, jobs: int | None) -> tuple[float, int]:
    """Time, in s, and number of a plan's runs without a valid result."""
    valid = store.valid_runs(plan.run_ids) if store is not None else set()
    history = store.history(plan.backend) if store is not None else []
    forecaster = Forecaster(plan.backend, history, os.cpu_count() or 1, jobs, pace.of(plan.backend))
    missing = {run.id: run for run in plan.members if run.id not in valid}
    return forecaster.forecast(plan.runs_of(list(missing.values()))).time_s, len(missing)


def assess(entries: Sequence[Planned], store: Store) -> Doubt:
    """What the runs of all changes say of the conclusions of the first, which is the original.

    Raises:
        AnalysisError: the original has no valid run.
    """

    def results_of(plan: Plan) -> Results:
        points = [dict(point.parameters) for point in plan.points]
        return Results.of_rows(plan.name, points, store.values(plan.id))

    first, *others = entries
    assert first.plan is not None
    row = store.campaign(first.plan.id)
    question = None if row is None else of_stored(store, row)
    if question is None:
        raise AnalysisError("no original run has a valid result, so there is nothing to doubt")
    decided, undecided = conclusions(Asked.of(results_of(first.plan), question))
    columns = []
    for entry in entries:
        column = entry.column
        if entry.plan is not None:
            column = replace(column, valid=len(store.valid_runs(entry.plan.run_ids)))
            if entry is not first:
                results = results_of(entry.plan)
                column = replace(column, cells=tuple(examine(each, question, results) for each in decided))
        columns.append(column)
    return Doubt(question, columns[0], tuple(decided), undecided, tuple(columns[1:]))
