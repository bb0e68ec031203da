"""Files of runs in an object store that fails, stalls or lies about sizes, through the client of users (s3fs)."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import psycopg
import pytest

from analysis.store import artefacts
from analysis.store.artefacts import ArtefactError, RemoteArtefacts
from tests.support.faults.commands import PATIENCE_S
from tests.support.faults.kills import simulated
from tests.support.faults.object_store import BUCKET, FaultyStore, client_settings, object_store
from tests.support.postgresql import on_loopback

pytestmark = pytest.mark.slow("faults of an S3 server")

#: How long a store that stalls is waited for, and one that answers, which takes milliseconds or seconds of a busy
#: machine, in s.
STALLS_S, ANSWERS_S = 5.0, 60.0
URL = f"s3://{BUCKET}/runs"
SIZES = {"captures/a.pcap": 3, "manifest.json": 2}
FAILS, STALLS = "503|Service Unavailable|Please try again later", "no answer within [5-9] s"


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def store(
    server: FaultyStore, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[FaultyStore]:
    """A server that works, as this process and its children find it."""
    for name, value in client_settings(server.url).items():
        monkeypatch.setenv(name, value)
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    monkeypatch.setattr(artefacts, "ANSWER_S", STALLS_S if parameters.get("fault") == "stalls" else ANSWERS_S)
    yield server
    server.heal()


def place(folder: Path) -> RemoteArtefacts:
    """The bucket as another machine sees it: nothing of it is known."""
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    return RemoteArtefacts(URL, folder)


def made(folder: Path, text: str) -> Path:
    (folder / "captures").mkdir(parents=True)
    (folder / "captures/a.pcap").write_text(text)
    (folder / "manifest.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("fault", "method", "message"),
    [
        ("fails", "PUT", FAILS),
        ("fails", "GET", FAILS),
        ("stalls", "PUT", STALLS),
        ("stalls", "HEAD", STALLS),
        ("lies", "HEAD", "a.pcap has 4 bytes there instead of 3"),
    ],
)
def test_a_store_that_does_not_take_a_run_is_named_and_the_run_can_be_put_again(
    store: FaultyStore, tmp_path: Path, fault: str, method: str, message: str
) -> None:
    folder = made(tmp_path / "made", "one")
    store.break_down(fault, method)
    with pytest.raises(ArtefactError, match=rf"cannot be put to {URL}: .*({message})"):
        place(tmp_path / "cache").put("abcd", folder)
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == set(SIZES)
    store.heal()
    place(tmp_path / "cache").put("abcd", folder)
    assert (place(tmp_path / "cache").folder("abcd", "0", lambda: SIZES) / "captures/a.pcap").read_text() == "one"


@pytest.mark.parametrize(
    ("fault", "method", "message"),
    [
        ("fails", "GET", FAILS),
        ("stalls", "GET", STALLS),
        ("lies", "GET", "checksum|bytes there instead of"),
    ],
)
def test_a_store_that_does_not_give_a_run_leaves_no_part_of_it(
    store: FaultyStore, tmp_path: Path, fault: str, method: str, message: str
) -> None:
    place(tmp_path / "cache").put("abcd", made(tmp_path / "made", "two"))
    store.break_down(fault, method)
    with pytest.raises(ArtefactError, match=rf"cannot be read from {URL}: .*({message})"):
        place(tmp_path / "cache").folder("abcd", "0", lambda: SIZES)
    assert not any(path.is_file() for path in (tmp_path / "cache").rglob("*"))
    store.heal()
    assert (place(tmp_path / "cache").folder("abcd", "0", lambda: SIZES) / "captures/a.pcap").read_text() == "two"


RUNS = 2


@pytest.mark.emulated
@pytest.mark.shares_cpu
@pytest.mark.parametrize(
    ("fault", "method", "message"),
    [("fails", "PUT", FAILS), ("stalls", "PUT", STALLS), ("lies", "HEAD", "bytes there instead of")],
)
def test_a_broken_store_ends_no_campaign(
    store: FaultyStore, tmp_path: Path, fault: str, method: str, message: str
) -> None:
    (tmp_path / "faults.yaml").write_text(simulated(repetitions=RUNS // 2))
    with on_loopback(tmp_path / "postgresql.log") as database:
        artefacts_url = f"{URL}/{fault}"
        # The command waits less for an answer than it does for a user.
        waits = f"artefacts.ANSWER_S = {artefacts.ANSWER_S}"
        program = f"from analysis.store import artefacts; {waits}; import experiments.__main__"
        words = ["run", str(tmp_path / "faults.yaml"), "--results", database.url, "--artefacts", artefacts_url]

        def run(*more: str) -> tuple[int, str]:
            done = subprocess.run(
                [sys.executable, "-c", program, *words, "--jobs", "1", *more], stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S, check=False,
                env={**os.environ, "BACKCHANNEL_LOCAL": str(tmp_path / "local"), "COLUMNS": "400"},
            )  # fmt: skip
            return done.returncode, done.stdout

        status, output = run("--limit", "1")
        assert status == 0, output
        before = set(files_of(database.url))
        assert before
        store.break_down(fault, method, after=2)
        status, output = run()
        assert status == 1, output
        assert "Traceback" not in output
        assert f"cannot be put to {artefacts_url}: " in output
        assert re.search(message, output), output
        store.heal()
        status, output = run()
        assert status == 0, output
        rows = files_of(database.url)
        assert before <= set(rows)
    check_files(tmp_path, artefacts_url, rows)


def files_of(database: str) -> list[tuple[str, float, str, str]]:
    """Run, time of landing, path and digest of each file of a store."""
    with psycopg.connect(database) as connection:
        return connection.execute(
            "SELECT run_id, landed, path, sha256 FROM file JOIN run ON run.id = run_id"
        ).fetchall()


def check_files(folder: Path, url: str, rows: list[tuple[str, float, str, str]]) -> None:
    """Every run is there with the files that its rows state."""
    runs = {(run, landed) for run, landed, _, _ in rows}
    assert len(runs) == RUNS
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    bucket = RemoteArtefacts(url, folder / "elsewhere")
    for run, landed in runs:
        expected = {path: digest for row, _, path, digest in rows if row == run}
        here = bucket.folder(run, str(landed))
        found = {
            str(path.relative_to(here)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in here.rglob("*")
            if path.is_file()
        }
        assert found == expected
