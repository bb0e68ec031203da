"""xplot files as tcptrace writes them: time sequence, round trips, outstanding data, throughput.

xplot's language has a command a line: `timeval` or `double` for each axis, `title`, `xlabel`, `ylabel` with their text
on the next line, a colour alone on a line for what follows, points (`dot`, `diamond`, `utick`, `dtick`, `htick`,
`uarrow`, `darrow`), `line x1 y1 x2 y2`, `atext x y` and `rtext x y` with their text on the next line, and `go`. Colours
and marks are tcptrace's (its manual, "-S time sequence graph"): data white from `darrow` to `uarrow`, retransmissions
red with an R, out of order pink with an O, acks green, the third duplicate one with a 3, the window yellow, selective
blocks purple with an S, SYN and FIN orange.

Differs from tcptrace: sequence numbers are relative, the SYN having 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from analysis.captures import DATA, DUPLICATE_ACK, OUT_OF_ORDER, RETRANSMISSION, CapturedFlow, is_a
from analysis.errors import AnalysisError

SYN, FIN = 2, 1


def write(flow: CapturedFlow, folder: Path) -> list[Path]:
    """Writes a flow's graphs, of each of its connections, from its sender's interfaces.

    Files are named FLOW_tsg.xpl, FLOW_rtt.xpl, FLOW_owin.xpl and FLOW_tput.xpl; further connections FLOW-2_tsg.xpl, ...

    Raises:
        MissingCapture: the flow was not captured at its sender.
        AnalysisError: the files cannot be written.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stream in flow.at_sender["stream"].unique().sort():
            # Of an imported run, a name may hold anything.
            plain = re.sub(r"[^\w.:@+-]", "_", flow.name).lstrip(".") or "flow"
            name = plain if stream == 0 else f"{plain}-{stream + 1}"
            for ending, lines in (
                ("tsg", time_sequence(flow, stream)),
                ("rtt", round_trips(flow, stream)),
                ("owin", outstanding(flow, stream)),
                ("tput", throughput(flow, stream)),
            ):
                path = folder / f"{name}_{ending}.xpl"
                path.write_text("".join(line + "\n" for line in lines))
                written.append(path)
    except OSError as error:
        raise AnalysisError(f"{folder} cannot be written: {error.strerror or error}") from None
    return written


