"""What commands print with `--json`: the types of their documents, of which docs/json.md is made.

Times are in s, rates in bit/s, sizes in bytes, dates in seconds since the epoch. Later versions may add fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import TypedDict

from analysis.exports.crate_reader import Bundle as Bundle
from analysis.kinds import Listed as Listed
from analysis.measuring import Changes as Changes
from analysis.store.documents import SessionChange as SessionChange
from experiments.labels import ResultsPoint as ResultsPoint
from experiments.language.problems import Problem as Problem
from experiments.listed_runs import ListedRun as ListedRun
from experiments.papers.reproduction import ExpectedArtefact as ExpectedArtefact
from testbed.doctor import Finding as Finding
from testbed.report import Measurement as Measurement


class FailureReason(TypedDict):
    """Why a command failed."""

    message: str
    #: Exit status.
    status: int
    #: Of a campaign file; empty for other errors.
    problems: Sequence[Problem]


class Failure(TypedDict):
    """The last line of standard error of a command that fails before it has an answer."""

    error: FailureReason


# Files and mechanisms ----------------------------------------------------------------------------------------


class ValidatedFile(TypedDict):
    """A campaign file that was checked."""

    file: str
    #: Number of runs; null if the file is invalid.
    runs: int | None
    problems: Sequence[Problem]
    #: Traps of emulation, and repetitions that would be equal.
    warnings: Sequence[str]


class _Mechanism(TypedDict):
    kind: str
    name: str
    summary: str
    #: Paper or RFC.
    source: str
    #: Options: name, unit, help, default, min, max, choices.
    params: Sequence[Mapping[str, Any]]
    #: When a simulation with it depends on the seed: true, false, or the option that decides.
    random: bool | str
    #: Backends that support it; empty: all.
    backends: Sequence[str]
    #: The link of a profile, as campaign files write it; empty for others.
    spec: Mapping[str, Any]


class Mechanism(_Mechanism, total=False):
    """A stack, policy, link, profile, error model, middlebox, workload, backend or topology."""

    #: Crate of yours that has it; absent for Backchannel's own.
    crate: str


class Part(TypedDict):
    """A part of your own that was made."""

    kind: str
    folder: str
    #: Commands to continue with.
    next: Sequence[str]


class LawVerdict(TypedDict):
    """A mechanism of a crate, held to the laws."""

    kind: str
    name: str
    #: Number of laws that were tried.
    laws: int
    #: Those that it breaks.
    broken: Sequence[str]


class Check(TypedDict):
    """A crate, held to the laws that Backchannel's own mechanisms keep."""

    #: File with the details.
    page: str
    mechanisms: Sequence[LawVerdict]


class UnpackedCrate(TypedDict):
    """A crate that was attached to a campaign file."""

    name: str
    folder: str


class Kernel(TypedDict):
    """A kernel for virtual time."""

    name: str
    built: bool
    #: Linux's release; null if it is not built.
    release: str | None
    #: What campaigns cannot use on it.
    lacks: Sequence[str]


class BuiltKernel(TypedDict):
    """A kernel that was built."""

    name: str
    folder: str
    release: str


class ScriptVerdict(TypedDict):
    """A packetdrill script."""

    script: str
    #: Version of IP.
    ip: str
    passed: bool
    #: Why it failed; empty if it passed.
    reason: str


# Runs --------------------------------------------------------------------------------------------------------


class Expected(TypedDict):
    """What is expected of the runs that are missing."""

    runs: int
    time_s: float
    disk_bytes: float
    #: Runs at a time.
    cells: int
    #: Runs of the results folder from which it is estimated.
    based_on_runs: int


class PlannedRun(TypedDict):
    """A run of a campaign."""

    id: str
    #: Index into `points`.
    point: int
    #: Counted from 0.
    repetition: int
    backend: str
    #: Whether the results folder has a valid result.
    done: bool
    #: Place among the runs that `run` would make; null if it would not.
    position: int | None
    #: All fixed values of the run.
    scenario: Mapping[str, Any]


class Plan(TypedDict):
    """What `run` would do."""

    #: Id of the campaign.
    campaign: str
    name: str
    #: Parameter combinations.
    points: Sequence[Mapping[str, str]]
    #: Indices of combinations in which nothing is random: one run stands for all repetitions.
    exact_points: Sequence[int]
    expected: Expected
    runs: Sequence[PlannedRun]


class Results(TypedDict):
    """Results of a campaign."""

    #: Id.
    campaign: str
    name: str
    state: str
    points: Sequence[ResultsPoint]


class CampaignSummary(TypedDict):
    """A campaign of a results folder."""

    id: str
    name: str
    title: str
    state: str
    runs: int
    valid: int


