"""`kernel`: the kernels that run in virtual time."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.commands.options import JsonOption
from experiments.commands.shared import show_note
from testbed.virtual_kernel import build as kernel_build
from testbed.virtual_kernel import kernels
from testbed.virtual_kernel.kernels import SERIES

app = typer.Typer(help="Build and list the kernels of the virtual-kernel backend.", no_args_is_help=True)


@app.command("build", short_help="Build a kernel, once")
def build(
    version: Annotated[
        str, typer.Option(help=f"Series of Linux from Debian's source: {', '.join(s.name for s in SERIES)}.")
    ] = kernels.DEFAULT,
    source: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Build this source tree of Linux instead; it is only read.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="Name by which campaigns choose the kernel of --source or --with. Default: that of the folder or file."
        ),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--with", metavar="FILE", show_default=False,
            help="C file of a congestion control (tcp_NAME.c) or a queueing discipline (sch_NAME.c) to compile into "
            "the default series. Repeatable.",
        ),
    ] = None,
) -> None:  # fmt: skip
    """Build Linux for virtual time, from Debian's source package or from a source tree. Needs no root.

    The kernel is kept in the user's cache, and campaigns choose it with the field `kernel`. A tree is built once more
    whenever you ask; the digest of what it gives is part of the ids of runs on it.
    """
    # As Ctrl-C does, it ends the build's programs and removes what they left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if source is None and not files and name is not None:
        raise typer.BadParameter(
            "it names a kernel of yours: use it with --source FOLDER or --with FILE", param_hint="--name"
        )
    if files:
        if source is not None or version != kernels.DEFAULT:
            raise typer.BadParameter(f"it builds Linux {kernels.DEFAULT} with files of yours", param_hint="--with")
        kernel = kernel_build.build_with(files, name or files[0].stem.replace("_", "-").lower(), show_note)
    elif source is None:
        kernel = kernel_build.build(version, show_note)
    else:
        kernel = kernel_build.build_tree(source, name or source.resolve().name.lower(), show_note)
    typer.echo(f"kernel {kernel.name} is in {kernel.folder} ({kernel.release})")


@app.command("list", short_help="List kernels")
def list_(as_json: JsonOption = False) -> None:
    """List the kernels that campaigns can choose, and which of them are built."""
    built = {kernel.name: kernel for kernel in kernels.built()}
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "built": name in built,
            "release": built[name].release if name in built else None,
            "lacks": sorted(kernels.find(name).lacks),
        }
        for name in kernels.names()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    width = max(len(str(row["name"])) for row in rows) + 2
    for row in rows:
        lacks = f"  without {', '.join(row['lacks'])}" if row["lacks"] else ""
        typer.echo(f"{row['name']:{width}}{row['release'] or 'not built'}{lacks}")
