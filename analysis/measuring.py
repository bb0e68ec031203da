"""The metrics of a run's files: of a run that was just made, and of stored runs that are measured again."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from analysis import outputs
from analysis.captures import RunData
from analysis.counters import CountedRun
from analysis.metrics import METRICS, Measured, measure
from analysis.metrics.registry import is_added, refusals, refusals_of
from analysis.results import MetricValue
from analysis.runs import RunView
from analysis.store import PendingRun, Store
from analysis.store.documents import Documents, MeasuredAgain, Versions
from analysis.store.rows import RunRow
from testbed.report import Report
from testbed.scenario import Scenario


def measure_files(folder: Path, scenario: Scenario, report: Report, names: Collection[str] | None = None) -> Measured:
    """Measures a run whose captures are classified, or which has counters.

    A metric comes from the captures, or from the counters if the captures do not have it.

    Args:
        folder: of the run.
        scenario: of the run.
        report: of the run.
        names: of the metrics; None: all, and the values that the run's programs print.
    """
    views: list[RunView] = []
    if (folder / "segments.parquet").is_file():
        views.append(RunData.load(folder, scenario, report))
    counted = CountedRun.load(folder, scenario, report)
    if counted is not None:
        views.append(counted)
    measured = measure(*views, names=names)
    if names is None:
        measured.rows.extend(outputs.read(folder, scenario).rows)
    return measured


@dataclass
class Changes:
    """What measuring stored runs again changed."""

    #: Runs that were measured; that have neither captures nor counters; that another command replaced meanwhile.
    runs: int = 0
    without: int = 0
    overtaken: int = 0
    #: Values that runs did not have; that are others now; that runs no longer have.
    new: int = 0
    changed: int = 0
    gone: int = 0
    #: Why metrics of packages outside the checkout have no value, to the number of runs.
    unmeasured: dict[str, int] = field(default_factory=dict)


def measure_again(store: Store, row: RunRow, names: Collection[str] | None, by: Versions, changes: Changes) -> None:
    """Measures a stored run. If a value is another one, the result with the new values takes the place of the old one.

    Values that metrics had before stay known as those of an earlier date (`compare NAME@DATE`).

    Args:
        store: that has the run.
        row: of the run.
        names: of the metrics; None: all.
        by: the version that measures, which the manifest states.
        changes: is added to.

    Raises:
        AnalysisError: its files cannot be read.
        StoreError: the result cannot be stored.
    """
    source = store.run_folder(row.id)
    if not any((source / name).is_file() for name in ("segments.parquet", "counters.json")):
        changes.without += 1
        return
    measured = measure_files(source, row.documents.scenario, row.documents.report, names)
    for sentence in refusals_of(measured.unmeasured, is_added):
        changes.unmeasured[sentence] = changes.unmeasured.get(sentence, 0) + 1
    before = {(value.name, value.subject): value.value for value in row.metrics if names is None or value.name in names}
    # The store has no others.
    now = {key: value for key, value in measured.values.items() if math.isfinite(value)}
    kept = [MetricValue(value.name, value.subject, value.value, value.unit) for value in row.metrics]
    kept = [value for value in kept if (value.metric, value.subject) not in before]
    if now == before:
        # A new result would only make the run the newest.
        changes.runs += 1
        return
    folder = store.staging_folder(row.id)
    # Files of a run do not change, so that both results may share them.
    shutil.copytree(source, folder, dirs_exist_ok=True, copy_function=_link)
    valued = None if names is None else [name for name in names if any(name == key[0] for key in now | before)]
    documents = Documents(row.documents.scenario_document, _manifest(row, measured, valued, by))
    documents.write(folder)
    pending = PendingRun(
        row.id, row.backend, documents, [*kept, *measured.rows], row.problems, row.attempt, folder, row.landed
    )
    if not store.commit_run(pending, replaces=True):
        changes.overtaken += 1
        return
    changes.runs += 1
    changes.new += len(now.keys() - before.keys())
    changes.gone += len(before.keys() - now.keys())
    changes.changed += sum(before[key] != now[key] for key in before.keys() & now.keys())


def _manifest(row: RunRow, measured: Measured, names: Collection[str] | None, by: Versions) -> dict[str, object]:
    manifest = row.documents.manifest
    again = MeasuredAgain(**by.complete(), at=time.time(), metrics=tuple(names or ()))
    earlier = () if names is None else manifest.measured_again
    # Not of metrics that have a value now.
    have = {name for name, _ in measured.values}
    others = [] if names is None else refusals_of(manifest.unmeasured, lambda name: name not in have)
    unmeasured = dict.fromkeys([*others, *measured.unmeasured])
    changed = manifest.replace(unmeasured=tuple(unmeasured), measured_again=(*earlier, again))
    if plugins := METRICS.plugins():
        changed = changed.replace(plugins=tuple(plugins))
    return changed.as_json()


def _link(source: str, target: str) -> str:
    # The two documents are written anew, which must not write into the old ones.
    if Path(source).name in ("scenario.json", "manifest.json"):
        return target
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
    return target


def new_names(rows: Collection[RunRow]) -> list[str]:
    """The metrics of which none of the runs has a value, and of which none says why."""
    measured_names = {value.name for row in rows for value in row.metrics}
    for row in rows:
        for names, _ in refusals(row.documents.manifest.unmeasured):
            measured_names.update(names)
    return [name for name in METRICS if name not in measured_names]
