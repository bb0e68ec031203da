"""`kernel`: the kernels that run in virtual time."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from experiments.commands.options import JsonOption
from testbed.virtual_kernel import kernels
from testbed.virtual_kernel.kernels import VERSIONS

app = typer.Typer(help="Build and list the kernels of the virtual-kernel backend.", no_args_is_help=True)


@app.command("build", short_help="Build a kernel from Debian's source, once")
def build(
    version: Annotated[str, typer.Option(help=f"Linux version: {' or '.join(VERSIONS)}.")] = VERSIONS[0],
) -> None:
    """Build Linux for virtual time from Debian's source package. Needs no root; takes some minutes of two CPUs.

    The kernel is kept in the user's cache, and campaigns choose it with the field `kernel`.
    """
    kernel = kernels.build(version, lambda line: typer.echo(f"backchannel: {line}", err=True))
    typer.echo(f"Linux {version} is in {kernel.folder} (source {kernel.release})")


@app.command("list", short_help="List kernels")
def list_(as_json: JsonOption = False) -> None:
    """List the versions that can be built, and which are."""
    rows = [
        {"version": version, "built": kernel is not None, "release": kernel.release if kernel else None}
        for version in VERSIONS
        for kernel in [next((kernel_ for kernel_ in kernels.built() if kernel_.version == version), None)]
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        typer.echo(f"{row['version']:6}{row['release'] or 'not built'}")
