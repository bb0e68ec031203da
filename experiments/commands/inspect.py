"""`validate`, `list`, `show` and `results`: check files, show what exists and what was measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis import naming
from experiments import exits
from experiments.commands.answer import Answer
from experiments.commands.options import RESULTS, ArtefactsOption, FromOption, ResultsOption, SetOption, TrustOption
from experiments.commands.shared import (
    console,
    fail,
    open_campaign,
    reading,
    results_parts,
    show_parts,
    show_problems,
    wants_json,
    wider_limits,
)
from experiments.labels import campaign_summary, exact_note, results_document
from experiments.language.problems import CampaignError
from testbed.units import number_of

if TYPE_CHECKING:
    from experiments.commands import documents

#: What `list` shows beside mechanisms (analysis/kinds.py).
MEASURED = ("metrics", "figures", "exports")


def validate(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Campaign files, or names of ones that come with Backchannel.", show_default=False
        ),
    ],
    overrides: SetOption = None,
    trust_code: TrustOption = False,
) -> Answer[Sequence[documents.ValidatedFile]]:
    """Check campaign files. Reports every error with file, line and field, and warns of known traps of emulation."""
    from experiments.catalogue import read_named
    from experiments.language import traps
    from experiments.language.campaign import expand

    checked: list[documents.ValidatedFile] = []
    lines = list[str]()
    for file in files:
        try:
            read = read_named(file, trust_code)
            plan = expand(read, overrides or ())
        except CampaignError as error:
            checked.append({"file": str(file), "runs": None, "problems": error.problems, "warnings": []})
            show_problems(error)
        else:
            warnings = traps.warnings(plan, read)
            note = exact_note(plan)
            noted = [f"{file}: {note}"] if note else []
            count = f", {len(warnings)} warning{'s' if len(warnings) > 1 else ''}" if warnings else ""
            lines += [*warnings, *noted, f"{file}: good, {number_of(len(plan.runs), 'run')}{count}"]
            checked.append({"file": str(file), "runs": len(plan.runs), "problems": [], "warnings": [*warnings, *noted]})
    rejected = any(file["problems"] for file in checked)
    return Answer(checked, lines, exits.BAD_INPUT if rejected else exits.OK)


def list_(
    what: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="stacks, policies, links, profiles, error-models, middleboxes, workloads, backends or topologies; or "
            "metrics, figures or exports. Default: all mechanisms.",
        ),
    ] = "",
    crates: FromOption = None,
) -> Answer[Sequence[documents.Mechanism | documents.Listed]]:
    """List mechanisms with their source, or metrics, figures and exports. `show` prints a mechanism's options."""
    from experiments.language import registry
    from experiments.plain_table import plain_table

    kinds = {word: kind for kind, word in registry.KINDS.items()}
    if what in MEASURED:
        return _measured(what)
    if what and what not in kinds:
        fail(registry.unknown("kind", what, [*kinds, *MEASURED]), exits.BAD_INPUT)
    selected = [kinds[what]] if what else list(registry.KINDS)

    def text() -> None:
        terminal = console()
        for kind in selected:
            terminal.print(registry.KINDS[kind], style="bold", highlight=False)
            table = plain_table("name", "summary", "source")
            for entry in registry.of_kind(kind):
                table.add_row(entry.name, entry.summary, entry.source)
            terminal.print(table)
            terminal.print()
        terminal.print(
            "asym, ton, pulsed, acq and aq are the five papers: docs/papers.md", style="dim", highlight=False
        )

    return Answer([entry.as_json() for kind in selected for entry in registry.of_kind(kind)], text)


def _measured(what: str) -> Answer[Sequence[documents.Listed]]:
    from analysis import kinds
    from experiments.plain_table import plain_table

    entries = kinds.listed(what)
    columns = [
        name for name in ("name", "summary", "of", "unit", "source") if any(getattr(entry, name) for entry in entries)
    ]
    table = plain_table(*columns)
    for entry in entries:
        table.add_row(*(getattr(entry, column) for column in columns))
    return Answer(entries, lambda: console().print(table))


def show_(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Name of a stack, policy, link or other mechanism, as `list` prints it.",
            show_default=False,
        ),
    ],
    crates: FromOption = None,
) -> Answer[Sequence[documents.Mechanism]]:
    """Show a mechanism with every option: its unit, default and range."""
    from experiments.language import registry

    matches = [entry for entry in registry.entries() if entry.name == name]
    if not matches and (controller := registry.controller(name)):
        matches = [controller]
    if not matches:
        names = dict.fromkeys(entry.name for entry in registry.entries())
        fail(registry.unknown("mechanism", name, names), exits.BAD_INPUT)
    lines = list[str]()
    for entry in matches:
        lines += [f"{entry.kind} {entry.name}: {entry.summary}", f"  source: {entry.source}"]
        if entry.crate:
            crate = registry.crates()[entry.crate]
            lines.append(f"  crate: {crate.name} {crate.version}, digest {crate.sha256[:12]}")
        if entry.backends:
            lines.append(f"  backends: {', '.join(entry.backends)}")
        for param in sorted(entry.params, key=lambda param: param.short):
            lines.append(f"  {param.short} ({param.allowed()}): {param.help}")
        if entry.spec:
            lines.append(json.dumps(entry.spec.as_json(), indent=2))
    return Answer([entry.as_json() for entry in matches], lines)


def results(
    name: Annotated[
        str,
        typer.Argument(
            metavar="CAMPAIGN", help="Name of a campaign, its id or the first characters of it. Default: list all."
        ),
    ] = "",
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            show_default=False,
            help="Show this metric. Repeatable. Default: what the campaign asks about, then what has room.",
        ),
    ] = None,
    flows: Annotated[
        list[str] | None,
        typer.Option(
            "--flow", metavar="NAME", show_default=False, help="Show only this flow, group or link. Repeatable."
        ),
    ] = None,
    sort: Annotated[
        str,
        typer.Option(
            "--sort",
            metavar="NAME",
            help="Sort by a swept field, or by a shown metric, the best first. Default: file order.",
        ),
    ] = "",
    page: Annotated[int, typer.Option("--page", metavar="N", min=1, help="Page of the table.")] = 1,
    per_page: Annotated[int, typer.Option("--rows", metavar="N", min=1, help="Combinations of a page.")] = 40,
    folder: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
) -> Answer[documents.Results | Sequence[documents.CampaignSummary]]:
    """Show the results of a campaign, or list the campaigns of a results folder."""
    from analysis.question import known_metric
    from experiments.results_table import Asked
    from experiments.tables import campaigns_table

    with reading(folder, artefacts) as opened:
        store = opened.store
        if not name:
            known = store.campaigns(texts=True)
            apart = naming.distinguished(known)
            return Answer(
                [campaign_summary(row) for row in known],
                lambda: console().print(campaigns_table(known, apart)) if known else None,
            )
        campaign = open_campaign(opened, name)
        row = campaign.row
        names = [known_metric(metric) for metric in metrics or ()]
        by = sort if "output." in sort else sort.replace(".", "_") if sort.replace(".", "_") in names else sort
        asked = Asked(names, flows or (), by, page, per_page)
        if wants_json.get():
            return Answer(results_document(campaign), ())
        # Both are read from the store, which is closed when the answer is printed.
        shown = results_parts(console(), campaign, asked)
        wider = wider_limits(store, row.id, row.backend)
    return Answer(None, lambda: show_parts(console(), shown, wider))
