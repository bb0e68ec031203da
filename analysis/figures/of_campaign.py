"""The figures of a campaign that show any of its metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.figures import campaign
from analysis.figures.model import Figure
from analysis.figures.registry import AskedOfCampaign, campaign_figure

if TYPE_CHECKING:
    from analysis.handle import StoredCampaign


@campaign_figure("bars", "a metric at every point")
def bars(of: StoredCampaign, asked: AskedOfCampaign) -> Figure:
    """A bar for each point."""
    return campaign.bars(of.means(), asked.metric, asked.of, asked.interval)


@campaign_figure("sweep", "a metric over a swept field (`--axis`), a line for each combination of the others")
def sweep(of: StoredCampaign, asked: AskedOfCampaign) -> Figure:
    """A line for each combination of the other fields."""
    return campaign.sweep(of.means(), asked.metric, asked.axis, asked.of, asked.interval)


@campaign_figure(
    "cdf", "distribution of a metric over runs, a curve for each point and subject, or for each point (`--pooled`)"
)
def cdf(of: StoredCampaign, asked: AskedOfCampaign) -> Figure:
    """A curve for each point, and for each subject unless they are pooled."""
    return campaign.cdf_of_runs(of.values(), asked.metric, asked.of, pooled=asked.pooled)
