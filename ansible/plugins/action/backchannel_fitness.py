"""Runs library/backchannel_fitness.py on a host, the short way, and holds the host's clock against the controller's."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from ansible.plugins.loader import action_loader

ROOT = Path(__file__).resolve().parents[3]


class ActionModule(action_loader.get("backchannel_module", class_only=True)):
    """The controller's half: only here both clocks are known."""

    def on_host(self, wanted, task_vars):
        """What the module says, and whether a run would refuse the clock."""
        asked_s = time.time()
        told = super().on_host(wanted, task_vars)
        answered_s = time.time()
        if not wanted["clock"] or "clock_s" not in told:
            return told
        off_s = certainly_off_s(asked_s, *told["clock_s"], answered_s)
        if abs(off_s) > greatest_s():
            problems = [
                *told["problems"],
                f"the clock is {off_s:+.1f} s off the controller's; set it ('chronyc makestep'), then check again",
            ]
            told.update(failed=True, problems=problems, msg="not fit: " + "; ".join(problems))
        return told


def certainly_off_s(asked_s, began_s, ended_s, answered_s):
    """By how much a clock is off at least: its readings were made between two of the controller's.

    A slow way there or back, which takes a virtual machine seconds, so never makes a good clock a bad one.
    """
    return max(ended_s - answered_s, 0.0) or min(began_s - asked_s, 0.0)


def greatest_s():
    """What a run refuses, too."""
    # At the end: this repository has a folder called ansible, which must not hide the package.
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    from testbed.clock import GREATEST_OFFSET_S

    return GREATEST_OFFSET_S
