"""The command line. What is slow to import is imported by the command that needs it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from experiments import contrast, exits, exporting, figures
from experiments.engine.governor import TRIES
from experiments.exits import BAD_INPUT as BAD_INPUT
from experiments.exits import FAILED, INTERRUPTED, OK, UNAVAILABLE

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.store import Store
    from experiments.engine.scheduling import Outcome
    from experiments.language.campaign import Plan


#: For the site, until it uses experiments.api.
PREFIX = exits.MESSAGE_PREFIX
EPILOG = (
    "./backchannel also knows 'test' (the test suite) and 'bench' (benchmarks, docs/benchmarks.md).\n\n"
    "Exit status: 0 all is well; 1 a run failed or stayed invalid, or a comparison found something worse; "
    "2 a mistake in a file or on the command line; "
    "3 something is missing on this machine; 130 interrupted."
)

app = typer.Typer(
    name="backchannel",
    help="Experiments on TCP over links that are asymmetric, lossy or half-duplex.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A campaign file (docs/campaigns.md).", show_default=False)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Override a field of the file, such as stack=cubic. Repeatable."),
]
ResultsOption = Annotated[
    str,
    typer.Option(
        "--results",
        metavar="DIR",
        envvar="BACKCHANNEL_RESULTS",
        help="Where results are kept: a folder, or postgresql://user@host/database.",
    ),
]
ArtefactsOption = Annotated[
    str | None,
    typer.Option(
        "--artefacts",
        metavar="URL",
        envvar="BACKCHANNEL_ARTEFACTS",
        show_default=False,
        help="Where files of a PostgreSQL store are kept: any fsspec URL.",
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        max=1024,
        show_default=False,
        help="Runs at a time; without it, as many as this machine serves in time, found by measuring.",
    ),
]
TriesOption = Annotated[
    int,
    typer.Option(
        "--tries",
        metavar="N",
        min=1,
        max=100,
        envvar="BACKCHANNEL_TRIES",
        help="Tries of a run with real packets until it is valid; more on a machine whose own host is busy.",
    ),
]
WhatArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PAPER|ARTEFACT]...", help="Such as aq, or aq-fig4 ton-table2; all without it.", show_default=False
    ),
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="WHICH",
        show_default=False,
        help="Only runs with a value of a swept field (queue.policy=droptail), repetition=2, or an id. Repeatable.",
    ),
]
LimitOption = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="At most N runs.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of text.")]
RetryFailedOption = Annotated[
    bool, typer.Option("--retry-failed", help="Only runs that were tried and have no valid result.")
]
OrderOption = Annotated[
    str, typer.Option("--order", metavar="ORDER", help="shuffled: drawn from the seed; file: as written.")
]
BackendOption = Annotated[
    str | None, typer.Option("--backend", metavar="NAME", show_default=False, help="As --set backend=NAME.")
]
RESULTS = "results"


def _version(wanted: bool) -> None:
    if wanted:
        from experiments.engine import machine

        typer.echo(f"backchannel {machine.version()}")
        raise typer.Exit


@app.command(short_help="Run a campaign, as far as it was not run")
def run(
    file: FileArgument,
    overrides: SetOption = None,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
    jobs: JobsOption = None,
    tries: TriesOption = TRIES,
    only: OnlyOption = None,
    limit: LimitOption = None,
    force: Annotated[bool, typer.Option("--force", help="Run again what the results folder already has.")] = False,
    retry_failed: RetryFailedOption = False,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="End with the first run that stays without a valid result.")
    ] = False,
    order: OrderOption = "shuffled",
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler", metavar="ADDRESS", show_default=False,
            help="A Dask scheduler, such as tcp://host:8786; 'local': a cluster of this machine; 'none': no cluster.",
        ),
    ] = None,
    backend: BackendOption = None,
    inventory: Annotated[
        Path | None,
        typer.Option(
            "--inventory", "-i", metavar="FILE", show_default=False,
            help="The lab's inventory, for the physical backend (docs/physical.md).",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Run a campaign: every run that the results folder does not have yet."""
    from analysis.store import Store
    from experiments.engine.scheduling import Options, run_campaign
    from experiments.show import Reporter, results_json

    file_order = _in_file_order(order)
    console = _console(stderr=as_json)
    plan = _load(file, _with_backend(overrides, backend))
    options = Options(
        results=_where(results), jobs=jobs, tries=tries, force=force, only=only or (), retry_failed=retry_failed,
        limit=limit, fail_fast=fail_fast, file_order=file_order, scheduler=scheduler, artefacts=artefacts,
        inventory=inventory,
    )  # fmt: skip
    outcome = run_campaign(plan, options, Reporter(console))
    store = Store.open(options.results, artefacts)
    campaign, rows = store.campaign(plan.id), store.table(plan.id)
    assert campaign is not None
    if as_json:
        typer.echo(results_json(campaign, rows))
    else:
        _print_results(console, campaign, rows)
    _print_outcome(console, plan, outcome, store, results)
    if outcome.interrupted:
        raise typer.Exit(INTERRUPTED)
    if outcome.failed:
        raise typer.Exit(FAILED)


