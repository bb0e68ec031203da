"""The search: a design that fills the space, then points where the score is high; repetitions where they can matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.language.fields import assign, resolve
from experiments.language.problems import CampaignError
from experiments.language.sweep import split_field
from experiments.search.evaluate import Candidate, Evaluated, Evaluator, campaign_values
from experiments.search.file import SearchFile
from experiments.search.space import Adaptive, Point, design

#: Points that are evaluated together, and repetitions of a point at first: the least that has an interval.
BATCH, FIRST = 8, 2
#: Level of each test while an answer is shrunk, and where their seeds begin, beyond those of the search's own.
SHRINK_LEVEL, SHRINK_SEEDS = 0.99, 1000
#: No shorter duration is tried, in s.
SHORTEST_S = 2.0
#: Share of the runs that the design takes, where adaptive points follow.
DESIGN_SHARE = 0.4

ADAPTIVE_MISSING = (
    "Optuna is not installed, so all runs go into the space-filling design; "
    "'.venv/bin/pip install optuna==5.0.0' adds adaptive sampling"
)


class Undecided(ValueError):
    """The base campaign does not decide what the question needs of it."""


@dataclass
class Search:
    """What a search has found so far."""

    file: SearchFile
    #: The base campaign, which `max` and `min` improve on and whose ordering `flips` reverses.
    base: Evaluated
    #: Sign of the samples that counts; of `differs` each point has its own.
    sign: float = 1.0
    #: Every point, by its key, in the order of the search.
    points: dict[str, Evaluated] = field(default_factory=dict)
    #: Points proposed by the design; the others are adaptive.
    designed: int = 0
    note: str = ""

    def sign_of(self, candidate: Candidate) -> float:
        """The sign that counts at a point."""
        point = self.points[candidate.key]
        if self.file.question.kind == "differs":
            return 1.0 if not point.samples or point.mean >= 0 else -1.0
        return self.sign

    def signed(self, evaluated: Evaluated) -> Evaluated:
        """A point with samples of which more is what is searched for."""
        return evaluated.signed(self.sign_of(evaluated.candidate))

    @property
    def ranked(self) -> list[Evaluated]:
        """Points with samples: those that show it by their interval's end, then the others by their means."""
        known = [self.signed(point) for point in self.points.values() if point.samples]
        return sorted(known, key=lambda point: (-point.shows() * self.file.question.decides, -_score(point)))

    @property
    def found(self) -> list[Evaluated]:
        """Candidates for an answer, the best first: points that show it, or the best ones of `max` and `min`."""
        ranked = self.ranked
        return [point for point in ranked if point.shows()] if self.file.question.decides else ranked

    def can_matter(self, evaluated: Evaluated) -> bool:
        """Whether more repetitions of a point may change the answer. Intervals prune the others."""
        if not evaluated.samples:
            return False
        point = self.signed(evaluated)
        if self.file.question.decides:
            return point.may_show()
        interval, best = point.interval(), self.ranked[0]
        return interval is None or interval.high >= best.mean


def _score(point: Evaluated) -> float:
    """The interval's lower end, which prefers what is sure; the mean without one."""
    interval = point.interval()
    return point.mean if interval is None else interval.low


def search(
    file: SearchFile, evaluator: Evaluator, runs: int, show: Callable[[Search], None] = lambda state: None
) -> Search:
    """Searches with about so many runs.

    Raises:
        CampaignError: a combination is not valid.
        Undecided: the base campaign does not decide the ordering that is to flip.
    """
    (base,) = evaluator.evaluate([Candidate(())], file.repetitions, file.seed)
    state = Search(file, base)
    if file.question.kind == "flips":
        sign = next((sign for sign in (1.0, -1.0) if base.signed(sign).shows()), None)
        if sign is None:
            raise Undecided(
                f"the campaign itself does not decide the ordering of {file.question.text}, so nothing can flip it; "
                "more repetitions, or 'differs', may help"
            )
        state.sign = -sign
    try:
        adaptive = Adaptive(file.axes, file.seed)
    except ImportError:
        adaptive, state.note = None, ADAPTIVE_MISSING
    cost = FIRST * len(file.question.variants)
    share = DESIGN_SHARE if adaptive is not None else 1.0
    planned = design(file.axes, max(int(runs * share / cost), 1), file.seed)
    while planned and evaluator.runs < runs * share:
        _try(state, evaluator, planned[:BATCH], runs)
        planned = planned[BATCH:]
        state.designed = len(state.points)
        show(state)
    told: set[str] = set()
    while adaptive is not None and evaluator.runs < runs:
        for key, evaluated in state.points.items():
            if key not in told and evaluated.samples:
                adaptive.tell(dict(evaluated.candidate.fields), state.signed(evaluated).mean)
                told.add(key)
        before = evaluator.runs
        _try(state, evaluator, adaptive.ask(BATCH), runs)
        if evaluator.runs == before:
            # Every proposal was known, so a small space is exhausted; or what is left is too little for a point.
            break
        show(state)
    return state


