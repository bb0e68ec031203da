"""Expressions of metrics: `throughput(download) / throughput(upload)`, `starvation(upload)`."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from analysis.answer import fair_share_bps
from analysis.errors import unknown
from analysis.metrics import METRICS
from analysis.question import subjects, valid_metric
from analysis.results import Quantity
from testbed import units
from testbed.scenario import Scenario

#: 1 less throughput over fair share (analysis/answer.py), at least 0: 0 with the fair share or more, 1 with nothing.
STARVATION = "starvation"
_TERM = re.compile(r"([a-z][\w.]*)\s*\(\s*([^()]*?)\s*\)")
_OPERATORS: Mapping[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


@dataclass(frozen=True)
class Expression:
    """A number from a run's metrics."""

    text: str
    #: Function and subject of each term, in the order of the text.
    terms: tuple[tuple[str, str], ...]
    #: The text with a name in the place of each term.
    tree: ast.expr

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Reads an expression.

        Raises:
            ValueError: it is none, or has an unknown metric.
        """
        terms: list[tuple[str, str]] = []

        def take(match: re.Match[str]) -> str:
            name, subject = match.groups()
            terms.append((name if name == STARVATION else valid_metric(name), subject))
            return f"_{len(terms) - 1}"

        plain = _TERM.sub(take, text)
        try:
            tree = ast.parse(plain.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ValueError(f"'{text}' is not an expression such as {_EXAMPLE}") from None
        if not terms or not all(isinstance(node, _ALLOWED) and _is_plain(node) for node in ast.walk(tree)):
            raise ValueError(f"'{text}' is not an expression of metrics, numbers, + - * / and parentheses: {_EXAMPLE}")
        return cls(text, tuple(terms), tree)

    @property
    def metrics(self) -> list[str]:
        """Metrics that it needs."""
        return list(dict.fromkeys("throughput" if name == STARVATION else name for name, _ in self.terms))

    def shown(self, number: float) -> str:
        """A value of it as people read it: of one metric with its unit, of a formula to four digits."""
        (name, _), *others = self.terms
        is_metric = isinstance(self.tree, ast.Name) and not others and name != STARVATION
        return units.show(number, METRICS[name].unit) if is_metric else f"{number:.4g}"

    @property
    def subjects(self) -> set[str]:
        """Flows, groups and lines that it names."""
        return {subject for _, subject in self.terms}

    def check(self, scenario: Scenario) -> None:
        """Raises ValueError if it names a flow or line that the scenario does not have."""
        for name, subject in self.terms:
            allowed = subjects(scenario, "throughput" if name == STARVATION else name)
            if subject not in allowed and (subject or allowed):
                raise ValueError(str(unknown(f"subject of {name}", subject, allowed)))

    @property
    def needs_scenario(self) -> bool:
        """Whether it has more than metrics."""
        return any(name == STARVATION for name, _ in self.terms)

    def value(self, values: Mapping[Quantity, float], scenario: Scenario | None = None) -> float | None:
        """Of a run; None where a metric has no value there, a divisor is 0, or a scenario is needed and not there."""
        by_name = {(quantity.metric, quantity.subject): value for quantity, value in values.items()}
        numbers: list[float] = []
        for name, subject in self.terms:
            number = by_name.get(("throughput" if name == STARVATION else name, subject))
            if name == STARVATION and number is not None:
                fair_bps = fair_share_bps(scenario, subject) if scenario is not None else None
                number = max(0.0, 1.0 - number / fair_bps) if fair_bps else None
            if number is None:
                return None
            numbers.append(number)
        try:
            return _evaluate(self.tree, numbers)
        except ZeroDivisionError:
            return None


_EXAMPLE = "throughput(download) / throughput(upload)"
_ALLOWED = (ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name, ast.operator, ast.unaryop, ast.expr_context)


def _is_plain(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp | ast.UnaryOp):
        return type(node.op) in _OPERATORS
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    return not isinstance(node, ast.Name) or re.fullmatch(r"_\d+", node.id) is not None


def _evaluate(node: ast.expr, numbers: list[float]) -> float:
    match node:
        case ast.Constant(value=value):
            return float(value)  # type: ignore[arg-type]
        case ast.Name(id=name):
            return numbers[int(name[1:])]
        case ast.UnaryOp(op=op, operand=operand):
            return _OPERATORS[type(op)](_evaluate(operand, numbers))
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_evaluate(left, numbers), _evaluate(right, numbers))
    raise AssertionError(node)