def _in_file_order(order: str) -> bool:
    if order not in ("shuffled", "file"):
        _fail(f"--order is 'shuffled' or 'file', not '{order}'", BAD_INPUT)
    return order == "file"


def _with_backend(overrides: list[str] | None, backend: str | None) -> list[str]:
    return [*(overrides or ()), *(() if backend is None else [f"backend={backend}"])]


@app.command(short_help="Show what a campaign would run")
def plan(
    file: FileArgument,
    overrides: SetOption = None,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
    jobs: JobsOption = None,
    only: OnlyOption = None,
    limit: LimitOption = None,
    force: Annotated[bool, typer.Option("--force", help="Count what the results folder has as to be run.")] = False,
    retry_failed: RetryFailedOption = False,
    order: OrderOption = "shuffled",
    backend: BackendOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a campaign would run, what the results folder has of it, and the time and disk it expects."""
    from experiments.engine.forecast import forecast
    from experiments.engine.selection import chosen, ordered, to_make, unique
    from experiments.show import duration_text, point_label
    from testbed.units import show

    file_order = _in_file_order(order)
    planned = _load(file, _with_backend(overrides, backend))
    wanted = unique(chosen(planned, only or ()))
    store = _open_if_there(results, artefacts)
    try:
        done = store.valid_runs([run.id for run in planned.runs]) if store is not None else set()
        if store is not None:
            wanted = to_make(wanted, set() if force else done, store.tried_runs if retry_failed else None)
        elif retry_failed:
            wanted = []  # nothing was tried
        history = store.history(planned.backend) if store is not None else []
    finally:
        if store is not None:
            store.close()
    to_do = ordered(wanted, None if file_order else planned.seed)[:limit]
    expected = forecast(to_do, history, os.cpu_count() or 1, jobs)
    if as_json:
        position = {run.id: number for number, run in enumerate(to_do)}
        document = {
            "campaign": planned.id,
            "name": planned.name,
            "points": [dict(point.parameters) for point in planned.points],
            "expected": {
                "runs": expected.runs, "time_s": expected.time_s, "disk_bytes": expected.disk_bytes,
                "cells": expected.cells, "based_on_runs": expected.based_on,
            },
            "runs": [
                {
                    "id": one.id,
                    "point": one.point,
                    "repetition": one.repetition,
                    "backend": one.backend,
                    "done": one.id in done,
                    "position": position.get(one.id),
                    "scenario": one.scenario,
                }
                for one in planned.runs
            ],
        }  # fmt: skip
        typer.echo(json.dumps(document, indent=2))
        return
    typer.echo(f"{planned.title}\n")
    ids = {run.id for run in to_do}
    for number, point in enumerate(planned.points):
        runs = [run for run in planned.runs if planned.points[run.point] is point]
        have = sum(run.id in done for run in runs)
        todo = sum(run.id in ids for run in runs)
        typer.echo(
            f"  {number + 1:3}  {have}/{len(runs)} done, {todo} to run  {point_label(point.parameters)}".rstrip()
        )
    # Virtual time passes as fast as the simulator goes.
    passing = "of virtual time" if planned.backend == "sim" else "one after another"
    typer.echo(
        f"\n{len(planned.points)} points, {len(planned.runs)} runs on the {planned.backend} backend, "
        f"{show(planned.duration_s, 'time')} {passing}"
    )
    missing = {one.id: float(one.scenario["duration_s"]) for one in to_do}
    typer.echo(
        f"{results} has {sum(run.id in done for run in planned.runs)} of them; "
        f"to be run: {len(missing)}, {show(sum(missing.values()), 'time')} {passing}"
    )
    if expected.runs:
        source = (
            f"as {expected.based_on} runs in {results} say" if expected.based_on else "from what the links can carry"
        )
        typer.echo(
            f"expected: about {duration_text(expected.time_s)} with {expected.cells} at a time, "
            f"{show(expected.disk_bytes, 'bytes')} of disk ({source}){_room(results, expected.disk_bytes)}"
        )


@app.command(short_help="Check campaign files")
def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Campaign files.", show_default=False)],
    overrides: SetOption = None,
) -> None:
    """Check campaign files; every mistake is told with file, line and field, and so are emulation's known traps."""
    from experiments.language import source, traps
    from experiments.language.campaign import expand
    from experiments.language.problems import CampaignError

    bad = False
    for file in files:
        try:
            read = source.read(file)
            planned = expand(read, overrides or ())
        except CampaignError as error:
            bad = True
            typer.echo(str(error), err=True)
        else:
            found = traps.warnings(planned, read)
            for line in found:
                typer.echo(line)
            told = f", {len(found)} warning{'s' if len(found) > 1 else ''}" if found else ""
            typer.echo(f"{file}: good, {len(planned.runs)} runs{told}")
    if bad:
        raise typer.Exit(BAD_INPUT)


@app.command("list", short_help="Show what exists")
def list_(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="stacks, policies, links, profiles, error-models, middleboxes, workloads, backends, topologies.",
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Show what exists, with its options and source."""
    from rich.table import Table

    from experiments.language import registry

    kinds = {word: kind for kind, word in registry.KINDS.items()}
    if what and what not in kinds:
        _fail(registry.unknown("list", what, kinds), BAD_INPUT)
    chosen = [kinds[what]] if what else list(registry.KINDS)
    if as_json:
        typer.echo(json.dumps([entry.as_dict() for kind in chosen for entry in registry.of_kind(kind)], indent=2))
        return
    console = _console()
    for kind in chosen:
        table = Table(
            show_edge=False,
            pad_edge=False,
            box=None,
            title=registry.KINDS[kind],
            title_justify="left",
            title_style="bold",
        )
        for column in ("name", "what it is", "options", "source"):
            table.add_column(column, header_style="dim", overflow="fold")
        for entry in registry.of_kind(kind):
            options = ", ".join(param.short for param in entry.params)
            table.add_row(entry.name, entry.summary, options, entry.source)
        console.print(table)
        console.print()
    console.print("asym, ton, pulsed, acq and aq are the five papers: docs/papers.md", style="dim", highlight=False)


@app.command("show", short_help="Show one thing that exists, with its options")
def show_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of a stack, policy, link, ...", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Show one thing that exists, with every option: its unit, default and range."""
    from experiments.language import registry

    found = [entry for entry in registry.entries() if entry.name == name]
    if not found:
        _fail(registry.unknown("thing called", name, dict.fromkeys(one.name for one in registry.entries())), BAD_INPUT)
    if as_json:
        typer.echo(json.dumps([entry.as_dict() for entry in found], indent=2))
        return
    for entry in found:
        typer.echo(f"{entry.kind} {entry.name}: {entry.summary}")
        typer.echo(f"  source: {entry.source}")
        if entry.backends:
            typer.echo(f"  backends: {', '.join(entry.backends)}")
        for param in entry.params:
            typer.echo(f"  {param.short} ({param.allowed()}): {param.help}")
        if entry.spec:
            typer.echo(json.dumps(entry.spec, indent=2))


@app.command()
def results(
    name: Annotated[str, typer.Argument(metavar="CAMPAIGN", help="Name or id of a campaign; all without it.")] = "",
    folder: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the results of campaigns that were run."""
    from analysis.store import Store
    from experiments.language import registry
    from experiments.show import results_json

    store = Store.open(_where(folder), artefacts)
    known = store.campaigns()
    if not name:
        if as_json:
            typer.echo(
                json.dumps(
                    [{key: one[key] for key in ("id", "name", "title", "state", "runs", "valid")} for one in known],
                    indent=2,
                )
            )
        for one in [] if as_json else known:
            typer.echo(
                f"{one['id']}  {one['name']}  {one['valid']}/{one['runs']} valid  {one['state']}  {one['title']}"
            )
        return
    found = [one for one in known if name in (one["id"], one["name"])]
    if not found:
        _fail(registry.unknown("campaign", name, dict.fromkeys(one["name"] for one in known)), BAD_INPUT)
    campaign = store.campaign(found[0]["id"])
    assert campaign is not None
    rows = store.table(campaign["id"])
    if as_json:
        typer.echo(results_json(campaign, rows))
    else:
        _print_results(_console(), campaign, rows)


ReproducingBackendOption = Annotated[
    str | None, typer.Option("--backend", metavar="BACKEND", help="sim or emulated; the file's own without it.")
]


@app.command(short_help="Run the papers' tables, figures and claims")
def reproduce(
    what: WhatArgument = None,
    backend: ReproducingBackendOption = None,
    results: ResultsOption = RESULTS,
    jobs: JobsOption = None,
    tries: TriesOption = TRIES,
    force: Annotated[bool, typer.Option("--force", help="Run again what the results folder already has.")] = False,
    limit: LimitOption = None,
    plan_only: Annotated[bool, typer.Option("--plan", help="Run nothing: print what would run and how long.")] = False,
) -> None:
    """Run the papers' tables, figures and claims, as far as the results folder lacks them, and print their score. On
    another backend than a file's own: those whose files have fields for it.
    """
    from analysis.store import Store
    from experiments.catalogue import select_reproductions
    from experiments.engine.scheduling import Options
    from experiments.reproduce import reproduce as run_all
    from experiments.show import Reporter, score_table

    try:
        ones = select_reproductions(what or (), backend=backend)
    except ValueError as error:
        _fail(str(error), BAD_INPUT)
    if plan_only:
        _print_expected(ones, backend, results, jobs, force, limit)
        return
    console = _console()
    done = run_all(ones, backend, Options(results, jobs, force, limit=limit, tries=tries), Reporter(console))
    for one in done:
        if one.refused:
            console.print(f"{one.reproduction.artefact}: not run: {one.refused}", style="yellow", highlight=False)
    ran = {one.reproduction.artefact for one in done}
    store = Store.open(results)
    console.print(score_table([one for one in _scorecard(store) if one.id in ran], details=True), soft_wrap=True)
    outcomes = [one.outcome for one in done if one.outcome is not None]
    if any(outcome.interrupted for outcome in outcomes):
        raise typer.Exit(INTERRUPTED)
    if any(outcome.failed for outcome in outcomes):
        raise typer.Exit(FAILED)


def _print_expected(
    ones: Any, backend: str | None, results: str, jobs: int | None, force: bool, limit: int | None
) -> None:
    from experiments.reproduce import expected
    from experiments.show import duration_text

    store = _open_if_there(results, None)
    try:
        table, whole_s = expected(ones, backend, store, os.cpu_count() or 1, jobs, force, limit)
    finally:
        if store is not None:
            store.close()
    width = max(len(one.artefact) for one in table)
    for one in table:
        if one.refused:
            typer.echo(f"{one.artefact.ljust(width)}  not run: {one.refused}")
        else:
            typer.echo(
                f"{one.artefact.ljust(width)}  {one.points:3} points, {one.repetitions:3} repetitions, "
                f"{one.to_run:4} of {one.runs:4} runs to run, {duration_text(one.time_s)} with {one.cells} at a time"
            )
    typer.echo(f"{sum(one.to_run for one in table)} runs, about {duration_text(whole_s)} as one batch")


@app.command(short_help="Hold results against what papers published")
def score(
    what: WhatArgument = None,
    details: Annotated[
        bool, typer.Option("--details", help="Every value and ordering; always shown for one artefact.")
    ] = False,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Hold the results against what the papers published: values within tolerance, orderings that hold, the whole
    count.
    """
    from analysis.scorecard import document
    from analysis.store import Store
    from experiments.catalogue import select_named
    from experiments.show import score_table

    everything = _scorecard(Store.open(results))
    try:
        found = select_named(everything, what or (), lambda one: (one.paper, one.id), "paper or artefact")
    except ValueError as error:
        _fail(str(error), BAD_INPUT)
    if as_json:
        typer.echo(json.dumps(document(found), indent=2))
    else:
        _console().print(score_table(found, details or len(found) == 1), soft_wrap=True)


def _scorecard(store: Any) -> list[Any]:
    from analysis.scorecard import scorecard
    from experiments.catalogue import FOLDER

    return scorecard(store, FOLDER)


@app.command(short_help="Hold one campaign against another")
def compare(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A", help="A campaign: NAME, FOLDER, or FOLDER:NAME, each with @DATE if needed.", show_default=False
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="What is held against it.", show_default=False)],
    folder: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
    confidence: Annotated[
        float, typer.Option("--confidence", min=0.5, max=0.9999, help="Of the intervals and verdicts.")
    ] = 0.95,
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0.0, help="Share of A's mean below which a difference is none.")
    ] = 0.01,
    metrics: Annotated[
        list[str] | None, typer.Option("--metric", help="Only this metric. Repeatable.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show what is the same, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Hold campaign B against A: differences with confidence intervals. Status 1 when something is worse."""
    from analysis import comparison
    from analysis.metrics import METRICS
    from experiments.language import registry
    from experiments.show import comparison_table

    for metric in metrics or ():
        if metric not in METRICS:
            _fail(registry.unknown("metric", metric, METRICS), BAD_INPUT)
    try:
        in_a, in_b = (comparison.load(one, folder, artefacts) for one in (a, b))
        compared = comparison.compare(in_a, in_b, confidence, tolerance, metrics or ())
    except comparison.CompareError as error:
        _fail(str(error), BAD_INPUT)
    if as_json:
        typer.echo(compared.as_json())
    else:
        _console().print(comparison_table(compared, everything))
    if compared.regressions:
        raise typer.Exit(FAILED)


@app.command("import", short_help="Import captures from anywhere")
def import_(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Captures of the same transfers (docs/imports.md).", show_default=False),
    ],
    label: Annotated[
        str, typer.Option("--label", help="What it is called beside other imports; the first file's name without it.")
    ] = "",
    note: Annotated[str, typer.Option("--note", help="A remark to keep with it.")] = "",
    campaign: Annotated[
        str, typer.Option("--campaign", metavar="NAME", help="Imports of one campaign are compared with each other.")
    ] = "imports",
    align: Annotated[
        bool, typer.Option("--align/--no-align", help="Bring the clocks of several captures together.")
    ] = True,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Import captures: what was on a wire somewhere becomes a run, measured and shown like any other."""
    from analysis.store import Store
    from experiments.importing import Request, import_captures, lines
    from experiments.importing import as_json as imported_json

    name = label or files[0].name.partition(".")[0] or files[0].name
    store = Store.open(results)
    imported = import_captures(store, Request(files, name, note, campaign, align))
    run = store.run(imported.run_id)
    assert run is not None
    if as_json:
        typer.echo(imported_json(imported, run))
        return
    for line in lines(imported, run):
        typer.echo(line)
    shown = "" if results == RESULTS else f" --results {results}"
    typer.echo(f"\nNext: ./backchannel serve{shown} shows it with its plots; results {campaign} compares imports.")


@app.command(short_help="Measure emulated links")
def calibrate(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="A campaign whose links to measure; without it, 28.8 kbit/s, 1 Mbit/s and 10 Mbit/s.",
            show_default=False,
        ),
    ] = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure emulated links against what they declare: rate, delay and loss in each direction."""
    from experiments.calibrate import calibrate as measure
    from experiments.calibrate import table

    planned = _load(file, overrides) if file is not None else None
    measured = measure(planned)
    if as_json:
        typer.echo(json.dumps(measured, indent=2))
    else:
        _console().print(table(measured))
    if any(one["problems"] for one in measured):
        raise typer.Exit(FAILED)


@app.command(short_help="Run what people ask for on the site")
def runner(
    results: ResultsOption = RESULTS,
    jobs: JobsOption = None,
    tries: TriesOption = TRIES,
    once: Annotated[bool, typer.Option("--once", help="End when nothing waits any more.")] = False,
) -> None:
    """Run what people ask for on the site, until interrupted; the site itself runs nothing."""
    from experiments.engine.runner import Runner

    if Runner(_where(results), jobs, tries, _console()).serve(once):
        raise typer.Exit(FAILED)


@app.command(short_help="Show results in a browser")
def serve(
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port on the address; 0 takes a free one.")
    ] = 8321,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="A file with the token that visitors must give; $BACKCHANNEL_TOKEN does the same. "
            "Needed on any address that others reach.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="NAME", help="A host name under which the site is reached. Repeatable."),
    ] = None,
) -> None:
    """Show results in a browser, on 127.0.0.1 unless told otherwise."""
    from web.serve import serve as serve_site

    if artefacts:
        # The site opens the store wherever it needs it.
        os.environ["BACKCHANNEL_ARTEFACTS"] = artefacts
    serve_site(_where(results), host, port, token_file, name or [])


