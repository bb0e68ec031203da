"""The order of a campaign's runs, of rows as each database gives them."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.store.queries import Head, Queries, RunQuery


@pytest.mark.parametrize("problems", ["[]", []], ids=["SQLite", "PostgreSQL"])
def test_runs_are_sorted_whatever_the_driver_makes_of_json(problems: Any) -> None:
    heads = [
        Head(point, repetition, f"{point}{repetition}", "sim", 1, 1.0, "valid", problems, 1, 1.0, 0, 0, 0, 0)
        for point in (1, 0)
        for repetition in (1, 0)
    ]
    queries = Queries.__new__(Queries)
    assert [head.run_id for head in queries._sorted(heads, RunQuery())] == ["00", "01", "10", "11"]
