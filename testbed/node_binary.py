"""The node binary from Python: its path, and its failures as exceptions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError, Unavailable

ROOT = Path(__file__).resolve().parent.parent


def path() -> str:
    """Path of `backchannel-node`: $BACKCHANNEL_NODE, or the release build of this checkout.

    Raises:
        Unavailable: it is not built.
    """
    binary = Path(os.environ.get("BACKCHANNEL_NODE", ROOT / "target/release/backchannel-node"))
    if not binary.is_file():
        raise Unavailable(
            f"the node binary is not built ({binary} does not exist); any ./backchannel command builds it"
        )
    return str(binary)


def call(*words: str, stdin: str | None = None, timeout_s: float = 600.0) -> Any:
    """Runs a subcommand and returns its JSON output.

    Raises:
        TestbedError: it failed, with its own message, or ran longer than `timeout_s`.
    """
    try:
        done = subprocess.run(
            [path(), *words], input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TestbedError(f"backchannel-node {words[0]} took longer than {timeout_s:g} s") from error
    if done.returncode < 0:
        # An abort leaves a backtrace, or the bytes that it could not allocate.
        first = next((line for line in done.stderr.splitlines() if line.strip()), "")
        stop = signal.Signals(-done.returncode).name
        raise TestbedError(f"backchannel-node {words[0]}: it was ended by {stop}" + (f": {first}" if first else ""))
    if done.returncode != 0:
        reason = done.stderr.strip().removeprefix("error: ") or f"it ended with status {done.returncode}"
        raise TestbedError(f"backchannel-node {words[0]}: {reason}")
    return json.loads(done.stdout) if done.stdout.strip() else None
