"""What several commands do: open a store, load a campaign, print a table, end with a message."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

import analysis
from experiments import exits
from experiments.commands.options import RESULTS
from experiments.engine import machine
from experiments.engine.governor import RULES
from experiments.language.backends import Backend
from experiments.language.problems import CampaignError, Problem
from testbed import capability, fidelity
from testbed.units import number_of
from testbed.virtual_kernel import kernels

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.status import Status

    from analysis.handle import OpenResults, StoredCampaign
    from analysis.store import Store
    from experiments.engine.options import Options
    from experiments.language.campaign import Plan
    from experiments.language.located import Source
    from experiments.results_table import Asked

#: A command shows its progress after this time, in s; without a terminal, as one line every LINES_S.
LATE_S, LINES_S = 1.0, 5.0
#: Columns of tables that are not printed to a terminal.
PIPE_COLUMNS = 200


#: Whether the command's answer is JSON on standard output: everything else goes to standard error.
wants_json: ContextVar[bool] = ContextVar("wants_json", default=False)


def fail(message: str, status: int, problems: Sequence[Problem] = ()) -> NoReturn:
    """Prints an error message and exits. Messages that start with file:line keep that form. With `--json` it is the
    last line of standard error, as a JSON document (`documents.Failure`).
    """
    if wants_json.get():
        error = {"message": message, "status": status, "problems": [asdict(problem) for problem in problems]}
        typer.echo(json.dumps({"error": error}), err=True)
        sys.exit(status)
    is_located = "\n" in message or ":" in message.split(" ")[0]
    typer.echo(message if is_located else f"{exits.MESSAGE_PREFIX}{message}", err=True)
    sys.exit(status)


@contextmanager
def rejecting(option: str = "") -> Iterator[None]:
    """Fails with the sentence of a ValueError that what is done raises, about this option if there is one."""
    try:
        yield
    except ValueError as error:
        fail(f"{option}: {error}" if option else str(error), exits.BAD_INPUT)


def answer_console() -> Console:
    """Where progress and results are shown that are not the answer for scripts."""
    return console(stderr=wants_json.get())


def show_note(text: str) -> None:
    """Shows a sentence on standard error."""
    typer.echo(f"{exits.MESSAGE_PREFIX}{text}", err=True)


def ask_to_delete(yes: bool) -> None:
    """Asks whether what was shown shall go, unless the caller said --yes; ends the command otherwise."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail("nothing is deleted: add --yes where nobody can be asked", exits.BAD_INPUT)
    typer.confirm("Delete?", abort=True, err=wants_json.get())


def no_options_before(ctx: typer.Context, allowed: Sequence[str] = ()) -> None:
    """Fails if an option stands before a subcommand, which would not see it."""
    for name, value in ctx.params.items():
        source = ctx.get_parameter_source(name)
        if name not in allowed and value is not None and source is not None and source.name == "COMMANDLINE":
            fail(
                f"'{ctx.info_name} {ctx.invoked_subcommand}' has options of its own: write them after "
                f"'{ctx.invoked_subcommand}'",
                exits.BAD_INPUT,
            )


#: How long `run` looks at the CPUs before it chooses a backend, in s.
LOOK_S = 1.0
#: If set, it does not look: for scripts whose backend must not depend on the machine's load.
KEEP_BACKEND = "BACKCHANNEL_KEEP_BACKEND"


