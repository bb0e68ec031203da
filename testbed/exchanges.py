"""Joins what the sending and the receiving program of a flow recorded, into lines of core::exchange::Exchange."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

#: Folder of a run that has FLOW.jsonl for each flow whose application is recorded.
FOLDER = "applications"


class ArrivalLine(TypedDict):
    """core::exchange::ArrivalLine."""

    key: int
    arrived_ns: int


class Exchange(TypedDict):
    """core::exchange::Exchange."""

    seq: int
    #: Only of packets of a video.
    frame: NotRequired[int]
    bytes: int
    sent_ns: int
    arrived_ns: int | None
    returned_ns: int | None


class SentLine(Exchange):
    """core::exchange::SentLine."""

    key: int


def join(sent: Path, arrived: Path, duration_s: float, out: Path) -> None:
    """Writes the exchanges of a flow.

    Args:
        sent: lines of core::exchange::SentLine, in the order of sending.
        arrived: lines of core::exchange::ArrivalLine.
        duration_s: of the run.
        out: file to write.
    """
    with out.open("w") as file:
        for exchange in joined(_lines(sent), _lines(arrived), duration_s):
            file.write(json.dumps(exchange, separators=(",", ":")) + "\n")


def joined(sent: Iterable[SentLine], arrived: Iterable[ArrivalLine], duration_s: float) -> Iterator[Exchange]:
    """The exchanges with what arrived and returned until the run's end.

    Programs end one after the other, and packets arrive meanwhile; a simulated run has none of those either.

    A key is a port where connections carry transfers, and a port may be used again: the arrival of an exchange is the
    first one with its key after it was sent, and before the next exchange with that key.
    """
    arrivals: dict[int, list[int]] = {}
    for arrival in arrived:
        arrivals.setdefault(arrival["key"], []).append(arrival["arrived_ns"])
    exchanges = list(sent)
    end_ns = duration_s * 1e9
    next_sent: dict[int, float] = {}
    limits = []
    for line in reversed(exchanges):
        limits.append(next_sent.get(line["key"], float("inf")))
        next_sent[line["key"]] = line["sent_ns"]
    for line, limit in zip(exchanges, reversed(limits), strict=True):
        of_key = [at for at in arrivals.get(line["key"], []) if line["sent_ns"] <= at < limit and at <= end_ns]
        # Every field but the key, which only joins the lines.
        exchange = cast("Exchange", {name: value for name, value in line.items() if name != "key"})
        exchange["arrived_ns"] = min(of_key, default=None)
        if (returned_ns := exchange["returned_ns"]) is not None and returned_ns > end_ns:
            exchange["returned_ns"] = None
        yield exchange


def _lines(path: Path) -> Iterator[Any]:
    with path.open() as file:
        for line in file:
            yield json.loads(line)
