"""Copies of a results folder that is in use."""

from __future__ import annotations

import resource
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from analysis.store import Store, StoreDamaged, StoreError, StoreFailed, StorePlaceError, backup
from analysis.verifying import verify
from tests.unit.analysis.store.conftest import POSTGRESQL, begin, pending_run

pytestmark = pytest.mark.skipif(POSTGRESQL is not None, reason="a PostgreSQL server has tools of its own")


#: Size of a file for which `full_disk` has no room; a small database is smaller.
FULL_BYTES = 4 << 20


@contextmanager
def full_disk(most_bytes: int = FULL_BYTES - 1) -> Iterator[None]:
    """No file of this process can become larger."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def values(folder: Path) -> dict[str, float]:
    """Throughput by run of a store whose files are those of its rows."""
    with Store.open(folder) as opened:
        runs = opened.run_ids("")
        assert verify(opened, runs, lambda done: None).findings == []
        stored = {run.id: run for run_id in runs if (run := opened.run(run_id)) is not None}
        return {id: row.value for id, run in stored.items() for row in run.metrics if row.name == "throughput"}


def commit(store: Store, run_id: str, value: float, content: bytes = b"abc", **more: Any) -> None:
    """Lands a run whose capture has the content."""
    store.commit_run(pending_run(store, run_id, value, capture=content), **more)


def test_a_copy_has_every_row_and_file_and_goes_back(store: Store, tmp_path: Path) -> None:
    begin(store)
    commit(store, "r00", 1.0)
    commit(store, "r01", 2.0)
    assert backup.copy_store(store.folder, tmp_path / "saved") == backup.Copy(2, {})
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["results.sqlite", "runs"]
    backup.copy_store(tmp_path / "saved", tmp_path / "again")
    assert values(tmp_path / "again") == {"r00": 1.0, "r01": 2.0}
    with Store.open(tmp_path / "again") as again:
        assert [row.id for row in again.campaigns()] == ["c1"]


def test_a_run_that_is_replaced_during_the_copy_has_its_new_rows_and_files(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(store, "r00", 1.0)
    copy2 = shutil.copy2

    def replaced_before(source: Path, target: Path) -> Any:
        monkeypatch.setattr("analysis.store.backup.shutil.copy2", copy2)
        commit(store, "r00", 5.0, b"newer", replaces=True)
        return copy2(source, target)

    monkeypatch.setattr("analysis.store.backup.shutil.copy2", replaced_before)
    assert backup.copy_store(store.folder, tmp_path / "saved").damaged == {}
    assert values(tmp_path / "saved") == {"r00": 5.0}


def test_nothing_lands_during_the_last_copy(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(store, "r00", 1.0)
    copy2, copied = shutil.copy2, []

    def replaced_around(source: Path, target: Path) -> None:
        """What is copied belongs neither to the rows before the copy nor to those after it."""
        copied.append(source)
        if len(copied) < 3:
            commit(store, "r00", 2.0, f"{len(copied)} before".encode(), replaces=True)
            copy2(source, target)
            commit(store, "r00", 3.0, f"{len(copied)} after".encode(), replaces=True)
            return
        other = sqlite3.connect(store.folder / "results.sqlite", timeout=0, isolation_level=None)
        with closing(other), pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        copy2(source, target)

    monkeypatch.setattr("analysis.store.backup.shutil.copy2", replaced_around)
    assert backup.copy_store(store.folder, tmp_path / "saved").damaged == {}
    assert len(copied) == 3
    assert values(tmp_path / "saved") == {"r00": 3.0}


def test_copies_while_runs_land_are_complete(store: Store, tmp_path: Path) -> None:
    ended = threading.Event()

    def land_many() -> None:
        number = 0
        while not ended.is_set():
            commit(store, f"r{number % 7:02d}", float(number), str(number).encode(), replaces=True)
            number += 1

    writer = threading.Thread(target=land_many)
    writer.start()
    try:
        while not store.run_ids(""):
            pass
        for number in range(8):
            backup.copy_store(store.folder, tmp_path / f"saved{number}")
            assert values(tmp_path / f"saved{number}")
    finally:
        ended.set()
        writer.join()


def test_a_damaged_run_is_named_and_the_others_are_copied(store: Store, tmp_path: Path) -> None:
    commit(store, "r00", 1.0)
    commit(store, "r01", 2.0)
    (store.folder_of_run("r00") / "captures/a.pcap").write_bytes(b"ABC")
    done = backup.copy_store(store.folder, tmp_path / "saved")
    assert done.runs == 2
    assert done.damaged == {"r00": ["captures/a.pcap differs from its checksum"]}
    assert (tmp_path / "saved/runs/r0/r01/captures/a.pcap").read_bytes() == b"abc"


def test_a_full_disk_is_not_taken_for_damage_and_the_same_call_continues(store: Store, tmp_path: Path) -> None:
    commit(store, "r00", 1.0, bytes(FULL_BYTES))
    with full_disk(), pytest.raises(StoreFailed, match=r"r0/r00 cannot be written: File too large"):
        backup.copy_store(store.folder, tmp_path / "saved")
    assert not (tmp_path / "saved/results.sqlite").exists()
    assert backup.copy_store(store.folder, tmp_path / "saved") == backup.Copy(1, {})


def test_a_full_disk_does_not_leave_out_files_of_failed_attempts(store: Store, tmp_path: Path) -> None:
    failed = store.staging_folder("r00")
    (failed / "agent.log").write_bytes(bytes(FULL_BYTES))
    store.note_failure("r00", 1, "it went wrong", failed)
    with full_disk(), pytest.raises(OSError, match="File too large"):
        backup.copy_store(store.folder, tmp_path / "saved")
    backup.copy_store(store.folder, tmp_path / "saved")
    assert (tmp_path / "saved/failed/r00/agent.log").stat().st_size == FULL_BYTES


def test_a_full_disk_is_no_damage_of_the_database(store: Store, tmp_path: Path) -> None:
    commit(store, "r00", 1.0)
    with full_disk(4096), pytest.raises(StoreFailed, match=r"cannot be copied to .*: ") as error:
        backup.copy_store(store.folder, tmp_path / "saved")
    assert not isinstance(error.value, StoreDamaged)


def test_a_place_where_no_folder_can_be_made_is_named(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorePlaceError, match=r"file/saved cannot be made: Not a directory"):
        backup.copy_store(store.folder, tmp_path / "file/saved")


def test_an_interrupted_copy_can_be_continued(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(store, "r00", 1.0)
    with monkeypatch.context() as patched:
        patched.setattr("analysis.store.backup.shutil.copy2", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            backup.copy_store(store.folder, tmp_path / "saved")
    with pytest.raises(StorePlaceError, match="no results in"):
        backup.copy_store(tmp_path / "saved", tmp_path / "again")
    backup.copy_store(store.folder, tmp_path / "saved")
    assert values(tmp_path / "saved") == {"r00": 1.0}


def test_a_read_only_store_is_read_and_copied(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(store, "r00", 1.0)
    store.close()
    folder = tmp_path / "results"
    shutil.rmtree(folder / "incoming")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with monkeypatch.context() as patched:
        # Root may write everywhere but on a file system that is mounted read-only.
        patched.setattr("analysis.store.database.os.access", lambda path, mode: Path(path) != folder)
        assert values(folder) == {"r00": 1.0}
        with Store.open(folder) as opened, pytest.raises(StoreFailed, match="readonly"):
            begin(opened)
        backup.copy_store(folder, tmp_path / "saved")
        assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
        (folder / "results.sqlite-wal").write_bytes(b"log")
        with pytest.raises(StoreError, match="a program was using it when it was copied"):
            Store.open(folder)
    assert values(tmp_path / "saved") == {"r00": 1.0}


def test_a_read_only_store_of_another_version_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "results.sqlite")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0007_claims'")
    for log in tmp_path.glob("results.sqlite-*"):
        log.unlink()
    monkeypatch.setattr("analysis.store.database.os.access", lambda path, mode: False)
    with pytest.raises(StoreError, match="made by another version of Backchannel and cannot be written"):
        Store.open(tmp_path)


def test_a_copy_replaces_no_results_and_takes_folders_only(store: Store, tmp_path: Path) -> None:
    Store.open(tmp_path / "other").close()
    with pytest.raises(StorePlaceError, match="other has results already; name another folder"):
        backup.copy_store(store.folder, tmp_path / "other")
    with pytest.raises(StorePlaceError, match="pg_dump"):
        backup.copy_store("postgresql://host/results", tmp_path / "saved")
