"""A campaign's tables as other programs read them: numbers in SI units, each with the name of its unit in a column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analysis.figures.means import quantities
from analysis.handle import column_of

if TYPE_CHECKING:
    from analysis.handle import StoredCampaign

#: Unit kind of a metric or field to the SI unit of its numbers; numbers of other kinds have none.
UNITS = {"rate": "bit/s", "time": "s", "bytes": "B", "packets": "packets", "segments": "segments"}


def unit_name(kind: str) -> str:
    """The SI unit of a kind; "1" without one."""
    return UNITS.get(kind, "1")


def in_si(campaign: StoredCampaign, frame: pl.DataFrame) -> pl.DataFrame:
    """A frame of the campaign with its swept quantities as numbers, their units beside them as FIELD_unit, the metrics'
    units by name, and repetitions counted from 1.
    """
    columns: list[pl.Expr | str] = []
    axes = {column_of(name): values for name, values in campaign.axes.items()}
    for name in frame.columns:
        known = quantities(axes[name]) if name in axes else None
        if known is not None:
            kind, sizes = known
            texts = pl.col(name).replace_strict(dict(zip(axes[name], sizes, strict=True)))
            columns += [texts.cast(pl.Float64), pl.lit(unit_name(kind)).alias(f"{name}_unit")]
        elif name == "unit":
            columns.append(pl.col(name).map_elements(unit_name, pl.String))
        else:
            columns.append(pl.col(name) + 1 if name == "repetition" else name)
    return frame.select(columns)


def wide(campaign: StoredCampaign) -> pl.DataFrame:
    """A row for each valid run and a column for each metric and subject: "throughput of download (bit/s)"."""
    values = in_si(campaign, campaign.values())
    of = pl.when(pl.col("subject") == "").then(pl.lit("")).otherwise(pl.lit(" of ") + pl.col("subject"))
    named = values.with_columns((pl.col("metric") + of + " (" + pl.col("unit") + ")").alias("column"))
    runs = [name for name in values.columns if name not in ("metric", "subject", "unit", "value")]
    return named.pivot("column", index=runs, values="value").select(*runs, *_headline_first(campaign, named))


def _headline_first(campaign: StoredCampaign, named: pl.DataFrame) -> list[str]:
    """The columns of metrics, what the campaign asks about first."""
    asked = campaign.question
    first = [quantity[:2] for quantity in (asked.quantity, asked.beside) if quantity] if asked else []
    of_column = dict(zip(named["column"], zip(named["metric"], named["subject"], strict=True), strict=True))
    return sorted(of_column, key=lambda name: first.index(of_column[name]) if of_column[name] in first else len(first))
