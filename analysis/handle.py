"""An open store of results, for scripts, notebooks, the site and the command line.

    import analysis

    with analysis.open("results") as s:
        s.campaigns()                                  # polars frames
        s["quickstart"].means()
        run = s.run("3f9a")
        run.segments.filter(pl.col("payload") > 0)     # a lazy frame, read when it is collected
        run.plot("sequence", of=["forward"])

Values are in SI units. `analysis.to_pandas(frame)` converts a collected frame to pandas.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from analysis import comparison, naming, parquet, versions
from analysis.attempts import attempts_of
from analysis.captures import MissingCapture, RunData
from analysis.captures.segments import FLOW_TELEMETRY, LINK_TELEMETRY
from analysis.counters import CountedRun
from analysis.errors import REPEAT, AnalysisError, RunsFailed, message_of, no_results, unknown
from analysis.figures import registry as figures
from analysis.figures.model import Figure
from analysis.figures.run import TIME
from analysis.measuring import Changes, measure_again, new_names
from analysis.metrics.registry import METRICS, catalogue, estimate, refusals
from analysis.question import Asked, Question, of_stored
from analysis.records import record_file
from analysis.registry import calling
from analysis.results import Results
from analysis.runs import RunView
from analysis.statistics import MARGIN
from analysis.store import Store, checksums, exists, is_url
from analysis.store.rows import MISSING, CampaignRow, RunRow
from analysis.swept import axes_of
from testbed import node_binary
from testbed.scenario import Document

if TYPE_CHECKING:
    import pandas

#: Default results folder, as on the command line.
RESULTS = "results"
#: More points than a run has.
ALL_POINTS = 10**9

_CAMPAIGNS = {
    "id": pl.String,
    "name": pl.String,
    "title": pl.String,
    "backend": pl.String,
    "state": pl.String,
    "runs": pl.Int64,
    "valid": pl.Int64,
    "invalid": pl.Int64,
}
_RUNS: dict[str, type[pl.DataType] | pl.DataType] = {
    "campaign": pl.String,
    "point": pl.Int64,
    "repetition": pl.Int64,
    "run_id": pl.String,
    "state": pl.String,
    "backend": pl.String,
    "seed": pl.Int64,
    "duration_s": pl.Float64,
    "attempt": pl.Int64,
    "landed": pl.Float64,
    "problems": pl.List(pl.String),
}
_VALUES = {
    "point": pl.Int64,
    "repetition": pl.Int64,
    "run_id": pl.String,
    "metric": pl.String,
    "subject": pl.String,
    "unit": pl.String,
    "value": pl.Float64,
}
_MEANS: dict[str, type[pl.DataType] | pl.DataType] = {
    "point": pl.Int64,
    "metric": pl.String,
    "subject": pl.String,
    "unit": pl.String,
    "n": pl.Int64,
    "mean": pl.Float64,
    "sd": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "level": pl.Float64,
    "method": pl.String,
    "groups": pl.Int64,
    "values": pl.List(pl.Float64),
    "attempts": pl.Int64,
    "marked": pl.String,
}
#: Columns of a contrast beside the other swept fields.
CONTRASTED: dict[str, type[pl.DataType]] = {
    "metric": pl.String,
    "subject": pl.String,
    "unit": pl.String,
    "baseline": pl.String,
    "value": pl.String,
    "n": pl.Int64,
    "mean_first": pl.Float64,
    "mean_second": pl.Float64,
    "difference": pl.Float64,
    "sd": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "level": pl.Float64,
    "p": pl.Float64,
    "p_adjusted": pl.Float64,
    "verdict": pl.String,
    "exploratory": pl.Boolean,
    "shown": pl.String,
    "margin": pl.Float64,
    "comparisons": pl.Int64,
    "d_z": pl.Float64,
    "g_z": pl.Float64,
    "relative": pl.Float64,
    "unpaired": pl.Int64,
    "method": pl.String,
}
#: Columns of a campaign's tables and of their exports that are no swept fields.
_OWN_COLUMNS = frozenset([*_RUNS, *_VALUES, *_MEANS, *CONTRASTED, "column"])


def column_of(field: str) -> str:
    """The column of a swept field: its name, or `axes.NAME` of an axis that is called as another column."""
    return f"axes.{field}" if field in _OWN_COLUMNS else field


class OpenResults:
    """An open results store. Use it in a `with` statement, which closes it.

    Args:
        store: that is read.
        artefacts: fsspec URL of the files beside a PostgreSQL store.
    """

    def __init__(self, store: Store, where: str, artefacts: str | None = None) -> None:
        self.store = store
        self._where = where
        self._artefacts = artefacts

    @classmethod
    def open(cls, where: Path | str = RESULTS, artefacts: str | None = None, *, create: bool = False) -> Self:
        """Opens the store of a results folder or of a PostgreSQL URL.

        Args:
            where: the folder or the URL.
            artefacts: fsspec URL of the files beside a PostgreSQL store; None: $BACKCHANNEL_ARTEFACTS.
            create: creates the store of a folder that has none.

        Raises:
            AnalysisError: the folder has no store, and `create` is false.
            StoreError: the store cannot be used.
        """
        if not create and not exists(where):
            raise no_results(where)
        return cls(Store.open(where if is_url(where) else Path(where), artefacts), str(where), artefacts)

    def close(self) -> None:
        """Closes the store."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<results in {self.store.where}: {len(self.store.campaigns())} campaigns>"

    def __getitem__(self, name: str) -> StoredCampaign:
        """The campaign of a name (the newest of several), of an id, or of the first characters of an id. `taken` of the
        result says which was taken where the name left a choice.

        Raises:
            AnalysisError: there is none.
        """
        campaigns = [
            row
            for state in ("", "archived")
            for row in self.store.campaigns(texts=True, set_aside=state, counted=False)
        ]
        try:
            head = naming.found(campaigns, name)
        except AnalysisError:
            run_ids = self.store.run_ids(name) if name else []
            run = self.store.run(run_ids[0]) if len(run_ids) == 1 else None
            if run is None:
                raise
            names = " and ".join(campaign.name for campaign in run.campaigns)
            raise AnalysisError(f"unknown campaign '{name}': this is a run of {names or 'no campaign'}") from None
        row = self.store.campaign(head.id)
        if row is None:
            # A damaged index does not find what a list has.
            raise checksums.damaged_campaign(head.id)
        return StoredCampaign(self.store, row, naming.took(campaigns, name, head))

    def run(self, name: str) -> StoredRun:
        """The run of an id, or of the first characters of one.

        Raises:
            AnalysisError: there is none, or more than one.
        """
        run_ids = self.store.run_ids(name)
        if not run_ids:
            rows = self.store.campaigns(counted=False)
            campaign = name if any(row.name == name or (name and row.id.startswith(name)) for row in rows) else ""
            why = "this is a campaign" if campaign else "no id begins with it"
            listing = " ".join(filter(None, ("./backchannel runs", campaign)))
            raise AnalysisError(f"unknown run '{name}': {why}; {listing} lists runs with their ids")
        if len(run_ids) > 1:
            raise AnalysisError(
                f"{len(run_ids)} runs begin with '{name}', such as {run_ids[0]} and {run_ids[1]}: give more characters"
            )
        row = self.store.run(run_ids[0])
        if row is None:
            raise checksums.damaged_run(run_ids[0], "its row is missing")
        return StoredRun(self.store, row)

    def campaigns(self) -> pl.DataFrame:
        """Every campaign, newest first: id, name, title, backend, state, runs, valid, invalid."""
        rows = [{name: getattr(row, name) for name in _CAMPAIGNS} for row in self.store.campaigns()]
        return pl.DataFrame(rows, schema=_CAMPAIGNS)

    def runs(self) -> pl.DataFrame:
        """Every run of every campaign, valid or not; the columns are those of `StoredCampaign.runs` without fields."""
        return _runs(self.store)

    def segments(self) -> pl.LazyFrame:
        """The captured segments of every run of the store, as `StoredCampaign.segments` gives those of a campaign."""
        return _together(self.store, self.store.run_ids(""), _segments, "segments")

    def telemetry(self) -> pl.LazyFrame:
        """The telemetry of every run of the store, as `StoredCampaign.telemetry` gives that of a campaign."""
        return _together(self.store, self.store.run_ids(""), _telemetry, "telemetry")

    @property
    def metrics(self) -> pl.DataFrame:
        """The catalogue of metrics: name, title, unit, of, better, source, definition, package."""
        return catalogue()

    def run_campaign(self, file: Path | str, *overrides: str, force: bool = False) -> StoredCampaign:
        """Runs a campaign file into this store, as `./backchannel run FILE --set OVERRIDE ...` does.

        Runs that the store has are not repeated.

        Args:
            file: the campaign file.
            overrides: FIELD=VALUE texts.
            force: repeats runs that the store has.

        Raises:
            RunsFailed: a run failed or stayed invalid.
            AnalysisError: the file is invalid.
        """
        words = [*node_binary.module("experiments"), "run", str(file), "--json"]
        words += [word for override in overrides for word in ("--set", override)] + ["--force"] * force
        # A process of its own, because the engine is above this package and takes over signals.
        # Everybody sees arguments, and a URL may have a password.
        environment = {**os.environ, "PYTHONPATH": node_binary.python_path(), "BACKCHANNEL_RESULTS": self._where}
        if self._artefacts is not None:
            environment["BACKCHANNEL_ARTEFACTS"] = self._artefacts
        elif not is_url(self._where):
            # That of a team's store does not go with a folder.
            environment.pop("BACKCHANNEL_ARTEFACTS", None)
        done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
        if done.returncode != 0:
            # A message about a file has its name.
            if message := message_of(done.stderr):
                raise AnalysisError(message)
            if not done.stdout.startswith("{"):
                raise AnalysisError(f"{file} failed: {done.stderr.strip()}")
        campaign = self[json.loads(done.stdout)["campaign"]]
        if done.returncode != 0:
            members = [member for point in campaign.row.points for member in point.members if member.state != "valid"]
            problems = self.store.last_problems([member.run_id for member in members])
            raise RunsFailed("\n".join(f"run {run_id}: {'; '.join(reasons)}" for run_id, reasons in problems.items()))
        return campaign


