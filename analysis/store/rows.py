"""Rows of the store as types, from which schema.py makes its tables.

Times are seconds since the UNIX epoch; values are in SI units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypedDict

from analysis.results import ValueRow
from analysis.store.documents import Batch, Documents
from testbed.scenario import ScenarioDocument

#: (field, value) pairs as the campaign file writes them, in the order of the sweep.
Parameters = Sequence[tuple[str, str]]
MISSING = "missing"


@dataclass(frozen=True)
class MemberRow:
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


@dataclass(frozen=True)
class PointRow:
    """One combination of a campaign's swept values."""

    number: int
    parameters: Parameters
    members: Sequence[MemberRow] = ()


@dataclass(frozen=True)
class NewCampaign:
    """A campaign that is entered into the store."""

    id: str
    name: str
    title: str
    #: Name of its file, and the file's text; empty for results that no file made, and the text in lists.
    file: str
    text: str
    #: Of the command line: field to value; empty in lists.
    overrides: Mapping[str, str]
    backend: str
    seed: int
    repetitions: int

    @classmethod
    def of(cls, source: object, **changes: Any) -> NewCampaign:
        """The campaign of what has the same fields, such as a plan or a stored campaign, with some of them changed."""
        return cls(**{field.name: getattr(source, field.name) for field in fields(NewCampaign)} | changes)


class CellProgressRow(TypedDict):
    """What one cell of a running campaign does."""

    #: Name of the cell; "analysis" for an analysis.
    cell: str
    #: Id of the run, number of its point, and its repetition, from 0.
    run: str
    point: int
    repetition: int
    #: In words for people: "running 3.2" (seconds into the run).
    phase: str


class ProgressRow(TypedDict, total=False):
    """How far a running campaign is, as its column and the API have it. Empty while nothing runs it."""

    #: Process that runs the campaign.
    pid: int
    #: Finished effort, 0 to 1.
    share: float
    done: int
    failed: int
    runs: int
    #: Cells that may run at once.
    allowed: int
    per_minute: float | None
    left_s: float | None
    cells: list[CellProgressRow]
    #: Time of writing, in s since the epoch; the store sets it.
    updated: float


@dataclass(frozen=True)
class CampaignRow(NewCampaign):
    """A campaign with the number of its runs."""

    #: running, complete or incomplete.
    state: str
    started: float
    finished: float | None
    progress: ProgressRow
    #: Runs that it contains; and those of them that the store has.
    runs: int
    valid: int
    invalid: int
    #: Empty where they were not asked for.
    points: Sequence[PointRow] = ()


@dataclass(frozen=True)
class AsideRow:
    """A campaign that no list has."""

    campaign_id: str
    #: archived, or deleted.
    state: str
    since: float


@dataclass(frozen=True)
class MetricRow:
    """One metric of a run."""

    run_id: str
    name: str
    #: A flow, group or line; empty for the whole run.
    subject: str
    value: float
    unit: str


@dataclass(frozen=True)
class LandedValueRow(ValueRow):
    """One metric of a campaign's run, and when the run landed."""

    landed: float


@dataclass(frozen=True)
class PlaceRow:
    """A campaign that contains a run, and where."""

    run_id: str
    campaign_id: str
    title: str
    repetition: int
    parameters: Parameters


@dataclass(frozen=True)
class LandedRow:
    """A run for lists of what landed last."""

    id: str
    #: valid, invalid or failed.
    state: str
    #: When it landed; of a failed run, when its last attempt ended.
    landed: float
    #: Empty where it was not asked for.
    backend: str = ""
    problems: Sequence[str] = ()
    #: None where no campaign contains it.
    place: PlaceRow | None = None


@dataclass(frozen=True)
class CauseRow:
    """Runs of a campaign that have no valid result for the same reason."""

    #: Empty for runs of no campaign.
    campaign_id: str
    title: str
    #: invalid or failed.
    state: str
    #: Of the latest of these runs.
    problem: str
    runs: int
    #: The latest.
    run_id: str


@dataclass(frozen=True)
class ListedRunRow(MemberRow):
    """A run of a campaign's list."""

    #: None for a missing run.
    seed: int | None = None
    #: By name and subject.
    metrics: Mapping[tuple[str, str], MetricRow] = field(default_factory=dict)


@dataclass(frozen=True)
class TableRow:
    """A metric at a point: its values over the valid runs, in the order of the repetitions, and their mean."""

    point: int
    name: str
    subject: str
    unit: str
    n: int
    mean: float
    #: Sample standard deviation; None for a single run.
    sd: float | None
    values: Sequence[float]


@dataclass(frozen=True)
class FileRow:
    """A file of a run."""

    id: int
    run_id: str
    #: Relative to the run's folder.
    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class AttemptRow:
    """An attempt of a run that did not become its valid result."""

    id: int
    run_id: str
    number: int
    at: float
    #: invalid or failed.
    outcome: str
    problems: Sequence[str]
    #: Aggregate throughput in bit/s; None where nothing was measured.
    throughput_bps: float | None = None


@dataclass(frozen=True)
class CampaignOfRun:
    """A campaign that contains a run, and where."""

    id: str
    name: str
    title: str
    #: Whether a campaign file asks for the run; a collection, of imports or sessions, has none.
    planned: bool
    point: int
    repetition: int
    parameters: Parameters


@dataclass(frozen=True)
class RunRow:
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
    documents: Documents
    metrics: Sequence[MetricRow] = ()
    files: Sequence[FileRow] = ()
    attempts: Sequence[AttemptRow] = ()
    #: Newest first.
    campaigns: Sequence[CampaignOfRun] = ()


@dataclass(frozen=True)
class ScreenedRow:
    """Metrics of a simulation without files (screened.py)."""

    run_id: str
    #: JSON: for each metric its [subject, unit, value].
    metrics: str
    #: JSON: sentences.
    problems: str


@dataclass(frozen=True)
class NoteRow:
    """What people wrote about a run."""

    run_id: str
    text: str
    tags: Sequence[str]
    changed: float


@dataclass(frozen=True)
class ClaimRow:
    """A run that a runner is about to make or makes."""

    run_id: str
    #: Token of the runner's open store.
    owner: str
    #: When the runner renewed it last.
    seen: float


@dataclass(frozen=True)
class HistoryRow:
    """What a run cost."""

    scenario: ScenarioDocument
    batch: Batch
    #: None for runs of old versions.
    took_s: float | None
    bytes: int
    #: None for runs of versions that did not record it.
    analysed_s: float | None = None


@dataclass(frozen=True)
class RequestRow:
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


@dataclass(frozen=True)
class RunnerRow:
    """A runner that serves requests."""

    id: str
    started: float
    #: Updated every few seconds.
    seen: float
    #: Why it cannot run emulated campaigns; empty: it can.
    lacks: Sequence[str]
