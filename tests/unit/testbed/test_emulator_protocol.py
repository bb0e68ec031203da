"""The emulator's protocol (docs/emulator-protocol.md), as far as it needs no privileges."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from testbed import node_binary
from tests.support.waiting import HANGS_S


def ask(*requests: dict[str, Any]) -> list[dict[str, Any]]:
    """Answers of an emulator to requests, after which its input ends."""
    text = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(
        [node_binary.path(), "emulate"], input=text, capture_output=True, text=True, check=True, timeout=HANGS_S
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_requests_before_the_end_of_input_are_answered() -> None:
    start, stop = ask({"op": "start", "lead_s": 0.0}, {"op": "stop"})
    assert start["ok"]
    assert start["result"] > 0
    assert stop["ok"]
    assert stop["result"]["links"] == {}


def test_errors_are_answers_that_name_what_is_wrong() -> None:
    unknown, late, missing = ask(
        {"op": "start", "lead": 1}, {"op": "start", "lead_s": 61}, {"op": "remove_link", "name": "line"}
    )
    assert not unknown["ok"]
    assert "unknown field `lead`" in unknown["error"]
    assert late["error"] == "lead_s is 61, not between 0 and 60"
    assert missing["error"].startswith("unknown link 'line'")
