"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from testbed import own_crates, own_nodes

#: The results folder without `--results`.
RESULTS = "results"

FileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A campaign file (docs/campaigns.md), or the name of one that comes with Backchannel, such as quickstart.",
        show_default=False,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Set a field, such as stack=cubic or network.reverse.rate='9.6 kbit/s'. A swept field is then no longer "
        "swept. Repeatable.",
    ),
]


def _use(folders: list[Path] | None) -> list[Path] | None:
    """Lets the process use a node with the crates in these folders."""
    if folders:
        own_nodes.use([own_crates.read(folder, own_nodes.lockfile()) for folder in folders])
    return folders


FromOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--from",
        metavar="FOLDER",
        show_default=False,
        callback=_use,
        help="Crate of yours whose mechanisms this command knows too (docs/your-own.md). Repeatable.",
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        help="Compile and run the code that is attached to the file, such as one from a bundle. Read it first with "
        "'unpack'.",
    ),
]
ResultsOption = Annotated[
    str,
    typer.Option(
        "--results",
        metavar="DIR",
        envvar="BACKCHANNEL_RESULTS",
        help="Folder of the results, or postgresql://user@host/database.",
    ),
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
        metavar="N",
        min=1,
        max=1024,
        show_default=False,
        help="Maximum number of runs at the same time; lower it to keep CPUs free. Default: as many as this machine "
        "runs without delaying packets, which is measured during the runs.",
    ),
]
AttemptsOption = Annotated[
    int,
    typer.Option(
        "--attempts",
        metavar="N",
        min=1,
        max=100,
        envvar="BACKCHANNEL_ATTEMPTS",
        help="Maximum attempts per run with real packets until it is valid; raise it on a busy virtual machine.",
    ),
]
ArtefactNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PAPER|ARTEFACT]...",
        help="Papers (asym, ton, pulsed, aq, acq) or their tables, figures and claims, such as aq-fig4 or ton-table2. "
        "Default: all.",
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
        "from 1) or by the first 6 or more characters of a run's id. Conditions on one field add up, others restrict. "
        "Repeatable.",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        min=1,
        help="Stop after this number of runs; the same command continues. Default: no limit.",
        show_default=False,
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Repeat runs that have a valid result, and replace it.")]
RetryFailedOption = Annotated[
    bool, typer.Option("--retry-failed", help="Select only runs that were attempted without a valid result.")
]
OrderOption = Annotated[
    str,
    typer.Option(
        "--order",
        metavar="ORDER",
        help="Order of the combinations in a repetition: 'shuffled' by the campaign's seed, or 'file', as in the file.",
    ),
]
BackendOption = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="NAME",
        show_default=False,
        help="sim (simulation), emulated (real packets on this machine), virtual-kernel (Linux in virtual time) or "
        "physical (real packets on hosts of a lab). Default: the file's. Without one: emulated, or virtual-kernel "
        "where root is missing or the machine is too busy.",
    ),
]
LabOption = Annotated[
    Path | None,
    typer.Option(
        "--inventory",
        "-i",
        metavar="FILE",
        show_default=False,
        help="Inventory of the lab; required by the physical backend (docs/physical.md). Results belong to one lab, so "
        "plans find them only with it.",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON in SI units to standard output; messages go to standard error.")
]
MarginOption = Annotated[
    float,
    typer.Option(
        "--margin",
        metavar="SHARE",
        min=0.0,
        max=1.0,
        help="'same' means: shown to differ by less than this fraction of the first mean; 0.05 is 5 %.",
    ),
]