@app.command(short_help="Serve as the Dask scheduler of a lab")
def scheduler(
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 8786,
) -> None:
    """Serve as the Dask scheduler of a lab's workers (docs/distributed.md)."""
    from experiments.engine.worker import serve_scheduler

    serve_scheduler(host, port)


@app.command(short_help="Serve a Dask scheduler with this machine")
def worker(
    address: Annotated[str, typer.Argument(metavar="SCHEDULER", help="Such as tcp://host:8786.", show_default=False)],
    host: Annotated[
        str | None, typer.Option("--host", help="Own address that the others reach.", show_default=False)
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="For people.", show_default=False)] = None,
) -> None:
    """Serve a Dask scheduler: run what campaigns give this machine (docs/distributed.md)."""
    from experiments.engine.worker import serve_worker

    serve_worker(address, host, name)


app.command(short_help="Draw a figure for print")(figures.plot)
app.command(short_help="Write results for other programs")(exporting.export)
app.command(short_help="Hold a swept field's values against one of them")(contrast.contrast)
app.command("import-bundle", short_help="Bring in a bundled campaign")(exporting.import_bundle)
InventoryOption = Annotated[
    Path,
    typer.Option("--inventory", "-i", metavar="FILE", help="A lab's inventory (docs/physical.md).", show_default=False),
]
TopologyOption = Annotated[
    Path | None,
    typer.Option(
        "--campaign", metavar="FILE", help="Whose topology is set up; without it, the inventory's.", show_default=False
    ),
]


