"""The `measures` of a campaign file: the names in which an artefact is published, each in one of these forms.

    throughput: {metric: packet_throughput, of: forward}                    # of a flow, line, link, or run
    advantage: {difference: throughput, axis: policy, between: [aq, droptail]}  # the first less the second
    gain: {ratio: throughput, axis: policy, between: [aq, droptail]}            # the first over the second
    most: {greatest: advantage, over: rate}                                     # the greatest mean over an axis
    typical: {mean: throughput, over: rate}
    optimum: {best: throughput, over: rate}                                     # the label where it is greatest
    both: {sum: [up, down]}
    shut_out: {share: throughput, below: 500}                                   # of a cell's runs
    percent: {scale: utilisation, by: 100}
    of_most: {scale: throughput, axis: path, by: {lan: 6.7e-7, wan: 7.4e-7}}    # by the label on an axis
    more: {plus: gain, by: -1}
    spread: {stdev: throughput}                                                 # over a cell's runs
    rate: {configured: links.air.forward.rate_bps}                              # of the scenario that ran
    timeouts: {gather: {wired: wired, wireless: wireless}, axis: part}          # as labels of an axis

experiments/papers/table.py computes them from a campaign's results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import Field, PlainValidator, field_validator, model_validator

from analysis.results import RENAMED, line_name
from experiments.language.quantities import Model
from testbed.errors import listed


class Form(Model):
    """One form. The key that names it has the class's name, and a part or several that it is computed from."""

    @classmethod
    def key(cls) -> str:
        """By which a file chooses the form."""
        return cls.__name__.lower()

    @property
    def parts(self) -> list[str]:
        """Names of the measures that this one is computed from."""
        part = getattr(self, self.key())
        return [part] if isinstance(part, str) else list(part.values() if isinstance(part, dict) else part)


class _Stored(Form):
    @property
    def parts(self) -> list[str]:
        """None: it comes from the runs."""
        return []


class Metric(_Stored):
    """A stored metric."""

    metric: str
    #: A flow, a group, LINK/DIRECTION, a link, or "" for the run.
    of: str = ""

    @field_validator("metric")
    @classmethod
    def _todays_name(cls, metric: str) -> str:
        return RENAMED.get(metric, metric)

    @field_validator("of")
    @classmethod
    def _todays_subject(cls, subject: str) -> str:
        return line_name(subject)


class Configured(_Stored):
    """A number of the scenario that ran, by its path; entries of lists by name."""

    configured: str


class _Between(Form):
    axis: str
    between: tuple[str, str]


class Difference(_Between):
    """The first cell less the second."""

    difference: str


class Ratio(_Between):
    """The first cell over the second."""

    ratio: str


class _Over(Form):
    over: str


class Greatest(_Over):
    """The greatest mean over an axis."""

    greatest: str


class Mean(_Over):
    """The mean over an axis."""

    mean: str


class Best(_Over):
    """The label of an axis where the mean is greatest."""

    best: str


class Share(Form):
    """The share of a cell's runs below a value."""

    share: str
    below: float


class Sum(Form):
    """The sum of several measures, run by run."""

    sum: list[str] = Field(min_length=1)


class _By(Form):
    by: float | dict[str, float]
    #: With `by` for each of its labels.
    axis: str | None = None

    @model_validator(mode="after")
    def _axis_with_labels(self) -> _By:
        if isinstance(self.by, dict) != (self.axis is not None):
            raise ValueError(f"a measure with '{self.key()}' has 'axis' if 'by' is a mapping of its labels, else not")
        return self


class Scale(_By):
    """The product with a number."""

    scale: str


class Plus(_By):
    """The sum with a number."""

    plus: str


class Stdev(Form):
    """The standard deviation over a cell's runs."""

    stdev: str


class Gather(Form):
    """Several measures as labels of an axis."""

    gather: dict[str, str] = Field(min_length=1)
    axis: str


AnyForm = (
    Metric | Configured | Difference | Ratio | Greatest | Mean | Best | Share | Sum | Scale | Plus | Stdev | Gather
)
_FORMS: dict[str, type[AnyForm]] = {form.key(): form for form in get_args(AnyForm)}


def read(value: Any) -> AnyForm:
    """The form whose key the mapping has. pydantic's own unions would report every form that it is not."""
    if not isinstance(value, Mapping):
        return Metric.model_validate(value)
    values = {name: part for name, part in value.items() if part is not None}
    keys = [key for key in _FORMS if key in values]
    if len(keys) != 1:
        raise ValueError(f"a measure is exactly one of {listed(_FORMS)}; this has {len(keys)} of them")
    form = _FORMS[keys[0]]
    fields = form.model_fields
    for name in [*values, *(name for name, field in fields.items() if field.is_required())]:
        if (name in values) != (name in fields):
            verb = "needs" if name in fields else "has no"
            raise ValueError(f"a measure with '{form.key()}' {verb} '{name}'; its fields are {', '.join(fields)}")
    return form.model_validate(values)


Measure = Annotated[AnyForm, PlainValidator(read)]

#: Measures in a row that are computed from each other, at most.
MAX_CHAIN = 50


def chain_problem(measures: Mapping[str, Form]) -> tuple[str, str] | None:
    """A measure that cannot be computed, and why: it refers to itself, or through too many others. None if all can."""
    left = {name: [part for part in measure.parts if part in measures] for name, measure in measures.items()}
    for _ in range(MAX_CHAIN):
        ready = {name for name, parts in left.items() if not any(part in left for part in parts)}
        if not ready:
            break
        left = {name: parts for name, parts in left.items() if name not in ready}
    if not left:
        return None
    # Every measure that is left refers to another one that is left: following them closes a circle or meets the limit.
    chain = [next(iter(left))]
    while chain[-1] not in chain[:-1]:
        following = next((part for part in left[chain[-1]] if part in left), None)
        if following is None:
            return chain[0], f"refers through more than {MAX_CHAIN} measures; define it by a metric"
        chain.append(following)
    circle = chain[chain.index(chain[-1]) :]
    return circle[0], f"refers to itself: {' -> '.join(circle)}; define it by other measures"


class Split(Model):
    """Divides the runs of the cells with `label` on `axis`.

    Runs whose measure `by` is less than `below` get the first label of `into`, the others the second.
    """

    axis: str
    label: str
    by: str
    below: float
    into: tuple[str, str]
