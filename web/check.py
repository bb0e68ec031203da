"""Validates a campaign for the site in a process of its own, with limits.

What a visitor writes may be made to expand without end; here it meets a limit of time and of memory. The messages are
those of `./backchannel validate`, made by the same code.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.language.campaign import Plan

LIMIT_S = 20
LIMIT_BYTES = 2 << 30
#: The child's status where the memory did not do.
NO_MEMORY = 3
#: At a time; who comes later waits.
_room = threading.Semaphore(2)


def check(results: str, file: str, text: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Validates a campaign's text in a child.

    Returns:
        {"problems": [texts]} of a bad one; of a good one {"problems": [], "name", "title", "id", "backend", "points",
        "runs", "known": how many of them the store has, "estimate": of the others, "scenario": of the first run}.
    """
    asked = json.dumps({"results": results, "file": file, "text": text, "overrides": list(overrides)})
    try:
        with _room:
            done = subprocess.run(
                [sys.executable, "-m", "web.check"],
                input=asked, capture_output=True, text=True, timeout=LIMIT_S, check=False,
            )  # fmt: skip
        too_long = done.returncode == -signal.SIGXCPU
    except subprocess.TimeoutExpired:
        too_long = True
    if too_long:
        return {
            "problems": [
                f"{file}: checking this took longer than {LIMIT_S} s; ./backchannel validate has no such limit"
            ]
        }
    if done.returncode == NO_MEMORY:
        return {"problems": [f"{file}: this is too large to be checked here; ./backchannel validate has no such limit"]}
    if done.returncode != 0 or not done.stdout:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        return {"problems": [f"{file}: the check itself broke off, which is a defect of ours: {last[:200]}"]}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """The child."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    # A signal that names the limit, before the one that ends whatever it has become.
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S + 1))
    from experiments.language import source
    from experiments.language.campaign import expand
    from experiments.language.problems import CampaignError
    from testbed.errors import TestbedError

    asked = json.load(sys.stdin)
    try:
        plan = expand(source.parse(asked["file"], asked["text"]), asked["overrides"])
    except CampaignError as error:
        answer: dict[str, Any] = {"problems": [problem.text(error.file) for problem in error.problems]}
    except (MemoryError, RecursionError):
        # At once, and with nothing more to be made.
        os._exit(NO_MEMORY)
    except TestbedError as error:
        answer = {"problems": [str(error)]}
    else:
        answer = {
            "problems": [],
            "name": plan.name,
            "title": plan.title,
            "id": plan.id,
            "backend": plan.backend,
            "points": len(plan.points),
            "runs": len(plan.runs),
            **_expected(plan, asked["results"]),
            "scenario": plan.runs[0].scenario,
        }
    json.dump(answer, sys.stdout)


def _expected(plan: Plan, results: str) -> dict[str, Any]:
    """What the store has of a plan, and what the rest will take, as `./backchannel plan` tells it."""
    from analysis.store import Store, is_url
    from experiments.engine.forecast import forecast
    from experiments.engine.selection import unique
    from experiments.labels import duration_text
    from testbed.units import show

    store = Store.open(results if is_url(results) else Path(results))
    done = store.valid_runs([run.id for run in plan.runs])
    history = store.history(plan.backend)
    store.close()
    expected = forecast([run for run in unique(plan.runs) if run.id not in done], history, os.cpu_count() or 1)
    sentence = "nothing to run: the results folder has all of it"
    if expected.runs:
        source = f"as {expected.based_on} earlier runs say" if expected.based_on else "from what the links can carry"
        sentence = (
            f"{expected.runs} run{'s' if expected.runs > 1 else ''}, about {duration_text(expected.time_s)} with "
            f"{expected.cells} at a time, {show(expected.disk_bytes, 'bytes')} of disk ({source})"
        )
    return {"known": len(done), "estimate": {**asdict(expected), "sentence": sentence}}


if __name__ == "__main__":
    main()
