"""The figures of a campaign that show any of its metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.errors import AnalysisError
from analysis.figures import campaign
from analysis.figures.model import Figure
from analysis.figures.registry import AskedOfCampaign, campaign_figure
from analysis.results import NOTHING_MEASURED

if TYPE_CHECKING:
    from analysis.handle import StoredCampaign


@campaign_figure("bars", "a metric at every combination")
def bars(of: StoredCampaign, asked: AskedOfCampaign) -> Figure:
    """A bar for each point."""
    metric, subjects = _asked(of, asked)
    return campaign.bars(campaign.within(of.means(), asked.where), metric, subjects, asked.interval)


@campaign_figure("sweep", "a metric over a swept field (`--axis`), a curve for each combination of the others")
def sweep(of: StoredCampaign, asked: AskedOfCampaign) -> Figure:
    """A line for each combination of the other fields."""
    metric, subjects = _asked(of, asked)
    return campaign.sweep(campaign.within(of.means(), asked.where), metric, asked.axis, subjects, asked.interval)


@campaign_figure(
    "cdf",
    "distribution of a metric over runs, a curve for each combination and subject, or for each combination "
    "(`--pooled`)",
)
def cdf(of: StoredCampaign, asked: AskedOfCampaign) -> Figure:
    """A curve for each point, and for each subject unless they are pooled."""
    metric, subjects = _asked(of, asked)
    return campaign.cdf_of_runs(campaign.within(of.values(), asked.where), metric, subjects, pooled=asked.pooled)


def _asked(of: StoredCampaign, asked: AskedOfCampaign) -> tuple[str, Sequence[str]]:
    """Metric and subjects; without a metric those of the campaign's question."""
    if of.question is None:
        what = NOTHING_MEASURED if of.row.valid else "no valid run yet"
        raise AnalysisError(f"campaign {of.row.name} has {what}")
    if asked.metric and asked.metric != of.question.quantity.metric:
        return asked.metric, asked.of
    return of.question.quantity.metric, asked.of or [of.question.quantity.subject]
