"""`sensitivity`: which conclusions of a campaign survive small changes of its links."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.results import Results
from experiments import exits
from experiments.commands.answer import Answer
from experiments.commands.options import FileArgument, JobsOption, SetOption
from experiments.commands.shared import console, fail, load_plan, rejecting, run_plans
from experiments.engine.options import Options
from testbed import units
from testbed.local_folders import ScratchFolder

if TYPE_CHECKING:
    from experiments.commands import documents


def sensitivity(
    file: FileArgument,
    overrides: SetOption = None,
    by: Annotated[
        str, typer.Option("--by", metavar="SHARE", help="Greatest relative change of a rate, delay or buffer.")
    ] = "0.1 %",
    perturbations: Annotated[
        int,
        typer.Option(
            "--perturbations", "-n", metavar="N", min=1, max=100, help="Number of perturbed copies of the campaign."
        ),
    ] = 5,
    metric: Annotated[
        str, typer.Option("--metric", metavar="NAME", help="Metric to compare, for each flow.")
    ] = "throughput",
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            metavar="DIR",
            help="Keep the runs in this results folder. By default they are deleted.",
            show_default=False,
        ),
    ] = None,
    jobs: JobsOption = None,
) -> Answer[documents.Sensitivity]:
    """Run a campaign again in simulation with slightly other rates, delays and buffers. Reports which orderings of the
    combinations, signs of differences and intervals survive (docs/doubt.md).
    """
    from analysis.store import Store
    from experiments.papers.sensitivity import assess, perturbed_plan
    from experiments.papers.tables import sensitivity_table

    with rejecting("--by"):
        share = float(units.parse(by, "fraction"))
    if not 0 < share <= 0.1:
        fail(f"--by is a share above 0 and up to 10 %, not '{by}'", exits.BAD_INPUT)
    plan = load_plan(file, overrides, "sim")
    plans = [plan, *(perturbed_plan(plan, number + 1, share) for number in range(perturbations))]
    with ScratchFolder() as folder:
        options = Options(keep or folder / "results", jobs=jobs)
        run_plans(plans, options)
        with Store.open(options.results) as store:
            original, *perturbed = (
                Results.of_rows(plan.name, [dict(point.parameters) for point in plan.points], store.values(plan.id))
                for plan in plans
            )
    with rejecting():
        assessment = assess(original, perturbed, metric, share)
    return Answer(assessment.as_json(), lambda: console().print(sensitivity_table(assessment)))
