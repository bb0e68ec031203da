"""A table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table


def plain_table(*columns: str, right: Sequence[str] = (), whole: Sequence[str] = ()) -> Table:
    """A table without lines, whose columns `right` are aligned there and whose columns `whole` are never folded."""
    table = Table(box=None, pad_edge=False, show_edge=False)
    for name in columns:
        table.add_column(
            name,
            header_style="dim",
            overflow="fold",
            justify="right" if name in right else "left",
            no_wrap=name in whole,
        )
    return table
