"""Commands that read results do so from a PostgreSQL store as from a folder, and `copy` fills it."""

from __future__ import annotations

import csv
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from analysis import comparison
from tests.conftest import backchannel
from tests.support.campaign_texts import asymmetric_path
from tests.support.waiting import wait_until

CAMPAIGN = f"""
name: small
title: A small campaign
backend: sim
stack: newreno
{asymmetric_path(reverse="128 kbit/s, delay: 20 ms")}workload:
  - {{name: forward, from: server, to: client, start: [0 s, 0.2 s]}}
duration: 3 s
repetitions: 2
sweep:
  network.reverse.queue.policy: [droptail, acks-first]
"""


class Stores(NamedTuple):
    """One campaign in two stores."""

    folder: str
    database: str
    artefacts: str


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """A folder with the campaign, and a PostgreSQL server, on a socket of its own, into which it was copied."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs or os.geteuid() != 0:
        pytest.fail("there is no PostgreSQL, or no root to start it: ./backchannel test installs it")
    folder = tmp_path_factory.mktemp("stores")
    (folder / "small.yaml").write_text(CAMPAIGN)
    backchannel("run", str(folder / "small.yaml"), "--results", str(folder / "results"), status=0)
    owner = pwd.getpwnam("postgres")
    data = Path(tempfile.mkdtemp(prefix="backchannel-pg-"))
    os.chown(data, owner.pw_uid, owner.pw_gid)
    own = ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
    initdb = [*own, str(programs[-1] / "initdb"), "-D", str(data / "db"), "-U", "backchannel", "-A", "trust", "-N"]
    server = None
    try:
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL)
        server = subprocess.Popen(
            [
                *own, str(programs[-1] / "postgres"), "-D", str(data / "db"), "-h", "", "-k", str(data),
                "-c", "fsync=off",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        ready = [str(programs[-1] / "pg_isready"), "-q", "-h", str(data)]
        wait_until(lambda: subprocess.run(ready, check=False).returncode == 0, "PostgreSQL")
        found = Stores(
            str(folder / "results"), f"postgresql://backchannel@/postgres?host={data}", f"file://{folder}/artefacts"
        )
        copied = copy(found)
        assert "4 of 4 runs copied" in copied.stdout, copied.stdout + copied.stderr
        yield found
    finally:
        if server is not None:
            server.terminate()
            server.wait()
        shutil.rmtree(data, ignore_errors=True)


def copy(stores: Stores) -> subprocess.CompletedProcess[str]:
    return backchannel("copy", "small", stores.database, "--results", stores.folder, "--to-artefacts", stores.artefacts)


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "small"),
        ("export", "values", "small", "--out", "OUT.csv"),
        pytest.param(
            ("export", "bundle", "small", "--out", "OUT.zip"),
            marks=pytest.mark.slow("values and figures, and the files of runs, are compared one by one"),
        ),
        ("plot", "bars", "small", "--out", "OUT.svg"),
        ("results", "small", "--json"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_command_gives_the_same_from_both_stores(stores: Stores, tmp_path: Path, words: tuple[str, ...]) -> None:
    answers = []
    for name, where in (("folder", [stores.folder]), ("database", [stores.database, "--artefacts", stores.artefacts])):
        out = tmp_path / name
        done = backchannel(*(word.replace("OUT", str(out)) for word in words), "--results", *where, status=0)
        files = [path.read_bytes() for path in sorted(tmp_path.glob(f"{name}.[cs]*"))]
        answers.append((files, done.stdout if not files and "bundle" not in words else ""))
    # Copies are committed at another time.
    assert answers[0] == answers[1] or "results" in words


def test_the_files_of_runs_are_copied(stores: Stores, tmp_path: Path) -> None:
    backchannel("export", "values", "small", "--results", stores.folder, "--out", str(tmp_path / "v.csv"), status=0)
    with (tmp_path / "v.csv").open() as table:
        run_id = next(csv.DictReader(table))["run_id"]
    words = ("plot", "sequence", run_id, "--out", str(tmp_path / "s.svg"), "--results", stores.database)
    backchannel(*words, "--artefacts", stores.artefacts, status=0)
    assert (tmp_path / "s.svg").stat().st_size > 1000


def test_campaigns_of_two_stores_are_compared(stores: Stores) -> None:
    other = comparison.load(f"{stores.database}:small", "nowhere", stores.artefacts)
    own = comparison.load("small", stores.folder)
    assert not comparison.compare(own, other, 0.95, 0.05, ()).regressions
    backchannel("compare", "small", "small", "--results", stores.database, "--artefacts", stores.artefacts, status=0)


def test_a_second_copy_copies_nothing(stores: Stores) -> None:
    assert "0 of 4 runs copied" in copy(stores).stdout
