"""`shell`: a shell or any command behind an emulated link, and the running session's panel."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from experiments import exits
from experiments.commands.answer import Answer
from experiments.commands.options import RESULTS, JsonOption, ResultsOption, SetOption
from experiments.commands.shared import console, fail, no_options_before, results_option, show_note
from experiments.sessions import control, program
from testbed.capability import require_root_emulation
from testbed.errors import TestbedError

if TYPE_CHECKING:
    from experiments.commands import documents
    from experiments.sessions.session import Ended

MEGABYTE = 1_000_000

ProfileOption = Annotated[
    str, typer.Option("--profile", metavar="NAME", help="Link, as './backchannel list profiles' prints them.")
]
NetworkOption = Annotated[
    Path | None,
    typer.Option(
        "--network",
        metavar="FILE",
        show_default=False,
        help="Campaign file whose network to use in place of a profile; of a sweep, its first combination.",
    ),
]
RecordLimitOption = Annotated[
    int,
    typer.Option(
        "--record-limit",
        metavar="MB",
        min=1,
        max=100_000,
        help="Size of captures and telemetry (in memory) at which the record ends; the link goes on.",
    ),
]


SessionOption = Annotated[
    str | None,
    typer.Option("--session", metavar="NAME", help="Which running session. Default: the only one.", show_default=False),
]


class _Shell(TyperGroup):
    """Takes the words after `--` for a command, not for a subcommand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the words before `--`."""
        if "--" in args:
            at = args.index("--")
            args, ctx.obj = args[:at], args[at + 1 :]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The subcommand that the first word names."""
        if args[0] not in self.commands:
            fail(
                f"'{args[0]}' is neither an option nor one of {', '.join(self.commands)}; a command follows --, as in "
                f"./backchannel shell -- {' '.join(args)}",
                exits.BAD_INPUT,
            )
        return super().resolve_command(ctx, args)


shell = typer.Typer(cls=_Shell, invoke_without_command=True, subcommand_metavar="[-- COMMAND... | COMMAND [ARGS]...]")


@shell.callback()
def start(
    ctx: typer.Context,
    profile: ProfileOption = "cable-500-10",
    network: NetworkOption = None,
    overrides: SetOption = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="HOST", help="Host of the command. Default: client, or the last host.", show_default=False
        ),
    ] = None,
    internet: Annotated[
        bool,
        typer.Option("--internet", help="Reach this machine's network through the link, names included; needs passt."),
    ] = False,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            metavar="SECONDS",
            min=0.1,
            show_default=False,
            help="End the command after this time, with exit status 124. Default: never.",
        ),
    ] = None,
    record_limit: RecordLimitOption = 256,
    session: Annotated[str | None, typer.Option("--session", hidden=True)] = None,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Run your shell, or the command after --, on a host behind an emulated link. Its exit status is the command's."""
    if ctx.invoked_subcommand is not None:
        no_options_before(ctx, allowed=("session", "as_json"))
        return
    require_root_emulation("a shell behind an emulated link")
    from analysis.store import Store
    from experiments.sessions.internet import Internet
    from experiments.sessions.plan import plan_session
    from experiments.sessions.session import Session

    command: list[str] = ctx.obj or []
    if command and (refusal := program.check(command)):
        fail(*refusal)
    plan = plan_session(profile, network, overrides or [], at, internet, secrets.randbits(40))
    with Store.open(results) as store:
        store.sweep()
        behind = Session(plan, store, record_limit * MEGABYTE, Internet() if internet else None, show_note)
        if not command:
            others = ", ".join(f"{name} is {node.address}" for name, node in behind.hosts.items() if name != plan.host)
            show_note(
                f"this shell runs on host {plan.host}, behind {plan.label}; {others}. "
                "'./backchannel shell watch' in another terminal shows the link, 'exit' ends the session."
            )
            if sys.stderr.isatty():
                sys.stderr.write(f"\033]0;{plan.host} behind {plan.label}\007")
                sys.stderr.flush()
        ended = behind.run(command, time_limit)
    report(ended, results, as_json)
    raise typer.Exit(ended.exit_status)


def _name(ctx: typer.Context, session: str | None) -> str | None:
    """The name of the running session that is meant; None: the only one."""
    assert ctx.parent is not None
    return session or ctx.parent.params["session"]


def report(ended: Ended, results: str, as_json: bool) -> None:
    """Shows how a session ended."""
    for note in ended.notes:
        show_note(note)
    if ended.run is None:
        return
    run = ended.run
    if as_json:
        document = {
            "run": run.run_id,
            "exit_status": ended.exit_status,
            "valid": not run.problems,
            "problems": list(run.problems),
            "metrics": [metric.__dict__ for metric in run.metrics],
        }
        typer.echo(json.dumps(document, indent=2), err=True)
        return
    verdict = "kept its timing" if not run.problems else f"did not keep its timing: {run.problems[0]}"
    shown = results_option(results)
    show_note(f"the link {verdict}. The session is run {run.run_id[:8]}: ./backchannel serve{shown} shows it.")


@shell.command("status")
def status(ctx: typer.Context, session: SessionOption = None) -> Answer[documents.Session]:
    """Print a running session: its links, their counters and queues."""
    from experiments.sessions import panel
    from experiments.sessions.state import SessionControl

    state = control.ask(_name(ctx, session), SessionControl.status)
    return Answer(state.as_json(), lambda: panel.show(console(), state, None))


@shell.command("watch")
def watch(ctx: typer.Context, session: SessionOption = None) -> None:
    """Print a running session every second."""
    from experiments.sessions import panel
    from experiments.sessions.state import SessionControl, SessionState

    name, terminal = control.only(_name(ctx, session)), console()
    before: SessionState | None = None
    try:
        while True:
            state = control.ask(name, SessionControl.status)
            terminal.clear()
            panel.show(terminal, state, before)
            before = state
            time.sleep(1.0)
    except TestbedError as error:
        if before is None:
            raise
        typer.echo(str(error))


@shell.command("set", short_help="Change the link of a running session.")
def set_(
    ctx: typer.Context,
    changes: Annotated[
        list[str],
        typer.Argument(
            metavar="FIELD=VALUE...",
            help="Changes, such as forward.rate=2Mbit/s for one direction, or delay=80ms for both.",
            show_default=False,
        ),
    ],
    session: SessionOption = None,
) -> Answer[Sequence[documents.SessionChange]]:
    """Change the link of a running session: rate, delay, jitter, loss, policy, queue or errors (docs/shell.md)."""
    from experiments.sessions.state import SessionControl

    changed = control.ask(_name(ctx, session), SessionControl.change, None, changes)
    return Answer([change.as_json() for change in changed], [change.text for change in changed])


@shell.command("enter", short_help="Run a program on another node of a running session.")
def enter(
    ctx: typer.Context,
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="[NODE] [-- COMMAND...]",
            help="Node of the session, such as left. Default: the host of its command.",
            show_default=False,
        ),
    ] = None,
    session: SessionOption = None,
) -> None:
    """Run your shell, or the command after --, on another node of a running session."""
    from experiments.sessions.state import SessionControl

    entered = control.ask(_name(ctx, session), SessionControl.node, node)
    variables = program.environment(entered.label, entered.name)
    chosen = list(ctx.obj or ()) or program.shell_words(variables)
    if refusal := program.check(chosen):
        fail(*refusal)
    line = program.enter_words(entered.cell_pid, entered.host, chosen, Path.cwd())
    os.execvpe(line[0], line, variables)  # noqa: S606 (the user's own command)
