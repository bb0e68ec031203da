"""What a batch makes: which runs of each campaign, in which order, how far it is, and how it ended. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from analysis.errors import AnalysisError
from analysis.store.documents import Batch
from analysis.swept import axes_of, condition
from experiments.engine.forecast import effort_s
from experiments.language.campaign import Member, Plan, Run
from experiments.language.problems import CampaignError, Problem

#: Minimum length of a prefix that selects a run by its id.
LEAST_ID = 6


@dataclass
class Outcome:
    """How a campaign ended."""

    campaign_id: str
    #: Valid results that the store had.
    reused: int
    #: Valid results that were made.
    landed: int = 0
    #: Why each run without a valid result has none, by run id.
    failed: dict[str, str] = field(default_factory=dict)
    #: Runs of the plan without a result that were not tried, because options excluded them or it ended before them.
    left_out: int = 0
    #: Runs that were not started, because the lab's hosts are taken away before they would end, and the sentence.
    lease_left_out: int = 0
    lease_over: str = ""
    #: Maximum number of busy cells.
    cells: int = 0
    interrupted: bool = False
    #: Whether `fail_fast` stopped it.
    ended_early: bool = False

    @property
    def complete(self) -> bool:
        """Whether the store has a valid result of every run."""
        return not self.failed and not self.left_out


@dataclass
class PlannedCampaign:
    """One campaign of a batch."""

    plan: Plan
    outcome: Outcome
    #: Runs to make for it, in this order.
    runs: list[Run]
    order_seed: int | None
    #: Runs whose old result is replaced as soon as the new one has landed.
    replaced: set[str]
    #: Missing runs that another campaign of the batch makes.
    shared: set[str]
    #: Finished runs, its own and shared ones; and the effort of its own, in s.
    finished: set[str] = field(default_factory=set)
    finished_s: float = 0.0
    #: Number of its own runs that other runners of the store have made.
    made_elsewhere: int = 0
    closed: bool = False

    def __post_init__(self) -> None:
        self._positions = {run.id: position for position, run in enumerate(self.runs)}
        # Repetitions differ by what varies only, and a scenario takes as long to type as a run to be made.
        of_point: dict[int, float] = {}
        for run in self.runs:
            if run.point not in of_point:
                of_point[run.point] = effort_s(run)
        self.efforts_s = {run.id: of_point[run.point] for run in self.runs}
        #: Effort of all runs that are made for it, in s.
        self.total_s = sum(self.efforts_s.values())

    def on_finished(self, run_id: str) -> None:
        """A run has ended, with or without a valid result."""
        self.finished.add(run_id)
        self.finished_s += self.efforts_s.get(run_id, 0.0)

    @property
    def is_finished(self) -> bool:
        """Whether all of its runs have ended."""
        return len(self.finished) == len(self.runs) + len(self.shared)

    def place(self, run_id: str) -> Batch:
        """Place of one of its runs in the order, for the manifest."""
        seed = {} if self.order_seed is None else {"order_seed": self.order_seed}
        return Batch(position=self._positions[run_id], of=len(self.runs), **seed)


def chosen(plan: Plan, only: Sequence[str]) -> list[Member]:
    """The runs that meet all conditions.

    Args:
        plan: the campaign.
        only: conditions: FIELD=VALUE of a swept field (its last words are enough), repetition=N counted from 1, or the
            beginning of a run's id. Two conditions on one field allow either value.

    Raises:
        CampaignError: a condition matches no field, value, repetition or run of this campaign.
    """
    problems: list[Problem] = []
    groups: dict[str, list[Callable[[Member], bool]]] = {}
    for text in only:
        try:
            key, allows = _condition(plan, text)
        except (ValueError, AnalysisError) as error:
            problems.append(Problem(0, "", str(error), f"--only {text}"))
        else:
            groups.setdefault(key, []).append(allows)
    if problems:
        raise CampaignError(plan.file, problems)
    return [run for run in plan.members if all(any(allows(run) for allows in group) for group in groups.values())]


def _condition(plan: Plan, text: str) -> tuple[str, Callable[[Member], bool]]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals:
        if len(name) >= LEAST_ID and any(run.id.startswith(name) for run in plan.members):
            return "", lambda run: run.id.startswith(name)
        raise ValueError(
            f"'{name}' is neither FIELD=VALUE nor the beginning of a run's id ({LEAST_ID} characters or more)"
        )
    if name == "repetition":
        if not value.isdecimal() or not 1 <= int(value) <= plan.repetitions:
            raise ValueError(f"unknown repetition '{value}'; allowed: 1 to {plan.repetitions}")
        return name, lambda run: run.repetition == int(value) - 1
    field, value = condition(text, axes_of(point.parameters for point in plan.points))
    numbers = {position for position, point in enumerate(plan.points) if point.parameters.get(field) == value}
    return field, lambda run: run.point in numbers


def ordered(runs: Sequence[Member], seed: int | None) -> list[Member]:
    """The order of execution: by repetition, with the points of each repetition shuffled by `seed`, if there is one.

    A machine that becomes slower during a campaign then affects all points alike, and an interrupted campaign has runs
    of every point.
    """
    blocks: dict[int, list[Member]] = {}
    for run in sorted(runs, key=lambda run: (run.repetition, run.point)):
        blocks.setdefault(run.repetition, []).append(run)
    if seed is not None:
        for repetition, block in blocks.items():
            random.Random(f"{seed}/order/{repetition}").shuffle(block)
    return [run for block in blocks.values() for run in block]


def to_make(
    runs: Sequence[Member], known: Collection[str], tried: Callable[[list[str]], set[str]] | None
) -> list[Member]:
    """Runs without a known result.

    Args:
        runs: to select from.
        known: ids of runs with a valid result.
        tried: returns which of some ids were attempted (Store.tried_runs). If it is set, only those are selected.
    """
    left = [run for run in runs if run.id not in known]
    if tried is None:
        return left
    tried_ids = tried([run.id for run in left])
    return [run for run in left if run.id in tried_ids]


def unique(runs: Sequence[Member]) -> list[Member]:
    """The runs, each once. Points with the same scenario share their runs."""
    by_id: Mapping[str, Member] = {run.id: run for run in reversed(runs)}
    return [run for run in runs if by_id[run.id] is run]
