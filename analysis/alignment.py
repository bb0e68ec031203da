"""Aligns the clocks of several captures of the same transfers.

Segments are matched by addresses, ports, absolute sequence and acknowledgment number, length and flags. Segments that
occur more than once in a capture are not used. No packet arrives before it leaves: if the clock of capture B is ahead
of A's by x, segments that pass A first are seen d + x later at B, and segments that pass B first x - d later, with
delays d >= 0. So x lies in an interval. If the interval contains 0, the clocks may agree and are left alone. Otherwise
its middle is taken, which assumes equal shortest delays in both directions (RFC 5905 8), with half its width as the
uncertainty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from analysis import parquet

#: Columns by which a segment is matched in two captures.
KEY = ("src", "src_port", "dst", "dst_port", "seq_abs", "ack_abs", "payload", "flags")
#: Fewest matched segments from which clocks are aligned.
ENOUGH = 3
#: Longest delay that is plausible. Clocks may agree if one direction alone was captured and differs by less.
SAME_CLOCK_NS = 1_000_000_000


@dataclass(frozen=True)
class Alignment:
    """A capture's clock relative to the first capture's."""

    #: Add this to the capture's times.
    shift_ns: int
    #: The shift lies within this; None where one direction alone was matched.
    uncertain_ns: int | None
    #: Segments that were matched.
    matched: int
    #: The result in a sentence, for users.
    sentence: str


@dataclass(frozen=True)
class Aligned:
    """Aligned captures, by file number."""

    files: Mapping[int, Alignment]
    #: Address of a host to the file that saw its segments first.
    nearest: Mapping[str, int]


#: The alignment of a single capture.
ALONE = Aligned({0: Alignment(0, 0, 0, "its clock is the reference")}, {})


def unshifted(aligned: Aligned) -> Aligned:
    """The same captures with their clocks as they are, which the sentences say."""
    files = {
        number: replace(file, shift_ns=0, sentence=f"{file.sentence}; not corrected (--no-align)")
        if file.shift_ns
        else file
        for number, file in aligned.files.items()
    }
    return replace(aligned, files=files)


def keyed(folder: Path) -> pl.DataFrame:
    """Segments with addresses and absolute numbers, beside `file` and `time_ns`."""
    sides = ("client", "client_port", "server", "server_port", "client_zero", "server_zero")
    connections = parquet.scan(folder / "connections.parquet").select("file", "conn", *sides)
    segments = parquet.scan(folder / "segments.parquet").select(
        "file", "conn", "dir", "time_ns", "seq", "ack", "payload", "flags"
    )
    forward = pl.col("dir") == 0

    def of(client: str, server: str) -> pl.Expr:
        return pl.when(forward).then(pl.col(client)).otherwise(pl.col(server))

    theirs_zero, other = of("client_zero", "server_zero"), of("server_zero", "client_zero")
    return (
        segments.join(connections, on=["file", "conn"])
        .select(
            "file",
            "time_ns",
            "payload",
            "flags",
            of("client", "server").alias("src"),
            of("client_port", "server_port").alias("src_port"),
            of("server", "client").alias("dst"),
            of("server_port", "client_port").alias("dst_port"),
            ((theirs_zero + pl.col("seq")) % 2**32).alias("seq_abs"),
            pl.when(pl.col("ack") >= 0).then((other + pl.col("ack")) % 2**32).otherwise(-1).alias("ack_abs"),
        )
        .collect()
    )


def align(folder: Path, count: int) -> Aligned:
    """Aligns the captures of a folder of tables (docs/traces.md) with file 0, directly or through others."""
    segments = keyed(folder)
    #: Moved to the first capture's clock once that is known.
    by_file = {number: _once(segments.filter(pl.col("file") == number)) for number in range(count)}
    clocks = dict(ALONE.files)
    while len(clocks) < count:
        waiting = [number for number in range(count) if number not in clocks]
        pairs = [(_same(by_file[known], by_file[other_file]), other_file) for known in clocks for other_file in waiting]
        same, file = max(pairs, key=lambda pair: pair[0].height)
        clocks[file] = _clock(same)
        by_file[file] = by_file[file].with_columns(pl.col("time_ns") + clocks[file].shift_ns)
    return Aligned(clocks, _nearest(by_file))


def _once(segments: pl.DataFrame) -> pl.DataFrame:
    """Segments whose key occurs once."""
    return segments.filter(pl.struct(KEY).is_unique())


def _same(a: pl.DataFrame, b: pl.DataFrame) -> pl.DataFrame:
    """Segments that both have: `src`, `dst`, and `later_ns`, the time by b's clock less the time by a's."""
    joined = a.join(b, on=list(KEY), suffix="_b")
    return joined.select("src", "dst", (pl.col("time_ns_b") - pl.col("time_ns")).alias("later_ns"))


def _clock(same: pl.DataFrame) -> Alignment:
    """The shift of a capture's clock, from the segments that it shares with an aligned capture."""
    n = same.height
    if n < ENOUGH:
        return Alignment(0, None, n, "no transfer in common with the others: its clock is not corrected")
    intervals = _intervals(same)
    if not intervals:
        # One direction alone: its shortest delay and a difference of the clocks look the same.
        least_ns, middle_ns = _int(same["later_ns"].min()), _int(same["later_ns"].median())
        if abs(middle_ns) < SAME_CLOCK_NS:
            return Alignment(0, None, n, "only one direction in common, and the clocks may agree: not corrected")
        return Alignment(-least_ns, None, n, "only one direction in common: aligned as if the shortest delay were 0")
    low_ns, high_ns = max(low for low, _ in intervals), min(high for _, high in intervals)
    if low_ns <= 0 <= high_ns:
        uncertain_ns = (high_ns - low_ns) // 2
        return Alignment(0, uncertain_ns, n, "no packet contradicts its clock: not corrected")
    ahead_ns, width_ns = (low_ns + high_ns) // 2, high_ns - low_ns
    sentence = f"its clock is {ahead_ns / 1e9:+.6f} s off, ± {abs(width_ns) / 2e9:.6f} s"
    if width_ns < 0:
        sentence += "; the packets disagree by that much: the clocks drift, or a capture's timestamps are coarse"
    return Alignment(-ahead_ns, abs(width_ns) // 2, n, sentence)


def _intervals(same: pl.DataFrame) -> list[tuple[int, int]]:
    """Bounds of how far b's clock is ahead, for each pair of hosts of which both hosts' segments were captured."""
    x, y = pl.min_horizontal("src", "dst"), pl.max_horizontal("src", "dst")
    of_pairs = same.group_by(
        x.alias("x"), y.alias("y"), (pl.col("src") == x).alias("forward"), maintain_order=True
    ).agg(pl.col("later_ns").min().alias("least"), pl.col("later_ns").max().alias("most"))
    bounds: dict[tuple[str, str], dict[bool, tuple[int, int]]] = {}
    for row in of_pairs.iter_rows(named=True):
        bounds.setdefault((row["x"], row["y"]), {})[row["forward"]] = (row["least"], row["most"])
    intervals: list[tuple[int, int]] = []
    for directions in bounds.values():
        if len(directions) < 2:
            continue
        (least, most), (least_back, most_back) = directions[True], directions[False]
        # Forward packets pass a first, or b first. The order that contradicts itself less is taken.
        orders = [(most_back, least), (most, least_back)]
        intervals.append(max(orders, key=lambda order: order[1] - order[0]))
    return intervals


def _nearest(by_file: Mapping[int, pl.DataFrame]) -> dict[str, int]:
    """Address to the file that saw its segments first; to the one that saw most of them where no two share any."""
    seen = pl.concat(list(by_file.values()))
    first = seen.group_by(*KEY).agg(pl.col("file").sort_by("time_ns", "file").first(), pl.len().alias("files"))
    votes = first.group_by("src", "file").agg(
        pl.col("files").filter(pl.col("files") > 1).len().alias("shared"), pl.len().alias("all")
    )
    best = (
        votes.sort("shared", "all", "file", descending=[True, True, False]).group_by("src", maintain_order=True).first()
    )
    return dict(best.select("src", "file").iter_rows())


def _int(value: Any) -> int:
    return int(value)
