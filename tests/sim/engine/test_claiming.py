"""Several runners of one campaign share its work."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from analysis.store import Store
from analysis.store.claims import Claims
from experiments.language.campaign import load
from tests.support.campaign_texts import one_line
from tests.support.command_line import backchannel
from tests.support.waiting import HANGS_S, wait_until

#: As many as one runner makes while the next one starts.
RUNS = 16
FEW = 6
#: Enough for one runner until the other looks for work again, two seconds later.
MANY = 60


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    return written(tmp_path / "shared.yaml", RUNS)


def written(path: Path, repetitions: int, duration_s: int = 8) -> Path:
    path.write_text(one_line("shared", f"repetitions: {repetitions}", duration=f"{duration_s} s"))
    return path


def start(file: Path, results: Path, *more: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "experiments", "run", str(file), "--results", str(results), "--jobs", "1", *more]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def made(said: str) -> int:
    found = re.search(r"^(\d+) runs? made", said, re.MULTILINE)
    assert found, said
    return int(found[1])


#: Read once, though it is waited for.
plan = cache(load)


def valid(file: Path, results: Path) -> int:
    with Store.open(results) as store:
        return len(store.valid_runs(plan(file).run_ids))


def test_two_runners_make_every_run_once(tmp_path: Path) -> None:
    campaign = written(tmp_path / "shared.yaml", MANY)
    results = tmp_path / "results"
    ids = load(campaign).run_ids
    # Both have begun before there is anything to make.
    store = Store.open(results)
    other = Claims(store)
    other.take(ids)
    runners = [start(campaign, results) for _ in range(2)]
    wait_until(lambda: len(list((results / "assembling").glob("*.lock"))) == 3, "both runners")
    other.release()
    store.close()
    said = [runner.communicate(timeout=HANGS_S)[0] for runner in runners]
    assert [runner.returncode for runner in runners] == [0, 0], said
    assert sum(map(made, said)) == MANY, said
    assert valid(campaign, results) == MANY
    assert min(map(made, said)) > 0
    assert any("done by another runner" in text for text in said)


def test_a_runner_goes_on_with_what_a_killed_one_had_claimed(campaign: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    first = start(campaign, results)
    wait_until(lambda: results.exists() and valid(campaign, results), "the first run")
    second = start(campaign, results)
    first.kill()
    first.communicate()
    said = second.communicate(timeout=HANGS_S)[0]
    assert second.returncode == 0, said
    assert valid(campaign, results) == RUNS


def test_runs_that_another_runner_gives_up_are_made_here(tmp_path: Path) -> None:
    campaign = written(tmp_path / "shared.yaml", FEW, duration_s=2)
    results = tmp_path / "results"
    ids = load(campaign).run_ids
    store = Store.open(results)
    other = Claims(store)
    other.take(ids[:4])
    runner = start(campaign, results)
    wait_until(lambda: len(store.valid_runs(ids)) == FEW - 4, "all runs but those of the other runner")
    assert runner.poll() is None
    assert not store.valid_runs(ids[:4])
    other.release()
    said = runner.communicate(timeout=HANGS_S)[0]
    store.close()
    assert (runner.returncode, made(said)) == (0, FEW), said


def test_with_force_each_runner_makes_all(tmp_path: Path) -> None:
    campaign = written(tmp_path / "shared.yaml", FEW, duration_s=2)
    words = ("run", campaign, "--results", tmp_path / "results")
    assert made(backchannel(*words, status=0).stdout) == FEW
    store = Store.open(tmp_path / "results")
    Claims(store).take(load(campaign).run_ids)
    said = backchannel(*words, "--force", status=0).stdout
    store.close()
    assert made(said) == FEW
