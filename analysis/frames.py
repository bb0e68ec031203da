"""Results as polars frames, for scripts and notebooks: `import analysis; analysis.values("quickstart")`.

Values are in SI units. `analysis.to_pandas(frame)` converts any of the frames to pandas.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from analysis import comparison
from analysis.attempts import attempts_of
from analysis.captures import RunData
from analysis.errors import AnalysisError, no_results, unknown
from analysis.metrics.registry import estimate
from analysis.results import Results
from analysis.statistics import LEVEL, MARGIN
from analysis.store import Store
from analysis.store.rows import CampaignRow, RunRow

if TYPE_CHECKING:
    import pandas

#: Default results folder, as on the command line.
RESULTS = Path("results")

VALUES = {
    "point": pl.Int64, "repetition": pl.Int64, "run_id": pl.String, "metric": pl.String, "subject": pl.String,
    "unit": pl.String, "value": pl.Float64,
}  # fmt: skip
MEANS: dict[str, type[pl.DataType] | pl.DataType] = {
    "point": pl.Int64, "metric": pl.String, "subject": pl.String, "unit": pl.String, "n": pl.Int64, "mean": pl.Float64,
    "sd": pl.Float64, "low": pl.Float64, "high": pl.Float64, "level": pl.Float64, "method": pl.String,
    "groups": pl.Int64, "values": pl.List(pl.Float64), "attempts": pl.Int64, "marked": pl.String,
}  # fmt: skip


def open_store(results: Path | Store = RESULTS) -> Store:
    """The store of a results folder; an open store is returned as it is.

    Raises:
        AnalysisError: the folder has no store. None is created.
        StoreError: it cannot be used.
    """
    if isinstance(results, Store):
        return results
    if not (Path(results) / "results.sqlite").is_file():
        raise no_results(results)
    return Store.open(Path(results))


def to_pandas(frame: pl.DataFrame) -> pandas.DataFrame:
    """The frame as a pandas frame. Needs pandas, which Backchannel does not install.

    Integers with nulls become pandas' Int64, null fractions NaN, null text None.

    Raises:
        AnalysisError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise AnalysisError("pandas is not installed: .venv/bin/pip install pandas") from None
    columns: dict[str, Any] = {}
    for series in frame:
        if series.dtype.is_integer() and series.null_count():
            columns[series.name] = pandas.array(series.to_list(), dtype="Int64")
        elif series.dtype.is_numeric():
            columns[series.name] = series.to_numpy()
        else:
            columns[series.name] = pandas.Series(series.to_list(), dtype=object)
    return pandas.DataFrame(columns)


def campaigns(results: Path | Store = RESULTS) -> pl.DataFrame:
    """Every campaign, newest first: id, name, title, backend, state, runs, valid."""
    keys = ("id", "name", "title", "backend", "state", "runs", "valid")
    rows = [{key: getattr(campaign, key) for key in keys} for campaign in open_store(results).campaigns()]
    return pl.DataFrame(rows, schema=dict.fromkeys(keys[:5], pl.String) | dict.fromkeys(keys[5:], pl.Int64))


def find_campaign(store: Store, name: str) -> CampaignRow:
    """The campaign of a name (the newest of several) or an id, as Store.campaign gives it.

    Raises:
        AnalysisError: there is none.
    """
    known = store.campaigns()
    row = next((campaign for campaign in known if name in (campaign.id, campaign.name)), None)
    campaign = None if row is None else store.campaign(row.id)
    if campaign is None:
        raise unknown("campaign", name, [campaign.name for campaign in known])
    return campaign


def find_run(store: Store, name: str) -> RunRow:
    """The run of an id, or of the first characters of one, as Store.run gives it.

    Raises:
        AnalysisError: there is none, or more than one.
    """
    run_ids = store.run_ids(name)
    if not run_ids:
        raise AnalysisError(
            f"there is no run whose id begins with '{name}'; ./backchannel results CAMPAIGN --json prints the ids"
        )
    if len(run_ids) > 1:
        raise AnalysisError(
            f"{len(run_ids)} runs begin with '{name}', such as {run_ids[0]} and {run_ids[1]}: give more characters"
        )
    run = store.run(run_ids[0])
    assert run is not None
    return run


def values(campaign: str, results: Path | Store = RESULTS) -> pl.DataFrame:
    """Every value of a campaign's valid runs: a row per run, metric and subject, with the point's parameters.

    Columns: one for each swept field, as the campaign file writes its values; then point, repetition, run_id, metric,
    subject, unit, value.
    """
    store = open_store(results)
    campaign_row = find_campaign(store, campaign)
    rows = [{**vars(row), "metric": row.name} for row in store.values(campaign_row.id)]
    frame = pl.DataFrame(rows, schema=VALUES).sort("point", "repetition", "metric", "subject")
    return _parameters(campaign_row).join(frame, on="point", how="inner", maintain_order="left_right")


