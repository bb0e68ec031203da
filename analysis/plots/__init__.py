"""Figures of print quality, as SVG and PDF (PNG as well). docs/plots.md shows how to ask for them."""

from analysis.plots.as_published import as_published
from analysis.plots.of_campaign import INTERVALS, bars, cdf, cdf_of_runs, sweep
from analysis.plots.of_run import (
    congestion_window,
    outstanding,
    queue,
    round_trips,
    throughput,
    time_sequence,
    utilisation,
    whole,
)
from analysis.plots.style import FORMATS, save

__all__ = [
    "FORMATS", "INTERVALS", "as_published", "bars", "cdf", "cdf_of_runs", "congestion_window", "outstanding", "queue",
    "round_trips", "save", "sweep", "throughput", "time_sequence", "utilisation", "whole",
]  # fmt: skip
