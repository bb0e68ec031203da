"""The registry of figures, which the command line, the site and scripts draw from.

A figure of a run shows some of its flows or lines over a period; a figure of a campaign shows a metric:

    @figure("rtt", "round-trip samples of flows", of=Flow)
    def rtt(flows: Sequence[Flow], asked: Asked) -> Figure: ...

    @campaign_figure("bars", "a metric at every point, with error bars")
    def bars(campaign: StoredCampaign, asked: AskedOfCampaign) -> Figure: ...
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from analysis.errors import AnalysisError, unknown
from analysis.figures.model import Figure, Series
from analysis.registry import Declared, Registry, calling
from analysis.routes import direction_name
from analysis.runs import RunView, Unmeasured
from testbed.node_binary import PACKAGE

#: Shortest slice without a request for a shorter one, in s.
LEAST_SLICE_S = 0.01


@dataclass(frozen=True)
class Asked:
    """What a figure of a run is to show."""

    #: Of the period, in s since the run's start.
    from_s: float
    to_s: float
    #: Of series that are counted by slices, in s.
    slice_s: float
    #: Of rates, such as "kbit/s", so that figures can be laid over each other; "" for the one that suits the values.
    rate_unit: str = ""

    @classmethod
    def of(cls, run: RunView, from_s: float | None, to_s: float | None, slice_s: float | None) -> Asked:
        """A period; by default the whole run, in slices of a hundredth of it.

        Raises:
            AnalysisError: the period is empty.
        """
        low, high = from_s or 0.0, run.window_s[1] if to_s is None else to_s
        if not high > low:
            raise AnalysisError(f"no data between {low:g} s and {high:g} s")
        return cls(low, high, slice_s or max((high - low) / 100, LEAST_SLICE_S))


@dataclass(frozen=True)
class AskedOfCampaign:
    """What a figure of a campaign is to show."""

    #: "": the one that the campaign asks about.
    metric: str = ""
    #: Flows, groups or lines; without any, the one that the campaign asks about, or all of another metric.
    of: Sequence[str] = ()
    #: Swept field on the x axis.
    axis: str = ""
    #: Swept field, or its last words, to the value that is drawn alone.
    where: Mapping[str, str] = field(default_factory=dict)
    #: Error bars: confidence or sd.
    interval: str = "confidence"
    #: Whether the values of all subjects are taken together.
    pooled: bool = False


Function = TypeVar("Function", bound=Callable[..., Figure])


@dataclass(frozen=True)
class Kind(Declared, Generic[Function]):
    """A kind of figure."""

    name: str
    #: For lists and help.
    summary: str
    function: Function


@dataclass(frozen=True)
class RunKind(Kind[Callable[[Any, Asked], Figure]]):
    """A kind of figure of a run."""

    #: Type of what it shows: an interface of analysis/runs.py if every provider serves it, otherwise a provider's.
    subject: type[Any]
    #: Whether it shows one flow or line at a time.
    single: bool
    #: Whether it counts by slices.
    sliced: bool
    #: Title where the figures of several runs are laid over each other; "": they are not.
    overlay: str
    #: Name of the series that stands for a run there; "": every one that is not a mark.
    represents: str

    @property
    def per(self) -> str:
        """What it is of: "flow" or "line"."""
        return str(self.subject.kind)

    def overlaid(self, figure: Figure) -> list[Series]:
        """The series of a run's figure that stand for the run where several are laid over each other."""
        if self.represents:
            return [line for line in figure.series if line.name == self.represents]
        return [
            line
            for line in figure.series
            if not (line.keep_all or line.reference) and line.fits and line.kind != "segments"
        ]


FIGURES: Registry[RunKind] = Registry("figure", "backchannel.figures", [f"{PACKAGE}analysis.figures.of_run"])
CAMPAIGN_FIGURES: Registry[Kind[Callable[[Any, AskedOfCampaign], Figure]]] = Registry(
    # The papers' figure is named as those of other packages are: nothing here imports it.
    "figure",
    "backchannel.figures",
    [f"{PACKAGE}analysis.figures.of_campaign", f"{PACKAGE}experiments.papers.figure"],
)

