"""The campaigns of a batch: what is to be made for each, how far it is, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from analysis.store import Store
from experiments.engine.forecast import effort_s
from experiments.language.campaign import Plan, Run


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
    #: Runs of the plan that remain, because options excluded them.
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
        remain = self.left_out or self.lease_over
        return not self.failed and not self.interrupted and not self.ended_early and not remain


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

    def close(self, store: Store) -> None:
        """Marks the campaign in the store as complete or incomplete."""
        if not self.closed:
            run_ids = set(self.plan.run_ids)
            store.end_campaign(self.outcome.campaign_id, store.valid_runs(list(run_ids)) == run_ids)
            self.closed = True
