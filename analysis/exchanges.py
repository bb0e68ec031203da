"""What applications of flows experienced: packets, transfers and transactions (core::exchange::Exchange)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from analysis.exchange_kinds import UDP_HEADERS
from analysis.records import read_records, record_file
from testbed.exchanges import FOLDER
from testbed.scenario import Flow

_COLUMNS = {
    "seq": pl.Int64,
    "frame": pl.Int64,
    "bytes": pl.Int64,
    "sent_ns": pl.Int64,
    "arrived_ns": pl.Int64,
    "returned_ns": pl.Int64,
}


def read(folder: Path | None, flow: Flow) -> pl.DataFrame | None:
    """The exchanges of a flow, in order. None if the run did not record them.

    Columns: `seq`, `frame` of packets of a video, `bytes`, and `sent_s`, `arrived_s`, `returned_s` since the run's
    start, null for what never came. `sent_s` is null too for packets that were captured at one place only.
    """
    path = None if folder is None else record_file(folder / FOLDER, flow.name)
    if path is None:
        return None
    rows = read_records(path, _COLUMNS)
    times = [(pl.col(f"{name}_ns") / 1e9).alias(f"{name}_s") for name in ("sent", "arrived", "returned")]
    return rows.select("seq", "frame", "bytes", *times)


def arrivals(exchanges: pl.DataFrame, ip: int) -> pl.DataFrame:
    """Packets of UDP that arrived, in order of arrival: `t_s`, and `bytes` without headers.

    Args:
        exchanges: of `read`.
        ip: version of IP.
    """
    came = exchanges.filter(pl.col("arrived_s").is_not_null()).sort("arrived_s", maintain_order=True)
    return came.select(pl.col("arrived_s").alias("t_s"), pl.col("bytes") - UDP_HEADERS[ip])


def play_out_s(transits: pl.Series, buffer_s: float) -> float:
    """Time in s from sending a frame to playing it: the transit of the fastest one and the jitter buffer's length.

    Args:
        transits: times from sending to arrival of the frames that arrived, in s; at least one.
        buffer_s: length of the buffer.
    """
    return float(transits.min()) + buffer_s  # type: ignore[arg-type]


def in_time(play_out_after_s: float) -> pl.Expr:
    """Whether a frame with this `transit_s` can be played; false if it never arrived."""
    # A float's last digit must not make the fastest frame of an empty buffer late.
    return (pl.col("transit_s") <= play_out_after_s + 1e-9).fill_null(value=False)
