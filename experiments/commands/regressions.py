"""`regressions`: what a change of a project did to its campaigns, for a pull request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.errors import writing
from experiments import exits
from experiments.commands.answer import Answer
from experiments.commands.options import MarginOption
from experiments.commands.shared import show_note

if TYPE_CHECKING:
    from experiments.commands import documents


def regressions(
    base: Annotated[Path, typer.Argument(metavar="BASE", help="Results folder of the base.", show_default=False)],
    head: Annotated[Path, typer.Argument(metavar="HEAD", help="Results folder of the change.", show_default=False)],
    margin: MarginOption = 0.05,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            show_default=False,
            help="Compare this metric alone, and fail if it is different even where neither way is better, such as "
            "output.p99. Repeatable. Default: all metrics, of which those that are worse fail.",
        ),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the comparisons as JUnit's XML.", show_default=False)
    ] = None,
) -> Answer[documents.Regressions]:
    """Compare the campaigns that two results folders have in common, run by run of equal seeds, as a Markdown table.

    Folders come from pytest's '--line-results', or from 'run --results'. Exit status 1 if a comparison
    fails, or if a combination has valid runs in the base alone.
    """
    from analysis.question import known_metric
    from analysis.regressions import between

    found = between(base, head, margin, [known_metric(name) for name in metrics or ()], show_note)
    if junit is not None:
        with writing(junit):
            junit.write_text(found.junit(), encoding="utf-8")
    return Answer(found.as_json(), found.markdown().splitlines(), exits.FAILED if found.fails else exits.OK)
