"""`copy`: a campaign from one store into another."""

from __future__ import annotations

from typing import Annotated

import typer

import analysis
from experiments.commands.options import RESULTS, ArtefactsOption, ResultsOption
from experiments.commands.shared import open_campaign


def copy(
    campaign: Annotated[str, typer.Argument(metavar="CAMPAIGN", help="Name or id of a campaign.", show_default=False)],
    to: Annotated[
        str,
        typer.Argument(
            metavar="STORE", help="Where it goes: a results folder, or postgresql://user@host/database.",
            show_default=False,
        ),
    ],
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
    to_artefacts: Annotated[
        str | None,
        typer.Option(
            "--to-artefacts", metavar="URL", show_default=False,
            help="fsspec URL for the captures and tables of a PostgreSQL store that is copied to. "
            "Default: $BACKCHANNEL_ARTEFACTS.",
        ),
    ] = None,
) -> None:  # fmt: skip
    """Copy a campaign with its runs and files into another store. Runs that are valid there stay as they are, so the
    command can be repeated.
    """
    from analysis.store import Store
    from analysis.store.copying import copy_campaign

    with analysis.open(results, artefacts) as source:
        row = open_campaign(source, campaign).row
        with Store.open(to, to_artefacts) as target:
            done = copy_campaign(source.store, target, row)
            typer.echo(f"{row.name} ({row.id}): {done.copied} of {done.runs} runs copied to {target.where}")
