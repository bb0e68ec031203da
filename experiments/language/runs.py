"""The runs of a campaign. They are made when they are asked for: a large campaign never holds them all."""

from __future__ import annotations

import bisect
import itertools
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

from experiments.language.backends import Backend
from experiments.language.identity import run_identity
from experiments.language.scenarios import derive_seed, make_scenario
from experiments.language.schema import Campaign
from experiments.language.variation import draws
from testbed.installation import Installation
from testbed.scenario import Document, Scenario, ScenarioDocument

#: Finds what plays a scenario's nodes and links in a lab.
Install = Callable[[Scenario], Installation]
#: Runs of a campaign up to which each is made once and kept; a kept run takes about 20 kB.
MAX_KEPT = 10_000


@dataclass(frozen=True)
class Run:
    """One repetition of one point, with everything that determines its result."""

    id: str
    point: int
    repetition: int
    backend: Backend
    document: ScenarioDocument
    #: On real hosts, what plays nodes and links.
    installation: Installation | None = None

    @property
    def scenario(self) -> Scenario:
        """The scenario, typed when it is first asked for."""
        return self.document.scenario

    @property
    def duration_s(self) -> float:
        """The scenario's duration."""
        return float(self.document.document["duration_s"])

    def with_scenario(self, scenario: Document) -> Run:
        """The run of another scenario in its place."""
        return replace(self, id=run_identity(self.backend, scenario), document=ScenarioDocument(scenario))


def count_runs(campaign: Campaign) -> tuple[int, Scenario | None]:
    """Number of a point's runs, one where every repetition would be the same simulation; and the first's scenario, if
    counting needed it.
    """
    if campaign.backend.has_real_packets or campaign.repetitions == 1:
        return campaign.repetitions, None
    first = _scenario(campaign, 0)
    if next(draws(first), None) is not None:
        return campaign.repetitions, first
    is_exact = first.replace(seed=0) == _scenario(campaign, 1).replace(seed=0)
    return 1 if is_exact else campaign.repetitions, first


def programs_of(campaign: Campaign) -> Iterator[str]:
    """The first word of every program that a point's flows run; none without flows of kind `command`."""
    for flow in campaign.workload:
        if flow.command is not None:
            yield from flow.command.programs


def _scenario(campaign: Campaign, repetition: int) -> Scenario:
    return make_scenario(campaign, derive_seed(campaign.seed, repetition))


class Runs(Sequence[Run]):
    """The runs of all points, in the order of the points.

    Args:
        counts: number of runs of each point.
        campaign_of: validates a point again, by its number. A large campaign has no room for all of its points.
        firsts: scenarios of the first runs of the first points, where counting needed them.
        install: finds what plays a scenario's nodes and links in a lab.
    """

    def __init__(
        self,
        counts: Sequence[int],
        campaign_of: Callable[[int], Campaign],
        firsts: Sequence[Scenario | None] = (),
        install: Install | None = None,
    ) -> None:
        self._counts = array("Q", counts)
        self._ends = array("Q", itertools.accumulate(counts))
        self._campaign_of = campaign_of
        self._firsts = firsts
        self._install = install
        self._kept: dict[int, Run] = {}

    def installed(self, install: Install) -> Runs:
        """The same runs in a lab."""
        return Runs(self._counts, self._campaign_of, self._firsts, install)

    def campaign(self, point: int) -> Campaign:
        """A point's fields, validated."""
        return self._campaign_of(point)

    def scenario_of(self, point: int) -> Scenario:
        """The scenario of a point, without the variation of its repetitions."""
        campaign = self._campaign_of(point)
        return make_scenario(campaign, campaign.seed, is_varied=False)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> list[Run]: ...
    def __getitem__(self, index: int | slice) -> Run | list[Run]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        if number in self._kept:
            return self._kept[number]
        at = bisect.bisect_right(self._ends, number)
        run = self._make(at, number - self._ends[at] + self._counts[at])
        if len(self) <= MAX_KEPT:
            self._kept[number] = run
        return run

    def _make(self, point: int, repetition: int) -> Run:
        campaign = self._campaign_of(point)
        known = self._firsts[point] if repetition == 0 and point < len(self._firsts) else None
        scenario = known or _scenario(campaign, repetition)
        document = ScenarioDocument(scenario.as_json())
        installed = None if self._install is None else self._install(scenario)
        run_id = run_identity(campaign.backend, document.document, None if installed is None else installed.as_json())
        return Run(run_id, point, repetition, campaign.backend, document, installed)
