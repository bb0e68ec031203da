"""`./backchannel prune` on simulated runs: what it says, what goes, and what can be done with what stays."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

import analysis
from analysis.results import Quantity
from analysis.store import Store, checksums
from analysis.store.screened import Screened, keep, known
from tests.support.called import called
from tests.support.campaign_texts import TWO_WAYS, asymmetric_path

CAMPAIGN = f"""
name: small
backend: sim
stack: newreno
{asymmetric_path()}{TWO_WAYS}duration: 4 s
repetitions: 2
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign as in its file and with another stack, and one that reproduces something."""
    folder = tmp_path_factory.mktemp("prune")
    file, paper = folder / "small.yaml", folder / "paper.yaml"
    file.write_text(CAMPAIGN)
    paper.write_text(
        CAMPAIGN.replace("name: small", "name: paper\nartefact: asym-fig1").replace("duration: 4 s", "duration: 3 s")
    )
    for words in ([file], [file, "--set", "stack=tahoe"], [paper]):
        status, _, errors = called("run", *words, "--results", folder / "results")
        assert status == 0, errors
    return folder / "results"


@pytest.fixture
def results(made: Path, tmp_path: Path) -> Path:
    """A copy of them."""
    return shutil.copytree(made, tmp_path / "results", symlinks=True)


def prune(*words: str | Path) -> tuple[int, str, str]:
    return called("prune", *words)


def names(results: Path) -> list[str]:
    with analysis.open(results) as opened:
        return [row.name for row in opened.store.campaigns()]


def test_older_campaigns_of_a_name_go_after_a_word_and_come_back(results: Path) -> None:
    status, said, errors = prune("runs", "--keep", "1", "--results", results)
    assert (status, errors) == (2, "backchannel: nothing is deleted: add --yes where nobody can be asked\n")
    assert "Deletes runs with their values: 2 runs with" in said
    assert "of 1 campaign." in said
    dry = prune("runs", "--keep", "1", "--dry-run", "--results", results)
    assert dry[:2] == (0, said)
    assert sorted(names(results)) == ["paper", "small", "small"]
    status, said, _ = prune("runs", "--keep", "1", "--yes", "--results", results)
    assert status == 0
    assert "undelete CAMPAIGN" in said
    assert sorted(names(results)) == ["paper", "small"]
    assert called("undelete", "small", "--results", results)[0] == 0
    assert sorted(names(results)) == ["paper", "small", "small"]


@pytest.mark.parametrize(("silent_s", "goes"), [(1.0, False), (1000.0, True)])
def test_a_campaign_that_runs_stays_and_one_whose_process_was_killed_goes(
    results: Path, silent_s: float, goes: bool
) -> None:
    with Store.open(str(results)) as store:
        paper = next(row.id for row in store.campaigns() if row.name == "paper")
        with store.writing() as connection:
            progress = {"updated": time.time() - silent_s}
            checksums.change_campaign(connection, paper, state="running", progress=progress)
    status, said, _ = prune("runs", "paper", "--yes", "--results", results)
    assert status == 0
    assert ("stays: paper: is running" in said) != goes
    assert ("paper" in names(results)) != goes


def test_what_is_referred_to_stays_unless_it_is_named(results: Path) -> None:
    _, said, _ = prune("runs", "--older-than", "0 s", "--now", "--yes", "--results", results)
    assert "stays: paper: reproduces a paper's artefact" in said
    assert names(results) == ["paper"]
    assert len(list((results / "runs").glob("*/*"))) == 2
    assert prune("runs", "paper", "--now", "--yes", "--results", results)[0] == 0
    assert names(results) == []
    assert list((results / "runs").glob("*/*")) == []


def test_captures_go_and_values_stay(results: Path) -> None:
    before = called("results", "small", "--results", results)
    status, said, errors = prune("runs", "small", "--only", "captures", "--yes", "--results", results)
    assert status == 0, errors
    assert "Deletes captures: 4 runs with" in said
    assert called("results", "small", "--results", results) == before
    assert not list((results / "runs").glob("*/*/captures")) or names(results)
    with analysis.open(results) as opened:
        run = opened.run(opened["small"].row.points[0].members[0].run_id)
        assert not any(file.path.startswith("captures/") for file in run.row.files)
        assert run.segments.collect().height > 0
    assert called("verify", "--results", results)[0] == 0


def test_without_files_figures_of_a_run_are_refused_with_the_reason(results: Path) -> None:
    assert prune("runs", "small", "--only", "files", "--yes", "--results", results)[0] == 0
    with analysis.open(results) as opened:
        run_id = opened["small"].row.points[0].members[0].run_id
    status, _, errors = called("plot", "sequence", run_id, "--results", results)
    assert (status, "or 'prune' deleted them" in errors) == (2, True), errors
    assert called("compare", "small", "paper", "--results", results)[0] in (0, 1)
    assert called("verify", "--results", results)[0] == 0
    assert "nothing of files" not in prune("runs", "small", "--only", "files", "--results", results)[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs"], "say which campaigns go: a CAMPAIGN, --older-than TIME or --keep N"),
        (["runs", "--keep", "1", "--only", "logs"], "--only is 'runs', 'files' or 'captures', not 'logs'"),
        (["runs", "--older-than", "soon"], "--older-than: 'soon' is not a time such as '30 d', '12 h' or '10 min'"),
        (["runs", "smal"], "unknown campaign 'smal'"),
        (["screened", "--interesting", "fast"], "--interesting: 'fast' is not EXPRESSION > NUMBER"),
        (
            ["screened", "--interesting", "starvation(upload) > 0.9"],
            "--interesting: starvation needs the scenario, which a screened run does not have: use its throughput",
        ),
    ],
)
def test_mistakes(tmp_path: Path, words: list[str], message: str) -> None:
    Store.open(tmp_path / "results").close()
    status, _, errors = prune(*words, "--results", tmp_path / "results")
    assert (status, message in errors) == (2, True), errors


def test_screened_runs_go_but_for_the_interesting_ones(tmp_path: Path) -> None:
    rows = [
        Screened(f"s{number}", {Quantity("throughput", "upload", "rate"): number * 1e5}, (), frozenset({"throughput"}))
        for number in range(5)
    ]
    with Store.open(tmp_path / "results") as store:
        keep(store, rows)
    words = ["screened", "--interesting", "throughput(upload) < 150 kbit/s", "--results", str(tmp_path / "results")]
    status, said, _ = prune(*words, "--dry-run")
    assert (status, said.startswith("Deletes 3 screened runs of 5")) == (0, True), said
    assert prune(*words, "--yes")[0] == 0
    with Store.open(tmp_path / "results") as store:
        assert set(known(store, [row.run_id for row in rows])) == {"s0", "s1"}
    assert prune("screened", "--yes", "--results", tmp_path / "results")[0] == 0
    with Store.open(tmp_path / "results") as store:
        assert known(store, [row.run_id for row in rows]) == {}


def test_builds_that_nobody_used_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    nodes, kernels = tmp_path / "backchannel/nodes", tmp_path / "backchannel/kernels"
    old, new, named, unnamed = nodes / "old", nodes / "new", kernels / "linux-a-1", kernels / "linux-a-0"
    long_ago = time.time() - 40 * 86400
    for folder in (old, new, named, unnamed):
        folder.mkdir(parents=True)
        (folder / "linux").write_bytes(b"x" * 1000)
    (kernels / "named-a").symlink_to(named.name)
    for folder in (old, named, unnamed):
        os.utime(folder, (long_ago, long_ago))
    status, said, _ = prune("caches", "--dry-run")
    assert (status, "Deletes 2 builds, 2 kB" in said) == (0, True), said
    assert f"nodes: 1 build, 1 kB, in {nodes}" in said
    assert prune("caches", "--yes")[0] == 0
    assert [folder.exists() for folder in (old, new, named, unnamed)] == [False, True, True, False]
    # What is used now is never removed, whatever the age.
    assert "Nothing to delete" in prune("caches", "--older-than", "0 s", "--yes")[1]