class StoredCampaign:
    """A campaign of an open store."""

    def __init__(self, store: Store, row: CampaignRow, taken: str = "") -> None:
        self.store = store
        self.row = row
        #: Which campaign this is, where its name left a choice; otherwise "".
        self.taken = taken

    @cached_property
    def question(self) -> Question | None:
        """What it asks; None without results."""
        return of_stored(self.store, self.row)

    @property
    def axes(self) -> dict[str, list[str]]:
        """Its swept fields and their values, in the order of the sweep. Tables have a column for each, which is
        `axes.NAME` where another column has that name.
        """
        return axes_of(dict(point.parameters) for point in self.row.points)

    def __repr__(self) -> str:
        row = self.row
        return f"<campaign {row.name} ({row.id}): {row.backend}, {row.valid} of {row.runs} runs valid, {row.state}>"

    def runs(self) -> pl.DataFrame:
        """Every run, valid, invalid or missing: the swept fields, campaign, `point` (the number of its parameter
        combination), repetition, run_id, state, backend, seed, duration_s, attempt, landed (s since the UNIX epoch)
        and problems. What a missing run lacks is null.
        """
        return self._with_fields(_runs(self.store, self.row.id))

    def values(self) -> pl.DataFrame:
        """Every value of the valid runs: a row for each run, metric and subject.

        Columns: one for each swept field, as the campaign file writes its values; then point, repetition, run_id,
        metric, subject, unit, value.
        """
        rows = [{**vars(row), "metric": row.name} for row in self.store.values(self.row.id)]
        return self._with_fields(pl.DataFrame(rows, schema=_VALUES).sort("point", "repetition", "metric", "subject"))

    def means(self) -> pl.DataFrame:
        """Means over each combination's valid runs, with their 95 % confidence intervals (analysis/estimates.py).

        Columns: the swept fields, point, metric, subject, unit, n, mean, sd (sample standard deviation), low, high,
        level and method of the interval, groups (2 where the values form two groups, otherwise 1), values, attempts
        that its runs took, marked (why the valid runs may be a selection; null otherwise). The interval is null for
        fewer than three runs, equal values and two groups. Outliers are included.
        """
        attempts = attempts_of(self.store, self.row.id)
        rows = []
        for row in self.store.table(self.row.id):
            mean = estimate(row.name, row.unit, row.values)
            low, high = mean.ends
            rows.append(
                {
                    **vars(row),
                    "metric": row.name,
                    "low": low,
                    "high": high,
                    "level": mean.level,
                    "method": None if mean.interval is None else mean.interval.method,
                    "groups": len(mean.groups) or 1,
                    "values": list(mean.values),
                    "attempts": attempts[row.point].total,
                    "marked": "; ".join(attempts[row.point].reasons) or None,
                }
            )
        return self._with_fields(pl.DataFrame(rows, schema=_MEANS))

    def contrast(
        self, field: str = "", baseline: str = "", metrics: Sequence[str] = (), margin: float = MARGIN
    ) -> pl.DataFrame:
        """The values of a swept field against one of them, as analysis.comparison.contrast computes them.

        A row for each other value of the field, combination of the other swept fields, metric and subject; what the
        campaign asks about comes first. Columns: the other swept fields, then those of analysis.statistics.Difference;
        `n` is the number of pairs, or of runs of the smaller side where `method` is welch. `comparisons` share the
        error (analysis/question.py): `level` is that of the row's own interval, and `p_adjusted` and `verdict` allow
        for them. `shown` is the difference for people.
        `exploratory` says that the campaign does not ask about the metric.

        Args:
            field: the swept field, or its last words; may be empty if there is only one.
            baseline: a value of the field; the first of the sweep if empty.
            metrics: names of the metrics to compare; all if empty.
            margin: greatest difference of what is called the same, as a share of the baseline's mean.

        Raises:
            AnalysisError: unknown field, value or metric, or the field has one value only.
        """
        kinds = self.store.kinds(self.row.id)
        existing = dict.fromkeys(kind.metric for kind in kinds)
        for name in metrics:
            if name not in existing:
                raise lacks_metric(self, name, list(existing))
        points = [dict(point.parameters) for point in self.row.points]
        # Of a large campaign, reading what nobody asks for takes longest.
        only = [kind[:2] for kind in kinds if kind.metric in metrics] if metrics else None
        values = self.store.values(self.row.id, only=only)
        stored = Asked.of(Results.of_rows(self.row.name, points, values), self.question)
        contrasts = comparison.contrast(stored, field, baseline, metrics, margin)
        rows = []
        for row in contrasts:
            gap = row.compared.difference
            low, high = gap.ends
            assert self.question is not None
            rows.append(
                {
                    # Columns that a row, or its difference, has under the same name.
                    **{name: getattr(gap, name, None) for name in CONTRASTED},
                    **{name: getattr(row, name) for name in ("baseline", "value", "verdict", "exploratory")},
                    **{column_of(name): text for name, text in row.point.items()},
                    **row.quantity._asdict(),
                    "n": min(gap.n_first, gap.n_second),
                    "difference": gap.value,
                    "low": low,
                    "high": high,
                    "p_adjusted": row.compared.p_adjusted,
                    "shown": comparison.difference_text(row.compared, row.quantity.unit),
                    "margin": margin,
                    "comparisons": self.question.comparisons(row.quantity),
                    "unpaired": len(gap.unpaired),
                }
            )
        others = dict.fromkeys((column_of(name) for row in contrasts for name in row.point), pl.String)
        return pl.DataFrame(rows, schema={**others, **CONTRASTED})

    def segments(self) -> pl.LazyFrame:
        """The captured segments of its runs, valid or not: `run_id`, then the columns of `StoredRun.segments`.

        Raises:
            MissingCapture: no run has captures.
        """
        return _together(self.store, self.run_ids, _segments, "segments")

    def telemetry(self) -> pl.LazyFrame:
        """The telemetry of its runs, valid or not: `run_id`, then the columns of `StoredRun.telemetry`.

        Raises:
            MissingCapture: no run has telemetry.
        """
        return _together(self.store, self.run_ids, _telemetry, "telemetry")

    def plot(self, kind: str, asked: figures.AskedOfCampaign | None = None) -> Figure:
        """A figure of the campaign, as `./backchannel plot` draws it (docs/plots.md).

        Args:
            kind: name of the figure.
            asked: which metric, and how; throughput of all subjects by default.

        Raises:
            AnalysisError: unknown figure, metric, subject or field.
        """
        found = figures.CAMPAIGN_FIGURES.find(kind)
        with calling(found):
            return found.function(self, asked or figures.AskedOfCampaign())

    def measure(
        self,
        metrics: Collection[str] | None = None,
        *,
        new: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Changes:
        """Computes metrics of its stored runs again, valid or not, as `./backchannel measure` does. Nothing runs.

        Args:
            metrics: their names; None: all.
            new: only those of them of which no run has a value or a reason for none.
            progress: is told how many runs are done.

        Raises:
            AnalysisError: unknown metric, or a run's files cannot be read.
        """
        rows = [row for run_id in self.run_ids if (row := self.store.run(run_id)) is not None]
        names = None if metrics is None else [METRICS.find(name).name for name in dict.fromkeys(metrics)]
        if new:
            unknown_yet = new_names(rows)
            names = unknown_yet if names is None else [name for name in names if name in unknown_yet]
        changes = Changes()
        for number, row in enumerate(rows if names != [] else [], 1):
            measure_again(self.store, row, names, versions.versions(), changes)
            if progress is not None:
                progress(number)
        return changes

    @property
    def run_ids(self) -> list[str]:
        """Ids of its runs that are in the store, valid or not."""
        members = [member for point in self.row.points for member in point.members if member.state != MISSING]
        return list(dict.fromkeys(member.run_id for member in members))

    def _with_fields(self, frame: pl.DataFrame) -> pl.DataFrame:
        """A frame with `point`, with a column for each swept field before its own."""
        columns = [column_of(field) for field in self.axes]
        rows = [
            {**{column_of(field): text for field, text in point.parameters}, "point": point.number}
            for point in self.row.points
        ]
        swept = pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String) | {"point": pl.Int64})
        return swept.join(frame, on="point", how="inner", maintain_order="left_right")


