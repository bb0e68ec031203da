"""Flows that captures contain and no scenario declared, for imports and sessions."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from analysis import parquet

#: Flows that are measured at most; the tables have all.
MOST_FLOWS = 40


def assign_sender(folder: Path) -> None:
    """Lets direction 0 be that of most data, as metrics have it: an import may be of downloads."""

    def data(side: str) -> pl.Expr:
        # Where acks alone were captured, they tell.
        return pl.max_horizontal(f"{side}_payload_bytes", f"{side}_acked_bytes")

    # Without a handshake the reader's client is only the side that the capture shows first. Kernels take the ports of
    # clients from the upper range, so the lower port is the one that listens (Wireshark's rule).
    lower = pl.min_horizontal("client_port", "server_port")
    listening = pl.when(pl.col("handshake") == 1).then(pl.col("server_port")).otherwise(lower)
    swap_direction(folder, data("server") > data("client"), listening)


def swap_direction(folder: Path, reversed_: pl.Expr, listening: pl.Expr) -> None:
    """Lets direction 0 be that from the server, in connections of which `reversed_` is true.

    The columns `client` and `server` of the connections change places with it. `opened_by_server` is true where they
    did. `listening_port` is the port that the connection was opened to, whichever end has it.

    Args:
        folder: of connections.parquet and segments.parquet.
        reversed_: over the connections as the reader wrote them.
        listening: the port that was opened, over the same.
    """
    path = folder / "connections.parquet"
    connections = parquet.read(path).with_columns(listening.alias("listening_port"))

    turned = connections.with_columns(reversed_.alias("opened_by_server"))
    swapped = []
    for name in connections.columns:
        other = name.replace("client", "@").replace("server", "client").replace("@", "server")
        swapped.append(pl.when(pl.col("opened_by_server")).then(pl.col(other)).otherwise(pl.col(name)).alias(name))
    turned.select(*swapped, "opened_by_server").write_parquet(path)
    which = turned.filter("opened_by_server").select("file", "conn")
    if which.is_empty():
        return
    marked = which.lazy().with_columns(turn=pl.lit(value=True))
    direction = pl.when(pl.col("turn").fill_null(value=False)).then(1 - pl.col("dir")).otherwise(pl.col("dir"))
    for name in ("segments", "sacks"):
        table, new = folder / f"{name}.parquet", folder / f"{name}.new"
        rows = parquet.scan(table).with_columns(pl.col("dir").cast(pl.Int8))
        rows = rows.join(marked, on=["file", "conn"], how="left", maintain_order="left")
        rows.with_columns(direction.cast(pl.UInt8).alias("dir")).drop("turn").sink_parquet(new)
        new.replace(table)


def flows(connections: pl.DataFrame) -> pl.DataFrame:
    """One row for every sender, receiver and port that was opened at either of them, the largest first.

    Args:
        connections: connections.parquet, after `assign_sender`.
    """
    flow = ["client", "server", "listening_port"]
    sent = pl.max_horizontal("client_payload_bytes", "client_acked_bytes")
    return (
        # Several captures show the same connections, and one of them may lack some.
        connections.group_by("file", *flow)
        .agg(pl.col("first_ns").min(), pl.col("last_ns").max(), sent.sum().alias("bytes"))
        .group_by(flow)
        .agg(pl.col("first_ns").min(), pl.col("last_ns").max(), pl.col("bytes").max())
        # What was seen at one instant only has no rate: a single packet, whole or damaged.
        .filter((pl.col("bytes") > 0) & (pl.col("last_ns") > pl.col("first_ns")))
        .sort(["bytes", "first_ns", *flow], descending=[True, False, False, False, False])
    )
