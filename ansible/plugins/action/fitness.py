"""Runs the module fitness and compares the host's clock with the controller's."""

from __future__ import annotations

import time

from ansible_collections.backchannel.testbed.plugins.plugin_utils import checkout

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Only the controller knows both clocks."""

    def run(self, tmp=None, task_vars=None):
        """Runs the module on one host."""
        super().run(tmp, task_vars)
        asked_s = time.time()
        arguments = dict(self._task.args)
        if arguments.get("system"):
            arguments.setdefault("machine", machine_of(checkout.node_binary()))
        result = self._execute_module(module_args=arguments, task_vars=task_vars)
        answered_s = time.time()
        if not self._task.args.get("clock") or "clock_s" not in result:
            return result
        offset_s = least_offset_s(asked_s, *result["clock_s"], answered_s)
        if abs(offset_s) > greatest_offset_s():
            problems = [
                *result["problems"],
                f"the clock is {offset_s:+.1f} s off the controller's; set it ('chronyc makestep'), then check again",
            ]
            result.update(failed=True, problems=problems, msg="not fit: " + "; ".join(problems))
        return result


def machine_of(binary):
    """Architecture of a program as `uname -m` has it, from its ELF header; None for others."""
    try:
        with open(binary, "rb") as file:
            header = file.read(20)
    except OSError:
        return None
    number = int.from_bytes(header[18:20], "little") if header[:4] == b"\x7fELF" else None
    return {62: "x86_64", 183: "aarch64", 243: "riscv64"}.get(number)


def least_offset_s(asked_s, started_s, ended_s, answered_s):
    """Least clock offset that explains the readings: the host's lie between two of the controller's.

    A slow connection (seconds, for an emulated machine) widens that interval, so a good clock never looks wrong.
    """
    return max(ended_s - answered_s, 0.0) or min(started_s - asked_s, 0.0)


def greatest_offset_s():
    """The offset that a run tolerates."""
    checkout.importable()
    from testbed.clock import GREATEST_OFFSET_S

    return GREATEST_OFFSET_S
