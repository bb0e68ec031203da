"""The node binary from Python: its path, and its failures as exceptions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from agents.errors import panic
from testbed.errors import TestbedError, Unavailable

#: Folder of our packages and of what travels with them: the checkout, or the package `backchannel` of an installation.
ROOT = Path(__file__).resolve().parent.parent
#: The entry of Python's path with our packages.
IMPORTED_FROM = ROOT.parent if __name__.count(".") > 1 else ROOT
#: The binary's file.
NAME = "backchannel-node"
#: What precedes the names of our modules: "" in a checkout, "backchannel." where it is installed
#: (distribution/hook.py).
PACKAGE = __name__.removesuffix("testbed.node_binary")
#: Names the program, for this process and those that it starts.
VARIABLE = "BACKCHANNEL_NODE"

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def path() -> str:
    """Path of `backchannel-node`.

    Raises:
        Unavailable: it is not built.
    """
    binary = file()
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


def file() -> Path:
    """The binary's file, which need not exist: $BACKCHANNEL_NODE, or that of an installation or release, or else the
    release build of this checkout.
    """
    if named := os.environ.get(VARIABLE):
        return Path(named)
    released = ROOT / "bin" / NAME
    return released if released.exists() else ROOT / "target/release" / NAME


def python_path() -> str:
    """PYTHONPATH of a Python process that imports our packages. An installation's interpreter finds them by itself."""
    return os.pathsep.join(filter(None, ("" if PACKAGE else str(ROOT), os.environ.get("PYTHONPATH"))))


def module(name: str) -> list[str]:
    """Words that start one of our modules with this process's Python, which needs `python_path`."""
    return [sys.executable, "-m", f"{PACKAGE}{name}"]


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
