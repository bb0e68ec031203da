"""Names of swept fields, and FIELD=VALUE."""

from __future__ import annotations

import pytest

from analysis.errors import AnalysisError
from analysis.swept import condition, field_of

AXES = {"network.forward.rate": ["1 Mbit/s"], "network.reverse.rate": ["9.6 kbit/s"], "x": ["1", "y=v"],
        "x=y": ["v", "b=c"], "a.x": ["2"]}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("forward.rate=1 Mbit/s", ("network.forward.rate", "1 Mbit/s")),
        ("x=y=b=c", ("x=y", "b=c")),
        ("x = 1", ("x", "1")),
        ("x=y=v", ("x", "y=v")),
        ("a.x=2", ("a.x", "2")),
    ],
)
def test_a_condition_is_split_where_field_and_value_exist(text: str, means: tuple[str, str]) -> None:
    assert condition(text, AXES) == means


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "'x' is not FIELD=VALUE"),
        ("x=2", "unknown value of x '2'; allowed: 1, y=v"),
        ("rate=1 Mbit/s", "'rate' is ambiguous; use one of network.forward.rate, network.reverse.rate"),
        ("delay=1=2", "unknown swept field 'delay'"),
    ],
)
def test_a_condition_that_means_nothing_is_told(text: str, message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        condition(text, AXES)


def test_the_whole_name_of_a_field_comes_before_the_end_of_another() -> None:
    assert field_of("x", AXES) == "x"
