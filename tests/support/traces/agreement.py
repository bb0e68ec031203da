"""Our tables of a capture beside Wireshark's and tcptrace's: each value equal, explained by a named rule, or neither.

docs/traces.md says what each rule means. A rule explains a difference only where its cause is in the capture: after a
recovery, and of what was sent after it, every value is equal again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from analysis.captures import (
    DUPLICATE_ACK,
    KEEP_ALIVE,
    OUT_OF_ORDER,
    RETRANSMISSION,
    SACK,
    SPURIOUS,
    WINDOW_UPDATE,
    ZERO_WINDOW,
    is_a,
)
from tests.support.traces.readers import FIELDS, tcptrace, tshark, without_bad_checksums

FIN, SYN, RST = 1, 2, 4
#: Of segments of `_bare`: they say what the segment before says.
REPEATS = (pl.col("ack") == pl.col("ack_before")) & (pl.col("window") == pl.col("window_before"))
#: tcptrace divides the sum of round trips by their number and this (its function Average).
MORE_SAMPLES = 0.0001

#: Our column to tcptrace's.
SAME = {
    "packets": "total_packets",
    "pure_acks": "pure_acks_sent",
    "data_packets": "actual_data_pkts",
    "payload_bytes": "actual_data_bytes",
    "unique_bytes": "unique_bytes_sent",
    "sacks": "sack_pkts_sent",
}


@dataclass
class Tally:
    """What came of comparing."""

    captures: int = 0
    connections: int = 0
    #: Frames that Wireshark and tcptrace were not given, by rule "bad checksums".
    damaged_frames: int = 0
    compared: int = 0
    equal: int = 0
    explained: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)
    #: How much there was of what the comparison is about.
    seen: Counter[str] = field(default_factory=Counter)

    def note(self, equal: bool, said: str, rule: str | None = None) -> None:
        """One value: whether it is equal, or else the rule that explains the difference, if one does."""
        self.compared += 1
        if equal:
            self.equal += 1
        elif rule:
            self.explained[rule] += 1
        else:
            self.unexplained.append(said)

    def note_many(self, equal: pl.Series, name: str, rule: str = "", explained: pl.Series | None = None) -> None:
        """A column of values; where they are not equal, whether the rule explains it."""
        self.compared += equal.len()
        self.equal += int(equal.sum())
        differs = ~equal
        if explained is not None:
            if (count := int((differs & explained).sum())) > 0:
                self.explained[rule] += count
            differs &= ~explained
        self.unexplained += [f"{name}, row {row}" for row in differs.arg_true().to_list()[:100]]


def beside_tcptrace(capture: Path, out: Path, tally: Tally) -> None:
    """Compares every connection of a capture with tcptrace's account of it."""
    cleaned, segments, connections = _tables(capture, out, tally)
    theirs = tcptrace(cleaned)
    name = f"{capture.parent.parent.name}/{capture.name}"
    tally.note(len(theirs) == connections.height, f"{name}: {connections.height} connections, tcptrace {len(theirs)}")
    for own, their in zip(connections.iter_rows(named=True), theirs, strict=False):
        for side, way, back in (("client", "a2b", "b2a"), ("server", "b2a", "a2b")):
            mine: dict[str, Any] = {key.removeprefix(side + "_"): value for key, value in own.items()}
            both = segments.filter(pl.col("conn") == own["conn"])
            rows = both.filter(pl.col("dir") == (side == "server"))
            answered = _bare(both.filter(pl.col("dir") != (side == "server")), SYN).filter(REPEATS).height
            given = {key.removesuffix(f"_{way}"): value for key, value in their.items() if key.endswith(f"_{way}")}
            duplicates = float(their[f"duplicate_acks_{back}"])
            _side(mine, rows, given, duplicates, answered, f"{name}: {side} of {own['conn']}", tally)


def _bare(rows: pl.DataFrame, flags: int) -> pl.DataFrame:
    """Segments of one direction with one of these flags, an ack and no data; `*_before` is of the segment before."""
    return rows.with_columns(pl.col("ack", "window").shift().name.suffix("_before")).filter(
        (pl.col("flags") & flags != 0) & (pl.col("ack") >= 0) & (pl.col("payload") == 0)
    )


