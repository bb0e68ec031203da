"""Which sessions are repetitions of each other."""

from __future__ import annotations

import pytest

from analysis.store.documents import SessionDescription
from experiments.sessions.record import MOST_WORDS, _carried


def described(*command: str) -> SessionDescription:
    return SessionDescription(
        label="cable", command=command, host="client", internet=False, exit_status=0, lasted_s=1.0
    )


def test_runs_of_a_command_are_repetitions_and_others_are_not() -> None:
    assert _carried(described("curl", "a b"), 0.0) == _carried(described("curl", "a b"), 99.0) == "curl 'a b'"
    assert _carried(described("wget", "a"), 0.0) != _carried(described("curl", "a"), 0.0)


def test_shells_are_never_repetitions() -> None:
    assert _carried(described(), 0.0) == "shell of 1970-01-01 00:00:00"
    assert _carried(described(), 1.0) != _carried(described(), 0.0)


@pytest.mark.parametrize("length", [MOST_WORDS, MOST_WORDS + 1])
def test_a_long_command_is_cut(length: int) -> None:
    words = _carried(described("x" * length), 0.0)
    assert (len(words), words.endswith("…")) == (MOST_WORDS, length > MOST_WORDS)
