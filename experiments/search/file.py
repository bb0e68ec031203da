"""Search files: a campaign, axes with ranges, and a question (docs/search.md)."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from experiments.language import located, sections, source
from experiments.language.backends import Backend
from experiments.language.problems import CampaignError, Problem
from experiments.search.expression import Expression
from experiments.search.space import Axis, read_axis
from testbed import units
from testbed.errors import unknown

Kind = Literal["max", "min", "where", "flips", "differs"]
KINDS: tuple[Kind, ...] = ("max", "min", "where", "flips", "differs")
#: Fields of a campaign that a search replaces, or that belong to another question.
_LEFT_OUT = (
    "sweep",
    "figure",
    "measures",
    "artefact",
    "split",
    "question",
    "repetitions",
    "seed",
    "backend",
    "backends",
)
_FIELDS = {"name", "campaign", "axes", "question", "repetitions", "seed"}
_WHERE = re.compile(r"(.*?)\s*(<|>)\s*([^<>]+)")


@dataclass(frozen=True)
class Question:
    """What is searched for."""

    kind: Kind
    expression: Expression
    #: Of `where`: the expression is above it (sign 1) or below it (-1).
    threshold: float = 0.0
    sign: int = 1
    #: Of `flips` and `differs`: the field and its two values.
    between: tuple[str, tuple[Any, Any]] | None = None
    text: str = ""

    @property
    def decides(self) -> bool:
        """Whether a point either shows it or does not; `max` and `min` ask for the best point instead."""
        return self.kind not in ("max", "min")

    @property
    def variants(self) -> tuple[dict[str, Any], ...]:
        """Fields of each campaign that a point needs: one, or one for each value of `between`."""
        if self.between is None:
            return ({},)
        field, values = self.between
        return tuple({field: value} for value in values)

    @property
    def amount(self) -> str:
        """What an interval of an answer's samples is of, in a sentence that ends with the interval."""
        if self.kind == "where":
            return f"{'above' if self.sign > 0 else 'below'} {self.expression.shown(self.threshold)} by"
        return "a difference of" if self.between is not None else "better than the campaign by"

    def sample(self, values: list[float]) -> float:
        """A repetition's number, such that more of it is what is searched for: from the expression at each variant.

        Of `flips` and `differs` it is the difference, whose sign counts later.
        """
        if self.between is not None:
            first, second = values
            return second - first
        (value,) = values
        if self.kind == "where":
            return self.sign * (value - self.threshold)
        return -value if self.kind == "min" else value


@dataclass(frozen=True)
class SearchFile:
    """A search."""

    path: str
    name: str
    #: The campaign without sweep and question, for one point.
    base: located.Source
    axes: tuple[Axis, ...]
    question: Question
    #: Most repetitions of a point.
    repetitions: int
    seed: int


def read(path: Path) -> SearchFile:
    """Reads a search file and the campaign that it names.

    Raises:
        CampaignError: with the place of each problem.
    """
    file = source.read_file(path)
    problems = list(_problems(file))
    if problems:
        raise CampaignError(str(path), problems)
    values = file.values
    axes = tuple(read_axis(field, value) for field, value in values["axes"].items())
    base = _base(path.parent / values["campaign"])
    return SearchFile(
        str(path),
        str(values.get("name", path.stem)),
        base,
        axes,
        read_question(values["question"]),
        values.get("repetitions", 5),
        values.get("seed", 1),
    )


def _problems(file: located.Source) -> Iterator[Problem]:
    values = file.values
    if "network" in values and not values.keys() & {"campaign", "axes"}:
        needed = "a search file names it as 'campaign', and has 'axes' and a 'question' (docs/search.md)"
        yield file.problem((), f"this is a campaign file; {needed}")
        return
    for field in values.keys() - _FIELDS:
        yield file.problem((field,), unknown("field", field, sorted(_FIELDS)))
    for field in ("campaign", "axes", "question"):
        if field not in values:
            yield file.problem((), "is required", field)
    if not isinstance(values.get("campaign", ""), str):
        yield file.problem(("campaign",), "is the path of a campaign file, from this file's folder")
    for field, least in (("repetitions", 2), ("seed", 0)):
        value = values.get(field, least)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            yield file.problem((field,), f"is a whole number from {least}")
    axes = values.get("axes", {})
    if "axes" in values and (not isinstance(axes, dict) or not axes):
        yield file.problem(("axes",), "is a mapping of fields to ranges or lists of values")
        axes = {}
    for field, value in axes.items():
        try:
            read_axis(field, value)
        except ValueError as error:
            yield file.problem(("axes", field), str(error))
    if "question" in values:
        try:
            asked = read_question(values["question"])
            if asked.between is not None and asked.between[0] in axes:
                raise ValueError(f"'{asked.between[0]}' is an axis too; remove it from one of them")
        except ValueError as error:
            yield file.problem(("question",), str(error))


def read_question(value: Any) -> Question:
    """A search file's question.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, dict):
        raise ValueError("is a mapping such as {where: starvation(upload) > 0.9} or {max: throughput(download)}")
    for field in value.keys() - {*KINDS, "between"}:
        raise ValueError(unknown("field", str(field), [*KINDS, "between"]))
    kinds = [kind for kind in KINDS if kind in value]
    if len(kinds) != 1:
        raise ValueError(f"has one of {', '.join(KINDS)}, and 'between' with flips and differs")
    kind, text = kinds[0], str(value[kinds[0]])
    between = value.get("between")
    if (kind in ("flips", "differs")) != (between is not None):
        raise ValueError("'between' belongs to flips and differs, which need it: {FIELD: [VALUE, OTHER VALUE]}")
    if between is not None:
        if not isinstance(between, dict) or len(between) != 1:
            raise ValueError(
                "'between' is one field with two values: {network.reverse.queue.policy: [droptail, codel]}"
            )
        ((field, pair),) = between.items()
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError(f"'between' needs two values of {field}")
        return Question(kind, Expression.parse(text), between=(field, (pair[0], pair[1])), text=text)
    if kind != "where":
        return Question(kind, Expression.parse(text), text=text)
    match = _WHERE.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text}' is not EXPRESSION > NUMBER or EXPRESSION < NUMBER")
    sign = 1 if match[2] == ">" else -1
    return Question(kind, Expression.parse(match[1]), _number(match[3]), sign, text=text)


def _number(text: str) -> float:
    for kind in ("number", *units.UNITS):
        try:
            return float(units.parse(text.strip(), kind))
        except ValueError:
            continue
    raise ValueError(f"'{text.strip()}' is not a number, with a unit if it has one: 0.9, 100 kbit/s")


def _base(path: Path) -> located.Source:
    """A campaign as one point in simulation."""
    file = sections.for_backend(source.read(path), Backend.SIM)
    values = {key: value for key, value in copy.deepcopy(file.values).items() if key not in _LEFT_OUT}
    return replace(file, values={**values, "backend": str(Backend.SIM)})