RunFunction = TypeVar("RunFunction", bound=Callable[[Any, Asked], Figure])
CampaignFunction = TypeVar("CampaignFunction", bound=Callable[[Any, AskedOfCampaign], Figure])


def figure(
    name: str,
    summary: str,
    *,
    of: type[Any],
    single: bool = False,
    sliced: bool = False,
    overlay: str = "",
    represents: str = "",
) -> Callable[[RunFunction], RunFunction]:
    """Registers the function as a figure of a run. It takes flows or lines, one if `single`, and an `Asked`."""

    def declare(function: RunFunction) -> RunFunction:
        FIGURES.add(RunKind(name, summary, function, of, single, sliced, overlay, represents))
        return function

    return declare


def campaign_figure(name: str, summary: str) -> Callable[[CampaignFunction], CampaignFunction]:
    """Registers the function as a figure of a campaign (analysis/handle.py)."""

    def declare(function: CampaignFunction) -> CampaignFunction:
        CAMPAIGN_FIGURES.add(Kind(name, summary, function))
        return function

    return declare


def draw(run: RunView, name: str, of: Sequence[str], asked: Asked) -> Figure:
    """A figure of a run, with all of its points.

    Args:
        run: that is shown.
        name: of the kind.
        of: flows, groups, receiving sides of the network ("client" for client1, client2, ...) or lines; none: all.
        asked: period and slices.

    Raises:
        AnalysisError: unknown figure, flow or line.
        Unmeasured: the run does not have what the figure needs.
    """
    kind = FIGURES.find(name)
    parts_by_word = subjects(run, kind.per)
    declared = {f"{link.name}/{direction_name(port)}" for link in run.scenario.links for port in range(len(link.ends))}
    for part in of:
        if kind.per == "line" and part in declared - set(parts_by_word):
            raise Unmeasured("this link was not counted: capture.counters.at of the campaign names the links")
        if part not in parts_by_word:
            raise unknown("direction of a link" if kind.per == "line" else "flow or group", part, parts_by_word)
    everything = run.flows if kind.per == "flow" else run.lines
    parts = list(dict.fromkeys(part for word in of for part in parts_by_word[word])) or list(everything)
    if not parts:
        lacks = "links: it was imported" if kind.per == "line" else "flows: there is nothing to draw"
        raise Unmeasured(f"this run has no {lacks}")
    if kind.single and len(parts) > 1 and of:
        raise AnalysisError(f"{name} shows one {kind.per}: give one --of")
    if not isinstance(parts[0], kind.subject):
        raise Unmeasured(f"{name} needs captures (capture.at)")
    with calling(kind):
        drawn = _first_drawn(kind, parts, asked) if kind.single else kind.function(parts, asked)
    return replace(drawn, notes=(*drawn.notes, run.caveat)) if run.caveat else drawn


def _first_drawn(kind: RunKind, parts: Sequence[Any], asked: Asked) -> Figure:
    """The figure of the first part that has what it needs: a probe may come before the transfers.

    Raises:
        Unmeasured: of the first part, as none has it.
    """
    refusals = []
    for part in parts:
        try:
            return kind.function(part, asked)
        except Unmeasured as refusal:
            refusals.append(refusal)
    raise refusals[0]


def subjects(run: RunView, per: str) -> Mapping[str, Sequence[Any]]:
    """What a figure of a run can be asked for by name: its flows, groups and receiving sides, or its lines."""
    if per == "line":
        return {line.name: [line] for line in getattr(run, "all_lines", run.lines)}
    sides: dict[str, list[Any]] = {}
    for flow in run.flows:
        sides.setdefault(side_of(flow.spec.to), []).append(flow)
    flows = {flow.name: [flow] for flow in run.flows}
    return flows | {name: part for name, part in {**sides, **run.groups}.items() if name not in flows}


def side_of(host: str) -> str:
    """A host without its number: client1 and client2 are one side of a network. An address is a side of its own."""
    return host if re.search("[.:]", host) else host.rstrip("0123456789")
