"""Programs on a session's hosts: how one starts in a host's namespaces with this terminal, and how it ended."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments import exits
from testbed.errors import TestbedError
from testbed.report import SessionHost

#: Exit statuses of programs that could not be started, as shells have them.
NOT_EXECUTABLE, NOT_FOUND = 126, 127
#: Exit status of a command that was ended because of its time limit, as timeout(1) has it.
TIMED_OUT = 124
#: Environment variables that tell a program where it runs.
NAME_VARIABLE, HOST_VARIABLE = "BACKCHANNEL_SESSION", "BACKCHANNEL_HOST"
#: Variables of the launcher that a user's program must not see.
_OURS = ("PYTHONPATH", "BACKCHANNEL_ROOT", "BACKCHANNEL_NODE", "SETUPTOOLS_USE_DISTUTILS")
#: What experiments/__main__.py sets where the caller has not.
_DEFAULTS = {("PYDANTIC_DISABLE_PLUGINS", "__all__"), ("OPENBLAS_NUM_THREADS", "1")}
#: Time between SIGTERM and SIGKILL for a command that is ended, in s.
GRACE_S = 3.0


def enter_words(cell_pid: int, host: SessionHost, command: Sequence[str], folder: Path) -> list[str]:
    """The command line that runs a command on a host.

    Args:
        cell_pid: process outside that holds the cell (testbed.cell.Cell.pid).
        host: where to run it.
        command: of the user.
        folder: its working directory.
    """
    spaces = f"/proc/{cell_pid}/ns"
    into_cell = [
        "nsenter",
        f"--pid={spaces}/pid_for_children",
        *(f"--{kind}={spaces}/{name}" for kind, name in (("mount", "mnt"), ("ipc", "ipc"), ("uts", "uts"))),
    ]
    # Inside the cell, processes have the numbers by which it names them.
    into_host = ["nsenter", "--target", str(host.pid), "--net", "--mount"]
    return [*into_cell, "--", *into_host, "--", *_as_user(), "env", "-C", str(folder), "--", *command]


def _as_user() -> list[str]:
    """Words that give root's rights up, if root runs this for a user (sudo)."""
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() != 0 or not user.isdigit() or not group.isdigit() or user == "0":
        return []
    return ["setpriv", f"--reuid={user}", f"--regid={group}", "--init-groups", "--"]


def environment(label: str, host: str) -> dict[str, str]:
    """The environment of a program: the caller's, without what the launcher added."""
    inherited = {name: value for name, value in os.environ.items() - _DEFAULTS if name not in _OURS}
    user = os.environ.get("SUDO_UID", "")
    if _as_user():
        entry = pwd.getpwuid(int(user))
        inherited |= {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name, "SHELL": entry.pw_shell}
    return inherited | {NAME_VARIABLE: label, HOST_VARIABLE: host}


def shell_words(variables: Mapping[str, str]) -> list[str]:
    """An interactive shell of the user."""
    shell = variables.get("SHELL") or "/bin/sh"
    return [shell] if shutil.which(shell) else ["/bin/sh"]


def check(command: Sequence[str]) -> tuple[str, int] | None:
    """A sentence and an exit status if a command cannot be started; None if it can."""
    name = command[0]
    if shutil.which(name) is not None:
        return None
    if os.sep in name and Path(name).is_file():
        return f"'{name}' is not executable: chmod +x {shlex.quote(name)}", NOT_EXECUTABLE
    return f"command '{name}' not found on this machine: check its spelling, or install it", NOT_FOUND


class ForegroundProcess:
    """A running program with this process's terminal, or pipes.

    Args:
        words: from `enter_words`.
        variables: its environment.

    Raises:
        TestbedError: it could not be started.
    """

    def __init__(self, words: Sequence[str], variables: Mapping[str, str]) -> None:
        try:
            self._process = subprocess.Popen(list(words), env=dict(variables))
        except OSError as error:
            raise TestbedError(f"cannot run '{words[0]}': {error.strerror}") from None

    def wait(self, timeout_s: float) -> int | None:
        """Its exit status; None if it still runs after that time. A signal counts as 128 and its number."""
        try:
            return exits.of_process(self._process.wait(timeout_s))
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> None:
        """Ends it: SIGTERM, then SIGKILL. What it left in the background ends with the cell."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                self._process.send_signal(number)
            if self.wait(GRACE_S) is not None:
                return
