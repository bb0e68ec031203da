"""Why a child process ended, in words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agents.rpc import ChildProcess
from testbed import node_binary
from testbed.errors import TestbedError

PANIC = (
    "thread 'main' panicked at testbed/links/src/red.rs:81:9:\n"
    "the average is not a number\n"
    "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n"
)
SENTENCE = "the average is not a number (testbed/links/src/red.rs:81:9)"


@pytest.mark.parametrize(
    ("status", "stderr", "words"),
    [
        (2, "error: line 3: no such policy\n", "line 3: no such policy"),
        (7, "", "it ended with status 7"),
        (101, PANIC, SENTENCE),
        (101, f"a warning\n{PANIC}", SENTENCE),
        (-6, PANIC, f"it was ended by SIGABRT: {SENTENCE}"),
        (-6, "\nmemory allocation of 8 bytes failed\n", "it was ended by SIGABRT: memory allocation of 8 bytes failed"),
        (-9, "", "it was ended by SIGKILL"),
    ],
)
def test_a_failure_is_a_sentence_without_a_backtrace(status: int, stderr: str, words: str) -> None:
    assert node_binary.failure(status, stderr) == words


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (f"an earlier line\n{PANIC}", SENTENCE),
        ("an earlier line\nerror: the link is down\n", "the link is down"),
        ("", "status 3"),
    ],
)
def test_a_child_that_ends_instead_of_an_answer_says_why(tmp_path: Path, written: str, why: str) -> None:
    words = [sys.executable, "-c", f"import sys; sys.stderr.write({written!r}); sys.exit(3)"]
    child = ChildProcess("the emulator", words, tmp_path / "log", TestbedError)
    with pytest.raises(TestbedError, match="^the emulator has ended: ") as ended:
        child.request("start", {})
    assert str(ended.value) == f"the emulator has ended: {why}"