def _of_stream(flow: CapturedFlow, stream: int) -> pl.DataFrame:
    rows = flow.at_sender.filter(pl.col("stream") == stream)
    # Microseconds since the epoch, as captures and tcptrace have them.
    digits = (pl.col("time_ns") % 10**9 // 1000).cast(pl.String).str.zfill(6)
    return rows.with_columns(pl.format("{}.{}", pl.col("time_ns") // 10**9, digits).alias("at"))


def _head(flow: CapturedFlow, stream: int, kind: str, y: str) -> Iterator[str]:
    row = flow.connections.filter(pl.col("stream") == stream).row(0, named=True)
    yield from ("timeval double", "title")
    yield f"{row['client']}:{row['client_port']}_==>_{row['server']}:{row['server_port']} ({kind})"
    yield from ("xlabel", "time", "ylabel", y)


def time_sequence(flow: CapturedFlow, stream: int = 0) -> Iterator[str]:
    """The lines of a time-sequence graph of one connection of a flow."""
    yield from _head(flow, stream, "time sequence graph", "sequence number")
    rows = _of_stream(flow, stream)
    blocks = flow.sack_blocks()
    of_ack = {
        key: part.select("left", "right").rows()
        for key, part in blocks.partition_by("t_s", "ack", as_dict=True, maintain_order=True).items()
    }
    last: tuple[str, int, int] | None = None
    duplicates = 0
    columns = ("at", "t_s", "dir", "seq", "payload", "ack", "window", "flags", "class")
    for at, t_s, way, seq, size, ack, window, flags, bits in rows.select(columns).iter_rows():
        if way == 0:
            yield from _segment(at, seq, size, flags, bits)
        elif ack >= 0:
            edge = ack + window
            if last is not None:
                then, number, border = last
                yield "green"
                yield f"line {then} {number} {at} {number}"
                yield f"line {at} {number} {at} {ack}" if ack > number else f"dtick {at} {number}"
                yield "yellow"
                yield f"line {then} {border} {at} {border}"
                yield f"line {at} {border} {at} {edge}" if edge != border else f"utick {at} {border}"
            # The duplicate ack that asks for a fast retransmission.
            duplicates = duplicates + 1 if bits & DUPLICATE_ACK else 0
            if duplicates == 3:
                yield from ("green", f"atext {at} {ack}", "3")
            last = (at, max(ack, last[1] if last else ack), edge)
            yield from _selective(at, of_ack.get((t_s, ack), ()))
    yield "go"


def _selective(at: str, blocks: Sequence[tuple[int, int]]) -> Iterator[str]:
    if blocks:
        yield "purple"
    for number, (left, right) in enumerate(blocks):
        yield from (f"line {at} {left} {at} {right}", f"htick {at} {left}", f"htick {at} {right}")
        if len(blocks) > 1:
            yield from (f"rtext {at} {right}", str(number + 1))
    if blocks:
        yield from (f"atext {at} {blocks[0][1]}", "S")


def _segment(at: str, seq: int, size: int, flags: int, bits: int) -> Iterator[str]:
    if flags & SYN:
        yield from ("orange", f"diamond {at} {seq}", f"atext {at} {seq + 1}", "SYN")
        yield from (f"uarrow {at} {seq + 1}", f"line {at} {seq} {at} {seq + 1}")
    if size:
        colour, mark = "white", ""
        if bits & RETRANSMISSION:
            colour, mark = "red", "R"
        elif bits & OUT_OF_ORDER:
            colour, mark = "pink", "O"
        if mark:
            yield from (colour, f"atext {at} {seq + size}", mark)
        yield from (colour, f"darrow {at} {seq}", f"uarrow {at} {seq + size}", f"line {at} {seq} {at} {seq + size}")
    if flags & FIN:
        end = seq + size
        yield from ("orange", f"diamond {at} {end}", f"atext {at} {end + 1}", "FIN")
        yield from (f"uarrow {at} {end + 1}", f"line {at} {end} {at} {end + 1}")


def round_trips(flow: CapturedFlow, stream: int = 0) -> Iterator[str]:
    """The lines of a graph of round-trip samples, in ms, joined in red as tcptrace joins them."""
    yield from _head(flow, stream, "rtt samples", "rtt (ms)")
    samples = _of_stream(flow, stream).filter((pl.col("dir") == 1) & pl.col("rtt_ns").is_not_null())
    last = None
    yield "red"
    for at, rtt_ns in samples.select("at", "rtt_ns").iter_rows():
        value = f"{rtt_ns / 1e6:.3f}"
        yield f"dot {at} {value}"
        if last is not None:
            yield f"line {last[0]} {last[1]} {at} {value}"
        last = (at, value)
    yield "go"


def outstanding(flow: CapturedFlow, stream: int = 0) -> Iterator[str]:
    """The lines of a graph of bytes sent and not acknowledged, in red, and the window that was offered, in yellow."""
    yield from _head(flow, stream, "outstanding data", "Outstanding Data (bytes)")
    end, ack = 1, 1
    before: tuple[str, int] | None = None
    columns = ("at", "dir", "seq", "payload", "ack", "window")
    for at, way, seq, size, number, window in _of_stream(flow, stream).select(columns).iter_rows():
        if way == 0 and size:
            end = max(end, seq + size)
        elif way == 1 and number >= 0:
            ack = max(ack, number)
            yield from ("yellow", f"dot {at} {window}")
        flying = max(end - ack, 0)
        yield from ("red", f"dot {at} {flying}")
        if before is not None:
            yield f"line {before[0]} {before[1]} {at} {flying}"
        before = (at, flying)
    yield "go"


#: tcptrace's "-A": the throughput of the last segments, this many.
SEGMENTS = 10


def throughput(flow: CapturedFlow, stream: int = 0) -> Iterator[str]:
    """The lines of a graph of throughput in bytes/s: yellow of each segment, red of the last SEGMENTS, blue of all."""
    yield from _head(flow, stream, "throughput", "thruput (bytes/sec)")
    data = _of_stream(flow, stream).filter((pl.col("dir") == 0) & is_a(DATA))
    sent: list[tuple[str, float, int]] = list(data.select("at", "t_s", "payload").iter_rows())
    total = 0
    for number, (at, t_s, size) in enumerate(sent):
        total += size
        recent = sent[max(number - SEGMENTS, 0) : number + 1]
        for colour, first_s, amount in (
            ("yellow", sent[number - 1][1] if number else t_s, size),
            ("red", recent[0][1], sum(point[2] for point in recent[1:])),
            ("blue", sent[0][1], total - sent[0][2]),
        ):
            if t_s > first_s:
                yield from (colour, f"dot {at} {amount / (t_s - first_s):.0f}")
    yield "go"
