"""What a campaign asks: a metric of a flow, what it costs beside it, and how its comparisons share the error.

A campaign file may state it:

    question: {metric: latency.p99, of: ping, better: less, beside: throughput of download}

Without that, the first measure of the file decides, and without measures the first flow in file order: a probe is asked
for its latency, a call for its quality, a transfer for its throughput or completion time. Answer, figures, explorer,
comparisons, `results`, `plot` and exports take this one choice from here.

**One family.** Comparisons of the question's metric share the error among the campaign's combinations: each of k
combinations may be compared with one other, so each comparison has k - 1 as its number (Bonferroni). That also allows
for choosing the best by its mean (multiple comparisons with the best, Hsu 1984). Every other metric is exploratory: its
comparisons share the error among all combinations and all other metrics. The numbers are the campaign's, so that the
same comparison has the same interval and verdict wherever it is shown.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from analysis import declared
from analysis.errors import AnalysisError, unknown
from analysis.results import OUTPUT, RENAMED, Parameters, Quantity, Results, Values, is_output, line_name
from analysis.statistics import LEVEL, MARGIN, Compared, judged

if TYPE_CHECKING:
    from analysis.metrics.registry import Better
    from analysis.store import Store
    from analysis.store.rows import CampaignRow
    from testbed.scenario import Flow, Scenario

#: Metrics that answer for a kind of flow, the first that was measured. Others are asked for their throughput.
_OF_KIND = {
    "probe": ("latency_p50",),
    "call": ("call_quality",),
    "video": ("video_frames_in_time",),
    "transactions": ("latency_p50",),
    "transfers": ("flow_completion_p50",),
    "web": ("flow_completion_p50",),
    "fetch": ("completion_time",),
}
_THROUGHPUT = ("throughput", "packet_throughput")


class QuestionSpec(BaseModel):
    """The `question` of a campaign file."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    metric: Annotated[str, AfterValidator(valid_metric)] = Field(
        description="metric that is asked about, such as throughput or latency.p99"
    )
    of: str = Field("", description="flow, group, link or link/direction; default: the first flow that has the metric")
    better: Literal["more", "less"] | None = Field(None, description="default: as the metric declares")
    beside: str = Field("", description="another metric that is shown beside it: METRIC of FLOW")
    level: float = Field(LEVEL, ge=0.5, le=0.9999, description="confidence level of its intervals together")
    family: Literal["combinations", "each"] = Field(
        "combinations", description="comparisons that share the error: those of all combinations, or each by itself"
    )

    @field_validator("beside")
    @classmethod
    def _exists_beside(cls, value: str) -> str:
        metric, of, subject = value.partition(" of ")
        return f"{valid_metric(metric.strip())}{of}{subject.strip()}" if value else value

    @model_validator(mode="after")
    def _agrees_with_the_metric(self) -> QuestionSpec:
        declared = better_of(self.metric)
        if self.better and declared and self.better != declared:
            raise ValueError(
                f"'better: {self.better}' contradicts {self.metric}, of which {declared} is better; remove it"
            )
        return self

    def parts(self) -> Iterator[tuple[str, str, str]]:
        """Field, metric and subject of what it names."""
        yield "of", self.metric, self.of
        if self.beside:
            metric, _, subject = self.beside.partition(" of ")
            yield "beside", metric, subject

    def problems(self, scenario: Scenario) -> list[tuple[str, str]]:
        """Field and sentence for each name that the campaign does not have."""
        reports = []
        for field, metric, subject in self.parts():
            existing = subjects(scenario, metric)
            if subject not in ("", *existing):
                reports.append((field, str(unknown(f"{_per(metric)} with {metric}", subject, existing))))
        return reports


@dataclass(frozen=True)
class Question:
    """What a campaign asks, and the number of comparisons that share the error."""

    quantity: Quantity
    better: Better | None
    beside: Quantity | None
    #: Whether the campaign file states it.
    is_stated: bool
    #: A sentence where the file asks for what no run has, so that this is asked instead; otherwise "".
    instead: str
    level: float
    #: Comparisons of its quantity that share the error; `is_each`: the file asks for none to share it.
    family: int
    is_each: bool
    #: Metric and subject of what is exploratory.
    others: frozenset[tuple[str, str]]
    #: The campaign's combinations of swept values.
    points: Sequence[Parameters]

    def is_exploratory(self, quantity: Quantity) -> bool:
        """Whether the campaign does not ask about it."""
        return quantity[:2] != self.quantity[:2]

    def comparisons(self, quantity: Quantity) -> int:
        """Comparisons that share the error with one of a quantity."""
        return self.family * (max(len(self.others), 1) if self.is_exploratory(quantity) else 1)

    def judged(self, quantity: Quantity, first: Values, second: Values, margin: float = MARGIN) -> Compared:
        """The difference of a quantity between two sets of runs, second less first."""
        return judged(first, second, self.level, margin, self.comparisons(quantity))

    def better_of(self, quantity: Quantity) -> Better | None:
        """Which way of a quantity is better."""
        return better_of(quantity.metric) if self.is_exploratory(quantity) else self.better

    def to(self, other: Question) -> Question:
        """The same question to two campaigns: their common combinations and quantities share the error."""
        common = sum(point in other.points for point in self.points)
        others = self.others & (other.others | {other.quantity[:2]})
        return replace(self, family=1 if self.is_each else max(common, 1), others=others)