@app.command(
    "testbed", context_settings={"ignore_unknown_options": True}, short_help="Make hosts a testbed, check it, undo it"
)
def on_testbed(
    playbook: Annotated[
        str, typer.Argument(metavar="site|check|collect|teardown", help="What to do.", show_default=False)
    ],
    inventory: InventoryOption,
    campaign: TopologyOption = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ANSIBLE...]", help="For ansible-playbook, such as --check --diff.")
    ] = None,
) -> None:
    """Make a testbed of hosts with Ansible, check it, collect its logs, or take it away."""
    from experiments import lab
    from experiments.language import registry

    if playbook not in lab.PLAYBOOKS:
        _fail(registry.unknown("playbook", playbook, lab.PLAYBOOKS), BAD_INPUT)
    if lab.playbook(playbook, inventory, campaign, arguments or []) != 0:
        raise typer.Exit(FAILED)


@app.command("lab", context_settings={"ignore_unknown_options": True}, short_help="Rehearse a lab in namespaces")
def in_lab(
    inventory: InventoryOption,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What to run.", show_default=False)],
    campaign: TopologyOption = None,
    machines: Annotated[
        bool, typer.Option("--vm", help="Hosts are virtual machines with kernels of their own (docs/physical.md).")
    ] = False,
) -> None:
    """Rehearse a lab: its hosts as namespaces of a cell, for as long as a command runs."""
    from experiments import lab
    from testbed.capability import require_emulation

    require_emulation()
    sys.exit(lab.rehearse(inventory, campaign, command, machines))


