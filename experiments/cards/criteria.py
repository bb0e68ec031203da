"""What report cards ask: experiments/report_card/criteria.yaml, and the campaign file of each case beside it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, TypeAdapter, model_validator
from ruamel.yaml import YAML

from analysis.errors import AnalysisError, unknown
from analysis.question import valid_metric
from experiments import catalogue
from experiments.language.quantities import Model

FOLDER = catalogue.FOLDER / "report_card"
#: Flows whose names begin so have the sender under test.
TESTED = "tested"
#: Metrics that come from the sender's own records: telemetry of the research stack and QUIC, `ss` of a kernel.
OF_THE_ENDPOINT = ("cwnd_", "quic_")


class Criterion(Model):
    """A metric, and the values of it that a sender may have. Exactly one of the bounds is set."""

    metric: Annotated[str, AfterValidator(valid_metric)]
    #: A flow, a group, a link or a link's direction.
    of: str
    #: In the metric's SI unit.
    at_least: float | None = None
    at_most: float | None = None
    #: Times what the standard sender reaches.
    at_least_of_standard: Annotated[float | None, Field(gt=0)] = None
    at_most_of_standard: Annotated[float | None, Field(gt=0)] = None

    @model_validator(mode="after")
    def _has_one_bound(self) -> Criterion:
        bounds = (self.at_least, self.at_most, self.at_least_of_standard, self.at_most_of_standard)
        if sum(bound is not None for bound in bounds) != 1:
            raise ValueError(
                f"{self.metric} of {self.of}: set one of at_least, at_most, at_least_of_standard and "
                "at_most_of_standard"
            )
        return self

    @property
    def relation(self) -> Literal["at least", "at most"]:
        """Which side of the bound is accepted."""
        return "at most" if self.at_least is None and self.at_least_of_standard is None else "at least"

    @property
    def factor(self) -> float | None:
        """Of the standard sender's value; None for a bound that does not depend on it."""
        return self.at_most_of_standard if self.at_least_of_standard is None else self.at_least_of_standard

    @property
    def number(self) -> float:
        """The bound where there is no factor, in the metric's SI unit."""
        bound = self.at_most if self.at_least is None else self.at_least
        assert bound is not None
        return bound

    @property
    def reads_the_endpoint(self) -> bool:
        """Whether the metric comes from the sender's own records instead of captures."""
        return self.metric.startswith(OF_THE_ENDPOINT)


class Case(Model):
    """A campaign, the question that it answers for a sender, and the criteria. Each holds at every point."""

    name: str = Field(alias="case")
    question: str
    #: Sections that ask it.
    source: str
    criteria: tuple[Criterion, ...] = Field(min_length=1)

    @property
    def file(self) -> Path:
        """Its campaign file."""
        return FOLDER / f"{self.name}.yaml"


_CASES = TypeAdapter(tuple[Case, ...])


@cache
def cases() -> tuple[Case, ...]:
    """Every case, in the order of the card."""
    return _CASES.validate_python(YAML(typ="safe").load((FOLDER / "criteria.yaml").read_text(encoding="utf-8")))


def named(names: list[str]) -> tuple[Case, ...]:
    """The cases of these names, in the order of the card; all without names.

    Raises:
        AnalysisError: there is no case of a name.
    """
    known = [case.name for case in cases()]
    for name in names:
        if name not in known:
            raise AnalysisError(str(unknown("case", name, known)))
    return tuple(case for case in cases() if not names or case.name in names)
