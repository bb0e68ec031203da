"""`doubt`: whether a campaign's conclusions are artefacts of the tool."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.question import Asked, of_stored
from analysis.results import Results
from experiments import exits
from experiments.catalogue import read_named
from experiments.commands.answer import Answer
from experiments.commands.options import (
    RESULTS,
    ArtefactsOption,
    FileArgument,
    JobsOption,
    ResultsOption,
    SetOption,
    TriesOption,
)
from experiments.commands.shared import console, fail, load_plan, open_existing, results_option, store_location
from experiments.engine import pace
from experiments.engine.forecast import Forecaster
from experiments.engine.options import TRIES, Options
from experiments.labels import duration_text
from experiments.language import source
from experiments.language.backends import Backend
from experiments.language.checks import nearest_in_simulation
from experiments.language.problems import CampaignError
from testbed import capability, units
from testbed.errors import Unavailable
from testbed.units import number_of

if TYPE_CHECKING:
    from experiments.commands import documents
    from experiments.language.campaign import Plan
    from experiments.papers.doubt import Column, Doubt

#: Greatest relative change of rates, delays and buffers in the perturbed copies.
BY = 0.001
#: Fewer repetitions than these say too little to be worth a backend's time.
LEAST_REPETITIONS = 3
#: Makes a plan with so many repetitions; None: as the file says. CampaignError, ValueError: there is none, and why.
Make = Callable[[int | None], "Plan"]

ChangeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="CHANGE", show_default=False,
        help="Make this change only: seeds, half, perturbed, sim, virtual-kernel, htb, netem or emulated. Repeatable.",
    ),
]  # fmt: skip
WithinOption = Annotated[
    str,
    typer.Option(
        "--within", metavar="TIME",
        help="Longest expected time of a change. One that takes longer has fewer repetitions, or is left out.",
    ),
]  # fmt: skip


@dataclass(frozen=True)
class _Change:
    """Something that should not matter."""

    name: str
    what: str
    make: Make


@dataclass
class _Planned:
    """A change with its plan, or why there is none."""

    column: Column
    plan: Plan | None = None
    expected_s: float = 0.0
    missing: int = 0


def doubt(
    file: FileArgument,
    overrides: SetOption = None,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend", metavar="NAME", show_default=False,
            help="Backend of the original runs. Default: the file's, or sim; virtual-kernel where the file cannot be "
            "simulated.",
        ),
    ] = None,
    only: ChangeOption = None,
    perturbations: Annotated[
        int, typer.Option("--perturbations", "-n", min=0, max=100, help="Number of perturbed copies.")
    ] = 2,
    within: WithinOption = "10 min",
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Run nothing; print the changes, their runs and the expected time.")
    ] = False,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
    jobs: JobsOption = None,
    tries: TriesOption = TRIES,
) -> Answer[documents.Doubt | Sequence[documents.PlannedChange]]:  # fmt: skip
    """Repeat a campaign's conclusions with other seeds, half of the duration, lines that are 0.1 % off, and on other
    backends, and say which survive (docs/campaigns.md#doubt). Exit status 1 when one flips.
    """
    from experiments.papers.tables import doubt_table

    try:
        within_s = float(units.parse(within, "time"))
    except ValueError as error:
        fail(f"--within: {error}", exits.BAD_INPUT)
    original = _original(file, list(overrides or ()), backend)
    changes = _chosen(list(_changes(file, list(overrides or ()), original.make(None), perturbations)), only)
    planned = [_plan(change, within_s, results, artefacts, jobs) for change in (original, *changes)]
    if planned[0].plan is None:
        fail(f"the original runs: {planned[0].column.left_out}", exits.BAD_INPUT)
    if plan_only:
        return Answer([_planned_document(entry) for entry in planned], lambda: _print_plan(planned, to_stderr=False))
    _print_plan(planned, to_stderr=True)
    options = Options(store_location(results), jobs=jobs, tries=tries, artefacts=artefacts)
    assessment = _assess(_run(planned, options), options)
    return Answer(
        assessment.as_json(), lambda: console().print(doubt_table(assessment, results_option(results))),
        exits.FAILED if assessment.flips else exits.OK,
    )  # fmt: skip


# What is changed ---------------------------------------------------------------------------------------------


def _loader(file: Path, overrides: Sequence[str], backend: str, *more: str) -> Make:
    def make(repetitions: int | None) -> Plan:
        fewer = () if repetitions is None else (f"repetitions={repetitions}",)
        return load_plan(file, [*overrides, *more, *fewer], backend)

    return make


def _original(file: Path, overrides: Sequence[str], backend: str | None) -> _Change:
    """The campaign as its file says, where it says a backend; in simulation otherwise, if that is possible."""
    stated = read_named(file).values.get("backend")
    if backend is not None or isinstance(stated, str):
        return _Change("original", "as the file says", _loader(file, overrides, backend or str(stated)))
    try:
        return replace(_simulated(file, overrides), name="original")
    except CampaignError as problem:
        try:
            make = _loader(file, overrides, Backend.VIRTUAL_KERNEL)
            make(None)
        except CampaignError:
            raise problem from None
        return _Change("original", "on Linux in virtual time", make)


def _simulated(file: Path, overrides: Sequence[str]) -> _Change:
    """The campaign in simulation, by the nearest research stack if its own is the kernel's.

    Raises:
        CampaignError: it cannot be simulated.
    """
    try:
        load_plan(file, overrides, Backend.SIM)
        return _Change("sim", "simulated", _loader(file, overrides, Backend.SIM))
    except CampaignError as problem:
        values = source.for_backend(read_named(file), Backend.SIM, list(Backend)).values
        stack = str(values.get("stack", "reno"))
        near = nearest_in_simulation(stack)
        if near == stack or any(text.startswith("stack=") for text in overrides):
            raise
        make = _loader(file, overrides, Backend.SIM, f"stack={near}")
        try:
            make(None)
        except CampaignError:
            raise problem from None
        return _Change("sim", f"simulated, by stack {near} in the place of {stack}", make)


def _changes(file: Path, overrides: Sequence[str], original: Plan, perturbations: int) -> Iterator[_Change]:
    from experiments.papers.doubt import halved_plan
    from experiments.papers.sensitivity import perturbed_plan

    # With what chose the backend, and the stack that it has.
    kept = [f"{field}={value}" for field, value in original.overrides.items() if field != "backend"]
    same = _loader(file, kept, original.backend)
    seed = original.seed + 1

    def seeds(repetitions: int | None) -> Plan:
        plan = _loader(file, kept, original.backend, f"seed={seed}")(repetitions)
        return replace(plan, name=f"{plan.name}-seeds")

    yield _Change("seeds", f"other seeds: seed {seed} in the place of {original.seed}", seeds)
    yield _Change("half", "half of the measured time", lambda repetitions: halved_plan(same(repetitions)))

    def perturbed(number: int) -> Make:
        return lambda repetitions: perturbed_plan(same(repetitions), number, BY)

    for number in range(1, perturbations + 1):
        what = f"every rate, delay and buffer off by up to {BY:.1%}"
        yield _Change(f"perturbed {number}", what, perturbed(number))
    if original.backend is not Backend.SIM:
        try:
            yield _simulated(file, overrides)
        except CampaignError as error:
            yield _impossible("sim", "simulated", error)
    if original.backend is not Backend.VIRTUAL_KERNEL:
        yield _Change(
            "virtual-kernel", "Linux in virtual time over the emulator",
            _real(file, overrides, Backend.VIRTUAL_KERNEL),
        )  # fmt: skip
    for shaper, words in (("htb", "HTB"), ("netem", "netem")):
        link = f"network.link={{kind: kernel, shaper: {shaper}}}"
        yield _Change(
            shaper, f"Linux in virtual time with its own {words} in the place of the emulator",
            _real(file, overrides, Backend.VIRTUAL_KERNEL, link),
        )  # fmt: skip
    if original.backend is not Backend.EMULATED:
        yield _Change("emulated", "this machine's kernel in real time", _emulated(file, overrides))


def _impossible(name: str, what: str, problem: CampaignError) -> _Change:
    def make(repetitions: int | None) -> Plan:
        raise problem

    return _Change(name, what, make)


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


def _chosen(changes: Sequence[_Change], only: Sequence[str] | None) -> list[_Change]:
    known = dict.fromkeys(change.name.partition(" ")[0] for change in changes)
    for name in only or ():
        if name not in known:
            fail(f"--only: unknown change '{name}'; allowed: {', '.join(known)}", exits.BAD_INPUT)
    return [change for change in changes if not only or change.name.partition(" ")[0] in only]


# What it costs -----------------------------------------------------------------------------------------------


def _plan(change: _Change, within_s: float, results: str, artefacts: str | None, jobs: int | None) -> _Planned:
    from experiments.papers.doubt import Column, repetitions_within

    column = Column(change.name, change.what)
    try:
        plan = change.make(None)
        forecaster, valid = _forecaster(plan, results, artefacts, jobs)
        expected_s, missing = _expected_s(plan, forecaster, valid)
        fewer = repetitions_within(plan.repetitions, expected_s, within_s)
        if fewer < plan.repetitions:
            if fewer < min(LEAST_REPETITIONS, plan.repetitions):
                return _Planned(replace(column, left_out=f"takes about {duration_text(expected_s)}; see --within"))
            plan = change.make(fewer)
            forecaster, valid = _forecaster(plan, results, artefacts, jobs)
            expected_s, missing = _expected_s(plan, forecaster, valid)
    except CampaignError as error:
        first, *others = error.problems
        more = f" (and {number_of(len(others), 'other problem')})" if others else ""
        return _Planned(replace(column, left_out=f"{first.message}{more}"))
    except (ValueError, Unavailable) as error:
        return _Planned(replace(column, left_out=str(error)))
    column = replace(column, campaign=plan.id, backend=plan.backend, runs=len(plan.run_ids))
    return _Planned(column, plan, expected_s, missing)


def _forecaster(plan: Plan, results: str, artefacts: str | None, jobs: int | None) -> tuple[Forecaster, set[str]]:
    """Of a plan's backend, with the plan's runs that have a valid result."""
    with open_existing(results, artefacts) as store:
        valid = store.valid_runs(plan.run_ids) if store is not None else set()
        history = store.history(plan.backend) if store is not None else []
    return Forecaster(plan.backend, history, os.cpu_count() or 1, jobs, pace.of(plan.backend)), valid


def _expected_s(plan: Plan, forecaster: Forecaster, valid: set[str]) -> tuple[float, int]:
    missing = {run.id: run for run in plan.runs if run.id not in valid}
    return forecaster.forecast(list(missing.values())).time_s, len(missing)


def _planned_document(entry: _Planned) -> dict[str, object]:
    column = entry.column
    return {
        "name": column.name, "what": column.what, "backend": column.backend, "runs": column.runs,
        "missing": entry.missing, "expected_s": entry.expected_s, "left_out": column.left_out,
    }  # fmt: skip


def _print_plan(planned: Sequence[_Planned], *, to_stderr: bool) -> None:
    total_s = sum(entry.expected_s for entry in planned)
    for entry in planned:
        column = entry.column
        text = f"left out: {column.left_out}"
        if entry.plan is not None:
            text = (
                f"{number_of(column.runs, 'run')} on {column.backend}, {entry.missing} to be made, "
                f"about {duration_text(entry.expected_s)}"
            )
        typer.echo(f"{column.name:16} {column.what}: {text}", err=to_stderr)
    typer.echo(f"expected: about {duration_text(total_s)} in all", err=to_stderr)


# Runs and verdicts -------------------------------------------------------------------------------------------


def _run(planned: Sequence[_Planned], options: Options) -> list[_Planned]:
    """Runs the plans, those of a backend together. A change whose backend is not available is left out."""
    from experiments.engine.scheduling import run_campaigns
    from experiments.terminal import TerminalReporter

    done = list(planned)
    reporter = TerminalReporter(console(stderr=True), quiet=not console(stderr=True).is_terminal)
    for backend in dict.fromkeys(entry.plan.backend for entry in planned if entry.plan is not None):
        plans = [entry.plan for entry in planned if entry.plan is not None and entry.plan.backend == backend]
        try:
            outcomes = run_campaigns(plans, options, reporter)
        except Unavailable as error:
            if planned[0].plan is not None and planned[0].plan.backend == backend:
                raise
            done = [
                _Planned(replace(entry.column, campaign="", left_out=str(error)))
                if entry.plan is not None and entry.plan.backend == backend
                else entry
                for entry in done
            ]
            continue
        if any(outcome.interrupted for outcome in outcomes):
            raise typer.Exit(exits.INTERRUPTED)
    return done


def _assess(planned: Sequence[_Planned], options: Options) -> Doubt:
    from analysis.store import Store
    from experiments.papers.doubt import Doubt, conclusions, examine

    with Store.open(options.results, options.artefacts) as store:

        def results_of(plan: Plan) -> Results:
            points = [dict(point.parameters) for point in plan.points]
            return Results.of_rows(plan.name, points, store.values(plan.id))

        first, *others = planned
        assert first.plan is not None
        row = store.campaign(first.plan.id)
        question = None if row is None else of_stored(store, row)
        if question is None:
            fail("no original run has a valid result, so there is nothing to doubt", exits.FAILED)
        decided, undecided = conclusions(Asked.of(results_of(first.plan), question))
        columns = []
        for entry in planned:
            column = entry.column
            if entry.plan is not None:
                column = replace(column, valid=len(store.valid_runs(entry.plan.run_ids)))
                if entry is not first:
                    results = results_of(entry.plan)
                    column = replace(column, cells=tuple(examine(each, question, results) for each in decided))
            columns.append(column)
    return Doubt(question, columns[0], tuple(decided), undecided, tuple(columns[1:]))