def _side(
    mine: dict[str, Any],
    rows: pl.DataFrame,
    given: dict[str, str],
    their_duplicates: float,
    answered: int,
    name: str,
    tally: Tally,
) -> None:
    """Compares one side of a connection; `answered`: SYN-ACKs of the other side that were sent again."""

    def number(column: str) -> float:
        return float(given[column])

    # Rule "resets": tcptrace does not look at their SACK blocks, and takes one that repeats ack and window for a
    # duplicate ack, unless its sequence number is new as well.
    resets = _bare(rows, RST)
    repeating = resets.filter(REPEATS).height
    with_blocks = resets.filter(is_a(SACK)).height
    for column, theirs in SAME.items():
        less = with_blocks if column == "sacks" else 0
        rule = "resets" if less and mine[column] - less == number(theirs) else None
        tally.note(mine[column] == number(theirs), f"{name}: {column} {mine[column]}, tcptrace {given[theirs]}", rule)

    # Rule "again": tcptrace has no notion of time. Bytes that it saw before are retransmitted, a segment that fills a
    # hole is out of order, be it sent again or overtaken; here, what fills a hole late was sent again.
    again = {"retransmissions": "rexmt_data_pkts", "out_of_order": "outoforder_pkts"}
    together = sum(mine[column] for column in again) == sum(number(theirs) for theirs in again.values())
    for column, theirs in again.items():
        said = f"{name}: {column} {mine[column]}, tcptrace {given[theirs]}"
        tally.note(mine[column] == number(theirs), said, "again" if together else None)
        tally.seen["again"] += mine[column]

    # Rule "overtaken acks": a duplicate is one of the highest ack; tcptrace compares with the ack before, which may be
    # an older one that was overtaken.
    acks = rows.filter(pl.col("ack") >= 0).with_columns(
        pl.col("ack").shift().alias("before"),
        pl.col("ack").cum_max().alias("highest"),
        (pl.col("seq") + pl.col("payload")).cum_max().shift().alias("sent"),
    )
    overtaken = acks.filter((is_a(DUPLICATE_ACK)) & (pl.col("ack") != pl.col("before"))).height
    # To tcptrace one that came late or early is a duplicate of what came before it: of another such, of the data that
    # overtook it, or of the data before that which it overtook. Here, as in Wireshark, it is none.
    older = acks.filter(
        (pl.col("ack") == pl.col("before"))
        & ((pl.col("ack") < pl.col("highest")) | (pl.col("seq") != pl.col("sent")))
        & ~is_a(DUPLICATE_ACK)
        & (pl.col("payload") == 0)
    ).height
    more = their_duplicates - (mine["duplicate_acks"] - overtaken)
    # Rule "handshakes": to tcptrace a SYN-ACK sent again, or a FIN, is a duplicate if it repeats ack and window.
    # The ack that answers the SYN-ACK is none, because no data are outstanding; here, as in Wireshark, it is one.
    flagged = _bare(rows, SYN | FIN).filter(REPEATS).height
    rule = (
        "overtaken acks" if 0 <= more <= older
        else "resets" if 0 < more <= older + repeating
        else "handshakes" if -answered <= more <= older + repeating + flagged
        else None
    )  # fmt: skip
    said = f"{name}: duplicate_acks {mine['duplicate_acks']}, tcptrace {their_duplicates:g}"
    tally.note(mine["duplicate_acks"] == their_duplicates, said, rule)
    tally.seen["duplicates"] += mine["duplicate_acks"]

    # Rule "first seen": a retransmission whose original was lost before the capture is the first of its bytes there.
    # tcptrace takes the ack of just that for a round trip; it may be of either. There can be no more of them than
    # segments that fill a hole from its beginning. Rule "needless": what is sent again though it was acknowledged holds
    # no other ack back; to tcptrace it does.
    filling = rows.with_columns(pl.col("in_order").diff().alias("grown")).filter(
        (is_a(RETRANSMISSION | OUT_OF_ORDER)) & (pl.col("grown") == pl.col("payload")) & (pl.col("payload") > 0)
    )
    needless = rows.filter(is_a(SPURIOUS)).height
    samples = number("RTT_samples")
    more = samples - mine["rtt_samples"]
    rule = "first seen" if 0 < more <= filling.height else "needless" if -needless <= more < 0 else None
    said = f"{name}: rtt_samples {mine['rtt_samples']}, tcptrace {given['RTT_samples']}"
    tally.note(more == 0, said, rule)
    tally.seen["samples"] += mine["rtt_samples"]
    their_ms = [number("RTT_min"), number("RTT_avg") * (1 + MORE_SAMPLES / max(samples, 1)), number("RTT_max")]
    if more == 0 and samples > 0:
        # Of equal samples; tcptrace prints tenths of a millisecond.
        for column, of_tcptrace in zip(("rtt_min_ns", "rtt_mean_ns", "rtt_max_ns"), their_ms, strict=True):
            # Rule "zero round trips": to tcptrace a least of zero is none yet.
            rule = "zero round trips" if column == "rtt_min_ns" and mine[column] == 0 else None
            said = f"{name}: {column} {mine[column]}, tcptrace {of_tcptrace} ms"
            tally.note(abs(mine[column] / 1e6 - of_tcptrace) <= 0.1, said, rule)
    elif rule and min(mine["rtt_samples"], samples) > 0:
        # One has all samples of the other: its range holds the other's, and the further samples lie within its range.
        own_ms = [mine[column] / 1e6 for column in ("rtt_min_ns", "rtt_mean_ns", "rtt_max_ns")]
        if own_ms[0] == 0:
            # Rule "zero round trips" again.
            their_ms[0] = 0.0
        (low, mean, high), few = (their_ms, own_ms) if more > 0 else (own_ms, their_ms)
        fewer, all_of_them = sorted((mine["rtt_samples"], samples))
        further = (all_of_them * mean - fewer * few[1]) / abs(more)
        slack = 0.1 * all_of_them / abs(more)
        holds = low - 0.1 <= few[0] and few[2] <= high + 0.1 and low - slack <= further <= high + slack
        said = f"{name}: round trips {own_ms} ms of {mine['rtt_samples']} samples, tcptrace {their_ms} ms of {more:+g}"
        tally.note(holds, said)
        tally.seen["subsets"] += 1
    tally.seen["sides"] += 1


