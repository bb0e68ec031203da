"""Confidence intervals as pages show them: a value and half of its interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis import student
from analysis.intervals import paired, welch

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """Mean of the second less mean of the first; half of its interval (None: too few values); how it was made."""

    mean: float
    half: float | None
    n: int
    #: "paired" or "Welch".
    kind: str

    @property
    def clear(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.half is not None and abs(self.mean) > self.half


def half_width(sd: float | None, n: int, confidence: float = CONFIDENCE) -> float | None:
    """Half of the interval of a mean; None for fewer than two values."""
    return None if sd is None or n < 2 else student.half_width(sd, n, confidence)


def difference(first: Mapping[Any, float], second: Mapping[Any, float]) -> Difference | None:
    """Between two sets of values, by their pairs where they have the same keys (seeds), else after Welch.

    Args:
        first: key to value; equal keys belong together.
        second: the same of the other set.
    """
    if not first or not second:
        return None
    shared = [key for key in first if key in second]
    if len(shared) == len(first) == len(second):
        found, kind = paired([first[key] for key in shared], [second[key] for key in shared], CONFIDENCE), "paired"
    else:
        found, kind = welch(list(first.values()), list(second.values()), CONFIDENCE), "Welch"
    half = None if found.high is None else found.high - found.difference
    return Difference(found.difference, half, min(len(first), len(second)), kind)
