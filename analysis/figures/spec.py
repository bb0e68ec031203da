"""The `figure` of a campaign file: how its results are drawn, so that they can be compared with a published figure.

    figure:
      kind: lines                                  # lines, bars, scatter, cdf, time
      x: {axis: c_d_bps, title: Download capacity, unit: Mbit/s, range: [0, 10]}
      y: {measures: [utilisation_upload, utilisation_download], title: Utilisation, unit: '%', range: [0, 100]}
      series: [AQ, DropTail]                       # labels and measures, in the order of the legend
      names: {utilisation_upload: upload}          # what a label or measure is called in the figure
      where: {path: LAN}                           # labels held fixed
      error_bars: confidence                       # of the means: confidence, sd, none

Every combination of the other axes' labels is a series, and of the measures where there are several. `kind: time` shows
counters of the first repetition over time (`y: {counters: [cwnd], of: [forward]}`). A figure never changes a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from analysis.results import line_name
from testbed import units
from testbed.errors import listed, unknown

#: What `time` can show: per flow, per direction, and of a link.
FLOW_COUNTERS = ("delivered", "cwnd", "throughput")
DIRECTION_COUNTERS = ("utilisation", "utilisation_data", "utilisation_acks", "carried_other")
LINK_COUNTERS = ("utility",)
COUNTERS = (*FLOW_COUNTERS, *DIRECTION_COUNTERS, *LINK_COUNTERS)
#: An axis whose labels are the measures themselves.
MEASURES = "measures"


def size_of(unit: str) -> float:
    """The size of a unit in the SI unit.

    Raises:
        ValueError: unknown unit.
    """
    if unit in ("", "packets", "segments"):
        return 1.0
    if unit == "%":
        return 0.01
    for kind in ("rate", "time", "bytes"):
        try:
            return float(units.parse(f"1 {unit}", kind))
        except ValueError:
            continue
    raise ValueError(f"'{unit}' is not a unit of an axis; allowed: units of rates, times and bytes, %, and ''")


class _Axis(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    title: str = ""
    #: In which the axis is labelled: a unit as campaign files have them, or '' for the number itself.
    unit: str = ""
    range: tuple[float, float] | None = Field(None, description="in that unit")
    scale: Literal["linear", "log"] = "linear"

    @model_validator(mode="after")
    def _makes_sense(self) -> _Axis:
        size_of(self.unit)
        if self.range is not None and not self.range[1] > self.range[0]:
            raise ValueError("a range runs from the lesser to the greater, such as [0, 10]")
        if self.range is not None and self.scale == "log" and self.range[0] <= 0:
            raise ValueError("a logarithmic range begins above 0")
        return self


class XAxis(_Axis):
    """Along the figure."""

    axis: str = Field("", description=f"of the sweep; '{MEASURES}' for a group of bars a measure; '' for cdf and time")
    #: The labels shown, in this order; all, as the sweep has them, without it.
    order: list[str] = []
    #: Positions of labels that are not numbers, in the axis' unit.
    at: dict[str, float] = {}


class YAxis(_Axis):
    """Up the figure: measures, or with `kind: time` counters."""

    measures: list[str] = []
    counters: list[str] = []
    of: list[str] = Field([], description="flows, groups, directions or links of a counter")
    #: Bins of a counter that make one point.
    bins: int = Field(1, ge=1)

    @field_validator("of")
    @classmethod
    def _todays_subjects(cls, of: list[str]) -> list[str]:
        return [line_name(subject) for subject in of]

    @model_validator(mode="after")
    def _known(self) -> YAxis:
        for name in self.counters:
            if name not in COUNTERS:
                raise ValueError(unknown("counter", name, COUNTERS))
        return self


class FigureSpec(BaseModel):
    """The `figure` of a campaign file."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    kind: Literal["lines", "bars", "scatter", "cdf", "time"]
    title: str = ""
    x: XAxis = Field(default_factory=lambda: XAxis.model_validate({}))
    y: YAxis
    series: list[str] = []
    names: dict[str, str] = {}
    where: dict[str, str] = {}
    error_bars: Literal["confidence", "sd", "none"] = "confidence"

    @field_validator("names")
    @classmethod
    def _todays_names(cls, names: dict[str, str]) -> dict[str, str]:
        return {line_name(subject): name for subject, name in names.items()}

    @model_validator(mode="after")
    def _fits_its_kind(self) -> FigureSpec:
        if self.kind == "time":
            if not self.y.counters or not self.y.of:
                raise ValueError(f"kind time needs y.counters (of {', '.join(COUNTERS)}) and y.of: flows or directions")
        elif not self.y.measures:
            raise ValueError(f"kind {self.kind} needs y.measures: names of the campaign's measures")
        if self.kind in ("lines", "bars", "scatter") and not self.x.axis:
            raise ValueError(f"kind {self.kind} needs x.axis: an axis of the sweep, or '{MEASURES}'")
        return self

    def problems(self, measures: Iterable[str], axes: Mapping[str, Sequence[str]]) -> list[str]:
        """What the rest of the campaign file does not have."""
        known, problems = list(measures), []
        for name in self.y.measures:
            if name not in known:
                problems.append(f"figure.y.measures: {unknown('measure', name, known)}")
        wanted = [*([self.x.axis] if self.x.axis not in ("", MEASURES) else []), *self.where]
        for axis in wanted:
            if axis not in axes:
                problems.append(f"figure: unknown axis '{axis}'; the sweep's axes: {listed(axes)}")
        return problems