@dataclass(frozen=True)
class Asked(Results):
    """A campaign's results, and what it asks; None without valid runs."""

    question: Question | None

    @classmethod
    def of(cls, results: Results, question: Question | None) -> Asked:
        """Results with a question to them."""
        return cls(results.name, results.points, results.values, question)


def question(
    campaign: CampaignRow, scenario: Scenario | None, kinds: Sequence[Quantity], points: Sequence[Parameters]
) -> Question | None:
    """What a campaign asks; None as long as nothing was measured.

    Args:
        campaign: of the store, with its text and overrides.
        scenario: of one of its runs.
        kinds: that its valid runs have.
        points: its combinations.
    """
    if not kinds:
        return None
    measured = {kind[:2]: kind for kind in kinds}
    flows = _subjects_of_flows(scenario)
    spec = stated(campaign)
    asked: Quantity | None = None
    beside: Quantity | None = None
    if spec is not None:
        asked, *more = (_named(metric, subject, flows, measured) for _, metric, subject in spec.parts())
        beside = more[0] if more else None
    is_stated = spec is not None and asked is not None
    if asked is None:
        asked = _by_measures(campaign, measured) or _by_flows(campaign, flows, measured) or _any(measured)
    if beside is None and not (is_stated and spec is not None and spec.beside):
        beside = _beside(asked, flows, measured)
    instead = ""
    if spec is not None and not is_stated:
        of = f" of {spec.of}" if spec.of else ""
        instead = f"The file asks for {spec.metric}{of}, which no run has."
    spec = spec or QuestionSpec.model_construct()
    return Question(
        asked,
        (spec.better if is_stated else None) or better_of(asked.metric),
        beside,
        is_stated,
        instead,
        spec.level,
        1 if spec.family == "each" else max(len(points) - 1, 1),
        spec.family == "each",
        frozenset(key for key in measured if key != asked[:2] and not is_detail(key[0])),
        points,
    )


def of_stored(store: Store, campaign: CampaignRow) -> Question | None:
    """What a stored campaign asks; None without results."""
    points = [dict(point.parameters) for point in store.points(campaign.id)]
    return question(campaign, store.first_scenario(campaign.id), store.kinds(campaign.id), points)


def stated(campaign: CampaignRow) -> QuestionSpec | None:
    """The question that a campaign's file states, with what the command line set; None without a valid one."""
    values = declared.on_backend(campaign.text, "question", campaign.backend)
    fields = {name.removeprefix("question."): text for name, text in campaign.overrides.items() if "question." in name}
    if not values and not fields:
        return None
    try:
        return QuestionSpec.model_validate({**values, **fields})
    except ValueError:
        # A file of another version, or of a bundle.
        return None


def beside_of(quantity: Quantity, scenario: Scenario | None, kinds: Iterable[Quantity]) -> Quantity | None:
    """The same metric of the other direction: of a flow that goes the other way, or of the link's other direction."""
    by_key = {(kind.metric, kind.subject): kind for kind in kinds}
    link, _, side = quantity.subject.rpartition("/")
    if link and side in _OPPOSITE:
        return by_key.get((quantity.metric, f"{link}/{_OPPOSITE[side]}"))
    flows = _subjects_of_flows(scenario)
    here = flows.get(quantity.subject)
    back = [name for name, flow in flows.items() if here is not None and _way(flow) == _way(here)[::-1]]
    return next((by_key[quantity.metric, name] for name in back if (quantity.metric, name) in by_key), None)


_OPPOSITE = {"forward": "reverse", "reverse": "forward"}


def in_file_order(scenario: Scenario | None, names: Iterable[str]) -> list[str]:
    """Subjects of metrics as the campaign file has its flows, a group before its members; then links, then the run."""
    places = {name: place for place, name in enumerate(_subjects_of_flows(scenario))}
    last = len(places)
    return sorted(names, key=lambda name: (places.get(name, last + (not name)), name))


def subjects(scenario: Scenario, metric: str) -> list[str]:
    """What a metric can be of in a network: flows and groups, links, or their directions."""
    per = _per(metric)
    if per == "flow":
        from analysis.metrics.registry import METRICS

        flows = _subjects_of_flows(scenario)
        groups = {flow.group for flow in scenario.workload if flow.group}
        is_summed = metric in METRICS and METRICS[metric].summed
        return [name for name in flows if is_summed or name not in groups]
    if per == "link":
        return [link.name for link in scenario.links]
    return [f"{link.name}/{way}" for link in scenario.links for way, _ in link.directions()] if per == "line" else []


