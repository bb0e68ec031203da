"""`copy`: a campaign from one store into another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import analysis
from experiments.commands.answer import Answer
from experiments.commands.options import RESULTS, ArtefactsOption, ResultsOption
from experiments.commands.shared import open_campaign

if TYPE_CHECKING:
    from experiments.commands import documents


def copy(
    campaign: Annotated[str, typer.Argument(metavar="CAMPAIGN", help="Name or id of a campaign.", show_default=False)],
    to: Annotated[
        str,
        typer.Argument(
            metavar="STORE",
            help="Where it goes: a results folder, or postgresql://user@host/database.",
            show_default=False,
        ),
    ],
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
    to_artefacts: Annotated[
        str | None,
        typer.Option(
            "--to-artefacts",
            metavar="URL",
            show_default=False,
            help="fsspec URL for the captures and tables of a PostgreSQL store that is copied to. "
            "Default: $BACKCHANNEL_ARTEFACTS.",
        ),
    ] = None,
) -> Answer[documents.Copied]:
    """Copy a campaign with its runs, files and notes into another store. Valid runs and notes there stay, so the
    command can be repeated.
    """
    from analysis.store import Store, requests
    from analysis.store.copying import copy_campaign

    with analysis.open(results, artefacts) as source:
        row = open_campaign(source, campaign).row
        with Store.open(to, to_artefacts) as target:
            # A campaign whose process was killed does not run.
            requests.release_lost(target)
            done = copy_campaign(source.store, target, row)
            where = str(target.where)
    document = {"campaign": row.id, "name": row.name, "runs": done.runs, "copied": done.copied, "store": where}
    return Answer(document, [f"{row.name} ({row.id}): {done.copied} of {done.runs} runs copied to {where}"])