def _try(state: Search, evaluator: Evaluator, points: Sequence[Point], runs: int) -> None:
    """Evaluates points with few repetitions, and those that can matter with all."""
    file = state.file
    new = {candidate.key: candidate for candidate in map(Candidate.at, points) if candidate.key not in state.points}
    room = (runs - evaluator.runs) // (FIRST * len(file.question.variants))
    # A search has one point at least.
    room = max(room, 0 if state.points else 1)
    tried = list(new.values())[:room]
    _keep(state, evaluator.evaluate(tried, FIRST, file.seed))
    more = [candidate for candidate in tried if state.can_matter(state.points[candidate.key])]
    cost = (file.repetitions - FIRST) * len(file.question.variants)
    if cost and (room := (runs - evaluator.runs) // cost) > 0:
        more.sort(key=lambda candidate: -state.signed(state.points[candidate.key]).mean)
        _keep(state, evaluator.evaluate(more[:room], file.repetitions, file.seed))


def _keep(state: Search, evaluated: Sequence[Evaluated]) -> None:
    state.points.update({each.candidate.key: each for each in evaluated})


# The smallest campaign ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shrunk:
    """The smallest campaign that still shows what was found, and what it does without."""

    candidate: Candidate
    sign: float
    steps: tuple[str, ...]


def shrink(state: Search, evaluator: Evaluator, found: Shrunk) -> Shrunk:
    """Leaves out what is not needed, one after another: axes, flows that the question does not name, time.

    Args:
        state: the search.
        evaluator: of its points.
        found: a point, nothing left out.
    """
    file, sign = state.file, found.sign
    repetitions = max(file.repetitions, 5)
    steps: list[str] = []
    tests = 0

    def still(candidate: Candidate) -> bool:
        # Other seeds for each test: what is left would otherwise be fitted to one set of them.
        nonlocal tests
        tests += 1
        seed = file.seed + SHRINK_SEEDS + tests
        return compared(state, evaluator, candidate, sign, repetitions, seed).shows(SHRINK_LEVEL)

    now = found.candidate
    for field_, _ in now.fields:
        less = Candidate(tuple(pair for pair in now.fields if pair[0] != field_), now.without, now.duration)
        if (less.fields or file.question.decides) and still(less):
            now = less
            steps.append(f"{field_} as in the campaign")
    named = file.question.expression.subjects
    names = [str(flow.get("name")) for flow in file.base.values["workload"]]
    for name in names:
        touched = any(f"workload.{name}." in field_ for field_, _ in now.fields)
        if name not in named and not touched and len(names) - len(now.without) > 1:
            less = Candidate(now.fields, now.without | {name}, now.duration)
            if _is_valid(state, evaluator, less) and still(less):
                now = less
                steps.append(f"without flow {name}")
    duration_s = evaluator.duration_s(now)
    while duration_s / 2 >= SHORTEST_S:
        less = Candidate(now.fields, now.without, f"{duration_s / 2:g} s")
        if not _is_valid(state, evaluator, less) or not still(less):
            break
        now, duration_s = less, duration_s / 2
    if now.duration:
        steps.append(f"{duration_s:g} s long")
    return Shrunk(now, sign, tuple(steps))


def _is_valid(state: Search, evaluator: Evaluator, candidate: Candidate) -> bool:
    """Whether the campaign without something is one: others may name a flow, and start after its end."""
    try:
        evaluator.duration_s(candidate)
        state.file.question.expression.check(evaluator.scenario(candidate))
    except (CampaignError, ValueError):
        return False
    return True


def compared(
    state: Search, evaluator: Evaluator, candidate: Candidate, sign: float, repetitions: int, seed: int
) -> Evaluated:
    """A candidate's samples; of `max` and `min` their differences from the base campaign with the same seeds."""
    if state.file.question.decides:
        (evaluated,) = evaluator.evaluate([candidate], repetitions, seed)
        return evaluated.signed(sign)
    base = Candidate((), candidate.without, candidate.duration)
    evaluated, of_base = evaluator.evaluate([candidate, base], repetitions, seed)
    return evaluated.less(of_base)


def written(file: SearchFile, candidate: Candidate, name: str, repetitions: int, seed: int) -> dict[str, Any]:
    """The values of a campaign file of a candidate, with a sweep over the values that the question compares."""
    values = campaign_values(file, candidate)
    for field_, value in candidate.fields:
        assign(values, resolve(values, split_field(field_)), value)
    if file.question.between is not None:
        field_, pair = file.question.between
        values["sweep"] = {field_: list(pair)}
    metric, subject = file.question.expression.metrics[0], file.question.expression.terms[0][1]
    title = f"{file.question.kind}: {file.question.text}"
    question = {"metric": metric, **({"of": subject} if subject else {})}
    return {**values, "name": name, "title": title, "question": question, "repetitions": repetitions, "seed": seed}
