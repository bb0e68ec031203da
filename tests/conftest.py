"""What the tests share: tests that need the emulated backend, and the scenario they run."""

from __future__ import annotations

import gc
import json
import os
import shutil
import warnings
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any, NamedTuple

# As commands have it: before the first import of NumPy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from testbed import build_cache, fidelity, node_binary
from testbed.capability import missing_for_emulation
from testbed.cell import Cell
from testbed.report import ProblemKind, sentences
from testbed.scenario import Scenario
from tests.support import compiled_templates, quiet
from tests.support.campaign_texts import TWO_WAYS, asymmetric_path
from tests.support.command_line import backchannel as backchannel

# Commands start in any folder.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(node_binary.ROOT), os.environ.get("PYTHONPATH"))))
# The suite takes the CPUs itself: which backend a campaign gets must not depend on that. Commands inherit it.
os.environ.setdefault("BACKCHANNEL_KEEP_BACKEND", "1")

compiled_templates.share()

pytest_plugins = ["tests.support.tiers"]

#: Attempts of one run in a cell. The tests wait for a free CPU between them, as campaigns do.
ATTEMPTS = 10
#: The emulator, or an end of a flow, ran late.
LATENESS = frozenset({ProblemKind.LATE, ProblemKind.STALLED})
#: Problems that a machine under load causes.
OF_TIME = LATENESS | {ProblemKind.RATE, ProblemKind.CAPTURE}
#: Limits for tests of files and counts, which hold on a network that runs late too. Lost packets stay a failure.
LATE_IS_FINE = {"rate": 0.1, "delay_s": 0.2, "lateness_p99_s": 0.2, "stall_s": 0.5, "stalled_share": 0.2}


#: The suite tries the same examples every time; `pytest --hypothesis-profile=long` tries many others.
settings.register_profile("suite", derandomize=True, deadline=None)
settings.register_profile("long", max_examples=5000, deadline=None, print_blob=True)


def pytest_configure(config: pytest.Config) -> None:
    """Chooses the suite's examples for property tests unless the command line names a profile."""
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("suite")


@pytest.fixture(scope="session", autouse=True)
def working_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which the tests and their commands work. The checkout's has the `results` of its user."""
    folder, before = tmp_path_factory.mktemp("work"), Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


