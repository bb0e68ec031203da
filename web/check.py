"""Validates a campaign for the site in a process of its own, with limits.

What a visitor writes may be made to expand without end; here it meets a limit of time and of memory. The messages are
those of `./backchannel validate`, made by the same code.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

LIMIT_S = 20
LIMIT_BYTES = 2 << 30
#: At a time; who comes later waits.
_room = threading.Semaphore(2)


def check(file: str, text: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Validates a campaign's text in a child.

    Returns:
        {"problems": [texts]} of a bad one; of a good one {"problems": [], "name", "title", "id", "backend", "points",
        "runs": [[id, seconds], ...], "scenario": of the first run}.
    """
    asked = json.dumps({"file": file, "text": text, "overrides": list(overrides)})
    try:
        with _room:
            done = subprocess.run(
                [sys.executable, "-m", "web.check"],
                input=asked, capture_output=True, text=True, timeout=LIMIT_S, check=False,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {
            "problems": [
                f"{file}: checking this took longer than {LIMIT_S} s; ./backchannel validate has no such limit"
            ]
        }
    if done.returncode != 0 or not done.stdout:
        return {"problems": [f"{file}: this is too large to be checked here; ./backchannel validate has no such limit"]}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """The child."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
    from experiments import source
    from experiments.campaign import expand
    from experiments.problems import CampaignError
    from testbed.errors import TestbedError

    asked = json.load(sys.stdin)
    try:
        plan = expand(source.parse(asked["file"], asked["text"]), asked["overrides"])
    except CampaignError as error:
        answer: dict[str, Any] = {"problems": [problem.text(error.file) for problem in error.problems]}
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
            "runs": [[run.id, float(run.scenario["duration_s"])] for run in plan.runs],
            "scenario": plan.runs[0].scenario,
        }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
