"""The store: commits, campaigns, tables, migrations."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from fsspec.implementations.local import LocalFileSystem

from analysis.results import ValueRow
from analysis.store import PendingRun, Store, StoreError, StoreFailed, requests
from analysis.store.artefacts import BEFORE
from analysis.store.database import ALEMBIC, MIGRATIONS, revisions_of, upgrade
from analysis.store.documents import Documents
from analysis.store.pulse import Pulse
from analysis.store.rows import NewCampaign, RunRow
from analysis.store.schema import metadata
from testbed.node_binary import ROOT
from tests.support.rewriting import rewriting
from tests.support.waiting import HANGS_S, wait_until
from tests.unit.analysis.store.conftest import POSTGRESQL, begin, campaign_fields, opened, pending_run

of_sqlite = pytest.mark.only_on("sqlite")
#: SQLite's store keeps files in its own folder.
of_postgresql = pytest.mark.only_on("postgresql")


def until_changed(pulse: Pulse) -> None:
    """A notification of PostgreSQL comes on its own connection, some time after the commit."""
    wait_until(pulse.changed, "a notification")


def assert_unchanged(pulse: Pulse) -> None:
    if POSTGRESQL is not None:
        # The absence of a notification has no event to wait for.
        time.sleep(0.2)
    assert not pulse.changed()


def run_of(store: Store, run_id: str) -> RunRow:
    run = store.run(run_id)
    assert run is not None
    return run


def at_once(*calls: Callable[[], object]) -> None:
    """Each in a thread of its own, until all have ended."""
    with ThreadPoolExecutor(len(calls)) as pool:
        for ended in [pool.submit(call) for call in calls]:
            ended.result()


def test_a_pulse_tells_of_every_write_and_of_nothing_else(store: Store, tmp_path: Path) -> None:
    pulse, other = Pulse(store), opened(tmp_path)
    assert pulse.changed()
    other.campaigns()
    assert_unchanged(pulse)
    begin(other)
    until_changed(pulse)
    assert_unchanged(pulse)
    row = {"id": "a", "started": 1, "seen": 1, "lacks": []}
    with pytest.raises(sa.exc.IntegrityError), other.writing() as connection:
        # The second row has the key of the first: both are taken back.
        connection.execute(sa.insert(metadata.tables["runner"]), [row] * 2)
    assert_unchanged(pulse)
    other.commit_run(pending_run(other, "r00", 1.0))
    until_changed(pulse)
    pulse.close()


@of_postgresql
def test_a_pulse_outlives_its_connection(store: Store, tmp_path: Path) -> None:
    pulse, other = Pulse(store), opened(tmp_path)
    pulse.changed()
    with other.writing() as connection:
        connection.execute(
            sa.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'LISTEN backchannel'")
        )
    # What was missed meanwhile is unknown, so it reports a change, and then the next.
    until_changed(pulse)
    # Lets the last notification arrive.
    time.sleep(0.2)
    pulse.changed()
    begin(other)
    until_changed(pulse)
    pulse.close()


def test_migrations_make_exactly_the_declared_tables(store: Store) -> None:
    """A new store has the declared tables at once."""
    with store.connect() as connection, connection.begin():
        assert connection.scalar(sa.select(ALEMBIC.c.version_num)) == revisions_of(MIGRATIONS)[-1]
        for tables in (metadata, ALEMBIC.metadata):
            tables.drop_all(connection)
        upgrade(connection)
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        # Alembic compares no primary keys.
        inspector = sa.inspect(connection)
        keys = {name: inspector.get_pk_constraint(name)["constrained_columns"] for name in metadata.tables}
    assert keys == {name: [column.name for column in table.primary_key] for name, table in metadata.tables.items()}


@of_sqlite
def test_a_writer_waits_half_a_minute_for_another(store: Store) -> None:
    with store.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000


@of_sqlite
def test_a_store_that_is_closed_leaves_no_file_open(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "closed")
    store.staging_folder("r00")
    store.close()
    names = [str(descriptor.resolve()) for descriptor in Path("/proc/self/fd").iterdir()]
    assert [name for name in names if name.startswith(str(tmp_path))] == []


def test_the_beginning_of_an_id_is_no_pattern(store: Store) -> None:
    for run_id in ("ab0", "ab1", "b_2"):
        store.commit_run(pending_run(store, run_id, 1.0))
    assert store.run_ids("ab") == ["ab0", "ab1"]
    assert store.run_ids("ab", limit=1) == ["ab0"]
    assert [store.run_ids(beginning) for beginning in ("b_", "_b", "%")] == [["b_2"], [], []]


def test_runs_are_found_however_many_are_asked_for(store: Store) -> None:
    """More ids than fit into two queries: each of them, at every place of a query, is found."""
    ids = [f"r{number:04}" for number in range(1203)]
    of_run = {
        "backend": "sim", "seed": 1, "duration_s": 1.0, "problems": [], "attempt": 1, "landed": 1.0, "scenario": {},
        "manifest": {},
    }  # fmt: skip
    of_metric = {"name": "throughput", "subject": "f", "value": 1.0, "unit": "rate"}
    of_attempt = {"number": 1, "at": 1.0, "outcome": "invalid", "problems": ["late"]}
    tables = metadata.tables
    with rewriting(store) as connection:
        connection.execute(sa.insert(tables["run"]), [{"id": id, "state": "valid", **of_run} for id in ids[::2]])
        connection.execute(sa.insert(tables["metric"]), [{"run_id": id, **of_metric} for id in ids[::2]])
        connection.execute(sa.insert(tables["attempt"]), [{"run_id": id, **of_attempt} for id in ids])
    assert store.valid_runs(ids) == set(ids[::2])
    assert store.tried_runs(ids) == set(ids[1::2])
    assert set(store._by_run(store._heads_of(ids).values())) == set(ids[::2])
    assert store.last_problems(ids) == {id: ["late"] for id in ids}


def test_a_run_lands_whole(store: Store) -> None:
    begin(store)
    store.commit_run(pending_run(store, "r00", 5.0))
    run = run_of(store, "r00")
    assert run.state == "valid"
    assert [(file.path, file.bytes) for file in run.files] == [("captures/a.pcap", 3)]
    assert (store.run_folder("r00") / "captures/a.pcap").read_bytes() == b"abc"
    assert run.campaigns[0].parameters == (("stack", "reno"),)
    assert store.valid_runs(["r00", "r01"]) == {"r00"}


def test_a_landing_that_fails_leaves_nothing(store: Store) -> None:
    begin(store)
    broken = pending_run(store, "r00", 5.0)
    bad = replace(broken, metrics=[*broken.metrics, *broken.metrics])
    with pytest.raises(sa.exc.IntegrityError):
        store.commit_run(bad)
    assert store.run("r00") is None
    assert not store.run_folder("r00").exists()
    store.commit_run(pending_run(store, "r00", 5.0))
    assert store.valid_runs(["r00"]) == {"r00"}


def test_invalid_runs_stay_out_of_every_mean(store: Store) -> None:
    begin(store)
    store.commit_run(pending_run(store, "r00", 4.0))
    store.commit_run(pending_run(store, "r01", 1000.0, problems=("it was late",)))
    (row,) = store.table("c1")
    assert (row.mean, row.sd, row.n) == (4.0, None, 1)
    store.commit_run(pending_run(store, "r01", 6.0, attempt=2))
    (row,) = store.table("c1")
    assert (row.mean, row.n) == (5.0, 2)
    assert row.sd == pytest.approx(2**0.5)
    run = run_of(store, "r01")
    assert [attempt.outcome for attempt in run.attempts] == ["invalid"]


def test_campaigns_count_their_valid_runs_and_share_them(store: Store) -> None:
    begin(store)
    begin(store, id="c2", name="other")
    store.commit_run(pending_run(store, "r00", 4.0))
    store.commit_run(pending_run(store, "r10", 4.0, problems=("late",)))
    assert {row.id: (row.runs, row.valid) for row in store.campaigns()} == {"c1": (4, 1), "c2": (4, 1)}
    campaign = store.campaign("c1")
    assert campaign is not None
    states = [[member.state for member in point.members] for point in campaign.points]
    assert states == [["valid", "missing"], ["invalid", "missing"]]
    store.end_campaign("c1", complete=False)
    assert store.campaign("c1").state == "incomplete"  # type: ignore[union-attr]
    assert store.campaign("nowhere") is None
    assert store.run("nowhere") is None


def test_a_campaign_that_begins_again_runs_as_its_file_is_now(store: Store) -> None:
    begin(store)
    first = store.campaigns("c1")[0]
    store.set_progress("c1", {"share": 0.5})
    store.end_campaign("c1", complete=True)
    fields = campaign_fields(title="New", file="new.yaml", text="name: new", overrides={"seed": "2"}, seed=2)
    store.begin_campaign(NewCampaign(**fields), [[("stack", "bbr")]], [(0, 0, "r20")])
    campaign = store.campaign("c1")
    assert campaign is not None
    assert {name: getattr(campaign, name) for name in fields} == fields
    assert (campaign.state, campaign.finished, campaign.progress) == ("running", None, {})
    assert campaign.started > first.started
    assert [[member.run_id for member in point.members] for point in campaign.points] == [["r20"]]


def test_many_writers_wait_for_each_other(store: Store, tmp_path: Path) -> None:
    begin(store)
    other = opened(tmp_path)
    pending_runs = [pending_run(store, f"run{number}", float(number)) for number in range(20)]

    def commit_some(into: Store, some: list[PendingRun]) -> None:
        for entry in some:
            into.commit_run(entry)

    at_once(lambda: commit_some(store, pending_runs[::2]), lambda: commit_some(other, pending_runs[1::2]))
    assert len(store.valid_runs([f"run{number}" for number in range(20)])) == 20


def test_what_is_read_in_a_moment_is_of_one_moment(store: Store, tmp_path: Path) -> None:
    begin(store)
    store.commit_run(pending_run(store, "r00", 1.0))
    other = opened(tmp_path)

    with store.moment():
        before = store.campaigns()
        at_once(lambda: other.commit_run(pending_run(other, "r01", 2.0)))
        assert store.campaigns() == before
    assert [row.valid for row in store.campaigns()] == [2]
    assert [row.valid for row in before] == [1]


@of_sqlite
def test_many_open_a_new_store_at_once(tmp_path: Path) -> None:
    stores: list[Store] = []
    at_once(*[lambda: stores.append(Store.open(tmp_path / "new"))] * 12)
    assert len(stores) == 12
    with stores[0].connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def test_each_try_of_a_run_is_put_together_in_a_folder_of_its_own(store: Store) -> None:
    first = store.staging_folder("r00")
    (first / "cell.log").touch()
    second = store.staging_folder("r00")
    assert list(second.iterdir()) == []
    assert (first / "cell.log").exists()


def test_leftovers_of_dead_runners_are_swept(store: Store) -> None:
    mine = store.staging_folder("r00")
    dead = store.folder / "incoming" / "r01-999999999"
    dead.mkdir()
    store.sweep()
    assert mine.exists()
    assert not dead.exists()


def test_files_of_revisions_have_their_names_in_alembics_order() -> None:
    """A store finds its newest revision without Alembic."""
    script = ScriptDirectory(str(MIGRATIONS))
    assert revisions_of(MIGRATIONS) == [revision.revision for revision in script.walk_revisions()][::-1]


def test_a_store_that_is_new_enough_is_opened_without_alembic(tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    program = "import sys; from analysis.store import Store; Store.open(sys.argv[1]); print('alembic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@of_sqlite
def test_a_store_of_a_newer_version_and_a_broken_one_are_refused(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "newer")
    with store.connect() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match="newer version"):
        Store.open(tmp_path / "newer")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/results.sqlite").write_bytes(b"this is no database, whatever its name says" * 50)
    with pytest.raises(StoreError, match="cannot be opened"):
        Store.open(tmp_path / "broken")


def test_the_first_valid_result_stays_until_another_valid_one_replaces_it(store: Store) -> None:
    begin(store)
    store.commit_run(pending_run(store, "r00", 4.0))
    second = pending_run(store, "r00", 5.0, capture=b"other")
    store.commit_run(second)
    assert not second.folder.exists()
    store.commit_run(pending_run(store, "r00", 9.0, problems=("late",), attempt=2))
    store.commit_run(pending_run(store, "r00", 9.0, problems=("late",)), replaces=True)
    assert [(run_of(store, "r00").state, row.value) for row in store.values("c1")] == [("valid", 4.0)]
    assert (store.run_folder("r00") / "captures/a.pcap").read_bytes() == b"abc"
    store.commit_run(pending_run(store, "r00", 5.0, capture=b"other"), replaces=True)
    assert [row.value for row in store.values("c1")] == [5.0]
    assert (store.run_folder("r00") / "captures/a.pcap").read_bytes() == b"other"


def test_an_earlier_date_has_what_was_there_then(store: Store, clock: SimpleNamespace) -> None:
    begin(store)
    for clock.now_s, value in ((1.0, 4.0), (2.0, 5.0), (3.0, 6.0)):
        store.commit_run(pending_run(store, "r00", value), replaces=True)
    clock.now_s = 4.0
    store.commit_run(pending_run(store, "r11", 9.0))
    store.commit_run(pending_run(store, "r01", 1000.0, problems=("late",)))
    then = [[(row.run_id, row.value) for row in store.values_at("c1", at_s)] for at_s in (0.5, 1.5, 2.5, 3.5)]
    assert then == [[], [("r00", 4.0)], [("r00", 5.0)], [("r00", 6.0)]]
    now = store.values_at("c1", clock.now_s)
    undated = [{key: value for key, value in vars(row).items() if key != "landed"} for row in now]
    assert [ValueRow(**row) for row in undated] == store.values("c1")


def test_at_the_moment_of_its_replacement_a_run_has_its_new_value(store: Store) -> None:
    begin(store)
    for value in (4.0, 5.0):
        store.commit_run(pending_run(store, "r00", value), replaces=True)
    (now,) = store.values_at("c1", time.time())
    assert [row.value for row in store.values_at("c1", now.landed)] == [5.0]


@of_postgresql
def test_files_without_place_spare_the_old_run(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--force with a place that fails midway."""
    begin(store)
    store.commit_run(pending_run(store, "r00", 1.0))
    again = pending_run(store, "r00", 2.0, capture=b"other")
    put_file, refused = LocalFileSystem.put_file, [True]

    def failing(self: LocalFileSystem, *arguments: Any, **more: Any) -> None:
        put_file(self, *arguments, **more)
        if refused:
            raise OSError(f"503 after {refused.pop()}")

    monkeypatch.setattr(LocalFileSystem, "put_file", failing)
    with pytest.raises(StoreError, match="cannot be put to .*503"):
        store.commit_run(again, replaces=True)
    assert [row.value for row in store.run("r00").metrics] == [1.0]  # type: ignore[union-attr]
    assert (store.run_folder("r00") / "captures/a.pcap").read_bytes() == b"abc"
    store.commit_run(again, replaces=True)
    assert (store.run_folder("r00") / "captures/a.pcap").read_bytes() == b"other"
    assert len(list((tmp_path / "artefacts/runs/r0/r00").iterdir())) == 1