class StoredRun:
    """A run of an open store."""

    def __init__(self, store: Store, row: RunRow) -> None:
        self.store = store
        self.row = row
        self.id = row.id

    def __repr__(self) -> str:
        row, place = self.row, f" of {self.place}" if self.place else ""
        return f"<run {row.id[:8]}{place}: {row.state}, {row.backend}, {row.duration_s:g} s>"

    @property
    def place(self) -> str:
        """Campaign, swept values and repetition; of several, the newest campaign; "" without any."""
        if not self.row.campaigns:
            return ""
        home = self.row.campaigns[0]
        swept = (f"{field.rpartition('.')[2]}={value}" for field, value in home.parameters)
        return ", ".join([home.name, *swept, f"repetition {home.repetition + 1}"])

    @cached_property
    def folder(self) -> Path:
        """A local, read-only folder with its files."""
        return self.store.run_folder(self.id)

    @property
    def captures(self) -> list[Path]:
        """Its capture files, one for each interface."""
        return sorted((self.folder / "captures").glob("*.pcap*"))

    @property
    def metrics(self) -> pl.DataFrame:
        """Its stored metrics: run_id, metric, subject, value, unit."""
        columns = {"run_id": pl.String, "name": pl.String, "subject": pl.String, "value": pl.Float64, "unit": pl.String}
        return pl.DataFrame([vars(row) for row in self.row.metrics], schema=columns).rename({"name": "metric"})

    @property
    def segments(self) -> pl.LazyFrame:
        """Its captured segments: the columns of segments.parquet (docs/traces.md), and `t_s`, seconds since its start.

        Raises:
            MissingCapture: nothing was captured.
        """
        return _present(_segments(self.folder, *self._raw), self.id)

    @property
    def connections(self) -> pl.LazyFrame:
        """Its connections, as connections.parquet has them (docs/traces.md).

        Raises:
            MissingCapture: nothing was captured.
        """
        path = self.folder / "connections.parquet"
        return _present(parquet.scan(path) if path.is_file() else None, self.id)

    @property
    def telemetry(self) -> pl.LazyFrame:
        """What its stacks and links recorded: `of` (a flow's name, or "links"), `t_s`, and the columns of both kinds.

        Raises:
            MissingCapture: it kept no telemetry.
        """
        frame = _telemetry(self.folder, *self._raw)
        if frame is None:
            raise MissingCapture(f"run {self.id} kept no telemetry: set capture.telemetry to true")
        return frame

    @property
    def _raw(self) -> tuple[Document, Document]:
        return self.row.documents.scenario_document, self.row.documents.manifest_document

    @cached_property
    def data(self) -> RunData:
        """Its tables as metrics see them: flows, directions of links, groups.

        Raises:
            MissingCapture: nothing was captured.
            AnalysisError: its tables cannot be read.
        """
        return self._tables(lazy=False)

    @property
    def counters(self) -> CountedRun | None:
        """Its counters as metrics see them; None for a run without `capture.counters`."""
        return CountedRun.load(self.folder, self.row.documents.scenario, self.row.documents.report)

    @property
    def is_counted(self) -> bool:
        """Whether it has counters in place of captures."""
        paths = {file.path for file in self.row.files}
        return "counters.json" in paths and "segments.parquet" not in paths

    def view(self, *, lazy: bool = False) -> RunView:
        """Its captures, or its counters if it has no captures.

        Args:
            lazy: reads of millions of segments only what is asked for, each time anew. It suits one figure.

        Raises:
            MissingCapture: it has neither.
            AnalysisError: its tables cannot be read.
        """
        if self.is_counted:
            counted = self.counters
            if counted is None:
                raise MissingCapture("the counters of this run are missing from its folder")
            return counted
        return self._tables(lazy=True) if lazy else self.data

    def plot(
        self,
        kind: str,
        of: Sequence[str] = (),
        from_s: float | None = None,
        to_s: float | None = None,
        slice_s: float | None = None,
    ) -> Figure:
        """A figure of the run, as `./backchannel plot` draws it (docs/plots.md).

        Args:
            kind: name of the figure.
            of: flows, groups or directions of links; all without any.
            from_s: start of the period.
            to_s: its end.
            slice_s: interval of throughput and utilisation.

        Raises:
            AnalysisError: unknown figure, flow or line.
            Unmeasured: the run does not have what the figure needs.
        """
        run_view = self.view()
        asked = figures.Asked.of(run_view, from_s, to_s, slice_s)
        drawn = figures.draw(run_view, kind, of, asked)
        # Files are complete, only pages are thinned. A distribution has no time axis.
        return drawn.within(asked.from_s, asked.to_s, ALL_POINTS) if drawn.x == TIME else drawn

    def _tables(self, *, lazy: bool) -> RunData:
        if not (self.folder / "segments.parquet").is_file():
            raise _without_captures(self.id)
        try:
            return RunData.load(self.folder, self.row.documents.scenario, self.row.documents.report, lazy=lazy)
        except (OSError, pl.exceptions.PolarsError, json.JSONDecodeError, KeyError) as error:
            raise AnalysisError(f"the tables of run {self.id} cannot be read: {error}; {REPEAT}") from None


