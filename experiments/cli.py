"""The command line: the table of commands, and errors as messages with an exit status."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from experiments import exits
from experiments.commands import (
    compare,
    contrast,
    copying,
    export,
    imports,
    inspect,
    kernel,
    papers,
    plot,
    run,
    sensitivity,
    services,
    testbed,
)
from experiments.commands.shared import fail

HELP = (
    "Experiments on TCP over links that are asymmetric, lossy or half-duplex.\n\n"
    "First steps: './backchannel run experiments/quickstart.yaml', then './backchannel serve'. "
    "'./backchannel COMMAND --help' describes a command, docs/tutorial.md explains more."
)
EPILOG = (
    "Development: './backchannel test' runs the test suite, './backchannel bench' benchmarks (docs/benchmarks.md).\n\n"
    "Exit status: 0 success; 1 a run failed or stayed invalid, or a comparison found a regression; "
    "2 an error in a file or on the command line; "
    "3 this machine lacks something; 130 interrupted."
)

app = typer.Typer(
    name="backchannel",
    help=HELP,
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
#: Unknown options of these commands go to Ansible, or to the command that they start.
_PASS_ON = {"ignore_unknown_options": True}

app.command("validate", short_help="Check campaign files for errors")(inspect.validate)
app.command("plan", short_help="Show the runs of a campaign and the expected time")(run.plan)
app.command("run", short_help="Run a campaign")(run.run)
app.command("results", short_help="Show results of campaigns")(inspect.results)
app.command("serve", short_help="Show results in a browser")(services.serve)
app.command("runner", short_help="Run campaigns that are requested on the site")(services.runner)
app.command("plot", short_help="Draw a figure")(plot.plot)
app.command("contrast", short_help="Compare the values of a swept field")(contrast.contrast)
app.command("compare", short_help="Compare one campaign with another")(compare.compare)
app.command("sensitivity", short_help="Perturb a campaign's links slightly")(sensitivity.sensitivity)
app.command("export", short_help="Export results for other programs")(export.export)
app.command("import-bundle", short_help="Import a bundled campaign")(export.import_bundle)
app.command("copy", short_help="Copy a campaign into another store")(copying.copy)
app.command("import", short_help="Import captures as a run")(imports.import_)
app.command("list", short_help="List stacks, policies, links, topologies and other mechanisms")(inspect.list_)
app.command("show", short_help="Show a mechanism with its options")(inspect.show_)
app.command("reproduce", short_help="Run the papers' tables, figures and claims")(papers.reproduce)
app.command("score", short_help="Compare results with published values")(papers.score)
app.command("calibrate", short_help="Measure emulated links")(testbed.calibrate)
app.command("testbed", context_settings=_PASS_ON, short_help="Set up hosts as a testbed")(testbed.on_testbed)
app.command("lab", context_settings=_PASS_ON, short_help="Rehearse a lab in namespaces or virtual machines")(
    testbed.in_lab
)
app.add_typer(kernel.app, name="kernel", short_help="Build the kernels that run in virtual time")
app.command("scheduler", short_help="Start the Dask scheduler of a lab")(services.scheduler)
app.command("worker", short_help="Start a Dask worker on this machine")(services.worker)


def _print_version(wanted: bool) -> None:
    if wanted:
        from experiments.engine import machine

        typer.echo(f"backchannel {machine.version()}")
        raise typer.Exit


@app.callback(help=HELP)
def before_any_command(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and the commit.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Options that stand before the command."""
    from testbed.local_folders import sweep

    sweep()


def main() -> NoReturn:
    """Runs a command. Every error that a user can cause ends in a message and an exit status."""
    try:
        app(standalone_mode=True, prog_name="backchannel")
    except KeyboardInterrupt:
        fail("interrupted", exits.INTERRUPTED)
    except BrokenPipeError:
        sys.exit(exits.OK)
    except Exception as error:
        known = exits.of_error(error)
        if known is None:
            raise
        fail(*known)
    sys.exit(exits.OK)