def test_two_land_one_run_and_the_first_stays(store: Store, tmp_path: Path) -> None:
    begin(store)
    stores = [opened(tmp_path) for _ in range(4)]
    calls = []
    for number, entry in enumerate(stores):
        made = pending_run(store, "r00", float(number))
        own = made.folder.rename(made.folder.with_name(f"r00-{number}"))
        calls.append(partial(entry.commit_run, replace(made, folder=own)))
    at_once(*calls)
    assert store.valid_runs(["r00"]) == {"r00"}
    assert (store.run_folder("r00") / "captures/a.pcap").exists()
    for entry in stores:
        entry.close()


def test_what_a_failed_try_left_stays_until_the_run_is_valid(store: Store, tmp_path: Path) -> None:
    folder = store.staging_folder("r00")
    (folder / "agent.log").write_text("oh")
    store.note_failure("r00", 2, "it broke", folder)
    left = store.failed_folder("r00")
    assert left is not None
    assert left.startswith(str(tmp_path / "results") if POSTGRESQL is None else f"file://{tmp_path}/artefacts/failed")
    for name, text in (("reason.txt", "attempt 2: it broke\n"), ("agent.log", "oh")):
        with fsspec.open(f"{left}/{name}", "rt") as kept:
            assert kept.read() == text
    assert store.tried_runs(["r00", "r01"]) == {"r00"}
    assert store.last_problems(["r00", "r01"]) == {"r00": ["it broke"]}
    store.commit_run(pending_run(store, "r00", 1.0))
    assert store.failed_folder("r00") is None
    assert store.tried_runs(["r00", "r01"]) == set()


