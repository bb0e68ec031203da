"""`./backchannel measure`: metrics of stored runs, computed again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import analysis
from experiments import exits
from experiments.commands.answer import Answer
from experiments.commands.options import RESULTS, ArtefactsOption, ResultsOption
from experiments.commands.shared import console, fail, open_campaign, reasons_of
from testbed.units import number_of

if TYPE_CHECKING:
    from experiments.commands import documents


def measure(
    campaign: Annotated[str, typer.Argument(metavar="CAMPAIGN", help="A campaign's name or id.", show_default=False)],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric", metavar="NAME", help="Compute only this metric. Repeatable. Default: all.", show_default=False
        ),
    ] = None,
    new: Annotated[
        bool,
        typer.Option(
            "--new", help="Compute only metrics that no run of the campaign has, such as those of a newer version."
        ),
    ] = False,
    plugins: Annotated[
        bool, typer.Option("--plugins", help="Compute only metrics of packages outside the checkout (CONTRIBUTING.md).")
    ] = False,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
) -> Answer[documents.Changes]:
    """Compute metrics of stored runs again, from their captures and counters, without running anything.

    New values replace the old ones, and the manifest of their run states the version that computed them. Other
    metrics, and runs without a new value, stay as they are. `compare NAME@DATE` still reads the values of an earlier
    date.
    """
    from analysis.metrics import METRICS
    from analysis.registry import plugin_of

    if plugins and metric:
        fail("--plugins and --metric exclude each other: each names the metrics to compute", exits.BAD_INPUT)
    chosen = [name for name, entry in METRICS.items() if plugin_of(entry.module)] if plugins else metric
    if plugins and not chosen:
        fail("no package outside the checkout adds a metric; CONTRIBUTING.md shows how one does", exits.BAD_INPUT)
    with analysis.open(results, artefacts) as store, console(stderr=True).status("measuring") as status:
        measured = open_campaign(store, campaign)
        total = len(measured.run_ids)
        changes = measured.measure(
            chosen, new=new, progress=lambda done: status.update(f"measured {done} of {total} runs")
        )
    lines = [
        f"{measured.row.name} ({measured.row.id}): {number_of(changes.runs, 'run')} measured; "
        f"{number_of(changes.new, 'new value')}, {changes.changed} changed, {changes.gone} gone"
    ]
    lines += reasons_of(changes.unmeasured)
    if changes.without:
        lines.append(f"{number_of(changes.without, 'run')} without captures and counters: not measured.")
    if changes.overtaken:
        lines.append(f"{number_of(changes.overtaken, 'run')} replaced by another command meanwhile: measure again.")
    return Answer(changes, lines)
