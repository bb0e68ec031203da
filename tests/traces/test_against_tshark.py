"""Our classification beside Wireshark's, on captures of real campaigns and of the kernel's TCP under loss.

Every difference is explained by a rule of docs/traces.md, or is a bug.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.traces.readers import FIELDS, tshark, without_bad_checksums

NEW, RETRANSMISSION, SPURIOUS, OUT_OF_ORDER, DUPLICATE = 1, 2, 8, 16, 64
WINDOW_UPDATE, ZERO_WINDOW, KEEP_ALIVE = 128, 256, 512


@pytest.mark.emulated
def test_every_segment_agrees_with_wireshark(captures: list[Path], tmp_path: Path) -> None:
    seen = {"damaged": 0, "segments": 0, "again": 0, "duplicates": 0, "samples": 0}
    for number, capture in enumerate(captures):
        name = capture.parent.parent.name + "/" + capture.name
        cleaned, own = without_bad_checksums(capture, tmp_path / str(number))
        theirs = tshark(cleaned)
        seen["damaged"] += cleaned != capture
        assert own.height == theirs.height, name
        seen["segments"] += own.height
        for column, field in (("ip_len", "ip.len"), ("payload", "tcp.len"), ("seq", "tcp.seq"), ("conn", "tcp.stream")):
            assert own[column].cast(pl.Int64).to_list() == theirs[field].cast(pl.Int64).to_list(), (name, column)

        again = own["class"] & (RETRANSMISSION | OUT_OF_ORDER) != 0
        their_again = pl.Series([False] * theirs.height)
        for field in FIELDS[7:11]:
            their_again = their_again | (theirs[field] != "")
        assert again.to_list() == their_again.to_list(), name
        seen["again"] += int(again.sum())

        # Rule "overtaken acks": ours compares an ack with the highest, Wireshark with the one before it, which may be
        # an older one that was overtaken. Where either is not the highest, what is said of acks is not compared.
        acks = own.with_columns(
            pl.when(pl.col("ack") >= 0).then(pl.col("ack")).cum_max().over("conn", "dir").alias("highest")
        ).with_columns(pl.col("ack", "highest").shift().over("conn", "dir").name.suffix("_before"))
        in_order = (
            acks.select(
                (pl.col("ack") == pl.col("highest"))
                & (pl.col("ack_before") == pl.col("highest_before")).fill_null(value=True)
            )
            .to_series()
            .fill_null(value=False)
        )
        for bit, field in (
            (DUPLICATE, "tcp.analysis.duplicate_ack"), (WINDOW_UPDATE, "tcp.analysis.window_update"),
            (ZERO_WINDOW, "tcp.analysis.zero_window"), (KEEP_ALIVE, "tcp.analysis.keep_alive"),
        ):  # fmt: skip
            compared = in_order | (own["class"] & (DUPLICATE | WINDOW_UPDATE) == 0) & (theirs[field] == "")
            assert compared.sum() > 0.8 * own.height, name
            ours_, theirs_ = own["class"] & bit != 0, theirs[field] != ""
            assert ours_.filter(compared).to_list() == theirs_.filter(compared).to_list(), (name, field)
        seen["duplicates"] += int((own["class"] & DUPLICATE != 0).sum())

        # Karn: we give no sample where Wireshark may; where we give one, it is Wireshark's.
        pairs = pl.DataFrame({"own": own["rtt_ns"] / 1e9, "theirs": theirs["tcp.analysis.ack_rtt"]}).filter(
            # Rule "zero round trips": Wireshark does not show them; virtual time has them.
            pl.col("own") > 0
        )
        assert (pairs["theirs"] != "").all(), name
        assert ((pairs["own"] - pairs["theirs"].cast(pl.Float64)).abs() < 2e-9).all(), name
        seen["samples"] += pairs.height
    # The captures must hold what the test is about.
    assert seen["segments"] > 50_000
    assert seen["damaged"] > 0
    assert seen["again"] > 300
    assert seen["duplicates"] > 300
    assert seen["samples"] > 5_000
