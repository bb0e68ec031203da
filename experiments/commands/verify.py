"""`./backchannel verify`: whether a store is what was stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import analysis
from experiments import exits
from experiments.commands.answer import Answer
from experiments.commands.options import RESULTS, ArtefactsOption, ResultsOption
from experiments.commands.shared import console
from testbed.units import number_of, show

if TYPE_CHECKING:
    from experiments.commands import documents


def verify(
    campaign: Annotated[
        str | None,
        typer.Argument(metavar="CAMPAIGN", help="Look at the runs of this campaign only.", show_default=False),
    ] = None,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
) -> Answer[documents.Verified]:
    """Check the database and every file of a results store against their checksums, and list the runs to repeat.

    Exit status 1 if anything is damaged or missing. Nothing is changed.
    """
    from analysis.store import shown
    from analysis.verifying import commands_to_repeat, verify as verify_runs

    with analysis.open(results, artefacts) as opened, console(stderr=True).status("verifying") as status:
        runs = opened.store.run_ids("") if campaign is None else opened[campaign].run_ids
        found = verify_runs(opened.store, runs, lambda done: status.update(f"verified {done} of {len(runs)} runs"))
        repeat = commands_to_repeat(opened.store, found.damaged_runs, shown(results))
    document = {
        "runs": found.runs,
        "files": found.files,
        "bytes": found.bytes,
        "damaged_runs": found.damaged_runs,
        "repeat": repeat,
        "findings": [{"run": finding.run_id, "reason": finding.reason} for finding in found.findings],
    }
    read = f"{number_of(found.runs, 'run')}, {number_of(found.files, 'file')}, {show(found.bytes, 'bytes')}"
    if not found.findings:
        return Answer(document, [f"{read}: everything is as it was stored"])
    lines = [*map(str, found.findings), f"{read}; damaged runs: {len(found.damaged_runs)}"]
    if repeat:
        lines += ["Repeat them, and import again what was imported:", *(f"  {command}" for command in repeat)]
    return Answer(document, lines, exits.FAILED)
