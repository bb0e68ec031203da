"""`packetdrill`: scripts of packets and system calls on a kernel in virtual time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.errors import writing
from experiments.commands.answer import Answer
from experiments.commands.shared import console, show_note
from experiments.exits import FAILED, OK
from experiments.plain_table import plain_table
from testbed.virtual_kernel import build as kernel_build, kernels, packetdrill as scripts
from testbed.virtual_kernel.packetdrill import Verdict, Version

if TYPE_CHECKING:
    from experiments.commands import documents

#: Up to as many scripts, those that passed are listed, too.
ALL_SHOWN = 12


def packetdrill(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Scripts, or folders of scripts.")],
    kernel: Annotated[str, typer.Option(help="Kernel that is tested, as 'kernel list' names it.")] = kernels.DEFAULT,
    program: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The program packetdrill. Default: that of the scripts' checkout, or the one in PATH.",
        ),
    ] = None,
    ip: Annotated[
        list[Version] | None,
        typer.Option(
            help="Sockets and packets: ipv4, ipv6 or ipv4-mapped-ipv6. Repeatable. Default: all that a script is for.",
            show_default=False,
        ),
    ] = None,
    tolerance_us: Annotated[
        int | None,
        typer.Option(
            metavar="US",
            min=0,
            help="Tolerance of times, in us. Default: the script's own.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write what packetdrill printed of each script to this folder."),
    ] = None,
) -> Answer[Sequence[documents.ScriptVerdict]]:
    """Run packetdrill scripts on a kernel in virtual time, each in a machine of its own.

    Needs no root, and how busy this machine is makes no difference: times inside are those of the virtual clock.
    """
    found = scripts.scripts(files)
    drill = scripts.program(program, found)
    built = kernels.find(kernel) if kernels.series(kernel) is None else kernel_build.build(kernel, show_note)
    more = ["--send_omit_free", *([] if tolerance_us is None else [f"--tolerance_usecs={tolerance_us}"])]
    pairs = [(script, version) for script in found for version in scripts.versions(script, ip or list(Version))]
    if not pairs:
        raise typer.BadParameter("no script is for that version", param_hint="--ip")
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        verdicts = []
        for verdict in pool.map(lambda pair: scripts.run(pair[0], pair[1], built, drill, more), pairs):
            verdicts.append(verdict)
            if len(verdicts) % 50 == 0:
                show_note(f"{len(verdicts)} of {len(pairs)} scripts have run")
    if keep is not None:
        for verdict in verdicts:
            path = keep / _kept_name(verdict)
            with writing(path):
                path.write_text(verdict.output)
    status = OK if all(verdict.passed for verdict in verdicts) else FAILED
    return Answer([_row(verdict) for verdict in verdicts], lambda: _show(verdicts, built.name), status)


def _show(verdicts: list[Verdict], kernel: str) -> None:
    passed = sum(verdict.passed for verdict in verdicts)
    table = plain_table("script", "IP", "verdict")
    for verdict in verdicts:
        if not verdict.passed or len(verdicts) <= ALL_SHOWN:
            table.add_row(_name(verdict), verdict.version, verdict.reason or "passed")
    if table.row_count:
        console().print(table)
    typer.echo(f"{passed} of {len(verdicts)} passed on Linux {kernel}")


def _row(verdict: Verdict) -> dict[str, Any]:
    return {"script": str(verdict.script), "ip": verdict.version, "passed": verdict.passed, "reason": verdict.reason}


def _kept_name(verdict: Verdict) -> str:
    """Name of the file of what was printed: after the two folders of the script, of which the root has no name."""
    folders = [folder.name for folder in (verdict.script.parent.parent, verdict.script.parent) if folder.name]
    return f"{'-'.join([*folders, verdict.script.stem, verdict.version])}.txt"


def _name(verdict: Verdict) -> str:
    return f"{verdict.script.parent.name}/{verdict.script.name}"
