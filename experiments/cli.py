"""The command line: the table of commands, and errors as messages with an exit status."""

from __future__ import annotations

import errno
import importlib
import io
import itertools
import os
import sys
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from experiments import exits
from experiments.commands.answer import answered
from experiments.commands.shared import fail, show_note, wants_json
from experiments.language import renamed
from experiments.language.problems import CampaignError
from testbed import node_binary
from testbed.local_folders import sweep

HELP = (
    "Experiments with TCP and QUIC over links that are asymmetric, lossy or half-duplex.\n\n"
    "First steps: './backchannel run experiments/quickstart.yaml', then './backchannel serve'. "
    "'./backchannel COMMAND --help' describes a command. docs/tutorial.md explains the first steps, and docs/README.md "
    "lists all pages."
)
EPILOG = (
    "In a checkout: 'docs serve' shows the documentation in a browser, 'build' compiles the node binary, 'test' runs "
    "the tests, 'bench' a benchmark (docs/benchmarks.md).\n\n"
    "Exit status: 0 success; 1 a run failed or stayed invalid, or a comparison or check did not pass; "
    "2 an error in a file or on the command line; "
    "3 this machine lacks something; 130 interrupted."
)


@dataclass(frozen=True)
class _Command:
    """Where a command is, as `module:name` in `experiments.commands`, and its line in the list of commands."""

    place: str
    summary: str


#: By the heading under which help lists them.
_GROUPS = {
    "Run": {
        "list": _Command("inspect:list_", "List stacks, policies, links, topologies and other mechanisms"),
        "show": _Command("inspect:show_", "Show a mechanism with its options"),
        "validate": _Command("inspect:validate", "Check campaign files for errors"),
        "plan": _Command("run:plan", "Show the runs of a campaign and the expected time"),
        "run": _Command("run:run", "Run a campaign"),
        "search": _Command("search:search", "Find the combination of parameters where something happens"),
        "line": _Command("line:line", "Run a client and a server of yours over an emulated link, for tests"),
        "shell": _Command("shell:shell", "Run a shell or any command behind an emulated link"),
        "gateway": _Command("gateway:gateway", "Connect devices behind an interface through an emulated link"),
        "calibrate": _Command("testbed:calibrate", "Measure emulated links"),
        "packetdrill": _Command("packetdrill:packetdrill", "Run packetdrill scripts on a kernel in virtual time"),
        "new": _Command("own:new", "Make a policy, controller, metric or other part of your own"),
        "check": _Command("own:check", "Test a crate of yours by the laws that every mechanism keeps"),
        "unpack": _Command("own:unpack", "Write the code that came with a campaign file to a folder"),
        "doctor": _Command("doctor:doctor_", "Report what works on this machine and what is missing"),
        "kernel": _Command("kernel:app", "Build the kernels that run in virtual time"),
    },
    "Results": {
        "results": _Command("inspect:results", "Show results of campaigns"),
        "runs": _Command("runs:runs", "List runs, with filters"),
        "serve": _Command("services:serve", "Show results in a browser, and run what visitors request"),
        "mcp": _Command("tools:mcp", "Serve the commands as tools for agents"),
        "plot": _Command("plot:plot", "Draw a figure"),
        "compare": _Command("compare:compare", "Compare the values of a swept field, or two campaigns"),
        "report-card": _Command("report_card:report_card", "Judge a sender by the criteria of RFC 9743"),
        "regressions": _Command("regressions:regressions", "Compare all campaigns of two results folders"),
        "sensitivity": _Command("sensitivity:sensitivity", "Perturb a campaign's links slightly"),
        "doubt": _Command("doubt:doubt", "Repeat a campaign's conclusions under changes that should not matter"),
        "measure": _Command("measure:measure", "Compute metrics of stored runs again"),
        "export": _Command("export:export", "Export results for other programs"),
        "archive": _Command("remove:archive", "Take a campaign out of all lists"),
        "delete": _Command("remove:delete", "Delete a campaign, or an imported run"),
        "undelete": _Command("remove:undelete", "List an archived or deleted campaign again"),
        "prune": _Command("prune:app", "Delete results and builds by rule"),
        "copy": _Command("copying:copy", "Copy a campaign into another store"),
        "verify": _Command("verify:verify", "Check stored results for damage"),
        "backup": _Command("backup:backup", "Back up a results folder, also while it is in use"),
        "restore": _Command("backup:restore", "Make a results folder from a backup"),
    },
    "Captures": {
        "import": _Command("imports:import_", "Import captures as a run, or a bundled campaign"),
        "ack-filter": _Command("ack_filter:ack_filter", "Say whether an ack filter would help on a captured link"),
    },
    "Labs": {
        "testbed": _Command("testbed:testbed", "Set up hosts as a testbed, import or rehearse them"),
        "dask": _Command("services:dask", "Share runs among machines"),
    },
    "Papers": {"papers": _Command("papers:papers", "Reproduce the papers and score the results")},
}
_COMMANDS = {name: command for group in _GROUPS.values() for name, command in group.items()}
#: The variable by which a shell asks for completions.
COMPLETES = "_BACKCHANNEL_COMPLETE"
#: Commands whose unknown options go on to Ansible, or to the command that they start.
_PASSES_ON = ("shell", "testbed")
#: Commands that have another name now, and that name.
_RENAMED = {
    "reproduce": ("papers", "run"),
    "score": ("papers", "score"),
    "runner": ("serve", "runner"),
    "scheduler": ("dask", "scheduler"),
    "worker": ("dask", "worker"),
    "lab": ("testbed", "rehearse"),
    "import-bundle": ("import",),
    "contrast": ("compare",),
}