def test_values_and_history_are_of_valid_runs(store: Store) -> None:
    begin(store)
    store.commit_run(pending_run(store, "r00", 4.0))
    store.commit_run(pending_run(store, "r11", 6.0))
    store.commit_run(pending_run(store, "r01", 9.0, problems=("late",)))
    assert [(row.point, row.repetition, row.value) for row in store.values("c1")] == [(0, 0, 4.0), (1, 1, 6.0)]
    assert store.values("c1")[0].seed == 1
    history = store.history("emulated")
    assert [(entry.bytes, entry.scenario.document["duration_s"]) for entry in history] == [(3, 3.0), (3, 3.0)]
    bare = pending_run(store, "r10", 6.0)
    (bare.folder / "captures/a.pcap").unlink()
    store.commit_run(bare)
    assert sorted(entry.bytes for entry in store.history("emulated")) == [0, 3, 3]
    named = store.campaigns(counted=False)[0]
    assert (named.runs, named.valid, named.invalid) == (0, 0, 0)
    assert store.history("sim") == []


def test_a_seed_of_48_bits_has_room(store: Store) -> None:
    made = pending_run(store, "r00", 4.0)
    store.commit_run(replace(made, documents=Documents({"seed": 2**48 - 1, "duration_s": 3.0}, {})))
    run = run_of(store, "r00")
    assert run.seed == 2**48 - 1


