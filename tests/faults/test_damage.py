"""A damaged database is named, and there is a way on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import backchannel
from tests.faults.kills import SIMULATED
from tests.faults.stores import damage


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a campaign file and its results."""
    folder = tmp_path_factory.mktemp("damage")
    text = SIMULATED.replace("duration: 10 s", "duration: 1 s").replace("repetitions: 3", "repetitions: 1")
    (folder / "faults.yaml").write_text(text)
    done = backchannel("run", folder / "faults.yaml", "--results", folder / "results", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("place", ["start", "middle"])
def test_a_damaged_database_is_named_and_a_copy_of_it_goes_on(made: Path, tmp_path: Path, place: str) -> None:
    results, copy = tmp_path / "results", tmp_path / "copy.sqlite"
    shutil.copytree(made / "results", results)
    database = results / "results.sqlite"
    shutil.copy(database, copy)
    with database.open("r+b") as file:
        file.seek(0 if place == "start" else 4096)
        file.write(b"\xa5" * (database.stat().st_size - file.tell()))
    run = ("run", made / "faults.yaml", "--results", results, "--jobs", "1")
    done = backchannel(*run)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    message = "file is not a database" if place == "start" else "malformed"
    assert f"{message}; the files of its runs are not touched" in done.stderr
    shutil.copy(copy, database)
    assert backchannel(*run).returncode == 0
    assert damage(results) == []