class _Grouped(TyperGroup):
    """The list of commands under headings."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Prints the list."""
        for heading, commands in _GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, command.summary) for name, command in commands.items()])


class _WithKinds(TyperCommand):
    """A command whose help lists kinds from a registry: "{figures}" in the help of an argument.

    They are filled in when help is printed, because importing the registries takes longer than most commands.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Prints the help."""
        for parameter in self.params:
            if text := getattr(parameter, "help", None):
                parameter.help = with_kinds(text)  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def with_kinds(text: str) -> str:
    """Help in which "{figures}" and "{exports}" are the names of these."""
    for word in ("figures", "exports"):
        if f"{{{word}}}" in text:
            from analysis import kinds

            text = text.replace(f"{{{word}}}", kinds.sentence(word))
    return text


def application(first_word: str | None = None) -> TyperGroup:
    """The command line.

    Args:
        first_word: if it is a command, its module alone is imported, because all of them take longer than `validate`
            takes for a small file; if it is an option or "", none is. None: the command line has all commands.
    """
    app = typer.Typer(
        name="backchannel",
        cls=_Grouped,
        help=HELP,
        epilog=EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(help=HELP)(before_any_command)
    is_option = first_word is not None and (first_word == "" or first_word.startswith("-"))
    for name in () if is_option else [first_word] if first_word in _COMMANDS else _COMMANDS:
        command = _COMMANDS[name]
        module, _, attribute = command.place.partition(":")
        target = getattr(importlib.import_module(f"{node_binary.PACKAGE}experiments.commands.{module}"), attribute)
        if isinstance(target, typer.Typer):
            for inner in target.registered_commands:
                assert inner.callback is not None
                inner.callback = answered(inner.callback)
            app.add_typer(target, name=name, short_help=command.summary)
        else:
            app.command(name, cls=_WithKinds, short_help=command.summary)(answered(target))
    # With the options and classes of completion.
    built = typer.main.get_command(app)
    assert isinstance(built, TyperGroup)
    _name_plainly(built)
    return built


def _name_plainly(command: Any) -> None:
    """Gives every argument and option the name that people write, where typer shows Python's type."""
    for parameter in command.params:
        if isinstance(parameter, TyperArgument):
            name = parameter.display_name_raw
            usage = name if parameter.required or name.startswith("[") else f"[{name}]"
            parameter.get_usage_pieces = lambda ctx, usage=usage: [usage]  # type: ignore[method-assign,misc]
            parameter.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
        elif isinstance(parameter, TyperOption) and parameter.metavar is None and not parameter.is_flag:
            parameter.metavar = max(parameter.opts, key=len).lstrip("-").upper()
    for inner in getattr(command, "commands", {}).values():
        _name_plainly(inner)


def _print_version(wanted: bool) -> None:
    if wanted:
        from analysis import versions

        typer.echo(f"backchannel {versions.version()}")
        raise typer.Exit


def before_any_command(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and the commit.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Options that stand before the command."""
    sweep()


def main() -> NoReturn:
    """Runs a command. Every error that a user can cause ends in a message and an exit status."""
    _open_standard_streams()
    # Characters that the terminal lacks, and file names that are not text, are printed as question marks.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        _run()
    finally:
        _flush()


def _open_standard_streams() -> None:
    """Replaces streams that were closed by the null device. The next file that is opened would have the number of one,
    and a program that is started would write to it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # The lowest number that is free.
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _run() -> NoReturn:
    try:
        if words := _RENAMED.get("".join(sys.argv[1:2])):
            show_note(f"'{sys.argv[1]}' is now '{' '.join(words)}'")
            sys.argv[1:2] = words
        if "".join(sys.argv[1:2]) not in _PASSES_ON:
            _accept_old_names()
        # A shell that completes a command asks for all names, and passes no words.
        first_word = None if COMPLETES in os.environ else "".join(sys.argv[1:2])
        wants_json.set("--json" in itertools.takewhile(lambda word: word != "--", sys.argv[1:]))
        if not wants_json.get():
            application(first_word)(standalone_mode=True, prog_name="backchannel")
        else:
            sys.exit(application(first_word)(standalone_mode=False, prog_name="backchannel") or exits.OK)
    except typer.TyperException as error:
        fail(error.format_message(), error.exit_code)
    except typer.Abort:
        fail("aborted", exits.FAILED)
    except KeyboardInterrupt:
        fail("interrupted", exits.INTERRUPTED)
    except BrokenPipeError:
        sys.exit(exits.OK)
    except Exception as error:
        explained = exits.of_error(error)
        if explained is None:
            raise
        fail(*explained, error.problems if isinstance(error, CampaignError) else ())
    sys.exit(exits.OK)


def _accept_old_names() -> None:
    """Replaces names of earlier versions in the command, and says what they are called now."""
    sys.argv[1:], told = renamed.command_line(sys.argv[1:])
    variables, more = renamed.environment(os.environ)
    os.environ.update(variables)
    for sentence in (*told, *more):
        show_note(sentence)


def _flush() -> None:
    """Writes what is still buffered. A program whose terminal is gone keeps its exit status: Python would try again at
    its end, fail, and end with status 120.
    """
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if error.errno not in (errno.EIO, errno.EPIPE):
                fail(*(exits.of_error(error) or (str(error), exits.FAILED)))
