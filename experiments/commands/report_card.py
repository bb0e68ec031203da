"""`report-card`: what a sender does on the paths of RFC 9743, beside the standard senders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.errors import writing
from experiments import exits
from experiments.commands.answer import Answer
from experiments.commands.options import RESULTS, ArtefactsOption, JobsOption, ResultsOption
from experiments.commands.shared import console, store_location
from experiments.engine.options import Options

if TYPE_CHECKING:
    from experiments.commands import documents

CaseOption = Annotated[
    list[str] | None,
    typer.Option(
        "--case",
        metavar="NAME",
        show_default=False,
        help="Only this case of experiments/report_card/criteria.yaml. Repeatable. Default: all.",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="FILE", show_default=False, help="Write the card as a page of HTML instead of a table."
    ),
]


def report_card(
    stack: Annotated[
        str,
        typer.Argument(
            metavar="STACK",
            show_default=False,
            help="A stack that `list stacks` has, or a mapping such as '{name: modern, congestion: reno}'. A kernel's "
            "runs on Linux in virtual time, others in the simulator.",
        ),
    ],
    cases: CaseOption = None,
    standard: Annotated[
        str | None,
        typer.Option(
            "--standard",
            metavar="NAME",
            show_default=False,
            help="Sender that it is compared with: CUBIC or Reno. Default: CUBIC, and Reno for CUBIC itself.",
        ),
    ] = None,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
    jobs: JobsOption = None,
    out: OutOption = None,
    site: Annotated[
        str, typer.Option("--site", metavar="URL", help="Address of the site to which links of the page lead.")
    ] = "http://127.0.0.1:8321",
) -> Answer[documents.ReportCard]:
    """Judge a sender by the criteria of RFC 9743 and the test cases of BBR's draft (docs/report-card.md).

    Makes the runs that the results folder lacks. Exit status 1 if a case fails.
    """
    from analysis.store import Store
    from experiments.cards import card, criteria
    from experiments.cards.text import page, summary, table, title
    from experiments.engine.scheduling import run_campaigns
    from experiments.terminal import TerminalReporter

    sender = card.sender(stack, standard)
    planned = [card.planned(case, sender) for case in criteria.named(cases or [])]
    plans = {plan.id: plan for case in planned for plan in case.plans}
    options = Options(results=store_location(results), jobs=jobs, artefacts=artefacts)
    outcomes = run_campaigns(list(plans.values()), options, TerminalReporter(console(stderr=True)))
    with Store.open(options.results, artefacts) as store:
        of_sender = card.read(store, sender, planned)
    if out is not None:
        with writing(out):
            out.write_text(page(of_sender, results, site.rstrip("/")), encoding="utf-8")

    def text() -> None:
        if out is not None:
            typer.echo(f"{title(of_sender)}: {summary(of_sender)}\n{out}")
        else:
            console().print(table(of_sender))

    failed = of_sender.count("fail") or any(outcome.failed for outcome in outcomes)
    is_interrupted = any(outcome.interrupted for outcome in outcomes)
    status = exits.INTERRUPTED if is_interrupted else exits.FAILED if failed else exits.OK
    return Answer(card.document(of_sender), text, status)
