"""`contrast`: the values of a swept field against one of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.commands.options import RESULTS, ResultsFolderOption

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
    results: ResultsFolderOption = Path(RESULTS),
) -> None:
    """Compare the values of a swept field with a reference value, with confidence intervals and effect sizes.

    Runs with the same repetition and seed are compared in pairs (docs/metrics.md).
    """
    import polars as pl

    from analysis import frames
    from analysis.errors import unknown
    from analysis.exports import tables

    store = frames.open_store(results)
    try:
        table = frames.contrast(campaign, store, field, first)
    finally:
        store.close()
    known = list(dict.fromkeys(table["metric"]))
    if metric != "all":
        if metric not in known:
            raise unknown("metric of this campaign", metric, known)
        table = table.filter(pl.col("metric") == metric)
    if out is not None:
        tables.write(table, out)
        typer.echo(str(out))
        return
    for line in lines(table):
        typer.echo(line)


def lines(table: pl.DataFrame) -> list[str]:
    """The comparisons, one a line, and a line that explains them."""
    from analysis.frames import CONTRASTED

    others = [name for name in table.columns if name not in CONTRASTED]
    found = []
    for row in table.to_dicts():
        point = "".join(f", {name.rpartition('.')[2]}={row[name]}" for name in others)
        name = f"{row['metric']} {row['subject']}".strip()
        found.append(f"{name}: {row['second']} against {row['first']}{point}: {_difference(row)}")
    found.append("mean difference [95 % interval], relative change, p, Cohen's d_z; over pairs unless Welch is named")
    return found


def _difference(row: dict[str, Any]) -> str:
    """ "+5.83 [+5.2, +6.45] Mbit/s, +438.3 %, p = 0.0006, d_z = 23.20, 3 pairs"."""
    from testbed import units

    size, unit = units.scale_of(max(abs(row["difference"]), abs(row["t_low"] or 0.0)), row["unit"])
    shown = f"{row['difference'] / size:+.3g}"
    if row["t_low"] is not None:
        shown += f" [{row['t_low'] / size:+.3g}, {row['t_high'] / size:+.3g}]"
    shown = f"{shown} {unit}".rstrip()
    if row["relative"] is not None:
        shown += f", {row['relative'] * 100:+.1f} %"
    if row["d_z"] is not None:
        shown += f", p = {row['p']:.2g}, d_z = {row['d_z']:.2f}"
    elif row["p"] is not None:
        shown += ", the same in every pair" if row["method"] == "paired" else f", p = {row['p']:.2g}"
    if row["method"] == "welch":
        return f"{shown}, at least {row['n']} runs a side (Welch)"
    return f"{shown}, {row['n']} pairs" + (f", {row['unpaired']} runs without a partner" if row["unpaired"] else "")