def test_a_request_goes_to_one_runner_however_many_look(store: Store, tmp_path: Path) -> None:
    asked = [requests.ask_run(store, f"{number}.yaml", "name: a") for number in range(20)]
    taken: list[int] = []
    begin_together = threading.Barrier(4)

    def look(runner: str) -> None:
        own = opened(tmp_path)
        begin_together.wait(HANGS_S)
        while (result := requests.take(own, runner)) is not None:
            taken.append(result.id)
        own.close()

    at_once(*(partial(look, f"r{number}") for number in range(4)))
    assert sorted(taken) == asked


def test_a_pulse_comes_back_after_the_server_was_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    pulse = Pulse(store)
    connect = store.connect

    def away() -> sa.Connection:
        raise StoreFailed("away")

    monkeypatch.setattr(store, "connect", away)
    pulse._connection.close()
    for _ in range(2):
        with pytest.raises(StoreFailed):
            pulse._notified()
    monkeypatch.setattr(store, "connect", connect)
    assert pulse._notified()
    pulse.close()


def test_a_pulse_that_is_closed_leaves_its_connection_to_others(store: Store) -> None:
    """A store has 15 connections."""
    pulses = []
    for _ in range(20):
        pulses.append(Pulse(store))
        assert pulses[-1].changed()
        pulses[-1].close()


