"""`new` and `unpack`: parts of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments import new_parts
from experiments.language import source


def new(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help=f"{', '.join(new_parts.CRATES + new_parts.PACKAGES[:-1])} or export.",
            show_default=False,
        ),
    ],
    name: Annotated[
        Path, typer.Argument(metavar="NAME", help="Its name, and the folder that is made.", show_default=False)
    ],
) -> None:
    """Make a small crate or Python package with its test: a mechanism, metric, figure or export of your own."""
    part = new_parts.make(kind, name)
    typer.echo(f"{part.folder} has a {kind} that works. Next:")
    for command in part.commands:
        typer.echo(f"  {command}")
    typer.echo("docs/your-own.md describes the steps from there.")


def unpack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A campaign file, such as that of a bundle.")],
    into: Annotated[
        Path, typer.Option("--into", metavar="FOLDER", help="Folder for the sources; it must not exist.")
    ] = Path("unpacked"),
) -> None:
    """Write the code that is attached to a campaign file to a folder, to be read. Nothing is compiled or run."""
    names = []
    for name, crate in source.attached_crates(file):
        new_parts.unpack(crate, into / crate.name)
        names.append(f"{name}: {into / crate.name}")
    for line in names or [f"no code is attached to {file}"]:
        typer.echo(line)
