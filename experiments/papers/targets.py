"""Targets files (experiments/PAPER/targets.yaml): published values with tolerances, and published orderings.

Nothing that runs a campaign reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, TypeAdapter
from ruamel.yaml import YAML

from analysis.results import CellLabel
from experiments import catalogue
from experiments.language.quantities import Model

#: Smart unions keep what YAML had: a label 50 is not 50.0.
Number = StrictInt | StrictFloat


class Expected(Model):
    """A published value."""

    #: Of the campaign file.
    measure: str = Field(alias="metric")
    #: Axis to label.
    cell: Mapping[str, CellLabel]
    relation: Literal["eq", "approx", "le", "ge"]
    #: In `unit`.
    value: Number
    unit: str
    #: `rel`: share of the value; `abs`: in its unit.
    tolerance: Mapping[Literal["rel", "abs"], Number]
    #: Printed in the paper, or computed from its numbers.
    origin: Literal["stated", "derived"]


class Ordering(Model):
    """A published order of a measure along an axis."""

    measure: str = Field(alias="metric")
    axis: str
    #: Labels in the published order.
    order: tuple[int | str, ...]
    direction: Literal["ascending", "descending"]
    #: Labels of the other axes.
    where: Mapping[str, int | str]
    #: Least ratio of each mean to the next; None: only the order counts.
    min_ratio: Number | None = None
    note: str = ""


class Target(BaseModel):
    """A published table, figure or claim. Fields for readers (kind, parameters, notes) are not read."""

    model_config = ConfigDict(frozen=True)

    id: str
    paper: str
    title: str
    section: str
    #: How the paper obtained it: measured, simulated or theory.
    source: str
    expected: tuple[Expected, ...]
    orderings: tuple[Ordering, ...]


_TARGETS = TypeAdapter(tuple[Target, ...])


@cache
def targets(path: Path) -> tuple[Target, ...]:
    """The artefacts of a targets file."""
    return _TARGETS.validate_python(YAML(typ="safe").load(path.read_text()))


def all_targets() -> Iterator[Target]:
    """The artefacts of every paper, in the files' order."""
    for path in sorted(catalogue.FOLDER.glob("*/targets.yaml")):
        yield from targets(path)


def expected_of(artefact: str | None) -> list[Expected]:
    """The published values of an artefact; none without one."""
    return [value for target in all_targets() if target.id == artefact for value in target.expected]
