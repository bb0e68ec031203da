"""`./backchannel export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.commands.answer import Answer
from experiments.commands.options import RESULTS, ArtefactsOption, ResultsOption
from experiments.commands.shared import open_campaign, reading, wider_limits

if TYPE_CHECKING:
    from experiments.commands import documents


def export(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="{exports} Details: docs/exports.md.")],
    subject: Annotated[
        str,
        typer.Argument(
            metavar="RUN|CAMPAIGN|FILE", help="Id of a run, or its first characters; name of a campaign; a Flent file."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            show_default=False,
            help="File to write; of a table, .csv, .parquet or .json. Default: named after the subject and the kind.",
        ),
    ] = None,
    author: Annotated[str, typer.Option("--author", metavar="NAME", help="Author of a bundle's runs.")] = "",
    licence: Annotated[
        str, typer.Option("--licence", metavar="URL", help="Licence of a bundle. Default: CC BY 4.0.")
    ] = "",
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
) -> Answer[documents.Written]:
    """Write results for other programs: tables, Flent and xplot files, and bundles of campaigns."""
    from analysis.exports.registry import EXPORTS, Target

    chosen, wider = EXPORTS.find(kind), list[str]()
    if chosen.of == "Flent file":
        path = out or Path(chosen.file.format(name=Path(subject).name.partition(".")[0]))
        lines = chosen.write(Path(subject), Target(path))
    else:
        with reading(results, artefacts) as store:
            if chosen.of == "campaign":
                campaign = open_campaign(store, subject)
                wider = wider_limits(store.store, campaign.row.id, campaign.row.backend)
                lines = chosen.write(
                    campaign, Target(out or Path(chosen.file.format(name=campaign.row.name)), author, licence)
                )
            else:
                run = store.run(subject)
                lines = chosen.write(run, Target(out or Path(chosen.file.format(name=run.id))))
    return Answer({"kind": kind, "subject": subject, "lines": [*lines, *wider]}, [*lines, *wider])
