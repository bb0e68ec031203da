"""`runs`: lists runs of the store, with filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.commands.answer import Answer
from experiments.commands.options import RESULTS, ArtefactsOption, ResultsOption
from experiments.commands.shared import console, open_campaign, reading, show_note

if TYPE_CHECKING:
    from experiments.commands import documents


def runs(
    name: Annotated[
        str,
        typer.Argument(
            metavar="CAMPAIGN", help="Name of a campaign, its id or the first characters of it. Default: all campaigns."
        ),
    ] = "",
    state: Annotated[
        str,
        typer.Option(
            "--state", metavar="STATE", help="List valid, invalid or missing runs. Default: those in the store."
        ),
    ] = "",
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="FIELD=VALUE",
            show_default=False,
            help="List runs with this value of a swept field. Repeatable.",
        ),
    ] = None,
    backend: Annotated[str, typer.Option("--backend", metavar="NAME", help="List runs of this backend.")] = "",
    tag: Annotated[str, typer.Option("--tag", metavar="TAG", help="List runs that have this tag.")] = "",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Number of runs, the newest first.")] = 40,
    folder: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
) -> Answer[Sequence[documents.ListedRun]]:
    """List runs: id, campaign, swept values, repetition, state and when each landed."""
    from experiments import listed_runs

    wanted = listed_runs.Wanted(state, tuple(where or ()), backend, tag)
    with reading(folder, artefacts) as store:
        campaigns = [open_campaign(store, name)] if name else None
        found = listed_runs.listed(store, campaigns, wanted)
    if len(found) > limit:
        show_note(f"{limit} of {len(found)} runs; --limit {len(found)} lists all, --where and --state choose")
    elif not found:
        show_note("no run matches")
    return Answer(
        found[:limit], lambda: console().print(listed_runs.table(found[:limit], named=bool(name))) if found else None
    )