def test_a_failure_of_an_open_database_is_a_sentence(store: Store) -> None:
    failing = "SELECT pg_terminate_backend(pg_backend_pid())" if POSTGRESQL else "SELECT 1 FROM nothing"
    with store.connect() as connection, pytest.raises(StoreFailed, match="^the results store failed: .+") as caught:
        connection.exec_driver_sql(failing)
    assert "\n" not in str(caught.value)


def test_metrics_that_were_renamed_keep_their_values(tmp_path: Path) -> None:
    """A store of an earlier version: two names of one metric, and two forms of a line's name."""
    with sqlite3.connect(tmp_path / "results.sqlite") as database:
        database.executescript("""
            CREATE TABLE metric (run_id TEXT, name TEXT, subject TEXT, value FLOAT, unit TEXT,
                                 PRIMARY KEY (run_id, name, subject));
            CREATE TABLE replaced (run_id TEXT, landed FLOAT, name TEXT, subject TEXT, until FLOAT, seed BIGINT,
                                   value FLOAT, unit TEXT, PRIMARY KEY (run_id, landed, name, subject));
            CREATE TABLE attempt (id INTEGER PRIMARY KEY, run_id TEXT, number INTEGER, at FLOAT, outcome TEXT,
                                  problems JSON);
            CREATE TABLE campaign (id TEXT PRIMARY KEY);
            CREATE TABLE run (id TEXT PRIMARY KEY);
            CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY);
            INSERT INTO alembic_version VALUES ('0003_replaced');
            INSERT INTO metric VALUES
                ('r', 'rtt_stddev', 'f', 1, 'time'), ('r', 'share_acks', 'wire:reverse', 2, 'fraction'),
                ('r', 'utilisation_acks', 'wire:reverse', 3, 'fraction'),
                ('r', 'ack_share', 'wire/reverse', 4, 'fraction'), ('r', 'queue_mean', 'wire:forward', 5, 'number'),
                ('s', 'utilisation_acks', 'wire:reverse', 6, 'fraction'),
                ('s', 'resent_per_loss', '', 9, 'number'),
                ('s', 'throughput', '10.0.0.1-10.0.0.2:80', 7, 'rate');
            INSERT INTO replaced VALUES ('r', 1, 'cwnd_coefficient_of_variation', 'f', 2, 1, 8, 'number'),
                ('r', 1, 'commonest_gap_of_acks', 'wire/reverse', 2, 1, 0.1, 'time');
        """)
    store = Store.open(tmp_path)
    with sqlite3.connect(tmp_path / "results.sqlite") as database:
        rows = set(database.execute("SELECT run_id, name, subject, value, unit FROM metric"))
        replaced = database.execute("SELECT name, subject, value FROM replaced").fetchall()
    store.close()
    assert rows == {
        ("r", "rtt_sd", "f", 1, "time"), ("r", "ack_fraction", "wire/reverse", 2, "fraction"),
        ("r", "ack_share", "wire/reverse", 4, "fraction"), ("r", "queue_mean", "wire/forward", 5, "packets"),
        ("s", "ack_share", "wire/reverse", 6, "fraction"), ("s", "retransmissions_per_loss", "", 9, "number"),
        ("s", "throughput", "10.0.0.1-10.0.0.2:80", 7, "rate"),
    }  # fmt: skip
    assert sorted(replaced) == [("ack_gap_mode", "wire/reverse", 0.1), ("cwnd_variation", "f", 8)]


