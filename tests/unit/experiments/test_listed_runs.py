"""Lists of runs and campaigns on a narrow terminal."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table

from analysis.store.rows import CampaignRow
from experiments.listed_runs import ListedRun, table
from experiments.results_table import folded
from experiments.tables import campaigns_table


def printed(shown: Table, width: int = 60) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(shown)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def listed(number: int, campaign: str = "grid", tags: tuple[str, ...] = ()) -> ListedRun:
    parameters = {"network.reverse.rate": "100 kbit/s", "network.forward.queue.limit": str(number)}
    run_id = f"{number:024x}"
    return ListedRun(run_id, campaign, f"id-of-{campaign}", parameters, number, "valid", 86_400.0 * number, tags)


def test_a_narrow_terminal_folds_combinations_only() -> None:
    lines = printed(table([listed(1), listed(2)], named=True))
    assert lines[0].split() == ["id", "combination", "rep.", "state", "landed", "(UTC)"]
    assert lines[1].startswith("000000000000  rate=100")
    assert lines[1].endswith("1  valid  1970-01-02 00:00")


def test_columns_that_tell_runs_apart_are_shown() -> None:
    (heads, *_) = printed(table([listed(1, tags=("odd",))]), 100)
    assert "campaign" in heads
    assert "tags" in heads


def test_a_long_heading_is_folded_to_its_values_and_a_word_is_not() -> None:
    assert folded("one-way delay of the satellite", ["5 ms"]) == "one-way delay of\nthe satellite"
    assert folded("one-way delay of the satellite", ["the fifth of thirty delays"]) == "one-way delay of the\nsatellite"
    assert folded("retransmission_timeout", ["1"]) == "retransmission_timeout"


def test_an_id_of_a_campaign_can_be_copied() -> None:
    row = CampaignRow(
        id="305ce28f2a08ac20", name="n" * 40, title="A title " * 12, file="c.yaml", text="", overrides={},
        backend="sim", seed=1, repetitions=2, state="complete", started=0.0, finished=1.0, progress={}, runs=60,
        valid=60, invalid=0,
    )  # fmt: skip
    assert printed(campaigns_table([row], {row.id: ""}))[1].startswith("305ce28f2a08ac20  nnnn")
