"""`contrast`: the values of a swept field against one of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.commands.options import RESULTS, ArtefactsOption, MarginOption, ResultsOption

if TYPE_CHECKING:
    import polars as pl


def contrast(
    campaign: Annotated[str, typer.Argument(metavar="CAMPAIGN", help="A campaign's name or id.", show_default=False)],
    field: Annotated[
        str, typer.Option("--field", help="The swept field to compare. Needed if the campaign sweeps several.")
    ] = "",
    first: Annotated[
        str, typer.Option("--first", help="The reference value. By default the first value of the sweep.")
    ] = "",
    metric: Annotated[str, typer.Option("--metric", help="Compare this metric, or 'all'.")] = "throughput",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write a table (.csv, .parquet or .json) instead.", show_default=False),
    ] = None,
    margin: MarginOption = 0.05,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
) -> None:
    """Compare the values of a swept field with a reference value, with confidence intervals and effect sizes.

    Runs with the same repetition and seed are compared in pairs (docs/metrics.md).
    """
    import analysis
    from analysis.exports import tables

    with analysis.open(results, artefacts) as store:
        table = store[campaign].contrast(field, first, [] if metric == "all" else [metric], margin=margin)
    if out is not None:
        tables.write(table, out)
        typer.echo(str(out))
        return
    for line in lines(table):
        typer.echo(line)


def lines(table: pl.DataFrame) -> list[str]:
    """The comparisons, one a line, and a line that explains them."""
    from analysis.handle import CONTRASTED
    from experiments.labels import comparisons_note

    others = [name for name in table.columns if name not in CONTRASTED]
    texts = []
    rows = table.to_dicts()
    for row in rows:
        point = "".join(f", {name.rpartition('.')[2]}={row[name]}" for name in others)
        name = f"{row['metric']} {row['subject']}".strip()
        texts.append(f"{name}: {row['second']} against {row['first']}{point}: {_difference(row)}")
    if rows:
        texts.append(
            f"{comparisons_note(len(rows), 0.95, rows[0]['level'], rows[0]['margin'])} "
            "Lines: mean difference [interval], relative change, p, Cohen's d_z; over pairs unless Welch is named."
        )
    return texts


def _difference(row: dict[str, Any]) -> str:
    """ "+5.83 [+5.2, +6.45] Mbit/s, +438.3 %, p = 0.0006, d_z = 23.20, 3 pairs: better"."""
    from testbed import units

    size, unit = units.scale_of(max(abs(row["difference"]), abs(row["low"] or 0.0)), row["unit"])
    shown = f"{row['difference'] / size:+.3g}"
    if row["low"] is not None:
        shown += f" [{row['low'] / size:+.3g}, {row['high'] / size:+.3g}]"
    parts = [f"{shown} {unit}".rstrip()]
    if row["relative"] is not None:
        parts.append(f"{row['relative'] * 100:+.1f} %")
    if row["p_holm"] is None:
        parts.append("no spread in either" if row["n"] > 1 else "no repetitions")
    elif row["low"] is None:
        parts.append("the same in every pair")
    else:
        parts.append(f"p = {row['p_holm']:.2g}")
    if row["d_z"] is not None:
        parts.append(f"d_z = {row['d_z']:.2f}")
    parts.append(f"at least {row['n']} runs a side (Welch)" if row["method"] == "welch" else f"{row['n']} pairs")
    if row["method"] == "paired" and row["unpaired"]:
        parts.append(f"{row['unpaired']} runs without a partner")
    return f"{', '.join(parts)}: {row['verdict']}"
