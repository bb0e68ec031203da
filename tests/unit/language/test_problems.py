"""Invalid campaign files and all messages about each: the corpus in tests/messages.yaml."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from experiments.language import source
from experiments.language.campaign import expand
from experiments.language.problems import CampaignError
from tests import messages

GOOD = """\
name: t
network:
  topology: line
  forward:
    rate: 1 Mbit/s
    delay: 5 ms
    queue: {policy: droptail, limit: 10 packets}
workload:
  - {name: f, from: left, to: right}
duration: 5 s
"""
CASES = messages.cases()


@pytest.mark.parametrize("name", CASES)
def test_messages(name: str) -> None:
    """`python -m tests.messages --update` writes changed wording into the corpus."""
    case = CASES[name]
    assert case["messages"]
    assert messages.reported(str(case["text"]), list(case.get("set", []))) == list(case["messages"])


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 6), st.text("abc:{}[]-&*!<> \n'\"0159,|%@`é", max_size=6))
def test_a_damaged_file_is_good_or_has_problems(at: int, removed: int, inserted: str) -> None:
    text = GOOD[:at] + inserted + GOOD[at + removed :]
    # Anything but a CampaignError is a failure.
    with suppress(CampaignError):
        expand(source.parse("c.yaml", text))
