"""The node binary from Python: its path, and its failures as exceptions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from agents.errors import panic
from testbed.errors import TestbedError, Unavailable

ROOT = Path(__file__).resolve().parent.parent
#: Names the program, for this process and those that it starts.
VARIABLE = "BACKCHANNEL_NODE"

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def path() -> str:
    """Path of `backchannel-node`: $BACKCHANNEL_NODE, or the release build of this checkout.

    Raises:
        Unavailable: it is not built.
    """
    binary = Path(os.environ.get(VARIABLE, ROOT / "target/release/backchannel-node"))
    if not binary.is_file():
        raise Unavailable(
            f"the node binary is not built ({binary} does not exist); any ./backchannel command builds it"
        )
    return str(binary)


def cached(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """functools.cache of what depends on the binary: another binary (testbed.own_nodes) has values of its own."""

    @cache
    def of_binary(_binary: str | None, *args: Any, **kwargs: Any) -> _Result:
        return function(*args, **kwargs)

    @wraps(function)
    def of_current(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        return of_binary(os.environ.get(VARIABLE), *args, **kwargs)  # type: ignore[arg-type]

    return of_current


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
    if done.returncode != 0:
        raise TestbedError(f"backchannel-node {words[0]}: {failure(done.returncode, done.stderr)}")
    return json.loads(done.stdout) if done.stdout.strip() else None


@cached
def registry() -> Any:
    """Everything that the binary declares: mechanisms, its own included, schemas and tables.

    Raises:
        TestbedError: as `call`.
    """
    return call("registry")


def failure(status: int, stderr: str) -> str:
    """Why a process of the node binary failed, in words.

    Args:
        status: as `subprocess` reports it, other than 0.
        stderr: what it wrote.
    """
    if status >= 0:
        return panic(stderr) or stderr.strip().removeprefix("error: ") or f"it ended with status {status}"
    # An abort leaves a backtrace, or the bytes that it could not allocate.
    first = next((line for line in stderr.splitlines() if line.strip()), "")
    return f"it was ended by {signal.Signals(-status).name}" + (f": {panic(stderr) or first}" if first else "")