class _Search(TypedDict):
    name: str
    #: Kind of the question, and its text.
    question: Mapping[str, str]
    runs: int
    #: Combinations of the space-filling design.
    designed: int
    #: Combinations that were tried: fields, n, mean, low, high, shows, runs, problem.
    points: Sequence[Mapping[str, Any]]


class Search(_Search, total=False):
    """What a search found. Later fields are absent where nothing was found."""

    #: Repetitions of the best combinations by seeds that did not choose them.
    fresh_seeds: Sequence[Mapping[str, Any]]
    #: File of the smallest campaign that shows it.
    campaign: str
    #: Ordinary runs of that campaign in simulation; on Linux in virtual time it is the field `virtual-kernel`.
    sim: Mapping[str, Any]


class Session(TypedDict):
    """A running session behind a link."""

    name: str
    #: Profile or campaign.
    label: str
    #: Host of the command.
    host: str
    #: Seconds since 1970.
    started: float
    changes: Sequence[SessionChange]
    #: By link and direction.
    declared: Mapping[str, Mapping[str, Mapping[str, Any]]]


# Comparisons -------------------------------------------------------------------------------------------------


class Interval(TypedDict):
    """A difference of two means, with its confidence interval."""

    difference: float
    low: float | None
    high: float | None
    level: float
    p: float | None
    method: str


class LineRun(TypedDict):
    """A run of a client and a server."""

    id: str
    #: By name, in SI units.
    metrics: Mapping[str, float]
    #: Of the client.
    output: str
    captures: Sequence[str]
    qlogs: Sequence[str]


class ComparisonLine(TypedDict):
    """A metric at a parameter combination, in two campaigns."""

    point: Mapping[str, str]
    metric: str
    subject: str
    unit: str
    n_a: int
    n_b: int
    mean_a: float
    mean_b: float
    difference: Interval
    #: Corrected for the comparisons that share the error.
    p_adjusted: float | None
    equivalence_p_adjusted: float | None
    #: same, worse, better, different or cannot tell.
    verdict: str
    #: Difference as a share of A's mean.
    relative: float | None
    #: Not what the campaign asks about.
    exploratory: bool


class Comparison(TypedDict):
    """Two campaigns."""

    a: str
    b: str
    confidence: float
    margin: float
    comparisons: int
    lines: Sequence[ComparisonLine]
    only_a: Sequence[Mapping[str, str]]
    only_b: Sequence[Mapping[str, str]]
    #: Rows that are worse.
    regressions: int


class Contrast(TypedDict):
    """A value of a swept field against the baseline. The other swept fields are fields of it, too."""

    metric: str
    subject: str
    unit: str
    baseline: str
    value: str
    #: Pairs, or the smaller number of runs.
    n: int
    mean_first: float | None
    mean_second: float | None
    difference: float | None
    low: float | None
    high: float | None
    p_adjusted: float | None
    verdict: str


class FailingComparison(TypedDict):
    """A comparison that fails."""

    campaign: str
    metric: str
    #: Flow, group or link; empty for the run.
    subject: str
    verdict: str


class WithoutValidRuns(TypedDict):
    """A combination that has valid runs in the base and none in the head."""

    campaign: str
    #: Its swept fields as FIELD=VALUE; empty in a campaign that sweeps nothing.
    combination: str


class ComparedCampaign(TypedDict):
    """A campaign of both folders."""

    campaign: str
    comparison: Comparison
    #: Ids of the runs of the change.
    runs: Sequence[str]


class Regressions(TypedDict):
    """Two results folders."""

    campaigns: Sequence[ComparedCampaign]
    only_base: Sequence[str]
    only_head: Sequence[str]
    failing: Sequence[FailingComparison]
    without_valid_runs: Sequence[WithoutValidRuns]


class ReportCard(TypedDict):
    """A sender, judged by RFC 9743."""

    #: The stack.
    sender: Mapping[str, Any]
    standard: str
    standard_stack: Mapping[str, Any]
    backend: str
    #: Each with question, source, verdict, campaigns, runs and criteria.
    cases: Sequence[Mapping[str, Any]]


class Sensitivity(TypedDict):
    """What small changes of links do to a campaign's conclusions."""

    metric: str
    #: Greatest relative change.
    by: float
    #: Perturbed copies.
    perturbations: int
    means: Sequence[Mapping[str, Any]]


class Change(TypedDict):
    """A change that should not matter to a campaign's conclusions."""

    name: str
    what: str
    campaign: str
    backend: str
    runs: int
    valid: int
    #: Why it was left out; empty if it was not.
    left_out: str


