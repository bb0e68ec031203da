"""`shell`: a shell or any command behind an emulated line, and the running session's panel."""

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

from experiments import exits
from experiments.commands.options import RESULTS, JsonOption, ResultsOption, SetOption
from experiments.commands.shared import console, fail, results_option, show_note

if TYPE_CHECKING:
    from experiments.sessions.session import Ended

#: Words after `shell` that concern a running session.
VERBS = ("status", "watch", "set", "enter")
MEGABYTE = 1_000_000

ProfileOption = Annotated[
    str, typer.Option("--profile", metavar="NAME", help="Line, as './backchannel list profiles' prints them.")
]
NetworkOption = Annotated[
    Path | None,
    typer.Option(
        "--network", metavar="FILE", show_default=False,
        help="Campaign file whose network to use in place of a profile; of a sweep, its first point.",
    ),
]  # fmt: skip
RecordLimitOption = Annotated[
    int,
    typer.Option("--record-limit", metavar="MB", min=1, max=100_000,
                 help="Size of captures and telemetry (in memory) at which the record ends; the line goes on."),
]  # fmt: skip


def shell(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND... | status | watch | set FIELD=VALUE... | enter [NODE] [-- COMMAND...]]",
            help="After --: the command; default: your shell. Without --: status prints a running session, watch "
            "repeats it every second, set changes its line, enter runs a command on another of its nodes.",
            show_default=False,
        ),
    ] = None,
    profile: ProfileOption = "cable-500-10",
    network: NetworkOption = None,
    overrides: SetOption = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="HOST", help="Host of the command. Default: client, or the last host.",
                     show_default=False),
    ] = None,
    internet: Annotated[
        bool,
        typer.Option("--internet", help="Reach this machine's network through the line, names included; needs passt."),
    ] = False,
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", metavar="SECONDS", min=0.1, show_default=False,
                     help="End the command after this time, with exit status 124. Default: never."),
    ] = None,
    record_limit: RecordLimitOption = 256,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="NAME", help="Which running session status, set and enter concern. "
                     "Default: the only one.", show_default=False),
    ] = None,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Run a shell or a command on a host behind an emulated line. Its exit status is the command's."""
    command, verb, rest = _split(words or [])
    if verb is not None:
        _on_running(verb, rest, command, session, as_json)
        return
    from testbed.capability import require_emulation

    require_emulation()
    raise typer.Exit(
        _start(
            command,
            profile,
            network,
            overrides or [],
            at,
            internet,
            time_limit,
            record_limit * MEGABYTE,
            results,
            as_json,
        )  # fmt: skip
    )


def _split(words: Sequence[str]) -> tuple[list[str], str | None, list[str]]:
    """The command, the verb, and the verb's words. Only words after `--` are a command."""
    if "--" in sys.argv:
        command = sys.argv[sys.argv.index("--") + 1 :]
        before = list(words[: len(words) - len(command)]) if command else list(words)
    else:
        command, before = [], list(words)
    if not before:
        return command, None, []
    if before[0] not in VERBS:
        fail(
            f"'{before[0]}' is neither an option nor one of {', '.join(VERBS)}; a command follows --, as in "
            f"./backchannel shell -- {' '.join(before)}",
            exits.BAD_INPUT,
        )
    return command, before[0], before[1:]


def _start(
    command: Sequence[str], profile: str, network: Path | None, overrides: Sequence[str], at: str | None,
    internet: bool, time_limit_s: float | None, record_bytes: int, results: str, as_json: bool,
) -> int:  # fmt: skip
    from analysis.store import Store
    from experiments.sessions import program
    from experiments.sessions.internet import Internet
    from experiments.sessions.plan import plan_session
    from experiments.sessions.session import Session

    if command and (refusal := program.check(command)):
        fail(*refusal)
    plan = plan_session(profile, network, overrides, at, internet, secrets.randbits(40))
    with Store.open(results) as store:
        store.sweep_incoming()
        session = Session(plan, store, record_bytes, Internet() if internet else None)
        if not command:
            show_note(
                f"this shell runs on host {plan.host}, behind {plan.label}; {_others(plan.host, session)}. "
                "'./backchannel shell watch' in another terminal shows the line, 'exit' ends the session."
            )
            if sys.stderr.isatty():
                sys.stderr.write(f"\033]0;{plan.host} behind {plan.label}\007")
                sys.stderr.flush()
        ended = session.run(command, time_limit_s, show_note)
    report(ended, results, as_json)
    return ended.exit_status


def _others(host: str, session: Any) -> str:
    others = [f"{name} is {found.address}" for name, found in session.hosts.items() if name != host]
    return ", ".join(others)


def report(ended: Ended, results: str, as_json: bool) -> None:
    """Shows how a session ended."""
    for note in ended.notes:
        show_note(note)
    if ended.landing is None:
        return
    landing = ended.landing
    if as_json:
        document = {
            "run": landing.run_id, "exit_status": ended.exit_status, "valid": not landing.problems,
            "problems": list(landing.problems), "metrics": [metric.__dict__ for metric in landing.metrics],
        }  # fmt: skip
        typer.echo(json.dumps(document, indent=2), err=True)
        return
    verdict = "kept its timing" if not landing.problems else f"did not keep its timing: {landing.problems[0]}"
    shown = results_option(results)
    show_note(f"the line {verdict}. The session is run {landing.run_id[:8]}: ./backchannel serve{shown} shows it.")


def _on_running(verb: str, words: Sequence[str], command: Sequence[str], session: str | None, as_json: bool) -> None:
    from experiments.sessions import control, panel
    from experiments.sessions.state import change, read_state

    name = control.only(session)
    match verb:
        case "set":
            made = change(name, None, words)
            if as_json:
                typer.echo(json.dumps([session_change.as_json() for session_change in made], indent=2))
            for session_change in made if not as_json else ():
                typer.echo(panel.change_text(session_change))
        case "enter":
            _enter(name, words, command)
        case "status":
            state = read_state(name)
            if as_json:
                typer.echo(json.dumps(state.as_json(), indent=2))
            else:
                panel.show(console(), state, None)
        case "watch":
            _watch(name)


def _watch(name: str) -> None:
    from experiments.sessions import panel
    from experiments.sessions.state import SessionState, read_state
    from testbed.errors import TestbedError

    terminal = console()
    before: SessionState | None = None
    try:
        while True:
            state = read_state(name)
            terminal.clear()
            panel.show(terminal, state, before)
            before = state
            time.sleep(1.0)
    except TestbedError as error:
        if before is None:
            raise
        typer.echo(str(error))


def _enter(name: str, words: Sequence[str], command: Sequence[str]) -> None:
    from experiments.sessions import control, program
    from testbed.report import SessionHost

    found = control.ask(name, {"op": "host", "node": words[0] if words else None})
    variables = program.environment(found["label"], found["node"])
    chosen = list(command) or program.shell_words(variables)
    if refusal := program.check(chosen):
        fail(*refusal)
    host = SessionHost.read(found["host"])
    line = program.enter_words(int(found["cell"]), host, chosen, Path.cwd())
    os.execvpe(line[0], line, variables)  # noqa: S606 (the user's own command)