def beside_wireshark(capture: Path, out: Path, tally: Tally) -> None:
    """Compares every segment of a capture with Wireshark's fields of it."""
    cleaned, own, connections = _tables(capture, out, tally)
    theirs = tshark(cleaned)
    name = f"{capture.parent.parent.name}/{capture.name}"
    tally.seen["segments"] += own.height
    tally.note(own.height == theirs.height, f"{name}: {own.height} segments, Wireshark {theirs.height}")
    if own.height != theirs.height:
        return
    for column, their in (("ip_len", "ip.len"), ("payload", "tcp.len"), ("seq", "tcp.seq"), ("conn", "tcp.stream")):
        tally.note_many(own[column].cast(pl.Int64) == theirs[their].cast(pl.Int64), f"{name}: {column}")

    # Rule "retransmission or out of order": Wireshark goes by time alone; here, bytes that were captured before are
    # always a retransmission.
    again = own["class"] & (RETRANSMISSION | OUT_OF_ORDER) != 0
    overtaken = own["class"] & OUT_OF_ORDER != 0
    their_overtaken = theirs["tcp.analysis.out_of_order"] != ""
    their_again = their_overtaken
    for their in FIELDS[7:10]:
        their_again = their_again | (theirs[their] != "")
    same = (again == their_again) & ((overtaken == their_overtaken) | ~again)
    # Its first byte was captured before: a segment began with it, or it lies before the first hole.
    seen = own.select(
        ~pl.struct("conn", "dir", "seq").is_first_distinct()
        | (pl.col("seq") <= pl.col("in_order").shift().over("conn", "dir").fill_null(0))
    ).to_series()
    tally.note_many(
        same, f"{name}: sent again", "retransmission or out of order", again & ~overtaken & their_overtaken & seen
    )
    tally.seen["again"] += int(again.sum())

    # Rule "overtaken acks": ours compares an ack with the highest, Wireshark with the one before it, which may be an
    # older one that was overtaken.
    acks = own.with_columns(
        pl.when(pl.col("ack") >= 0).then(pl.col("ack")).cum_max().over("conn", "dir").alias("highest")
    ).with_columns(pl.col("ack", "highest").shift().over("conn", "dir").name.suffix("_before"))
    in_order = acks.select(
        (
            (pl.col("ack") == pl.col("highest"))
            & (pl.col("ack_before") == pl.col("highest_before")).fill_null(value=True)
        ).fill_null(value=False)
    ).to_series()
    for bit, their in (
        (DUPLICATE_ACK, "tcp.analysis.duplicate_ack"), (WINDOW_UPDATE, "tcp.analysis.window_update"),
        (ZERO_WINDOW, "tcp.analysis.zero_window"), (KEEP_ALIVE, "tcp.analysis.keep_alive"),
    ):  # fmt: skip
        same = (own["class"] & bit != 0) == (theirs[their] != "")
        # Of zero windows and keep-alives an ack that was overtaken says nothing else.
        may_be = ~in_order if bit in (DUPLICATE_ACK, WINDOW_UPDATE) else None
        tally.note_many(same, f"{name}: {their}", "overtaken acks", may_be)
    tally.seen["duplicates"] += int((own["class"] & DUPLICATE_ACK != 0).sum())

    trips = theirs["tcp.analysis.ack_rtt"]
    both = pl.DataFrame({"own": own["rtt_ns"], "theirs": trips.replace("", None).cast(pl.Float64) * 1e9})
    equal = both.select(
        ((pl.col("own") - pl.col("theirs")).abs() < 2).fill_null(value=False)
        | (pl.col("own").is_null() & pl.col("theirs").is_null())
    ).to_series()
    # Rule "zero round trips": Wireshark does not show them; virtual time has them.
    zero = both.select((pl.col("own") == 0) & pl.col("theirs").is_null()).to_series().fill_null(value=False)
    # Rule "round trips" (Karn): no sample of a segment that was in flight while its direction retransmitted or was
    # reordered. Wireshark's sample says when it was sent.
    disturbed = own.filter(again | (own["class"] & KEEP_ALIVE != 0)).select(
        "conn", (1 - pl.col("dir").cast(pl.Int8)).cast(own.schema["dir"]).alias("dir"), "time_ns", disturbed="time_ns"
    )
    latest = own.select("conn", "dir", "time_ns").join_asof(
        disturbed, on="time_ns", by=["conn", "dir"], check_sortedness=False
    )
    sent = own["time_ns"] - both["theirs"].round().cast(pl.Int64)
    karn = (
        both["own"].is_null() & both["theirs"].is_not_null() & (latest["disturbed"] >= sent - 1).fill_null(value=False)
    )
    tally.note_many(equal | zero, f"{name}: round trip", "round trips", karn)
    zeros = int((zero & ~equal).sum())
    tally.equal -= zeros
    if zeros:
        tally.explained["zero round trips"] += zeros
    tally.seen["samples"] += int((both["own"] > 0).sum())


def _tables(capture: Path, out: Path, tally: Tally) -> tuple[Path, pl.DataFrame, pl.DataFrame]:
    """The capture without damaged frames (rule "bad checksums"), its segments and its connections."""
    cleaned, segments = without_bad_checksums(capture, out)
    if cleaned != capture:
        tally.damaged_frames += pl.read_parquet(out / "whole/segments.parquet").height - segments.height
    folder = out / ("whole" if cleaned == capture else "cleaned")
    connections = pl.read_parquet(folder / "connections.parquet").sort("conn")
    tally.captures += 1
    tally.connections += connections.height
    return cleaned, segments, connections
