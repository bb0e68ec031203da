"""The command line. What is slow to import is imported by the command that needs it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from experiments.campaign import Plan

OK, FAILED, BAD_INPUT, UNAVAILABLE, INTERRUPTED = 0, 1, 2, 3, 130

EPILOG = (
    "Exit status: 0 all is well; 1 a run failed or stayed invalid; 2 a mistake in a file or on the command line; "
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
    Path,
    typer.Option("--results", metavar="DIR", envvar="BACKCHANNEL_RESULTS", help="Where results are kept."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of text.")]
RESULTS = Path("results")


@app.command()
def run(
    file: FileArgument,
    overrides: SetOption = None,
    results: ResultsOption = RESULTS,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, max=256, help="Cells at a time; 3 per CPU.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Run again what the results folder already has.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a campaign: every run that the results folder does not have yet."""
    from analysis.store import Store
    from experiments.engine import Options, run_campaign
    from experiments.show import Reporter, results_json

    console = _console(stderr=as_json)
    plan = _load(file, overrides)
    outcome = run_campaign(plan, Options(results, jobs, force), Reporter(console))
    store = Store.open(results)
    campaign, rows = store.campaign(plan.id), store.table(plan.id)
    assert campaign is not None
    if as_json:
        typer.echo(results_json(campaign, rows))
    else:
        _print_results(console, campaign, rows)
        _print_outcome(console, plan, outcome, results)
    if outcome.interrupted:
        raise typer.Exit(INTERRUPTED)
    if outcome.failed:
        raise typer.Exit(FAILED)


@app.command()
def plan(
    file: FileArgument, overrides: SetOption = None, results: ResultsOption = RESULTS, as_json: JsonOption = False
) -> None:
    """Show what a campaign would run and what the results folder has of it, without running it."""
    from experiments.show import point_label
    from experiments.units import show

    planned = _load(file, overrides)
    done = _valid_runs(planned, results)
    if as_json:
        document = {
            "campaign": planned.id,
            "name": planned.name,
            "points": [dict(point.parameters) for point in planned.points],
            "runs": [
                {
                    "id": one.id,
                    "point": one.point,
                    "repetition": one.repetition,
                    "backend": one.backend,
                    "done": one.id in done,
                    "scenario": one.scenario,
                }
                for one in planned.runs
            ],
        }
        typer.echo(json.dumps(document, indent=2))
        return
    typer.echo(f"{planned.title}\n")
    for point in planned.points:
        typer.echo(f"  {point_label(point.parameters) or 'one point'}")
    typer.echo(
        f"\n{len(planned.points)} points, {len(planned.runs)} runs on the {planned.backend} backend, "
        f"{show(planned.duration_s, 'time')} one after another"
    )
    missing = {one.id: float(one.scenario["duration_s"]) for one in planned.runs if one.id not in done}
    typer.echo(
        f"{results} has {len(planned.runs) - sum(one.id in missing for one in planned.runs)} of them; "
        f"to be run: {len(missing)}, {show(sum(missing.values()), 'time')} one after another"
    )


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Campaign files.", show_default=False)],
) -> None:
    """Check campaign files; every mistake is told with file, line and field."""
    from experiments.campaign import load
    from experiments.problems import CampaignError

    bad = False
    for file in files:
        try:
            planned = load(file)
        except CampaignError as error:
            bad = True
            typer.echo(str(error), err=True)
        else:
            typer.echo(f"{file}: good, {len(planned.runs)} runs")
    if bad:
        raise typer.Exit(BAD_INPUT)


@app.command("list")
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

    from experiments import registry

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


@app.command("show")
def show_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of a stack, policy, link, ...", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Show one thing that exists, with every option: its unit, default and range."""
    from experiments import registry

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
    as_json: JsonOption = False,
) -> None:
    """Show the results of campaigns that were run."""
    from analysis.store import Store
    from experiments import registry
    from experiments.show import results_json

    store = Store.open(folder)
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


@app.command()
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


@app.command()
def serve(
    results: ResultsOption = RESULTS,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = 8321,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Show results in a browser."""
    from web.serve import serve as serve_site

    serve_site(results, host, port)


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


@app.command("testbed", context_settings={"ignore_unknown_options": True})
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
    from experiments import lab, registry

    if playbook not in lab.PLAYBOOKS:
        _fail(registry.unknown("playbook", playbook, lab.PLAYBOOKS), BAD_INPUT)
    if lab.playbook(playbook, inventory, campaign, arguments or []) != 0:
        raise typer.Exit(FAILED)


@app.command("lab", context_settings={"ignore_unknown_options": True})
def in_lab(
    inventory: InventoryOption,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What to run.", show_default=False)],
    campaign: TopologyOption = None,
) -> None:
    """Rehearse a lab: its hosts as namespaces of a cell, for as long as a command runs."""
    from experiments import lab
    from testbed.capability import require_emulation

    require_emulation()
    sys.exit(lab.rehearse(inventory, campaign, command))


def main() -> NoReturn:
    """Runs a command; whatever a person can cause ends in one sentence and a status."""
    from agents.errors import AgentError
    from experiments.problems import CampaignError
    from testbed.errors import TestbedError, Unavailable

    try:
        app(standalone_mode=True, prog_name="backchannel")
    except CampaignError as error:
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
        from analysis.store import StoreError

        if isinstance(error, StoreError):
            _fail(str(error), FAILED)
        raise
    sys.exit(OK)


def _load(file: Path, overrides: list[str] | None) -> Plan:
    from experiments.campaign import load

    return load(file, overrides or ())


def _valid_runs(plan: Plan, results: Path) -> set[str]:
    """Ids of the plan's runs that the results folder has; a folder that does not exist is not made."""
    if not (results / "results.sqlite").is_file():
        return set()
    from analysis.store import Store

    store = Store.open(results)
    try:
        return store.valid_runs([run.id for run in plan.runs])
    finally:
        store.close()


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


def _print_outcome(console: Console, plan: Plan, outcome: Any, results: Path) -> None:
    console.print(
        f"\n{outcome.landed} runs made, {outcome.reused} taken from {results}, "
        f"{len(outcome.failed)} without a valid result",
        highlight=False,
    )
    if outcome.interrupted:
        console.print("Interrupted; the same command goes on where this one stopped.", highlight=False)
    shown = "" if results == RESULTS else f" --results {results}"
    console.print(
        f"Next: ./backchannel serve{shown} shows every run with its plots; "
        f"./backchannel results {plan.name}{shown} --json is for scripts.",
        highlight=False,
        soft_wrap=True,
    )


def _fail(message: str, status: int) -> NoReturn:
    typer.echo(
        f"backchannel: {message}" if "\n" not in message and ":" not in message.split(" ")[0] else message,
        err=True,
    )
    sys.exit(status)