@app.callback()
def before_any_command(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and the commit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Experiments on TCP over links that are asymmetric, lossy or half-duplex."""


def main() -> NoReturn:
    """Runs a command; whatever a person can cause ends in one sentence and a status."""
    from agents.errors import AgentError
    from experiments.language.problems import CampaignError, ImportProblem
    from testbed.errors import TestbedError, Unavailable

    try:
        app(standalone_mode=True, prog_name="backchannel")
    except (CampaignError, ImportProblem) as error:
        _fail(str(error), BAD_INPUT)
    except Unavailable as error:
        _fail(str(error), UNAVAILABLE)
    except (TestbedError, AgentError) as error:
        _fail(str(error), FAILED)
    except KeyboardInterrupt:
        _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        sys.exit(OK)
    except Exception as error:
        from analysis.errors import AnalysisError
        from analysis.store import StoreError

        if isinstance(error, AnalysisError):
            _fail(str(error), BAD_INPUT)
        if isinstance(error, StoreError):
            _fail(str(error), FAILED)
        raise
    sys.exit(OK)


def _load(file: Path, overrides: list[str] | None) -> Plan:
    from experiments.language.campaign import load

    return load(file, overrides or ())


def _where(results: str) -> Path | str:
    from analysis.store import is_url

    return results if is_url(results) else Path(results)


def _room(results: str, wanted_bytes: float) -> str:
    """A warning where a results folder's disk has less room than that."""
    where = _where(results)
    if not isinstance(where, Path):
        return ""
    from testbed.units import show

    there = next(one for one in (where.absolute(), *where.absolute().parents) if one.exists())
    free = shutil.disk_usage(there).free
    return f"; only {show(free, 'bytes')} are free there" if free < wanted_bytes else ""


def _open_if_there(results: str, artefacts: str | None) -> Store | None:
    """The store, or None for a folder that holds none: reading makes nothing."""
    from analysis.store import Store

    where = _where(results)
    if isinstance(where, Path) and not (where / "results.sqlite").is_file():
        return None
    return Store.open(where, artefacts)


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, soft_wrap=False)


