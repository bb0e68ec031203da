"""`backup` and `restore`: a complete copy of a results folder, also while it is in use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.errors import REPEAT
from experiments import exits
from experiments.commands.answer import Answer
from experiments.commands.options import RESULTS, ResultsOption
from experiments.commands.shared import store_location
from testbed.units import number_of

if TYPE_CHECKING:
    from experiments.commands import documents


def backup(
    to: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder for the backup.", show_default=False)],
    results: ResultsOption = RESULTS,
) -> Answer[documents.Backup]:
    """Copy a results folder, also while runs land in it. After an interruption the same command continues.

    Exit status 1 if runs are damaged; all others are copied.
    """
    return _copy(store_location(results), to)


def restore(
    backup: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a backup.", show_default=False)],
    results: ResultsOption = RESULTS,
) -> Answer[documents.Backup]:
    """Make a results folder from a backup. The folder must have no results."""
    return _copy(backup, store_location(results))


def _copy(source: Path | str, target: Path | str) -> Answer[documents.Backup]:
    from analysis.store.backup import copy_store

    done = copy_store(source, target)
    lines = [f"run {run_id} is damaged: {'; '.join(reasons)}" for run_id, reasons in done.damaged.items()]
    hint = f"; damaged runs: {len(done.damaged)}; {REPEAT}" if done.damaged else ""
    lines.append(f"{number_of(done.runs, 'run')} of {source} copied to {target}{hint}")
    document = {"source": str(source), "target": str(target), "runs": done.runs, "damaged": done.damaged}
    return Answer(document, lines, exits.FAILED if done.damaged else exits.OK)
