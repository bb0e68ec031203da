"""A bundle's page for people: what was run, what came out, and where each file lies. Plain HTML, no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

import polars as pl

from analysis.figures.campaign import fields
from analysis.metrics import METRICS
from testbed import units

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;text-align:left;border-bottom:1px solid #ddd}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}img{max-width:100%}pre{background:#f6f6f4;padding:1em}"
)


def page(
    campaign: Mapping[str, Any], runs: Sequence[Mapping[str, Any]], means: pl.DataFrame | None, files: Sequence[str]
) -> str:
    """The page.

    Args:
        campaign: as Store.campaign gives it.
        runs: as Store.run gives them.
        means: of analysis.means; None without a valid run.
        files: every name in the bundle.
    """
    figures = [name for name in files if name.startswith("figures/") and name.endswith(".svg")]
    parts = [
        "<!doctype html>", '<html lang="en"><meta charset="utf-8">',
        f"<title>{escape(campaign['title'])}</title><style>{_STYLE}</style>", f"<h1>{escape(campaign['title'])}</h1>",
        f"<p>Campaign {escape(campaign['name'])} ({escape(campaign['id'])}), {len(runs)} runs on the "
        f"{escape(campaign['backend'])} backend of Backchannel. <code>./backchannel import-bundle</code> takes this "
        "bundle into another installation and verifies every checksum; the metadata are in "
        '<a href="ro-crate-metadata.json">ro-crate-metadata.json</a>.</p>',
        *(f'<p><img src="{quote(name)}" alt="{escape(name)}"></p>' for name in figures),
        *([] if means is None else _table(means)),
        "<h2>Runs</h2><table><tr><th>run</th><th>state</th><th>seed</th><th>files</th></tr>",
        *(_run(run, files) for run in runs), "</table>",
        f"<h2>Campaign file</h2><pre>{escape(campaign['text'])}</pre></html>",
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def _table(means: pl.DataFrame) -> list[str]:
    shown = [name for name, one in METRICS.items() if not one.detail]
    swept = fields(means)
    heads = [*swept, "metric", "of", "runs", "mean", "95 % interval (t)"]
    rows = ["<h2>Means</h2><table><tr>" + "".join(f"<th>{escape(head)}</th>" for head in heads) + "</tr>"]
    for row in means.filter(pl.col("metric").is_in(shown)).iter_rows(named=True):
        interval = "–"
        if row["t_low"] is not None:
            interval = f"{units.show(row['t_low'], row['unit'])} … {units.show(row['t_high'], row['unit'])}"
        texts = [*(str(row[name]) for name in swept), METRICS[row["metric"]].title, row["subject"]]
        numbers = [str(row["n"]), units.show(row["mean"], row["unit"]), interval]
        rows.append(
            "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in texts)
            + "".join(f'<td class="n">{escape(text)}</td>' for text in numbers) + "</tr>"
        )  # fmt: skip
    return [*rows, "</table>"]


def _run(run: Mapping[str, Any], files: Sequence[str]) -> str:
    folder = f"runs/{run['id']}/"
    links = ", ".join(
        f'<a href="{quote(name)}">{escape(name.removeprefix(folder))}</a>' for name in files if name.startswith(folder)
    )
    state = escape(f"{run['state']}: {'; '.join(run['problems'])}" if run["problems"] else run["state"])
    return f"<tr><td>{escape(run['id'])}</td><td>{state}</td><td>{run['seed']}</td><td>{links}</td></tr>"
