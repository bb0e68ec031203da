"""Deleting files and screened rows: what stays, and that a kill leaves a store that is what its rows say."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from analysis.results import Quantity
from analysis.store import Store, notes, pruning
from analysis.store.claims import Claims
from analysis.store.documents import Documents
from analysis.store.schema import run
from analysis.store.screened import Screened, keep, known
from analysis.verifying import verify
from tests.unit.analysis.store.conftest import POSTGRESQL, enter, pending_run

CAPTURE, TABLE = 1000, 300


def commit(store: Store, run_id: str, manifest: dict[str, object] | None = None) -> None:
    made = pending_run(store, run_id, 1e6, capture=b"x" * CAPTURE)
    (made.folder / "summary.json").write_bytes(b" " * TABLE)
    store.commit_run(replace(made, documents=Documents(made.documents.scenario_document, manifest or {})))


@pytest.fixture
def filled(store: Store) -> Store:
    """A campaign whose runs are its own, another's too, and made by a campaign that runs."""
    enter(store, "mine", "alone", "both", "made")
    enter(store, "other", "both")
    enter(store, "running", "made", complete=False)
    for run_id in ("alone", "both", "made"):
        commit(store, run_id)
    return store


def paths(store: Store, run_id: str) -> set[str]:
    folder = store.folder_of_run(run_id)
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def findings(store: Store) -> list[str]:
    return [str(finding) for finding in verify(store, store.run_ids("")).findings]


@pytest.mark.parametrize(
    ("what", "size", "left"), [("captures", CAPTURE, {"summary.json"}), ("files", CAPTURE + TABLE, set())]
)
def test_files_go_values_and_shared_runs_stay(filled: Store, what: pruning.Files, size: int, left: set[str]) -> None:
    goes = filled.files_of(["mine"], what)["mine"]
    assert (goes.runs, goes.bytes, goes.shared) == (1, size, 2)
    done: list[int] = []
    filled.drop_files(["mine"], what, done.append)
    assert done == [1]
    assert paths(filled, "alone") == left
    assert paths(filled, "both") == paths(filled, "made") == {"captures/a.pcap", "summary.json"}
    row = filled.run("alone")
    assert row is not None
    assert {file.path for file in row.files} == left
    assert [metric.value for metric in row.metrics] == [1e6]
    assert findings(filled) == []
    again = filled.files_of(["mine"], what)["mine"]
    assert (again.runs, again.bytes) == (0, 0)


def test_a_run_of_two_campaigns_that_both_go_counts_once(filled: Store) -> None:
    removals = filled.files_of(["other", "mine"], "files")
    assert [removals[name].runs for name in ("other", "mine")] == [1, 1]
    whole = [filled.would_go(name, before) for name, before in (("other", []), ("mine", ["other"]))]
    assert [goes.runs for goes in whole] == [0, 2]
    filled.drop_files(["other", "mine"], "files")
    assert paths(filled, "both") == set()


def test_a_campaign_that_runs_keeps_its_files(filled: Store) -> None:
    enter(filled, "busy", "at work", complete=False)
    commit(filled, "at work")
    assert filled.files_of(["busy"], "files")["busy"].runs == 0
    filled.drop_files(["busy"], "files")
    assert paths(filled, "at work") == {"captures/a.pcap", "summary.json"}
    filled.end_campaign("busy", complete=True)
    filled.drop_files(["busy"], "files")
    assert paths(filled, "at work") == set()


def test_a_claimed_run_keeps_its_files(filled: Store) -> None:
    claims = Claims(filled)
    filled.set_aside("other", "archived")
    # It has a valid result, so that nobody makes it; the claim stands until it is released.
    claims.take(["alone"])
    filled.drop_files(["mine"], "files")
    assert paths(filled, "alone") == {"captures/a.pcap", "summary.json"}
    claims.release()
    filled.drop_files(["mine"], "files")
    assert paths(filled, "alone") == set()


def test_a_damaged_run_stays_damaged(filled: Store) -> None:
    with filled.writing() as connection:
        connection.execute(sa.update(run).where(run.c.id == "alone").values(seed=2))
    before = findings(filled)
    assert any("alone" in finding for finding in before)
    filled.drop_files(["mine"], "files")
    assert any("alone" in finding for finding in findings(filled))


@pytest.mark.parametrize("what", ["captures", "files"])
@pytest.mark.parametrize("killed_at", [1, 2, 3])
def test_after_a_kill_no_row_names_a_file_that_is_gone_and_the_same_call_ends_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, what: pruning.Files, killed_at: int
) -> None:
    if POSTGRESQL is not None:
        pytest.skip("a forked process must not use its parent's connections")
    monkeypatch.setattr(pruning, "TOGETHER", 2)
    names = ["a1", "a2", "a3", "a4"]
    enter(store, "mine", *names)
    for run_id in names:
        commit(store, run_id)
    where = store.folder
    store.close()
    if (child := os.fork()) == 0:
        try:
            with Store.open(where) as ours:
                remove, calls = ours._artefacts.remove, 0

                def kill(run_id: str, below: str = "") -> None:
                    nonlocal calls
                    calls += 1
                    if calls == killed_at:
                        os.kill(os.getpid(), signal.SIGKILL)
                    remove(run_id, below)

                ours._artefacts.remove = kill  # type: ignore[method-assign]
                ours.drop_files(["mine"], what)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with Store.open(where) as after:
        assert findings(after) == []
        assert any("captures/a.pcap" in paths(after, run_id) for run_id in names)
        after.drop_files(["mine"], what)
        left = {"summary.json"} if what == "captures" else set()
        assert all(paths(after, run_id) == left for run_id in names)
        assert findings(after) == []


def test_what_refers_to_campaigns(filled: Store) -> None:
    assert pruning.with_notes(filled.database) == set()
    notes.write(filled, "both", "slow", [])
    assert pruning.with_notes(filled.database) == {"mine", "other"}
    assert not pruning.is_from_bundle(filled.database, "mine")
    enter(filled, "foreign", "bundled")
    commit(filled, "bundled", {"values_from_bundle": True})
    assert pruning.is_from_bundle(filled.database, "foreign")
    assert not pruning.is_from_bundle(filled.database, "mine")


def test_screened_rows_are_read_in_parts_and_go(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "ROWS", 2)
    ids = [f"s{number}" for number in range(5)]
    value = {Quantity("throughput", "f", "rate"): 1e6}
    keep(store, [Screened(run_id, value, (), frozenset({"throughput"})) for run_id in ids])
    number, characters = pruning.count_screened(store.database)
    assert (number, characters > 0) == (5, True)
    assert [row.run_id for rows in pruning.screened_rows(store.database) for row in rows] == ids
    pruning.drop_screened(store.database, ["s1", "s4"])
    pruning.compact(store.database)
    assert set(known(store, ids)) == {"s0", "s2", "s3"}


def test_a_compacted_database_is_smaller(store: Store, tmp_path: Path) -> None:
    if POSTGRESQL is not None:
        pytest.skip("PostgreSQL frees its pages by itself")
    value = {Quantity("throughput", "f", "rate"): 1e6}
    ids = [f"{number:05d}" for number in range(3000)]
    keep(store, [Screened(run_id, value, ("x" * 100,), frozenset({"throughput"})) for run_id in ids])
    pruning.compact(store.database)
    file = tmp_path / "results" / "results.sqlite"
    before = file.stat().st_size
    pruning.drop_screened(store.database, ids)
    pruning.compact(store.database)
    assert file.stat().st_size < before / 2