OTHER_HOST = """
import os, sys
from analysis.store import Store
os.getpid = lambda: 999999999  # no process here has this id: as if it were another host's
store = Store.open(sys.argv[1])
print(store.staging_folder("r01"), flush=True)
sys.stdin.read()
"""


@of_sqlite
def test_a_folder_of_a_live_process_of_another_host_is_kept(store: Store) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER_HOST, str(store.folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=ROOT,
    )  # fmt: skip
    try:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        store.sweep()
        assert theirs.exists()
    finally:
        other.kill()
        other.wait()
    store.sweep()
    assert not theirs.exists()


@of_sqlite
@pytest.mark.parametrize("puts", [True, False])
def test_a_result_keeps_its_files_if_its_replacement_is_killed_before_the_row(tmp_path: Path, puts: bool) -> None:
    with Store.open(tmp_path / "results") as store:
        store.commit_run(pending_run(store, "r00", 1.0))
    if (child := os.fork()) == 0:
        real = Path.rename

        def killed(path: Path, target: Path) -> Path:
            if not target.name.startswith(BEFORE):
                if puts:
                    real(path, target)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(path, target)

        with suppress(BaseException), Store.open(tmp_path / "results") as store:
            pending = pending_run(store, "r00", 5.0, capture=b"newer")
            Path.rename = killed  # type: ignore[method-assign,assignment]
            store.commit_run(pending, replaces=True)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with Store.open(tmp_path / "results") as store:
        store.sweep()
        assert (store.run_folder("r00") / "captures/a.pcap").read_bytes() == b"abc"
        assert list((tmp_path / "results/incoming").iterdir()) == []


def test_a_folder_is_abandoned_when_its_store_is_gone_whoever_has_the_process_id_now(
    store: Store, tmp_path: Path
) -> None:
    other = opened(tmp_path)
    theirs = other.staging_folder("r01")
    store.sweep()
    assert theirs.exists()
    other.close()
    store.sweep()
    assert not theirs.exists()
    assert not list((store.folder / "assembling").iterdir())


def test_runs_of_several_hosts_are_all_members(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = []
    for name in "abc":
        # With PostgreSQL, each host has a folder of its own, so that no lock of a file holds for both.
        monkeypatch.setenv("BACKCHANNEL_LOCAL", str(tmp_path / name))
        hosts.append(opened(tmp_path))
    new = NewCampaign(**campaign_fields(id="imports", text="", file="", repetitions=1))

    def add(host: int) -> None:
        for number in range(8):
            hosts[host].add_member(new, [("import", f"file {number % 2}")], f"{host}-{number}")

    at_once(*(partial(add, host) for host in range(len(hosts))))
    # Once more: it is a member already.
    store.add_member(new, [("import", "file 1")], "2-7")
    result = store.campaign("imports")
    assert result is not None
    assert (result.state, result.runs, result.repetitions) == ("complete", 24, 12)
    assert sorted(tuple(point.parameters) for point in result.points) == [(("import", f"file {n}"),) for n in (0, 1)]
    for point in result.points:
        assert [member.repetition for member in point.members] == list(range(12))
    assert len({member.run_id for point in result.points for member in point.members}) == 24
    for host in hosts:
        host.close()
