"""From captures and counters to figures: metrics, statistics, figures, exports and the results store.

For scripts and notebooks::

    import analysis
    analysis.campaigns("results")
    analysis.values("quickstart", "results")  # a polars frame, a row per run, metric and flow
    analysis.means("quickstart", "results")
    analysis.contrast("quickstart", "results", first="droptail")  # differences with effect sizes
    analysis.to_pandas(analysis.values("quickstart", "results"))  # as a pandas frame
    run = analysis.run_data("3f9a", "results")
    analysis.metrics.rtt_samples(run.flows[0])
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.frames import campaigns, contrast, means, run_data, to_pandas, values

__all__ = ["campaigns", "contrast", "means", "run_data", "to_pandas", "values"]


def __getattr__(name: str) -> Any:
    # Slow imports happen on first use.
    if name in __all__:
        return getattr(importlib.import_module("analysis.frames"), name)
    if name in ("metrics", "statistics", "plots", "exports", "frames", "store"):
        return importlib.import_module(f"analysis.{name}")
    raise AttributeError(f"module 'analysis' has no attribute '{name}'")
