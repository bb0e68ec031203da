"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

#: The results folder without `--results`.
RESULTS = "results"

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A campaign file (docs/campaigns.md).", show_default=False)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Replace a field of the file, such as stack=cubic, and remove it from the sweep. Repeatable.",
    ),
]
ResultsOption = Annotated[
    str,
    typer.Option(
        "--results",
        metavar="DIR",
        envvar="BACKCHANNEL_RESULTS",
        help="Results folder, or postgresql://user@host/database.",
    ),
]
ResultsFolderOption = Annotated[
    Path, typer.Option("--results", metavar="DIR", envvar="BACKCHANNEL_RESULTS", help="Results folder.")
]
ArtefactsOption = Annotated[
    str | None,
    typer.Option(
        "--artefacts",
        metavar="URL",
        envvar="BACKCHANNEL_ARTEFACTS",
        show_default=False,
        help="fsspec URL for captures and tables. Required with a PostgreSQL store, rejected with a folder.",
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        max=1024,
        show_default=False,
        help="Number of runs at the same time. By default the engine measures how many this machine runs without "
        "delaying packets; lower it to keep CPUs free.",
    ),
]
TriesOption = Annotated[
    int,
    typer.Option(
        "--tries",
        metavar="N",
        min=1,
        max=100,
        envvar="BACKCHANNEL_TRIES",
        help="Maximum attempts for a real-packet run; raise it on a busy virtual machine.",
    ),
]
ArtefactNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PAPER|ARTEFACT]...",
        help="Papers or artefacts, such as aq, aq-fig4 or ton-table2. All by default.",
        show_default=False,
    ),
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="CONDITION",
        show_default=False,
        help="Select runs by a value of a swept field (queue.policy=droptail), by repetition (repetition=2, counted "
        "from 1) or by the start of a run's id. Repeatable.",
    ),
]
LimitOption = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="Maximum number of runs.", show_default=False)
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Repeat runs that the results folder already has a valid result of.")
]
RetryFailedOption = Annotated[
    bool, typer.Option("--retry-failed", help="Select only runs that were attempted and have no valid result.")
]
OrderOption = Annotated[
    str,
    typer.Option(
        "--order",
        metavar="ORDER",
        help="Order of a repetition's points: 'shuffled' (drawn from the campaign's seed) or 'file'.",
    ),
]
BackendOption = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="NAME",
        show_default=False,
        help="sim, emulated or physical. By default the file's own, or emulated. Short for --set backend=NAME.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, in SI units. Progress goes to standard error.")]
MarginOption = Annotated[
    float,
    typer.Option(
        "--margin",
        min=0.0,
        max=1.0,
        help="'same' means: shown to differ by less than this fraction of the first mean; 0.05 is 5 %.",
    ),
]
