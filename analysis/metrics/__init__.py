"""The metrics of a run: one function each, with its formula, unit and source. docs/metrics.md lists them.

A metric takes a flow, a line, a link or a run (analysis/runs.py) from whichever provider: captures or counters. One
whose type is a provider's own, such as `CapturedFlow`, needs that provider. Times are seconds since the run's start.

The order of the imports is the order in which metrics are shown.
"""

# ruff: noqa: F403, I001
from analysis.metrics.registry import (
    METRICS as METRICS,
    Measured as Measured,
    Metric as Metric,
    measure as measure,
    title_of as title_of,
)
from analysis.metrics.throughput import *
from analysis.metrics.goodput import *
from analysis.metrics.losses import *
from analysis.metrics.rtt import *
from analysis.metrics.latency import *
from analysis.metrics.transfers import *
from analysis.metrics.calls import *
from analysis.metrics.video import *
from analysis.metrics.completion import *
from analysis.metrics.fairness import *
from analysis.metrics.pace import *
from analysis.metrics.window import *
from analysis.metrics.links import *
from analysis.metrics.acks import *
from analysis.metrics.quic import *


def __dir__() -> list[str]:
    own = (name for name, value in globals().items() if getattr(value, "__module__", "").startswith(f"{__name__}."))
    return sorted(own)