def console(stderr: bool = False) -> Console:
    """A console; in a pipe it is wide, so that scripts read whole rows."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    columns = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_COLUMNS
    # Names of folders and titles may have brackets, which are not markup.
    return Console(stderr=stderr, soft_wrap=False, width=columns, markup=False)


def load_plan(file: Path, overrides: Sequence[str] | None, backend: str | None = None) -> Plan:
    """Reads a campaign file; CampaignError lists its problems."""
    from experiments.catalogue import read_named

    return _expanded(read_named(file), overrides, backend)


def _expanded(campaign: Source, overrides: Sequence[str] | None, backend: str | None) -> Plan:
    from experiments.language.campaign import expand

    return expand(campaign, [*(overrides or ()), *(() if backend is None else [f"backend={backend}"])])


def load_runnable_plan(
    file: Path,
    overrides: Sequence[str] | None,
    backend: str | None,
    results: str,
    artefacts: str | None,
    inventory: Path | None = None,
    trust_code: bool = False,
) -> Plan:
    """Reads a campaign file for `run`, and finds the ids of its runs: on the hosts of the inventory's lab if it is
    physical.

    Raises:
        CampaignError: the file is invalid, or does not fit the lab.
        TestbedError: a host of the lab does not answer, or is held.
    """
    from experiments.catalogue import read_named

    plan = _on_its_backend(read_named(file, trust_code), overrides, backend, results, artefacts)
    if plan.backend.in_lab and inventory is not None:
        from experiments import lab

        [plan] = lab.in_lab(inventory, [plan], show_note)
    elif inventory is not None:
        show_note(f"--inventory is not used: backend {plan.backend} makes its runs without a lab (--backend physical)")
    with progress("ids: {} of {} runs") as show:
        plan.find_ids(show)
    return plan


def _on_its_backend(
    campaign: Source, overrides: Sequence[str] | None, backend: str | None, results: str, artefacts: str | None
) -> Plan:
    """A campaign that names no backend runs on Linux in virtual time if root is missing or the machine is too busy to
    be in time; that is said on standard error. One that the results folder already has goes on where it began.
    """
    plan = _expanded(campaign, overrides, backend)
    is_named = not plan.backend.in_cell or backend is not None or "backend" in {*plan.overrides, *campaign.values}
    if is_named or (capability.has_rights() and not kernels.built()):
        return plan
    try:
        virtual = _expanded(campaign, overrides, Backend.VIRTUAL_KERNEL)
    except CampaignError:
        # It uses something that there is only outside.
        return plan
    reason = _why_virtual(plan, virtual, results, artefacts)
    if reason is None:
        return plan
    used = {scenario.kernel or "" for _, scenario in virtual.first_scenarios()}
    series = [series for series in kernels.SERIES if kernels.full_name(series.name) in used]
    names = " and ".join(series.name for series in series) or "of yours"
    show_note(
        f"{reason}; the campaign runs on Linux {names} in virtual time: real TCP over the same emulated network, exact "
        "on any machine (docs/virtual-kernel.md). --backend emulated runs it in real time."
    )
    return virtual


def _why_virtual(emulated: Plan, virtual: Plan, results: str, artefacts: str | None) -> str | None:
    """Why a campaign that could run with real packets runs in virtual time; None: it does not."""
    if not capability.has_rights():
        return "you are not root"
    with open_existing(results, artefacts) as store:
        plans = () if store is None else (emulated, virtual)
        begun = {plan.backend for plan in plans if store is not None and store.campaign(plan.id) is not None}
    if begun:
        return "it began there" if begun == {virtual.backend} else None
    if os.environ.get(KEEP_BACKEND):
        return None
    taken = machine.taken_share(LOOK_S)
    return f"this machine is too busy to be in time ({taken:.0%} of its CPUs is taken)" if taken > RULES.full else None


def run_plans(plans: Sequence[Plan], options: Options, quiet: bool = False) -> None:
    """Runs campaigns for a command that needs all their results: an interruption ends it. Progress goes to standard
    error; with `quiet`, only what went wrong.
    """
    from experiments.engine.scheduling import run_campaigns
    from experiments.terminal import TerminalReporter

    outcomes = run_campaigns(plans, options, TerminalReporter(console(stderr=True), quiet))
    if any(outcome.interrupted for outcome in outcomes):
        raise typer.Exit(exits.INTERRUPTED)


def is_file_order(order: str) -> bool:
    """The value of `--order`."""
    if order not in ("shuffled", "file"):
        fail(f"--order is 'shuffled' or 'file', not '{order}'", exits.BAD_INPUT)
    return order == "file"


def store_location(results: str) -> Path | str:
    """The value of `--results`: a folder as a path, a URL as text."""
    from analysis.store import folder_of, is_url

    return results if is_url(results) else folder_of(results)


def results_option(results: str) -> str:
    """` --results PLACE` for a command that a message names; empty where it is the default."""
    from analysis.store import shown

    return "" if results == RESULTS else f" --results {shlex.quote(shown(results))}"


@contextmanager
def open_existing(results: str, artefacts: str | None) -> Iterator[Store | None]:
    """The store; None for a folder without one, because reading commands create nothing."""
    from analysis.store import Store, exists

    if not exists(results):
        yield None
        return
    with Store.open(results, artefacts) as store:
        yield store


@contextmanager
def reading(results: str, artefacts: str | None) -> Iterator[OpenResults]:
    """An open store, for a command that only reads: of one moment, so that nothing is read twice. While many runs are
    read, standard error says how far that is.
    """
    with analysis.open(results, artefacts) as opened, opened.store.moment(), reading_runs(opened.store):
        yield opened


@contextmanager
def reading_runs(store: Store) -> Iterator[None]:
    """While many runs are read from a store, and then their values, standard error says how far that is."""
    with progress("{} of {} runs are read") as store.show:
        yield


@contextmanager
def progress(words: str) -> Iterator[Callable[[int, int], None]]:
    """Says on standard error how far something is that takes a while: in a terminal in a line that changes, elsewhere
    by a note now and then.

    Args:
        words: with places for what is done, and for all.
    """
    with ExitStack() as stack:
        began_s = time.monotonic()
        said_s = began_s
        status: Status | None = None

        def show(done: int, runs: int) -> None:
            nonlocal said_s, status
            text, now_s = words.format(done, runs), time.monotonic()
            if done >= runs:
                stack.close()
                status = None
            elif status is not None:
                status.update(text)
            elif now_s - began_s > LATE_S and sys.stderr.isatty():
                status = stack.enter_context(console(stderr=True).status(text))
            elif now_s - said_s > LINES_S:
                said_s = now_s
                show_note(text)

        yield show


def open_campaign(opened: OpenResults, name: str) -> StoredCampaign:
    """The campaign of a name, an id or the first characters of an id; where the name left a choice, a note says which
    was taken.
    """
    campaign = opened[name]
    if campaign.taken:
        show_note(campaign.taken)
    return campaign


def results_parts(to: Console, campaign: StoredCampaign, asked: Asked | None = None) -> list[RenderableType]:
    """A campaign's title, what it asks, and its table of metrics, as wide as a console."""
    from rich.text import Text

    from experiments.results_table import Asked, results_table

    instead = campaign.question.instead if campaign.question is not None else ""
    title = Text(f"\n{campaign.row.title}", style="bold")
    return [title, *([Text(instead)] if instead else []), results_table(campaign, asked or Asked(), to.width)]


def reasons_of(unmeasured: Mapping[str, int]) -> list[str]:
    """A line for each reason why metrics of packages outside the checkout have no value, with the number of runs."""
    return [f"Without a value in {number_of(runs, 'run')}: {sentence}" for sentence, runs in unmeasured.items()]


def show_parts(to: Console, parts: Sequence[RenderableType], sentences: Sequence[str] = ()) -> None:
    """Prints parts, and sentences that break only at the end of the terminal."""
    for part in parts:
        to.print(part)
    for sentence in sentences:
        to.print(sentence, highlight=False, soft_wrap=True)


def show_problems(error: CampaignError) -> None:
    """Prints the problems of a file on standard error, where they are not part of the answer."""
    if not wants_json.get():
        typer.echo(str(error), err=True)


def wider_limits(store: Store, campaign_id: str, backend: str) -> list[str]:
    """A sentence if a campaign accepts runs by wider limits than the default; to be shown with its results."""
    if backend not in (Backend.EMULATED, Backend.PHYSICAL):
        return []
    scenario = store.first_scenario(campaign_id)
    wider = fidelity.wider(scenario.fidelity) if scenario else []
    return [f"This campaign accepts runs by wider limits than the default: {'; '.join(wider)}"] if wider else []
