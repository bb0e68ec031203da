"""Backchannel as a library: the handle on stored results.

    import backchannel

    with backchannel.open("results") as s:
        s.run_campaign("quickstart")  # as `backchannel run quickstart` does
        s["quickstart"].means()  # a polars frame

`backchannel.analysis` describes the interface. The command is `backchannel`. Modules of Backchannel are parts of this
package, so that other packages named `agents`, `analysis` or `web` can be installed beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis import (
        AnalysisError as AnalysisError,
        OpenResults as OpenResults,
        exports as exports,
        figures as figures,
        metrics as metrics,
        open as open,
        statistics as statistics,
        to_pandas as to_pandas,
    )

__all__ = ["AnalysisError", "OpenResults", "exports", "figures", "metrics", "open", "statistics", "to_pandas"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    # When it is asked for: a host's agent has this file without the analysis.
    if name in __all__:
        import analysis

        return getattr(analysis, name)
    raise AttributeError(f"module 'backchannel' has no attribute '{name}'")
