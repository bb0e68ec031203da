"""A bundle's page for people: what was run, the results, and where each file is. Plain HTML without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
from jinja2 import Environment

from analysis.estimates import ESTIMATES_NOTE
from analysis.figures.campaign import fields
from analysis.metrics import METRICS
from analysis.metrics.registry import estimate
from analysis.store.rows import CampaignRow, RunRow

_TEMPLATE = Path(__file__).with_suffix(".html")


def page(campaign: CampaignRow, runs: Sequence[RunRow], means: pl.DataFrame | None, files: Sequence[str]) -> str:
    """The page.

    Args:
        campaign: as Store.campaign returns it.
        runs: as Store.run returns them.
        means: of analysis.means; None without a valid run.
        files: every name in the bundle.
    """
    template = Environment(autoescape=True, trim_blocks=True, keep_trailing_newline=True).from_string(
        _TEMPLATE.read_text(encoding="utf-8")
    )
    return template.render(
        campaign=campaign,
        runs=runs,
        files=files,
        figures=[name for name in files if name.startswith("figures/") and name.endswith(".svg")],
        heads=[*([] if means is None else fields(means)), "metric", "of", "runs", "mean"],
        note=ESTIMATES_NOTE,
        rows=[] if means is None else _rows(means),
    )


def _rows(means: pl.DataFrame) -> list[tuple[list[str], list[str]]]:
    """Words and numbers of each row of the table of means."""
    shown = [name for name, metric in METRICS.items() if not metric.detail]
    swept, rows = fields(means), []
    for row in means.filter(pl.col("metric").is_in(shown)).iter_rows(named=True):
        texts = [*(str(row[name]) for name in swept), METRICS[row["metric"]].title, row["subject"]]
        rows.append((texts, [str(row["n"]), estimate(row["metric"], row["unit"], row["values"]).text(row["unit"])]))
    return rows
