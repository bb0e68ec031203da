"""The walks of docs/architecture.md name every Python file that a campaign and a capture enter, in order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from testbed.node_binary import ROOT
from tests.campaign_texts import one_line

PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
#: What every program needs; and a command whose help is made from its formats before any command is chosen.
GROUND = ("testbed/node_binary.py", "testbed/errors.py", "experiments/commands/export.py")
#: Entered at intervals by a thread of its own, so at any step while runs are made.
POLLED = ("analysis/store/requests.py", "experiments/engine/progress.py", "testbed/cpu_hold.py")
OF_CAMPAIGN, OF_CAPTURE = "One campaign, from file to table", "One capture, from bytes to numbers"
#: A view of a run is filled while its metrics are evaluated.
TOGETHER = {OF_CAPTURE: {4: 3}}

#: File or folder (with a slash at its end) to the steps that name it.
Walk = dict[str, set[int]]


def section(title: str) -> str:
    """A section's text, without the heading."""
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def walk(title: str) -> Walk:
    """What a section names. A name without its folder is in the folder that was named last and has such a file."""
    steps: Walk = {}
    folders: list[PurePosixPath] = []
    number = 0
    for match in re.finditer(r"^(\d+)\. |`([\w./-]+)`", section(title), re.MULTILINE):
        if match[1]:
            number = int(match[1])
            continue
        name = match[2].rstrip("/")
        near = [folder / name for last in reversed(folders) for folder in (last, last.parent)]
        path = next((path for path in (PurePosixPath(name), *near) if (ROOT / path).exists()), None)
        if path is None or (ROOT / path).is_dir() != ("." not in path.name):
            continue
        is_folder = (ROOT / path).is_dir()
        folders.append(path if is_folder else path.parent)
        step = TOGETHER.get(title, {}).get(number, number)
        steps.setdefault(f"{path}/" if is_folder else str(path), set()).add(step)
    return steps


def steps_of(file: str, named: Walk) -> set[int]:
    """The steps that name a file, or else those that name a folder of it."""
    return named.get(file) or {
        step for name, steps in named.items() if name.endswith("/") and file.startswith(name) for step in steps
    }


def out_of_order(files: list[str], named: Walk) -> list[str]:
    """Files whose steps all lie before that of a file that was entered earlier."""
    late, now = [], 0
    for file in files:
        steps = set() if file in POLLED else steps_of(file, named)
        if steps and max(steps) < now:
            late.append(file)
        now = min((step for step in steps if step >= now), default=now)
    return late


def walked(tmp_path: Path, *words: object) -> list[str]:
    """Files that a command enters, in order."""
    record = tmp_path / "walked"
    record.unlink(missing_ok=True)
    subprocess.run(
        [sys.executable, "-m", "tests.walked", *map(str, words)], check=True, cwd=ROOT, timeout=300,
        stdout=subprocess.DEVNULL, env={**os.environ, "WALKED": str(record)},
    )  # fmt: skip
    return [file for file in record.read_text().splitlines() if file not in GROUND]


@pytest.fixture(scope="module")
def entered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What running a campaign and importing one of its captures enter."""
    folder = tmp_path_factory.mktemp("walks")
    file, results = folder / "walk.yaml", folder / "results"
    file.write_text(one_line("walk", "repetitions: 2"))
    of_campaign = walked(folder, "run", file, "--results", results)
    capture = next(iter(sorted(results.glob("runs/*/*/captures/*"))))
    return {OF_CAMPAIGN: of_campaign, OF_CAPTURE: walked(folder, "import", capture, "--results", folder / "imported")}


@pytest.mark.parametrize("title", [OF_CAMPAIGN, OF_CAPTURE])
def test_every_file_that_is_entered_is_named(title: str, entered: dict[str, list[str]]) -> None:
    walks = [walk(OF_CAMPAIGN), walk(OF_CAPTURE)]
    assert len(entered[title]) > 40
    assert [file for file in entered[title] if not any(steps_of(file, named) for named in walks)] == []


@pytest.mark.parametrize("title", [OF_CAMPAIGN, OF_CAPTURE])
def test_the_steps_are_in_the_order_in_which_files_are_entered(title: str, entered: dict[str, list[str]]) -> None:
    assert out_of_order(entered[title], walk(title)) == []


def test_a_file_that_comes_later_than_its_step_is_found() -> None:
    named = {"a.py": {1}, "b/": {2}, "c.py": {1, 3}}
    assert out_of_order(["a.py", "b/x.py", "c.py", "other.py"], named) == []
    assert out_of_order(["b/x.py", "a.py", "c.py", "b/y.py"], named) == ["a.py", "b/y.py"]