class PlannedChange(TypedDict):
    """A change that `doubt` would make."""

    name: str
    what: str
    backend: str
    runs: int
    #: Runs that the results folder lacks.
    missing: int
    expected_s: float
    left_out: str


class Doubt(TypedDict):
    """Which conclusions of a campaign survive changes that should not matter."""

    metric: str
    subject: str
    unit: str
    level: float
    comparisons: int
    undecided: int
    flips: int
    columns: Sequence[Change]
    #: Each with first, second, relation, is_answer, original and changes.
    conclusions: Sequence[Mapping[str, Any]]


# Stored results ----------------------------------------------------------------------------------------------


class Files(TypedDict):
    """Files that were written."""

    files: Sequence[str]


class Written(TypedDict):
    """What an export wrote."""

    kind: str
    subject: str
    #: Sentences that name the files and what a reader has to know.
    lines: Sequence[str]


class SetAside(TypedDict):
    """A campaign, or a run of a collection, that was archived, deleted or listed again."""

    #: What `undelete` takes.
    id: str
    #: archived, deleted, purged or listed.
    state: str


class PrunedCampaign(TypedDict):
    """A campaign that a rule chose."""

    id: str
    name: str
    #: Runs that go, or whose files go.
    runs: int
    bytes: int


class Pruned(TypedDict):
    """Runs that a rule deletes, or their files."""

    #: runs, files or captures.
    what: str
    #: False with --dry-run, and where nothing was found.
    deleted: bool
    campaigns: Sequence[PrunedCampaign]
    #: Names of campaigns that stay, by reason.
    stays: Mapping[str, Sequence[str]]


class PrunedScreened(TypedDict):
    """Screened runs of searches that go."""

    deleted: bool
    runs: int
    #: That there were.
    of: int


class PrunedBuild(TypedDict):
    """Builds of one kind that nobody used."""

    kind: str
    builds: int
    bytes: int
    folder: str


class PrunedCaches(TypedDict):
    """Builds that go."""

    deleted: bool
    builds: Sequence[PrunedBuild]


class AsideCampaign(CampaignSummary):
    """A campaign that is archived or deleted."""

    #: archived or deleted.
    set_aside: str


class Copied(TypedDict):
    """A campaign that was copied."""

    campaign: str
    name: str
    runs: int
    #: Those that the other store lacked.
    copied: int
    store: str


class DamagedRun(TypedDict):
    """Damage of a run, or of the database."""

    #: Id; empty for the database.
    run: str
    reason: str


class Verified(TypedDict):
    """What a store was found to be."""

    runs: int
    files: int
    bytes: int
    damaged_runs: Sequence[str]
    #: Commands that make them again.
    repeat: Sequence[str]
    findings: Sequence[DamagedRun]


class Backup(TypedDict):
    """A copy of a results folder."""

    source: str
    target: str
    runs: int
    #: Why runs were not copied, by id.
    damaged: Mapping[str, Sequence[str]]


# Captures, labs, papers --------------------------------------------------------------------------------------


class Import(TypedDict):
    """Captures that became a run."""

    #: Its id.
    run: str
    campaign: str
    #: Whether the store had it.
    known: bool
    label: str
    files: Sequence[Mapping[str, Any]]
    flows: Sequence[Mapping[str, Any]]
    #: name, subject, value, unit.
    metrics: Sequence[Mapping[str, Any]]


class AckFilter(TypedDict):
    """Whether an ack filter would help on the link that a capture shows."""

    advice: str
    #: Why nothing was simulated; null otherwise.
    why: str | None
    capture: Mapping[str, Any]
    up_bps: float
    down_bps: float
    uplink_utilisation: float
    ack_share_of_uplink_bytes: float
    replay: Mapping[str, Any] | None
    simulation: Mapping[str, Any]


class Inventory(TypedDict):
    """An inventory that was written."""

    inventory: str
    lines: Sequence[str]


class ExpectedPapers(TypedDict):
    """What `papers run` would run."""

    artefacts: Sequence[ExpectedArtefact]
    #: As one batch.
    time_s: float


class Scorecard(TypedDict):
    """Artefacts of the papers beside what was measured: the fields are [above](#the-scorecard)."""

    artefacts: Sequence[Mapping[str, Any]]
    count: Mapping[str, Any]
    #: Agreement of real packets with virtual time; null without values that both measured.
    between_backends: Mapping[str, Any] | None


class ChoiceOutcome(TypedDict):
    """An artefact with another value of something that its paper does not state."""

    artefact: str
    changed: Mapping[str, Any]
    #: Number of the perturbed copy; 0 for none.
    perturbation: int
    passes: bool | None
    flips: bool
    within: int | None
    stated: int | None
    orderings_hold: int | None
    orderings: int | None
    problem: str
