"""The connections of a run as Wireshark's table of conversations lists them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from analysis.captures.run import RunData
from testbed.addressing import with_port

#: Orders of the table, by field of a conversation; all but the start are descending.
ORDERS = ("bytes", "packets", "retransmissions", "rtt_s", "start_s", "duration_s")


@dataclass(frozen=True)
class Conversation:
    """One connection, at the capture that is nearest to the sender of its data."""

    #: Addresses and ports: the sender of most data first.
    sender: str
    receiver: str
    #: The flow whose plots show it; empty if none does.
    flow: str
    #: Both directions, and the sender's share.
    packets: int
    packets_sent: int
    #: IP bytes.
    bytes: int
    bytes_sent: int
    retransmissions: int
    #: Mean of the sender's samples; None without any.
    rtt_s: float | None
    #: Since the beginning of the run.
    start_s: float
    duration_s: float


def conversations(data: RunData, order: str = "bytes") -> Sequence[Conversation]:
    """Every connection once, in one of ORDERS."""
    named = {
        (row["file"], row["conn"]): flow.name
        for flow in data.flows
        for row in flow.connections.select("file", "conn").iter_rows(named=True)
    }
    nearest = pl.DataFrame(
        [
            (address, data.files[interface.interface])
            for interface in data.interfaces
            if interface.interface in data.files
            for address in data.addresses.get(interface.node, [])
        ],
        schema={"client": pl.String, "file": data.connections.schema["file"]},
        orient="row",
    ).unique()
    nth = pl.int_range(pl.len()).over("file", "client", "client_port", "server", "server_port")
    rows = data.connections.sort("file", "first_ns").with_columns(nth.alias("nth"))
    rows = rows.join(nearest.with_columns(pl.lit(0).alias("away")), on=["client", "file"], how="left")
    rows = rows.sort(pl.col("away").fill_null(1), "file", maintain_order=True)
    rows = rows.unique(["client", "client_port", "server", "server_port", "nth"], keep="first", maintain_order=True)
    conversations_ = [
        Conversation(
            sender=with_port(row["client"], row["client_port"]),
            receiver=with_port(row["server"], row["server_port"]),
            flow=named.get((row["file"], row["conn"]), ""),
            packets=row["client_packets"] + row["server_packets"],
            packets_sent=row["client_packets"],
            bytes=row["client_ip_bytes"] + row["server_ip_bytes"],
            bytes_sent=row["client_ip_bytes"],
            retransmissions=row["client_retransmissions"] + row["server_retransmissions"],
            rtt_s=row["client_rtt_mean_ns"] / 1e9 if row["client_rtt_samples"] else None,
            start_s=(row["first_ns"] - data.t0_epoch_ns) / 1e9,
            duration_s=(row["last_ns"] - row["first_ns"]) / 1e9,
        )
        for row in rows.iter_rows(named=True)
    ]
    sign = 1 if order == "start_s" else -1
    return sorted(conversations_, key=lambda item: (sign * (getattr(item, order) or 0), item.start_s, item.sender))
