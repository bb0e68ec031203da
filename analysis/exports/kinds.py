"""The exports (docs/exports.md)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from analysis import metrics
from analysis.errors import AnalysisError
from analysis.exports import crate, flent, xplot
from analysis.exports.registry import Target, export
from analysis.exports.si import in_si, wide

if TYPE_CHECKING:
    from analysis.handle import StoredCampaign, StoredRun


@export(
    "values", "one row for each run, metric and subject, with the swept fields", of="campaign", file="{name}-values.csv"
)
def values(campaign: StoredCampaign, target: Target) -> pl.DataFrame:
    """Every value of the valid runs."""
    return in_si(campaign, campaign.values())


@export(
    "wide",
    "one row for each run, with the swept fields and a column for each metric and subject",
    of="campaign",
    file="{name}-runs.csv",
)
def wide_(campaign: StoredCampaign, target: Target) -> pl.DataFrame:
    """The valid runs."""
    return wide(campaign)


@export(
    "means",
    "`n`, `mean`, `sd`, `low`, `high`, `level` and `method` of the confidence interval, `groups`, `values`, "
    "`attempts`, and `marked` where the valid runs may be a selection",
    of="campaign",
    file="{name}-means.csv",
)
def means(campaign: StoredCampaign, target: Target) -> pl.DataFrame:
    """The means."""
    return in_si(campaign, campaign.means())


@export("bundle", "an RO-Crate with captures, manifests, tables and figures", of="campaign", file="{name}.crate.zip")
def bundle(campaign: StoredCampaign, target: Target) -> Sequence[str]:
    """The campaign with everything that it has."""
    digest = crate.write(campaign, target.path, target.author, target.licence or crate.LICENCE)
    return [str(target.path), f"sha256 {digest}"]


@export("metrics", "the run's metrics", of="run", file="{name}-metrics.csv")
def metrics_(run: StoredRun, target: Target) -> pl.DataFrame:
    """The stored metrics."""
    return run.metrics


@export("segments", "every captured segment", of="run", file="{name}-segments.parquet")
def segments(run: StoredRun, target: Target) -> pl.DataFrame:
    """The table of segments."""
    return run.data.segments


@export("connections", "every connection", of="run", file="{name}-connections.csv")
def connections(run: StoredRun, target: Target) -> pl.DataFrame:
    """The table of connections."""
    return run.data.connections


@export(
    "acks",
    "acks on each link: entered, filtered, dropped, marked, reconstructed, lost, delivered",
    of="run",
    file="{name}-acks.csv",
)
def acks(run: StoredRun, target: Target) -> pl.DataFrame:
    """A row for each line."""
    return metrics.ack_accounting(run.data)


@export("flent", "Flent's data format", of="run", file="{name}.flent.gz")
def flent_(run: StoredRun, target: Target) -> Sequence[str]:
    """Throughput, round trips and windows as Flent has them."""
    flent.write(run.data, target.path, title=run.place or run.id)
    return [str(target.path)]


@export("xplot", "a folder of xplot files, as tcptrace writes them", of="run", file="{name}-xplot")
def xplot_(run: StoredRun, target: Target) -> Sequence[str]:
    """Four files for each connection."""
    if not run.data.flows:
        raise AnalysisError("this run has no flows: there is nothing to write")
    files = [str(file) for flow in run.data.flows for file in xplot.write(flow, target.path)]
    if not files:
        raise AnalysisError("no flow of this run has segments at its sender: there is nothing to write")
    return files


@export("flent-series", "its series", of="Flent file", file="{name}-series.csv")
def flent_series(file: Path, target: Target) -> pl.DataFrame:
    """The series of a Flent file."""
    return flent.read(file).series


@export("flent-raw", "its raw values", of="Flent file", file="{name}-raw.csv")
def flent_raw(file: Path, target: Target) -> pl.DataFrame:
    """The raw values of a Flent file."""
    return flent.read(file).raw