def _print_results(console: Console, campaign: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    from analysis.metrics import METRICS
    from experiments.show import results_table

    console.print(f"\n{campaign['title']}", style="bold", highlight=False)
    titles = {name: metric.title for name, metric in METRICS.items()}
    console.print(results_table(campaign["points"], rows, titles))
    console.print("mean ± standard deviation over the valid runs", style="dim", highlight=False)


def _print_outcome(console: Console, plan: Plan, outcome: Outcome, store: Store, results: str) -> None:
    from experiments.show import run_label
    from testbed import fidelity

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    cells = f", {outcome.cells} at a time" if outcome.cells > 1 else ""
    say(
        f"\n{outcome.landed} runs made{cells}, {outcome.reused} taken from {store.where}, "
        f"{len(outcome.failed)} without a valid result"
    )
    by_id = {run.id: run for run in reversed(plan.runs)}
    wider = {"; ".join(fidelity.wider(run.scenario)) for run in plan.runs} - {""}
    for told in sorted(wider):
        say(f"valid here means by limits wider than usual: {told}")
    for run_id, why in outcome.failed.items():
        first, _, more = why.partition("; ")
        also = f" (and {more.count('; ') + 1} more)" if more else ""
        kept = store.failed_folder(run_id)
        # A run that took its workers with it left nothing anywhere.
        captured = f"; its captures: {store.where}, run {run_id}" if store.run_ids(run_id) else ""
        told = f"; what it left: {kept}" if kept else captured
        say(f"  {run_label(plan, by_id[run_id])}: {first}{also}{told}")
    if outcome.failed:
        say("--retry-failed makes only these again.")
    if outcome.left_out:
        say(f"{outcome.left_out} runs of the campaign are still to be made.")
    if outcome.ended_early:
        say("Ended with the first run that has no valid result; the same command goes on where this one stopped.")
    if outcome.interrupted:
        say("Interrupted; the same command goes on where this one stopped.")
    shown = "" if results == RESULTS else f" --results {results}"
    say(
        f"Next: ./backchannel serve{shown} shows every run with its plots; "
        f"./backchannel results {plan.name}{shown} --json is for scripts."
    )


def _fail(message: str, status: int) -> NoReturn:
    typer.echo(
        f"{PREFIX}{message}" if "\n" not in message and ":" not in message.split(" ")[0] else message,
        err=True,
    )
    sys.exit(status)