def means(campaign: str, results: Path | Store = RESULTS) -> pl.DataFrame:
    """Means over each point's valid runs, with their 95 % confidence intervals (analysis/estimates.py).

    Columns: the swept fields, point, metric, subject, unit, n, mean, sd (sample standard deviation), low, high, level
    and method of the interval, groups (2 where the values form two groups, otherwise 1), values, attempts that the
    point's runs took, marked (why the valid runs may be a selection; null otherwise). The interval is null for fewer
    than three runs, equal values and two groups. Outliers are included.
    """
    store = open_store(results)
    campaign_row = find_campaign(store, campaign)
    attempts = attempts_of(store, campaign_row.id)
    rows = []
    for row in store.table(campaign_row.id):
        made = estimate(row.name, row.unit, row.values)
        low, high = made.ends
        rows.append({
            "point": row.point, "metric": row.name, "subject": row.subject, "unit": row.unit,
            "n": row.n, "mean": row.mean, "sd": row.sd, "low": low, "high": high, "level": made.level,
            "method": None if made.interval is None else made.interval.method, "groups": len(made.groups) or 1,
            "values": list(made.values), "attempts": attempts[row.point].total,
            "marked": "; ".join(attempts[row.point].reasons) or None,
        })  # fmt: skip
    frame = pl.DataFrame(rows, schema=MEANS)
    return _parameters(campaign_row).join(frame, on="point", how="inner", maintain_order="left_right")


def _parameters(campaign: CampaignRow) -> pl.DataFrame:
    points = campaign.points
    fields = list(dict.fromkeys(field for point in points for field, _ in point.parameters))
    rows = [{**dict.fromkeys(fields), **dict(point.parameters), "point": point.number} for point in points]
    return pl.DataFrame(rows, schema=dict.fromkeys(fields, pl.String) | {"point": pl.Int64})


def run_data(run_id: str, results: Path | Store = RESULTS) -> RunData:
    """The tables of a run, for the functions of analysis.metrics.

    Raises:
        AnalysisError: there is no such run, or it has no tables because nothing was captured.
    """
    store = open_store(results)
    run = find_run(store, run_id)
    folder = store.run_folder(run.id)
    if not (folder / "segments.parquet").is_file():
        raise AnalysisError(f"run {run.id} has no captures: its campaign says so (capture.at)")
    try:
        return RunData.load(folder, run.documents.scenario, run.documents.report)
    except (OSError, pl.exceptions.PolarsError, json.JSONDecodeError, KeyError) as error:
        raise AnalysisError(f"the tables of run {run.id} cannot be read: {error}") from None


CONTRASTED: dict[str, type[pl.DataType]] = {
    "metric": pl.String, "subject": pl.String, "unit": pl.String, "first": pl.String, "second": pl.String,
    "n": pl.Int64, "mean_first": pl.Float64, "mean_second": pl.Float64, "difference": pl.Float64, "sd": pl.Float64,
    "low": pl.Float64, "high": pl.Float64, "level": pl.Float64, "p": pl.Float64, "p_holm": pl.Float64,
    "verdict": pl.String, "margin": pl.Float64, "comparisons": pl.Int64, "d_z": pl.Float64, "g_z": pl.Float64,
    "relative": pl.Float64, "unpaired": pl.Int64, "method": pl.String,
}  # fmt: skip


def contrast(
    campaign: str,
    results: Path | Store = RESULTS,
    field: str = "",
    first: str = "",
    metrics: Sequence[str] = (),
    level: float = LEVEL,
    margin: float = MARGIN,
) -> pl.DataFrame:
    """The values of a swept field against one of them, as analysis.comparison.contrast computes them.

    A row for each other value of the field, combination of the other swept fields, metric and subject. Columns: the
    other swept fields, then those of analysis.statistics.Difference; `n` is the number of pairs, or of runs of the
    smaller side where `method` is welch; `level` is that of the row's own interval, by Bonferroni over `comparisons`;
    `p_holm` and `verdict` take all comparisons together.

    Args:
        campaign: its name or id.
        results: a folder or an open store.
        field: the swept field, or its last words; may be empty if there is only one.
        first: the reference value; the first of the sweep if empty.
        metrics: names of the metrics to compare; all if empty.
        level: of all intervals and of all verdicts together.
        margin: greatest difference of what is called the same, as a share of the reference's mean.

    Raises:
        AnalysisError: there is no such campaign, field, value or metric, or the field has one value only.
    """
    store = open_store(results)
    row = find_campaign(store, campaign)
    points = [dict(point.parameters) for point in row.points]
    stored = Results.of_rows(row.name, points, store.values(row.id))
    known = dict.fromkeys(quantity.metric for values in stored.values.values() for quantity in values)
    for name in metrics:
        if name not in known:
            raise unknown("metric of this campaign", name, list(known))
    made = comparison.contrast(stored, field, first, metrics, level, margin)
    rows = []
    for made_row in made:
        gap = made_row.compared.difference
        rows.append({
            **made_row.point, **made_row.quantity._asdict(), "first": made_row.first, "second": made_row.second,
            "n": min(gap.n_first, gap.n_second), "mean_first": gap.mean_first, "mean_second": gap.mean_second,
            "difference": gap.value, "sd": gap.sd,
            "low": gap.interval.low if gap.interval else None, "high": gap.interval.high if gap.interval else None,
            "level": gap.level, "p": gap.p, "p_holm": made_row.compared.p_adjusted, "verdict": made_row.verdict,
            "margin": margin, "comparisons": len(made), "d_z": gap.d_z, "g_z": gap.g_z, "relative": gap.relative,
            "unpaired": len(gap.unpaired), "method": gap.method,
        })  # fmt: skip
    others: dict[str, type[pl.DataType]] = dict.fromkeys(
        (name for made_row in made for name in made_row.point), pl.String
    )
    return pl.DataFrame(rows, schema=others | CONTRASTED)
