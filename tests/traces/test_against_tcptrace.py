"""Our counts of every connection beside tcptrace's. They are equal, but for what a named rule explains."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.traces.readers import tcptrace, without_bad_checksums

#: Our column to tcptrace's, which must be equal.
SAME = {
    "packets": "total_packets",
    "pure_acks": "pure_acks_sent",
    "data_packets": "actual_data_pkts",
    "payload_bytes": "actual_data_bytes",
    "unique_bytes": "unique_bytes_sent",
    "sacks": "sack_pkts_sent",
}
RETRANSMISSION, SPURIOUS, OUT_OF_ORDER, DUPLICATE_ACK, SACK = 1 << 1, 1 << 3, 1 << 4, 1 << 6, 1 << 11
RST = 4


def tables(capture: Path, out: Path) -> tuple[Path, pl.DataFrame, pl.DataFrame]:
    """The capture without damaged frames (rule "bad checksum"), its segments and its connections."""
    cleaned, segments = without_bad_checksums(capture, out)
    folder = out / ("whole" if cleaned == capture else "cleaned")
    return cleaned, segments, pl.read_parquet(folder / "connections.parquet").sort("conn")


def compare(capture: Path, out: Path, seen: dict[str, int]) -> list[str]:
    """What differs from tcptrace in one capture, in sentences."""
    cleaned, segments, connections = tables(capture, out)
    theirs = tcptrace(cleaned)
    if len(theirs) != connections.height:
        return [f"{connections.height} connections, tcptrace has {len(theirs)}"]
    found = []
    for own, their in zip(connections.iter_rows(named=True), theirs, strict=True):
        for side, way, back in (("client", "a2b", "b2a"), ("server", "b2a", "a2b")):
            mine: dict[str, Any] = {name.removeprefix(side + "_"): value for name, value in own.items()}

            def number(name: str, way: str = way, their: dict[str, str] = their) -> float:
                return float(their[f"{name}_{way}"])

            rows = segments.filter((pl.col("conn") == own["conn"]) & (pl.col("dir") == (side == "server")))
            # Rule "resets": tcptrace does not look at their SACK blocks, and takes one that repeats ack and window for
            # a duplicate ack, unless its sequence number is new as well.
            resets = rows.with_columns(pl.col("ack", "window").shift().name.suffix("_before")).filter(
                (pl.col("flags") & RST != 0) & (pl.col("ack") >= 0) & (pl.col("payload") == 0)
            )
            repeating = resets.filter(
                (pl.col("ack") == pl.col("ack_before")) & (pl.col("window") == pl.col("window_before"))
            ).height
            mine["sacks"] -= resets.filter(pl.col("class") & SACK != 0).height
            seen["resets"] += repeating
            pairs = {name: (mine[name], number(column)) for name, column in SAME.items()}
            differs = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

            # Rule "again": tcptrace has no notion of time. Bytes that it saw before are retransmitted, a segment that
            # fills a hole is out of order, be it sent again or overtaken; here, what fills a hole late was sent again.
            again = mine["retransmissions"] + mine["out_of_order"]
            if again != number("rexmt_data_pkts") + number("outoforder_pkts"):
                differs["again"] = (again, number("rexmt_data_pkts") + number("outoforder_pkts"))
            seen["again"] += again

            # Rule "overtaken acks": a duplicate is one of the highest ack; tcptrace compares with the ack before, which
            # may be an older one that was overtaken.
            acks = rows.filter(pl.col("ack") >= 0).with_columns(pl.col("ack").shift().alias("before"))
            duplicate = acks.filter(pl.col("class") & DUPLICATE_ACK != 0)
            overtaken = duplicate.filter(pl.col("ack") != pl.col("before")).height
            if not 0 <= number("duplicate_acks", back) - (mine["duplicate_acks"] - overtaken) <= repeating:
                differs["duplicate_acks"] = (mine["duplicate_acks"] - overtaken, number("duplicate_acks", back))
            seen["duplicates"] += mine["duplicate_acks"]
            seen["overtaken"] += overtaken

            # Rule "first seen": a retransmission whose original was lost before the capture is the first of its bytes
            # there. tcptrace takes the ack of just that for a round trip; it may be of either. There can be no more of
            # them than segments that fill a hole from its beginning.
            again_rows = rows.with_columns(pl.col("in_order").diff().alias("grown")).filter(
                (pl.col("class") & (RETRANSMISSION | OUT_OF_ORDER) != 0) & (pl.col("grown") == pl.col("payload"))
            )
            more = number("RTT_samples") - mine["rtt_samples"]
            seen["samples"] += mine["rtt_samples"]
            seen["first_seen"] += int(more > 0)
            # Rule "needless": what is sent again though it was acknowledged holds no other ack back; to tcptrace it
            # does.
            needless = rows.filter(pl.col("class") & SPURIOUS != 0).height
            if not -needless <= more <= again_rows.filter(pl.col("payload") > 0).height:
                differs["rtt_samples"] = (mine["rtt_samples"], number("RTT_samples"))
            if more == 0 and mine["rtt_samples"] > 0:
                # Rule "zero round trips": to tcptrace a least of zero is none yet. It prints tenths of a millisecond.
                least = mine["rtt_min_ns"] or None
                trips = {"RTT_min": least, "RTT_avg": mine["rtt_mean_ns"], "RTT_max": mine["rtt_max_ns"]}
                for column, ours in trips.items():
                    if ours is not None and abs(ours / 1e6 - number(column)) > 0.1:
                        differs[column] = (ours / 1e6, number(column))
            seen["sides"] += 1
            found += [f"{side} of {own['conn']}: {name} {a}, tcptrace {b}" for name, (a, b) in differs.items()]
    return found


def test_connections_of_the_research_stack_agree_with_tcptrace(simulated: list[Path], tmp_path: Path) -> None:
    if shutil.which("tcptrace") is None:
        pytest.skip("tcptrace is not installed")
    agree(simulated, tmp_path, at_least=40)


@pytest.mark.emulated
def test_connections_of_the_kernel_agree_with_tcptrace(captures: list[Path], tmp_path: Path) -> None:
    seen = agree(captures, tmp_path, at_least=80)
    assert seen["resets"] > 0, seen


def agree(captures: list[Path], out: Path, at_least: int) -> dict[str, int]:
    """Compares them; what was seen."""
    seen = dict.fromkeys(("again", "duplicates", "overtaken", "resets", "samples", "first_seen", "sides"), 0)
    found = []
    for number, capture in enumerate(captures):
        name = f"{capture.parent.parent.name}/{capture.name}"
        found += [f"{name}: {said}" for said in compare(capture, out / str(number), seen)]
    assert found == []
    # The captures must hold what the test is about.
    assert len(captures) >= at_least
    assert seen["sides"] >= 2 * at_least
    assert min(seen["again"], seen["duplicates"], seen["samples"]) > 500, seen
    # A rule that nothing needs explains nothing.
    assert seen["overtaken"] > 0, seen
    assert seen["first_seen"] > 0, seen
    return seen
