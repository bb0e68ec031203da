"""From captures and counters to figures: metrics, statistics, figures, exports and the results store.

For scripts and notebooks::

    import analysis

    with analysis.open("results") as s:
        s.campaigns()  # a polars frame
        s["quickstart"].values()  # a row per run, metric and flow
        s["quickstart"].contrast(baseline="droptail")  # differences with effect sizes
        run = s.run("3f9a")
        run.segments, run.telemetry  # lazy frames
        analysis.metrics.rtt_samples(run.data.flows[0])

`dir(analysis)` lists the interface, and analysis/handle.py describes the handle.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.errors import AnalysisError
    from analysis.handle import OpenResults, to_pandas

#: Modules of the interface, imported on first use because each takes a tenth of a second or more.
_MODULES = ("exports", "figures", "metrics", "statistics")
_NAMES = {"AnalysisError": "errors", "OpenResults": "handle", "to_pandas": "handle"}

__all__ = ["AnalysisError", "OpenResults", "exports", "figures", "metrics", "open", "statistics", "to_pandas"]


def open(where: Path | str = "results", artefacts: str | None = None) -> OpenResults:
    """Opens the results of a folder or a PostgreSQL URL; `with analysis.open("results") as s:` closes them again.

    Args:
        where: the folder or the URL.
        artefacts: fsspec URL of the files beside a PostgreSQL store; None: $BACKCHANNEL_ARTEFACTS.

    Raises:
        AnalysisError: the folder has no store. None is created.
        StoreError: the store cannot be used.
    """
    from analysis.handle import OpenResults

    return OpenResults.open(where, artefacts)


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'analysis' has no attribute '{name}'")
