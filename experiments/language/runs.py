"""The runs of a campaign. They are made when they are asked for: a large campaign never holds them all."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import overload

from experiments.language.identity import run_identity
from experiments.language.scenarios import derive_seed, make_scenario
from experiments.language.schema import Campaign
from experiments.language.variation import is_repeated
from testbed.installation import Installation
from testbed.scenario import Scenario, ScenarioDocument

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
    backend: str
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


@dataclass(frozen=True)
class PointRuns:
    """The repetitions of a valid point."""

    number: int
    campaign: Campaign
    #: Finds what plays a scenario's nodes and links.
    install: Install | None = None

    @cached_property
    def count(self) -> int:
        """Number of runs: one where every repetition would be the same simulation."""
        if self.campaign.backend != "sim" or self.campaign.repetitions == 1:
            return self.campaign.repetitions
        first, second = (make_scenario(self.campaign, derive_seed(self.campaign.seed, each)) for each in (0, 1))
        return 1 if is_repeated(first, second) else self.campaign.repetitions

    def make(self, repetition: int) -> Run:
        """One of the runs."""
        scenario = make_scenario(self.campaign, derive_seed(self.campaign.seed, repetition))
        document = ScenarioDocument(scenario)
        installed = None if self.install is None else self.install(document.scenario)
        run_id = run_identity(self.campaign.backend, scenario, None if installed is None else installed.as_json())
        return Run(run_id, self.number, repetition, self.campaign.backend, document, installed)


class Runs(Sequence[Run]):
    """The runs of all points, in the order of the points."""

    def __init__(self, points: Sequence[PointRuns]) -> None:
        self._points = points
        self._ends = list(itertools.accumulate(point.count for point in points))
        self._kept: dict[int, Run] = {}

    @property
    def programs(self) -> list[str]:
        """The first word of every program that a campaign's flows run; empty without flows of kind `command`."""
        commands = (flow.command for point in self._points for flow in point.campaign.workload)
        return list(dict.fromkeys(name for command in commands if command is not None for name in command.programs))

    def installed(self, install: Install) -> Runs:
        """The same runs in a lab."""
        return Runs([replace(point, install=install) for point in self._points])

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
        point = self._points[at]
        run = point.make(number - self._ends[at] + point.count)
        if len(self) <= MAX_KEPT:
            self._kept[number] = run
        return run