def _present(frame: pl.LazyFrame | None, run_id: str) -> pl.LazyFrame:
    if frame is None:
        raise _without_captures(run_id)
    return frame


def _without_captures(run_id: str) -> MissingCapture:
    return MissingCapture(f"run {run_id} has no captures: its campaign says so (capture.at), or 'prune' deleted them")


def _runs(store: Store, campaign_id: str = "") -> pl.DataFrame:
    if campaign_id:
        head = store.campaign_head(campaign_id)
        campaigns = [] if head is None else [head]
    else:
        campaigns = store.campaigns()
    rows = [
        {name: getattr(head, name, None) for name in _RUNS} | {"campaign": row.name, "problems": head.decoded_problems}
        for row in campaigns
        for head in store.heads(row.id)
    ]
    return pl.DataFrame(rows, schema=_RUNS)


def lacks_metric(campaign: StoredCampaign, name: str, existing: Collection[str]) -> AnalysisError:
    """The error that none of a campaign's runs has a value of a metric, with the reason that a run states."""
    if name not in METRICS:
        return unknown("metric of this campaign", name, existing)
    rows = (campaign.store.run(run_id) for run_id in campaign.run_ids)
    stated = refusals(sentence for row in rows if row for sentence in row.documents.manifest.unmeasured)
    none = "nothing happened that it measures, or it is newer than the runs"
    reason = next((reason for names, reason in stated if name in names), none)
    again = f"'./backchannel measure {campaign.row.name} --metric {name}' computes it from the stored captures"
    return AnalysisError(f"no run of this campaign has a value of {name}: {reason}; {again}")


