"""`kernel`: the kernels that run in virtual time."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.commands.answer import Answer
from experiments.commands.shared import show_note
from testbed.virtual_kernel import build as kernel_build, kernels
from testbed.virtual_kernel.kernels import SERIES

if TYPE_CHECKING:
    from experiments.commands import documents

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
            help="Name by which campaigns choose a kernel of your own. Default: that of the source's folder or file."
        ),
    ] = None,
    hz: Annotated[
        int | None,
        typer.Option(min=24, max=1000, help="Timer interrupts a second (CONFIG_HZ). Default: 100.", show_default=False),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            metavar="FILE",
            show_default=False,
            help="C file of a congestion control (tcp_NAME.c) or a queueing discipline (sch_NAME.c) to compile into "
            "the default series. Repeatable.",
        ),
    ] = None,
) -> Answer[documents.BuiltKernel]:
    """Build Linux for virtual time, from Debian's source package or from a source tree. Needs no root.

    With a name the kernel is one of your own: of a tree, with other timer interrupts, or with C files.

    The kernel is kept in the user's cache, and campaigns choose it with the field `kernel`. A tree is built once more
    whenever you ask; the digest of what it gives is part of the ids of runs on it.
    """
    # As Ctrl-C does, it ends the build's programs and removes what they left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if files:
        if source is not None or version != kernels.DEFAULT or hz is not None:
            raise typer.BadParameter(f"it builds Linux {kernels.DEFAULT} with files of yours", param_hint="--with")
        kernel = kernel_build.build_with(files, name or files[0].stem.replace("_", "-").lower(), show_note)
        return _built(kernel)
    if source is not None and version != kernels.DEFAULT:
        raise typer.BadParameter("a source tree has a version of its own: leave it out", param_hint="--version")
    if name is None and source is not None:
        name = source.resolve().name.lower()
    if name is not None:
        kernel = kernel_build.build_own(name, show_note, tree=source, version=version, hz=hz)
    elif hz is None:
        kernel = kernel_build.build(version, show_note)
    else:
        raise typer.BadParameter("a kernel with it is one of your own: name it with --name NAME", param_hint="--hz")
    return _built(kernel)


def _built(kernel: kernels.Kernel) -> Answer[documents.BuiltKernel]:
    line = f"kernel {kernel.name} is in {kernel.folder} ({kernel.release})"
    return Answer({"name": kernel.name, "folder": str(kernel.folder), "release": kernel.release}, [line])


@app.command("list", short_help="List kernels")
def list_() -> Answer[Sequence[documents.Kernel]]:
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
    width = max(len(str(row["name"])) for row in rows) + 2
    lines = []
    for row in rows:
        lacks = f"  without {', '.join(row['lacks'])}" if row["lacks"] else ""
        lines.append(f"{row['name']:{width}}{row['release'] or 'not built'}{lacks}")
    return Answer(rows, lines)
