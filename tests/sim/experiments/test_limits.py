"""Limits of an import: what a child that meets one, or fails inside a library, leaves for the user."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import HANGS_S

PROGRAM = """
import sys
from pathlib import Path
from experiments import exits
from experiments.language.problems import ImportProblem
from experiments.limits import Limits, limited

class PanicException(BaseException):
    "As Rust libraries raise it."

try:
    with limited(Limits(memory_bytes=1_000_000_000, time_s={time_s}, file_bytes=10_000)):
        {job}
except ImportProblem as error:
    print(error, file=sys.stderr)
    sys.exit(exits.BAD_INPUT)
"""
#: Without bytecode: Python caches a module that outgrows the limit of a file's size cut off.
WORDS = (sys.executable, "-B", "-c")
LARGE = "Path('large').write_bytes(bytes(10_001))"
DEFECT = "internal error while reading it: "
MEMORY = "reading it needs more than 1 GB of memory; --memory-limit raises the limit"
ABORT = "import os; print({!r}, file=sys.stderr, flush=True); os.abort()"
#: Statement in the child, exit status, and the only line on stderr.
JOBS = {
    "done": ("print('done')", 0, ""),
    "memory": ("bytearray(2_000_000_000)", 2, MEMORY),
    "allocator": (ABORT.format("memory allocation of 4 bytes failed"), 2, MEMORY),
    "mathematics": ("import os; os.write(2, b'Memory allocation still failed'); os._exit(1)", 2, MEMORY),
    "time": ("while True: pass", 2, "reading it takes longer than 2 s; --time-limit raises the limit"),
    "file": (LARGE, 2, "importing failed: File too large (the limit is 1e-05 GB)"),
    "missing": ("open('nothing')", 2, "importing failed: No such file or directory: nothing"),
    "panic": ("raise PanicException('index 3 of 2')", 2, f"{DEFECT}PanicException: index 3 of 2; please report it"),
    "defect": ("{}['x']", 2, f"{DEFECT}KeyError: 'x'; please report it"),
    "abort": (ABORT.format("lost"), 2, "reading it was ended by SIGABRT: lost"),
    "killed": (
        "import os; os.kill(os.getpid(), 9)", 2,
        "reading it was ended by SIGKILL, which the kernel sends when the machine's memory runs out: free some, or "
        "import a shorter capture (editcap -c)",
    ),
    "sentence": ("raise ImportProblem('no TCP in x')", 2, "no TCP in x"),
    "status": ("print('interrupted', file=sys.stderr); sys.exit(130)", 130, "interrupted"),
}  # fmt: skip


@pytest.mark.parametrize("name", JOBS)
def test_the_user_sees_one_sentence(name: str, tmp_path: Path) -> None:
    job, status, message = JOBS[name]
    # A busy machine may take its time over all others.
    program = PROGRAM.replace("{job}", job).replace("{time_s}", "2.0" if name == "time" else str(HANGS_S))
    done = subprocess.run([*WORDS, program], capture_output=True, text=True, cwd=tmp_path, timeout=HANGS_S, check=False)
    assert (done.returncode, done.stderr.strip()) == (status, message)
    assert done.stdout == ("done\n" if name == "done" else "")


@pytest.mark.parametrize("name", ["done", "memory", "file"])
def test_a_lower_limit_of_the_shell_holds(name: str, tmp_path: Path) -> None:
    """A hard limit cannot be raised. The message names the limit that was met and who set it."""
    job, status, _ = JOBS[name]
    program = PROGRAM.replace("memory_bytes=1_000_000_000", "memory_bytes=8_000_000_000").replace("{job}", job)
    program = program.replace("{time_s}", str(HANGS_S))

    def ulimit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1_500_000_000, 1_500_000_000))
        resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))

    done = subprocess.run(
        [*WORDS, program], capture_output=True, text=True, cwd=tmp_path, timeout=HANGS_S, check=False,
        preexec_fn=ulimit,
    )  # fmt: skip
    message = {
        "done": "",
        "memory": "reading it needs more than 1.5 GB of memory; `ulimit -v` in the shell sets this limit",
        "file": "importing failed: File too large (the limit is 8e-06 GB)",
    }[name]
    assert (done.returncode, done.stderr.strip()) == (status, message)


@pytest.mark.parametrize("words", [("list",), ("results",), ("import", "x.zip"), ("plan", "quickstart.yaml")])
@pytest.mark.parametrize("limit_bytes", [30_000_000, 100_000_000, 500_000_000, 1_000_000_000])
def test_with_little_memory_a_command_is_one_sentence(words: tuple[str, ...], limit_bytes: int, tmp_path: Path) -> None:
    """Libraries would end it with tracebacks of their own, or abort."""
    done = subprocess.run(
        [sys.executable, "-m", "experiments", *words], capture_output=True, text=True, cwd=tmp_path, timeout=HANGS_S,
        check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes)),
    )  # fmt: skip
    assert done.returncode == 3
    assert re.fullmatch(
        r"backchannel: this shell limits memory to [\d.]+ GB, and commands need 1\.2 GB .*\n", done.stderr
    )
