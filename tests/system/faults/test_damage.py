"""A damaged database and a cut file of a run are named, and there is a way on."""

from __future__ import annotations

import html
import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import backchannel
from tests.support.faults.kills import simulated
from tests.support.faults.stores import damage
from web.app import create_app

pytestmark = pytest.mark.slow("damages a store in every way")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a campaign file and its results."""
    folder = tmp_path_factory.mktemp("damage")
    (folder / "faults.yaml").write_text(simulated("1 s", 1))
    backchannel("run", folder / "faults.yaml", "--results", folder / "results", "--jobs", "1", status=0)
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
    done = backchannel(*run, status=1)
    assert "Traceback" not in done.stderr
    message = "file is not a database" if place == "start" else "malformed"
    assert f"{message}; the files of its runs are not touched" in done.stderr
    shutil.copy(copy, database)
    assert backchannel(*run).returncode == 0
    assert damage(results) == []


class Cut(NamedTuple):
    """A results folder, and a run of it with a cut file."""

    results: Path
    run: str
    file: str


@pytest.fixture(params=["segments.parquet", "summary.json", "telemetry/links.jsonl.gz"])
def cut(made: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Cut:
    """Results in which a file of a run, each of another format, has lost its second half."""
    results = tmp_path / "results"
    shutil.copytree(made / "results", results)
    folder = next(results.glob("runs/*/*"))
    name: str = request.param
    os.truncate(folder / name, (folder / name).stat().st_size // 2 + 1)
    return Cut(results, folder.name, name)


def test_a_cut_file_of_a_run_is_named_and_the_run_can_be_made_again(made: Path, tmp_path: Path, cut: Cut) -> None:
    plot = ("plot", "queue", cut.run, "--results", cut.results, "-o", tmp_path / "queue.svg")
    done = backchannel(*plot, status=1)
    assert done.stderr.count("\n") == 1
    assert re.search(rf"run {cut.run}: {cut.file} has \d+ bytes, but had \d+ when the run was stored; ", done.stderr)
    assert "repeat it: './backchannel run FILE --force --only ID'" in done.stderr
    again = ("run", made / "faults.yaml", "--results", cut.results, "--jobs", "1", "--force", "--only", cut.run)
    assert backchannel(*again).returncode == 0
    assert backchannel(*plot).returncode == 0
    assert damage(cut.results) == []


def test_the_site_names_a_cut_file(cut: Cut) -> None:
    site = create_app(cut.results)
    known = {"run_id": cut.run, "kind": "queue", "form": "csv", "path": cut.file}
    answers = {}
    for rule in site.url_map.iter_rules():
        if "run_id" in rule.arguments and rule.arguments <= known.keys() and "GET" in (rule.methods or ()):
            address = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule).format(**known)
            with site.test_client().get(address) as answer:
                answers[address] = answer.status_code, answer.get_data().decode(errors="replace")
    assert {status for status, _ in answers.values()} <= {200, 400, 404, 503}
    told = [html.unescape(text) for status, text in answers.values() if status == 503]
    assert told
    assert all(f"{cut.file} has " in text and "--force --only ID" in text for text in told)