def _together(
    store: Store, run_ids: Iterable[str], read: Callable[[Path, Document, Document], pl.LazyFrame | None], what: str
) -> pl.LazyFrame:
    """A lazy table of several runs with a column `run_id`. Files are opened now and read when it is collected."""
    frames = []
    for run_id in run_ids:
        row = store.run(run_id)
        if row is None:
            continue
        frame = read(store.run_folder(run_id), row.documents.scenario_document, row.documents.manifest_document)
        if frame is not None:
            frames.append(frame.select(pl.lit(run_id).alias("run_id"), pl.all()))
    if not frames:
        raise MissingCapture(f"none of these runs has {what}: capture.at and capture.telemetry of a campaign keep them")
    return pl.concat(frames, how="diagonal_relaxed")


def _segments(folder: Path, _: Document, manifest: Document) -> pl.LazyFrame | None:
    path = folder / "segments.parquet"
    if not path.is_file():
        return None
    zero_ns = manifest["report"]["t0_epoch_ns"]
    return parquet.scan(path).with_columns(((pl.col("time_ns") - zero_ns) / 1e9).alias("t_s"))


def _telemetry(folder: Path, scenario: Document, _: Document) -> pl.LazyFrame | None:
    # Stacks count from the start of their flow, links from that of the run.
    sources: dict[str, tuple[Mapping[str, Any], float]] = {"links": (LINK_TELEMETRY, 0.0)}
    sources |= {flow["name"]: (FLOW_TELEMETRY, float(flow.get("start_s") or 0.0)) for flow in scenario["workload"]}
    frames = []
    for name, (schema, start_s) in sources.items():
        path = record_file(folder / "telemetry", name)
        if path is not None and path.stat().st_size:
            # A path is a pattern, and names of flows over IPv6 have brackets.
            rows = pl.scan_ndjson(glob.escape(str(path)), schema=dict(schema))
            t_s = (pl.col("t_ns") / 1e9 + start_s).alias("t_s")
            frames.append(rows.select(pl.lit(name).alias("of"), t_s, pl.all().exclude("t_ns")))
    return pl.concat(frames, how="diagonal") if frames else None


def to_pandas(frame: pl.DataFrame) -> pandas.DataFrame:
    """The frame as a pandas frame. Needs pandas, which Backchannel does not install.

    Integers with nulls become pandas' Int64, null fractions NaN, null text None.

    Raises:
        AnalysisError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise AnalysisError("pandas is not installed: .venv/bin/pip install pandas") from None
    columns: dict[str, Any] = {}
    for series in frame:
        if series.dtype.is_integer() and series.null_count():
            columns[series.name] = pandas.array(series.to_list(), dtype="Int64")
        elif series.dtype.is_numeric():
            columns[series.name] = series.to_numpy()
        else:
            columns[series.name] = pandas.Series(series.to_list(), dtype=object)
    return pandas.DataFrame(columns)
