"""Rows of the store as types. Times are seconds since the UNIX epoch; values are in SI units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

#: The JSON document of a scenario (testbed.scenario) or of a manifest.
Document = Mapping[str, Any]
#: (field, value) pairs as the campaign file writes them, in the order of the sweep.
Parameters = Sequence[Sequence[str]]
MISSING = "missing"


class Row(Mapping[str, Any]):
    """A dataclass that can also be read by column name, for JSON and data frames."""

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self.__dataclass_fields__  # type: ignore[attr-defined]

    def __iter__(self) -> Iterator[str]:
        return (column.name for column in fields(self))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(fields(self))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class MemberRow(Row):
    """A run that a campaign contains."""

    point: int
    #: Counted from 0.
    repetition: int
    run_id: str
    #: valid, invalid or missing.
    state: str
    #: Why it is invalid; None for a missing run, and where it was not asked for.
    problems: Sequence[str] | None = None
    #: When its result landed; None for a missing run, and where it was not asked for.
    landed: float | None = None


@dataclass(frozen=True, eq=False)
class PointRow(Row):
    """One combination of a campaign's swept values."""

    number: int
    parameters: Parameters
    members: Sequence[MemberRow] = ()


@dataclass(frozen=True, eq=False)
class CampaignRow(Row):
    """A campaign with the number of its runs."""

    id: str
    name: str
    title: str
    file: str
    backend: str
    seed: int
    repetitions: int
    #: running, complete or incomplete.
    state: str
    started: float
    finished: float | None
    #: experiments.engine.progress.Progress.as_json with `updated` while it runs; otherwise empty.
    progress: Mapping[str, Any]
    #: Runs that it contains; and those of them that the store has.
    runs: int
    valid: int
    invalid: int = 0
    #: The file's text and the overrides of the command line; empty in lists.
    text: str = ""
    overrides: Mapping[str, str] = field(default_factory=dict)
    #: Empty where they were not asked for.
    points: Sequence[PointRow] = ()


@dataclass(frozen=True, eq=False)
class MetricRow(Row):
    """One metric of a run."""

    run_id: str
    name: str
    #: A flow, group or line; empty for the whole run.
    subject: str
    value: float
    unit: str


@dataclass(frozen=True, eq=False)
class ValueRow(Row):
    """One metric of a campaign's run."""

    point: int
    repetition: int
    run_id: str
    seed: int
    name: str
    subject: str
    unit: str
    value: float


@dataclass(frozen=True, eq=False)
class LandedValueRow(ValueRow):
    """One metric of a campaign's run, and when the run landed."""

    landed: float


@dataclass(frozen=True, eq=False)
class TableRow(Row):
    """A metric at a point: its values over the valid runs, in the order of the repetitions, and their mean."""

    point: int
    name: str
    subject: str
    unit: str
    n: int
    mean: float
    #: Sample standard deviation; None for a single run.
    sd: float | None
    values: Sequence[float]  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class MetricKind(Row):
    """A metric that a campaign's runs have."""

    name: str
    subject: str
    unit: str


@dataclass(frozen=True, eq=False)
class FileRow(Row):
    """A file of a run."""

    id: int
    run_id: str
    #: Relative to the run's folder.
    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, eq=False)
class AttemptRow(Row):
    """An attempt of a run that did not become its valid result."""

    id: int
    run_id: str
    number: int
    at: float
    #: invalid or failed.
    outcome: str
    problems: Sequence[str]


@dataclass(frozen=True, eq=False)
class CampaignOfRun(Row):
    """A campaign that contains a run, and where."""

    id: str
    name: str
    title: str
    point: int
    repetition: int
    parameters: Parameters


@dataclass(frozen=True, eq=False)
class RunRow(Row):
    """A run's result."""

    id: str
    backend: str
    seed: int
    duration_s: float
    #: valid or invalid.
    state: str
    problems: Sequence[str]
    attempt: int
    landed: float
    scenario: Document
    manifest: Document
    metrics: Sequence[MetricRow] = ()
    files: Sequence[FileRow] = ()
    attempts: Sequence[AttemptRow] = ()
    #: Newest first.
    campaigns: Sequence[CampaignOfRun] = ()


@dataclass(frozen=True, eq=False)
class HistoryRow(Row):
    """What a run cost."""

    scenario: Document
    #: Of the manifest: cells at work beside it, and its place in the campaign's order.
    batch: Mapping[str, Any]
    #: None for runs of old versions.
    took_s: float | None
    bytes: int


@dataclass(frozen=True, eq=False)
class RequestRow(Row):
    """A visitor's request to run a campaign, or to cancel one."""

    id: int
    #: run or cancel.
    kind: str
    #: Name of the campaign file, for messages.
    file: str
    overrides: Sequence[str]
    force: int
    #: Known once a runner has taken it; of a cancel, from the start.
    campaign_id: str | None
    #: waiting, running, done, failed or withdrawn.
    state: str
    message: str
    asked: float
    taken: float | None
    finished: float | None
    #: The runner that took it.
    runner: str | None
    #: The campaign's text; empty in lists.
    text: str = ""


@dataclass(frozen=True, eq=False)
class RunnerRow(Row):
    """A runner that serves requests."""

    id: str
    started: float
    #: Updated every few seconds.
    seen: float
    #: Why it cannot run emulated campaigns; empty: it can.
    lacks: Sequence[str]
