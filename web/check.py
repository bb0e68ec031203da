"""Validates a campaign for the site in a child process with limits.

A visitor's text can be made to expand without end; the child has a limit of time and of memory. The messages are those
of `./backchannel validate`, from the same code.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from analysis.store import is_url
from testbed import confined, node_binary, resource_limits
from testbed.scenario import Scenario

#: CPU time of a check.
LIMIT_S = 20
#: Elapsed time of a check. On a busy machine it gets a part of a CPU only.
LIMIT_ELAPSED_S = 60
LIMIT_BYTES = 2 << 30
#: Exit status of a child that ran out of memory.
NO_MEMORY = 3
#: Children at a time; further checks wait.
_slots = threading.Semaphore(2)


class Summary(TypedDict):
    """What a good campaign is."""

    name: str
    title: str
    id: str
    backend: str
    points: int
    runs: int
    #: Runs that the store has.
    known: int
    #: Of the other runs (experiments.api.Estimate).
    estimate: dict[str, Any]
    #: Programs that its flows run (kind `command`).
    programs: list[str]


@dataclass(frozen=True)
class Verdict:
    """What the validator found."""

    #: Messages; a campaign without any is good.
    problems: list[str]
    #: Of a good campaign.
    summary: Summary | None = None
    #: Known traps that a good campaign meets; they forbid nothing.
    warnings: list[str] = field(default_factory=list)
    #: The scenario of the first run.
    scenario: Scenario | None = None

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        summary: Mapping[str, Any] = self.summary or {}
        return {"problems": self.problems, "warnings": self.warnings, **summary}


def check(results: str, file: str, text: str, overrides: Sequence[str] = ()) -> Verdict:
    """Validates a campaign's text in a child process."""
    request = json.dumps({"results": results, "file": file, "text": text, "overrides": list(overrides)})
    try:
        with _slots:
            done = subprocess.run(
                words(results), input=request, capture_output=True, text=True, timeout=LIMIT_ELAPSED_S, check=False
            )
        too_long = done.returncode == -signal.SIGXCPU
    except subprocess.TimeoutExpired:
        too_long = True
    if too_long:
        return Verdict(
            [f"{file}: checking this took more than {LIMIT_S} s of CPU time; ./backchannel validate has no such limit"]
        )
    if done.returncode == NO_MEMORY:
        return Verdict([f"{file}: this is too large to be checked here; ./backchannel validate has no such limit"])
    if done.returncode != 0 or not done.stdout:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        return Verdict([f"{file}: internal error in the check: {last[:200]}; please report it"])
    answer = json.loads(done.stdout)
    scenario = answer.pop("scenario")
    return Verdict(**answer, scenario=None if scenario is None else Scenario.read(scenario))


def words(results: str) -> list[str]:
    """The command line of the child. It reads a visitor's text, so it has no privileges, no network, and no files but
    the program's, what the kernel says, and the results folder. A PostgreSQL store needs the network.
    """
    command = node_binary.module("web.check")
    if is_url(results):
        return command
    programs = (node_binary.ROOT, node_binary.path(), sys.prefix, sys.base_prefix)
    return confined.words(command, read=[*programs, "/proc", "/sys"], write=[results])


def main() -> None:
    """The child."""
    resource_limits.lower(resource.RLIMIT_AS, LIMIT_BYTES)
    # SIGXCPU names the limit; a second later the kernel kills.
    resource_limits.lower(resource.RLIMIT_CPU, LIMIT_S, LIMIT_S + 1)
    from experiments import api

    request = json.load(sys.stdin)
    try:
        plan = api.expand(request["file"], request["text"], request["overrides"])
    except api.CampaignError as error:
        verdict = Verdict([problem.text(error.file) for problem in error.problems])
    except (MemoryError, RecursionError):
        # At once: there is no memory for anything else.
        os._exit(NO_MEMORY)
    except api.TestbedError as error:
        verdict = Verdict([str(error)])
    else:
        estimate = api.estimate(plan, request["results"])
        summary = Summary(
            name=plan.name,
            title=plan.title,
            id=plan.id,
            backend=plan.backend,
            points=len(plan.points),
            runs=len(plan.runs),
            known=estimate.known,
            estimate=estimate.as_json(),
            programs=list(plan.programs),
        )
        warnings = api.warnings(plan, request["file"], request["text"])
        verdict = Verdict([], summary, warnings, plan.runs[0].scenario)
    scenario = None if verdict.scenario is None else verdict.scenario.as_json()
    json.dump(vars(verdict) | {"scenario": scenario}, sys.stdout)


if __name__ == "__main__":
    main()