def known_metric(name: str) -> str:
    """The metric of a name, which may be written with dots: latency.p99.

    Raises:
        AnalysisError: there is none.
    """
    from analysis.metrics import METRICS

    if is_output(name):
        return name
    plain = name.replace(".", "_")
    if plain not in METRICS:
        near = difflib.get_close_matches(plain, METRICS, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(repr(each) for each in near)}?" if near else "."
        raise AnalysisError(f"unknown metric '{name}'{hint} See ./backchannel list metrics")
    return plain


def valid_metric(name: str) -> str:
    """As `known_metric`, but raises ValueError, which pydantic reports with the field."""
    try:
        return known_metric(name)
    except AnalysisError as error:
        raise ValueError(str(error)) from None


def better_of(metric: str) -> Better | None:
    """Which way of a metric is better; None without one, as of metrics that this version does not have."""
    from analysis.metrics import METRICS

    return METRICS[metric].better if metric in METRICS else None


def is_detail(metric: str) -> bool:
    """Whether a metric is shown on its run's page alone, unless it is asked for."""
    from analysis.metrics import METRICS

    return metric in METRICS and METRICS[metric].detail


def judges(metric: str, flow: Flow) -> bool:
    """Whether a metric says how well a flow did: of a probe its latency, not the throughput that it chose."""
    return flow.kind not in _OF_KIND or metric in _OF_KIND[flow.kind]


def _per(metric: str) -> str:
    from analysis.metrics import METRICS

    return METRICS[metric].per if metric in METRICS else "flow"


def _subjects_of_flows(scenario: Scenario | None) -> dict[str, Flow]:
    """Groups and flows in file order, a group before its members, each with its (first) flow."""
    flows_by_name: dict[str, Flow] = {}
    for flow in scenario.workload if scenario is not None else ():
        if flow.group:
            flows_by_name.setdefault(flow.group, flow)
        flows_by_name.setdefault(flow.name, flow)
    return flows_by_name


def _way(flow: Flow) -> tuple[str, str]:
    from analysis.figures.registry import side_of

    return side_of(flow.from_), side_of(flow.to)


_Measured = Mapping[tuple[str, str], Quantity]


def _named(metric: str, subject: str, flows: Iterable[str], measured: _Measured) -> Quantity | None:
    """A quantity by its names; without a subject the first in file order that has the metric."""
    if subject:
        return measured.get((metric, subject))
    others = [known for name, known in measured if name == metric]
    return next((measured[metric, name] for name in [*flows, "", *others] if (metric, name) in measured), None)


def _by_measures(campaign: CampaignRow, measured: _Measured) -> Quantity | None:
    """Of a paper's campaign: what its first measure of a metric is about."""
    measures = (
        measure
        for measure in declared.on_backend(campaign.text, "measures", campaign.backend).values()
        if isinstance(measure, dict)
    )
    names = (
        (RENAMED.get(name, name), line_name(str(measure.get("of", ""))))
        for measure in measures
        if isinstance(name := measure.get("metric"), str)
    )
    return next((measured[name] for name in names if name in measured), None)


def _by_flows(campaign: CampaignRow, flows: Mapping[str, Flow], measured: _Measured) -> Quantity | None:
    total = measured.get(("aggregate_throughput", ""))
    if not campaign.text and total is not None:
        # A collection: each of its runs has flows of its own.
        return total
    answers = ((metric, name) for name, flow in flows.items() for metric in _metrics_of(flow, measured))
    return next((measured[key] for key in answers if key in measured), None)


def _metrics_of(flow: Flow, measured: _Measured) -> list[str]:
    printed = [name for name, subject in measured if name.startswith(OUTPUT) and subject == flow.name]
    sized = ("completion_time",) if flow.bytes else ()
    return [*printed, *_OF_KIND.get(flow.kind, sized), *_THROUGHPUT]


def _any(measured: _Measured) -> Quantity:
    """The first metric of the registry, not a detail if possible."""
    from analysis.metrics import METRICS

    places = {name: place for place, name in enumerate(METRICS)}
    key = min(measured, key=lambda key: (is_detail(key[0]), places.get(key[0], len(places)), key[1]))
    return measured[key]


def _beside(asked: Quantity, flows: Mapping[str, Flow], measured: _Measured) -> Quantity | None:
    """What the next flow in file order is asked for, first of those that go another way or are of another kind."""
    here = flows.get(asked.subject)
    if here is None:
        return beside_of(asked, None, measured.values())
    others = [
        (name, flow)
        for name, flow in flows.items()
        if flow is not here and (flow.group or flow.name) != (here.group or here.name)
    ]
    others.sort(key=lambda other: (other[1].kind, _way(other[1])) == (here.kind, _way(here)))
    answers = ((metric, name) for name, flow in others for metric in _metrics_of(flow, measured))
    return next((measured[key] for key in answers if key in measured), None)
