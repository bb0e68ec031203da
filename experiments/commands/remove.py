"""`archive`, `delete` and `undelete`: what happens to campaigns that nobody needs in lists any more."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import analysis
from analysis import naming
from experiments import exits
from experiments.commands.options import RESULTS, ArtefactsOption, ResultsOption
from experiments.commands.shared import console, fail, open_campaign
from testbed.units import number_of, show

CampaignArgument = Annotated[
    str,
    typer.Argument(
        metavar="CAMPAIGN", show_default=False, help="Name of a campaign, its id or the first characters of it."
    ),
]  # fmt: skip


def archive(
    name: CampaignArgument,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
) -> None:
    """Take a campaign out of all lists. Its results stay, and its id still names it."""
    with analysis.open(results, artefacts) as store:
        row = open_campaign(store, name).row
        store.store.set_aside(row.id, "archived")
    typer.echo(f"{row.name} ({row.id}) is archived. `./backchannel undelete {row.id}` lists it again")


def delete(
    name: Annotated[
        str,
        typer.Argument(
            metavar="CAMPAIGN|RUN", show_default=False,
            help="Name or id of a campaign, or id of an imported run or session; an id's first characters will do.",
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    now: Annotated[
        bool, typer.Option("--now", help="Delete the files at once, without a time to restore them.")
    ] = False,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
) -> None:  # fmt: skip
    """Delete a campaign with its runs and files, or a run of a collection. It can be restored for a day."""
    with analysis.open(results, artefacts) as store:
        known = [*store.store.campaigns(), *store.store.campaigns(set_aside="archived")]
        is_campaign = any(name == row.name or row.id.startswith(name) for row in known)
        if is_campaign or not store.store.run_ids(name):
            campaign = open_campaign(store, name).row
            goes = store.store.would_go(campaign.id)
            what = f"campaign {campaign.name} ({campaign.id})"
            shared = f"; {number_of(goes.shared, 'run')} stay, because other campaigns have them" if goes.shared else ""
            extent = f"{number_of(goes.runs, 'run')} with {show(goes.bytes, 'bytes')} of files{shared}"
        else:
            campaign, run = None, store.run(name)
            what, extent = f"run {run.id}", show(sum(file.bytes for file in run.row.files), "bytes") + " of files"
        typer.echo(f"Deletes {what}: {extent}.")
        if not yes:
            if not sys.stdin.isatty():
                fail("nothing is deleted: add --yes where nobody can be asked", exits.BAD_INPUT)
            typer.confirm("Delete?", abort=True)
        if campaign is None:
            deleted = store.store.delete_run(run.id)
        else:
            deleted = campaign.id
            store.store.set_aside(deleted, "deleted")
        if now:
            store.store.purge(deleted)
            typer.echo("Its files are gone.")
        else:
            typer.echo(f"For a day, `./backchannel undelete {deleted}` brings it back; then the files go.")


def undelete(
    name: Annotated[
        str,
        typer.Argument(metavar="CAMPAIGN", help="Name or id of an archived or deleted campaign. Default: list them."),
    ] = "",
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
) -> None:
    """List an archived or deleted campaign again, or show which there are."""
    from experiments.tables import campaigns_table

    with analysis.open(results, artefacts) as store:
        known = [row for state in ("archived", "deleted") for row in store.store.campaigns(texts=True, set_aside=state)]
        if not name:
            since = {row.id: store.store.aside(row.id) for row in known}
            apart = {row_id: found.state for row_id, found in since.items() if found is not None}
            console().print(campaigns_table(known, apart))
            return
        row = naming.found(known, name)
        store.store.restore(row.id)
    typer.echo(f"{row.name} ({row.id}) is listed again")