@pytest.fixture(scope="session", autouse=True)
def cache_without_pace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's cache, except for the pace of runs on this machine, which would change what `plan` says."""
    folder = tmp_path_factory.mktemp("cache")
    pace = build_cache.place("pace")
    for kind in ("kernels", "bytecode", "machines", "trees", "nodes"):
        build_cache.place(kind).mkdir(parents=True, exist_ok=True)
    (folder / pace.parent.name).mkdir()
    for path in (*pace.parent.parent.iterdir(), *pace.parent.iterdir()):
        if path not in (pace, pace.parent):
            (folder / path.relative_to(pace.parent.parent)).symlink_to(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield


@pytest.fixture(autouse=True)
def no_pace_of_other_tests(cache_without_pace: None) -> None:
    """What `plan` estimates does not depend on earlier tests of the same process."""
    shutil.rmtree(build_cache.place("pace"), ignore_errors=True)


@pytest.fixture(scope="session")
def emulation() -> None:
    """Fails, with the reason, where the emulated backend cannot run."""
    # An ordinary user can run cells, and not the tests that act on this machine's own namespaces.
    missing = missing_for_emulation() if os.geteuid() == 0 else ["they need root"]
    if missing:
        pytest.fail("emulated tests cannot run: " + "; ".join(missing))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks every test that uses real packets `emulated`, and leaves out what runs only when asked for by name."""
    for item in items:
        names: list[str] = item.fixturenames  # type: ignore[attr-defined]
        if item.get_closest_marker("emulated"):
            names.append("emulation")
        elif "emulation" in names:
            item.add_marker("emulated")
    database = "postgresql" if "BACKCHANNEL_TEST_POSTGRESQL" in os.environ else "sqlite"
    left_out = [
        item
        for item in items
        if (item.get_closest_marker("vm") and "BACKCHANNEL_VM" not in os.environ)
        or any(database not in marker.args for marker in item.iter_markers("only_on"))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """Spares the garbage collector thousands of tests and modules that stay until the end."""
    gc.collect()
    gc.freeze()


def queue(name: str = "droptail", **options: Any) -> dict[str, Any]:
    """A queue policy as scenarios have it."""
    return {"name": name, "options": options}


def two_hosts(
    rate_bps: int = 1_000_000, delay_s: float = 0.01, duration_s: float = 3.0, seed: int = 1, **changes: Any
) -> dict[str, Any]:
    """Two hosts on one line, with one bulk flow: the smallest scenario there is.

    `changes` are fields of both directions.
    """
    direction = {"rate_bps": rate_bps, "delay_s": delay_s, "queue": queue(limit_packets=50), **changes}
    stack = {"name": "reno", "options": {}}
    return {
        "version": 1,
        "seed": seed,
        "duration_s": duration_s,
        "nodes": [
            {"name": "a", "kind": "host", "stack": stack},
            {"name": "b", "kind": "host", "stack": stack},
        ],
        "links": [
            {
                "name": "line", "kind": "point-to-point", "ends": ["a", "b"],
                "forward": direction, "reverse": direction, "options": {},
            }
        ],
        "workload": [{"name": "bulk", "kind": "bulk", "from": "a", "to": "b", "start_s": 0.0, "port": 5001}],
        "capture": {"snaplen": 128, "at": []},
    }  # fmt: skip


CAMPAIGN = f"""
name: small
title: A small campaign
{asymmetric_path()}{TWO_WAYS}duration: 6 s
sweep:
  network.reverse.queue.policy: [droptail, acks-first]
repetitions: 2
seed: 7
"""


class Finished(NamedTuple):
    """A campaign that was run by the command line."""

    file: Path
    results: Path
    campaign: dict[str, Any]


def typed(scenario: dict[str, Any]) -> Scenario:
    """A scenario that a test wrote as JSON."""
    return Scenario.read(scenario)


def run_validly(cell: Cell, scenario: dict[str, Any], out: Path) -> dict[str, Any]:
    """A cell's report of a valid run; `out` has its files.

    For tests that hold what the network did against numbers: an invalid run may show this machine instead. Between
    attempts the CPU must be free. A problem that the machine's lateness does not explain fails at once. pytest lists
    the attempts that were invalid in its summary of warnings.
    """
    checked = typed(scenario)
    invalid: list[str] = []
    for number in quiet.attempts(ATTEMPTS):
        shutil.rmtree(out, ignore_errors=True)
        report = cell.run(checked, out)
        problems = fidelity.problems(report, checked.fidelity)
        if not problems:
            if invalid:
                warnings.warn(f"valid on attempt {number}; {'; '.join(invalid)}", stacklevel=2)
            return report.as_json()
        invalid.append(f"attempt {number}: {', '.join(sentences(problems))}")
        if not is_lateness({problem.kind for problem in problems}):
            break
    pytest.fail(f"no valid run; {'; '.join(invalid)}")


def is_lateness(kinds: Set[ProblemKind]) -> bool:
    """Whether a busy machine explains these problems. A wrong rate of a network that was in time is a fault."""
    return kinds <= OF_TIME and (ProblemKind.RATE not in kinds or not kinds.isdisjoint(LATENESS))


@pytest.fixture(scope="session")
def finished(emulation: None, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A small campaign, run once for every test that looks at results."""
    folder = tmp_path_factory.mktemp("campaign")
    file, results = folder / "small.yaml", folder / "results"
    file.write_text(CAMPAIGN)
    done = backchannel("run", file, "--results", results, "--json", status=0)
    return Finished(file, results, json.loads(done.stdout))
