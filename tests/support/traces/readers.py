"""Captures as we read them, as tshark does and as tcptrace does."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from analysis.captures import BAD_CHECKSUM, is_a
from testbed import node_binary

FIELDS = (
    "frame.number", "tcp.stream", "ip.len", "tcp.len", "tcp.seq", "tcp.ack", "tcp.srcport",
    "tcp.analysis.retransmission", "tcp.analysis.fast_retransmission", "tcp.analysis.spurious_retransmission",
    "tcp.analysis.out_of_order", "tcp.analysis.duplicate_ack", "tcp.analysis.ack_rtt", "tcp.analysis.window_update",
    "tcp.analysis.zero_window", "tcp.analysis.keep_alive",
)  # fmt: skip


def tshark(capture: Path) -> pl.DataFrame:
    """Wireshark's fields of every TCP segment, in file order."""
    rows = tshark_fields(capture, FIELDS, "-Y", "tcp")
    return pl.DataFrame(rows, schema=dict.fromkeys(FIELDS, pl.String), orient="row")


def tshark_fields(capture: Path, names: Iterable[str], *options: str) -> list[list[str]]:
    """tshark's fields of each packet, with more of its options."""
    words = ["tshark", "-n", "-r", str(capture), "-T", "fields", *(word for name in names for word in ("-e", name))]
    said = subprocess.run([*words, *options], capture_output=True, text=True, check=True).stdout
    return [line.split("\t") for line in said.splitlines()]


def ours(capture: Path, out: Path) -> pl.DataFrame:
    """Our segments; the other tables lie in the folder as well."""
    node_binary.call("trace", "--out", str(out), f"one={capture}")
    return pl.read_parquet(out / "segments.parquet")


def without_bad_checksums(capture: Path, out: Path) -> tuple[Path, pl.DataFrame]:
    """Rule "bad checksum": no receiver takes such a segment, and ours changes nothing by it; Wireshark follows it.

    So its frames are taken out for Wireshark; what ours says of the others must not depend on them.
    """
    own = ours(capture, out / "whole")
    bad = own.filter(is_a(BAD_CHECKSUM))["frame"].to_list()
    if not bad:
        return capture, own
    cleaned = out / capture.name
    subprocess.run(["editcap", str(capture), str(cleaned), *map(str, bad)], check=True, capture_output=True)
    again, rest = ours(cleaned, out / "cleaned"), own.filter(~is_a(BAD_CHECKSUM))
    assert again.drop("frame").equals(rest.drop("frame")), f"{capture}: a bad checksum changed what was said of others"
    return cleaned, again


def tcptrace(capture: Path) -> list[dict[str, str]]:
    """Its columns (`rexmt_data_pkts_a2b`, ...) of every connection, in the order of their first packets."""
    words = ["tcptrace", "--csv", "-l", "-r", "-n", "-u", str(capture)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    lines = [line.split(",") for line in said.splitlines() if line.count(",") > 100]
    head, *rows = [[cell.strip() for cell in line] for line in lines]
    return [dict(zip(head, row, strict=False)) for row in rows]
