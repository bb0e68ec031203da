"""Writes every result of a playbook as a JSON line to $BACKCHANNEL_RECORD."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: record
type: aggregate
short_description: Results as JSON lines
description: For Backchannel's tests.
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]  # Ansible has no types
    """One line a result: play, task, host, changed, failed, msg, stdout, diff."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "record"

    def __init__(self) -> None:
        super().__init__()
        self._play = ""

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._play = play.get_name()

    def v2_runner_on_ok(self, result: Any) -> None:
        self._write(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._write(result, failed=True)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._write(result, failed=True)

    def _write(self, result: Any, failed: bool = False) -> None:
        values = result.result
        line = {
            "play": self._play,
            "task": result.task.get_name(),
            "host": result.host.get_name(),
            "changed": bool(values.get("changed")),
            "failed": failed,
            "msg": str(values.get("msg", "")),
            "stdout": str(values.get("stdout", "")),
            "diff": values.get("diff") or {},
        }
        with Path(os.environ["BACKCHANNEL_RECORD"]).open("a") as file:
            file.write(json.dumps(line) + "\n")
