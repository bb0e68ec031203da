"""Repeated measurements as benchmarks print them: the mean, the half-width of its 95 % interval, the number."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.estimates import AT_LEAST_0, Bounds, Estimate


def shown(values: Sequence[float], unit: str = "", bounds: Bounds = AT_LEAST_0) -> str:
    """ "0.97 ± 0.12 s, n = 5"; fewer than three measurements are listed.

    Args:
        values: in `unit`.
        unit: printed behind the mean.
        bounds: values that the quantity can take.
    """
    estimate = Estimate(tuple(values), bounds)
    stated = f"{estimate.text('number')} {unit}".strip()
    return stated if estimate.form == "equal" else f"{stated}, n = {estimate.n}"
