"""Hand-made runs: segments written down one by one, so that every metric can be computed on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from analysis.captures import BAD_CHECKSUM, DATA, FAST_RETRANSMISSION, NEW, PURE_ACK, RETRANSMISSION, SPURIOUS, RunData
from testbed.addressing import interfaces
from testbed.report import DriverReport
from tests.conftest import queue, typed
from tests.support.addresses import planned

#: What a data segment is unless told otherwise, and the others by a letter.
KINDS = {
    "new": NEW | DATA, "again": RETRANSMISSION | DATA, "fast": RETRANSMISSION | FAST_RETRANSMISSION | DATA,
    "spurious": RETRANSMISSION | SPURIOUS | DATA, "ack": PURE_ACK,
    "damaged": NEW | DATA | BAD_CHECKSUM,
}  # fmt: skip
HEADER = 52
SCHEMA = {
    "file": pl.UInt16, "time_ns": pl.Int64, "conn": pl.UInt32, "dir": pl.UInt8, "ip_len": pl.UInt32,
    "payload": pl.UInt32, "seq": pl.Int64, "ack": pl.Int64, "window": pl.Int64, "flags": pl.UInt8, "class": pl.UInt32,
    "rtt_ns": pl.Int64, "in_order": pl.Int64,
}  # fmt: skip


def path_scenario(forward_bps: int = 1_000_000, reverse_bps: int = 100_000, **changes: Any) -> dict[str, Any]:
    """A sender, two routers with the line under study between them, a receiver."""

    def link(name: str, ends: list[str], there: int, back: int) -> dict[str, Any]:
        return {
            "name": name, "kind": "point-to-point", "ends": ends, "options": {},
            "forward": {"rate_bps": there, "delay_s": 0.01, "queue": queue(limit_packets=10)},
            "reverse": {"rate_bps": back, "delay_s": 0.01, "queue": queue(limit_packets=10)},
        }  # fmt: skip

    return {
        "version": 1, "seed": 1, "duration_s": 10.0,
        "nodes": [
            {"name": "a", "kind": "host"}, {"name": "r1", "kind": "router"}, {"name": "r2", "kind": "router"},
            {"name": "b", "kind": "host"},
        ],
        "links": [
            link("left", ["a", "r1"], 10_000_000, 10_000_000), link("line", ["r1", "r2"], forward_bps, reverse_bps),
            link("right", ["r2", "b"], 10_000_000, 10_000_000),
        ],
        "workload": [{"name": "bulk", "kind": "bulk", "from": "a", "to": "b", "start_s": 1.0, "port": 5001}],
        **changes,
    }  # fmt: skip


class Trace:
    """Captures under construction. Every packet is written down where and when it was seen."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        self.scenario = scenario
        self.interfaces = interfaces(planned(scenario))
        self.files = {end.interface: number for number, end in enumerate(self.interfaces)}
        self._address = {end.node: end.address for end in reversed(self.interfaces)}
        self._connections: dict[tuple[int, str, str, int, int], int] = {}
        self._firsts: list[int] = []
        self._in_order: dict[tuple[int, int, int], dict[int, int]] = {}
        self._rows: list[dict[str, Any]] = []

    def _conn(self, file: int, client: str, server: str, client_port: int, server_port: int, at_ns: int) -> int:
        key = (file, client, server, client_port, server_port)
        if key not in self._connections:
            self._connections[key] = sum(connection[0] == file for connection in self._connections)
            self._firsts.append(at_ns)
        return self._connections[key]

    def data(
        self, where: str, t_s: float, byte: int, size: int = 1000, kind: str = "new", flow: int = 0, port: int = 40000
    ) -> None:
        """A data segment of a flow whose first byte is `byte` (the stream's first one is 0), seen on an interface."""
        self._add(where, t_s, flow, port, 0, size, byte + 1, 1, KINDS[kind], None)

    def ack(
        self, where: str, t_s: float, byte: int, rtt_s: float | None = None, flow: int = 0, port: int = 40000
    ) -> None:
        """A pure ack of a flow's receiver: all before `byte` is there."""
        self._add(where, t_s, flow, port, 1, 0, 1, byte + 1, KINDS["ack"], rtt_s)

    def _add(
        self, where: str, t_s: float, flow: int, port: int, way: int, size: int, seq: int, ack: int, bits: int,
        rtt_s: float | None,
    ) -> None:  # fmt: skip
        spec, file, at_ns = self.scenario["workload"][flow], self.files[where], round(t_s * 1e9)
        conn = self._conn(file, self._address[spec["from"]], self._address[spec["to"]], port, spec["port"], at_ns)
        came = self._in_order.setdefault((file, conn, way), {})
        if size:
            came[seq - 1] = max(came.get(seq - 1, 0), size)
        top = 0
        for begin in sorted(came):
            if begin > top:
                break
            top = max(top, begin + came[begin])
        self._rows.append({
            "file": file, "time_ns": at_ns, "conn": conn, "dir": way, "ip_len": size + HEADER, "payload": size,
            "seq": seq, "ack": ack, "window": 65535, "flags": 16, "class": bits,
            "rtt_ns": None if rtt_s is None else round(rtt_s * 1e9), "in_order": top,
        })  # fmt: skip

    def run(self, folder: Path | None = None, telemetry: str = "", counters: Any = None) -> RunData:
        """The run that these captures are of; all interfaces were captured."""
        if folder is not None:
            (folder / "telemetry").mkdir(parents=True, exist_ok=True)
            (folder / "telemetry" / "links.jsonl").write_text(telemetry)
        connections = [
            {"file": key[0], "conn": conn, "client": key[1], "client_port": key[3], "server": key[2],
             "server_port": key[4], "listening_port": key[4], "first_ns": first, "last_ns": first}
            for (key, conn), first in zip(self._connections.items(), self._firsts, strict=True)
        ]  # fmt: skip
        return RunData(
            scenario=typed(self.scenario), interfaces=self.interfaces, t0_epoch_ns=0,
            source=pl.DataFrame(sorted(self._rows, key=lambda row: row["file"]), schema=SCHEMA),
            connections=pl.DataFrame(connections, schema_overrides={"file": pl.UInt16, "conn": pl.UInt32}),
            files=self.files, counters=DriverReport.read({"links": counters or {}}).links,
            folder=folder or Path("nothing kept"),
        )  # fmt: skip
