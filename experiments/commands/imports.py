"""`import`: captures as a run, or a bundled campaign."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.errors import AnalysisError
from experiments.commands.answer import Answer
from experiments.commands.options import RESULTS, ArtefactsOption, ResultsOption
from experiments.commands.shared import results_option
from experiments.limits import GB, LONGEST_S, Limits, limited
from testbed.errors import no_file
from testbed.units import number_of

if TYPE_CHECKING:
    from experiments.commands import documents


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            show_default=False,
            help="Captures of the same transfers, in a format that docs/imports.md lists; or a bundle that `export "
            "bundle` wrote, to which only --results and --artefacts apply.",
        ),
    ],
    label: Annotated[
        str, typer.Option("--label", metavar="TEXT", help="Label of the run. Default: name of the first file.")
    ] = "",
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Remark to store with the run.")] = "",
    campaign: Annotated[
        str,
        typer.Option("--campaign", metavar="NAME", help="Campaign that collects the run. Tables compare its imports."),
    ] = "imports",
    align: Annotated[
        bool,
        typer.Option(
            "--align/--no-align",
            help="Estimate the clock offsets between several captures and correct them. Use --no-align for "
            "synchronised clocks.",
        ),
    ] = True,
    memory_gb: Annotated[
        float,
        typer.Option(
            "--memory-limit",
            metavar="GB",
            min=0.3,
            max=1e6,
            help="Memory that reading the captures may use. Raise it for captures of many million packets.",
        ),
    ] = 8.0,
    time_s: Annotated[
        float,
        typer.Option(
            "--time-limit", metavar="S", min=1, max=LONGEST_S, help="Time that reading the captures may take."
        ),
    ] = 3600.0,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
) -> Answer[documents.Import | documents.Bundle]:
    """Import captures from any source as a run, with the same metrics and plots as other runs; or a bundled campaign,
    which is verified and measured again.
    """
    # A damaged bundle is still recognised by its name.
    if len(files) == 1 and (files[0].suffix.lower() == ".zip" or zipfile.is_zipfile(files[0])):
        return _bundle(files[0], results, artefacts)
    name = label or files[0].name.partition(".")[0] or files[0].name
    with limited(Limits(round(memory_gb * GB), time_s)):
        from analysis.store import Store
        from experiments import import_report
        from experiments.importing import ImportRequest, import_captures

        with Store.open(results, artefacts) as store:
            imported = import_captures(store, ImportRequest(files, name, note, campaign, align))
            run = store.run(imported.run_id)
        assert run is not None
        document, lines = import_report.document(imported, run), import_report.lines(imported, run)
    shown = results_option(results)
    table = f"./backchannel results {campaign}{shown}"
    hint = f"\nNext: ./backchannel serve{shown} shows it with its plots; {table} compares imports."
    return Answer(document, [*lines, hint])


def _bundle(file: Path, results: str, artefacts: str | None) -> Answer[documents.Bundle]:
    from analysis.store import Store
    from experiments import bundles

    if not file.is_file():
        raise AnalysisError(no_file(file))
    with Store.open(results, artefacts) as store:
        read = bundles.read(store, file)
    counts = f"{number_of(read.files, 'file')} verified; {number_of(read.runs, 'run')}, {read.landed} new here"
    lines = [f"{read.name} ({read.id}): {counts}"]
    if read.corrected:
        lines.append(
            f"{read.corrected} of {read.measured} runs give other values than the bundle has, which another version "
            "measured, or which were modified: the results have those that were measured here"
        )
    return Answer(read, lines)
