"""Tables of comparisons in narrow terminals."""

from __future__ import annotations

import io

import polars as pl
import pytest
from rich.console import Console

from analysis.handle import CONTRASTED
from experiments.tables import contrast_table, narrowed

COLUMNS = ["difference", "p", "d_z", "over", "verdict", "needs"]


def test_words_are_wrapped_before_the_compared_values_are_folded() -> None:
    widths = [14, 18, 5, 5, 30, 11, 5]
    assert narrowed(widths, COLUMNS, 100) == widths
    assert narrowed(widths, COLUMNS, 88) == [14, 18, 5, 5, 18, 11, 5]
    assert narrowed(widths, COLUMNS, 80) == [12, 18, 5, 5, 12, 11, 5]
    assert narrowed(widths, COLUMNS, 60) == [8, 18, 5, 5, 12, 11, 5]


def test_without_words_the_values_are_folded() -> None:
    assert narrowed([14, 18, 5, 5, 11, 5], [name for name in COLUMNS if name != "over"], 60) == [8, 18, 5, 5, 11, 5]


def contrasts(value: str, methods: list[str], n: int = 3) -> pl.DataFrame:
    """A campaign over two fields, compared at two rates, as StoredCampaign.contrast has it."""
    rows = []
    for rate, method in zip(["64 kbit/s", "128 kbit/s"], methods, strict=True):
        shown = "+1.06 ± 0.31 Mbit/s (+714 %); 3 runs cannot tell, about 10 would"
        row = dict.fromkeys(CONTRASTED) | {"metric": "throughput", "subject": "download", "baseline": "droptail"}
        row |= {"value": value, "n": n, "low": 1.0, "p_adjusted": 0.05, "d_z": 42.15, "verdict": "cannot tell"}
        row |= {"exploratory": False, "shown": shown, "margin": 0.05, "comparisons": 9, "level": 0.99}
        rows += [row | {"method": method, "unpaired": 0, "rate": rate}]
        rows += [row | {"method": method, "unpaired": 0, "rate": rate, "value": "fq-drr"}]
    return pl.DataFrame(rows, schema={"rate": pl.String, **CONTRASTED})


def printed(table: pl.DataFrame, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(contrast_table(table, everything=False, width=width))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_values_keep_their_names_where_some_are_in_pairs_and_some_are_not() -> None:
    lines = printed(contrasts("ack-filtering", ["welch", "paired"]), 80)
    assert any(line.startswith(" ack-filtering  +1.06 ± 0.31 Mbit/s") and "≥3 runs" in line for line in lines)
    assert any(line.startswith(" ack-filtering  +1.06 ± 0.31 Mbit/s") and "3 pairs" in line for line in lines)
    assert "'≥N runs': N or more a side, not in pairs (Welch)" in " ".join(lines)


@pytest.mark.parametrize(("methods", "n"), [(["paired", "paired"], 3), (["welch", "welch"], 1)])
def test_a_note_explains_only_what_is_there(methods: list[str], n: int) -> None:
    assert "Welch" not in " ".join(printed(contrasts("ack-filtering", methods, n), 80))
