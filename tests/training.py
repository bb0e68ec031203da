"""Simulates what a profile-guided build of the node binary is optimised for (`./backchannel build --pgo`).

The first run of every point of the campaigns in `tests/equality`, which use every mechanism, and the dumbbells of
`bench simulator`, all of them for a few virtual seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.simulator import POLICIES, dumbbell
from experiments.language.campaign import load
from testbed import node_binary
from testbed.addressing import as_json
from tests.support.addresses import planned

CAMPAIGNS = Path(__file__).resolve().parent / "equality"
#: Longest run in virtual time. The counting binary is several times slower than a usual one.
LONGEST_S = 5.0


def scenarios() -> Iterator[dict[str, Any]]:
    """All scenarios, each with its full length."""
    for file in sorted(CAMPAIGNS.glob("*.yaml")):
        runs = load(file).runs
        yield from {run.point: run.scenario.as_json() for run in reversed(runs)}.values()
    for policy in POLICIES:
        yield dumbbell(10, LONGEST_S, capture=False, policy=policy)
    yield dumbbell(10, LONGEST_S, capture=True)
    yield dumbbell(100, LONGEST_S, capture=False)


def main() -> int:
    """Simulates all of them; exit status 1 if one fails."""
    for scenario in scenarios():
        scenario["duration_s"] = min(scenario["duration_s"], LONGEST_S)
        nodes = as_json(planned(scenario))
        with tempfile.TemporaryDirectory(prefix="backchannel-training-") as folder:
            words = [str(node_binary.path()), "simulate", "--out", folder]
            told = json.dumps({"scenario": scenario, "nodes": nodes})
            done = subprocess.run(words, input=told, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(done.stderr, file=sys.stderr, end="")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
