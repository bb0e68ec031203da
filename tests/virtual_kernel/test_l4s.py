"""L4S on the kernel in virtual time: DCTCP with Accurate ECN and CUBIC over dualpi2, fq_pie, and their samples."""

from __future__ import annotations

import json
import statistics
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from experiments.language import source
from experiments.language.campaign import expand
from testbed import pcap
from testbed.report import Report
from testbed.scenario import Scenario
from testbed.virtual_kernel.kernels import Kernel
from tests.virtual_kernel.test_machine import made

#: Of dualpi2 by default: of the classic queue, and the step of the L4S queue, in s.
TARGET_S, STEP_S = 0.015, 0.001
AE, CWR, ECE, SYN, ACK = 0x100, 0x80, 0x40, 0x02, 0x10
CE = 3

L4S = """
name: l4s
backend: virtual-kernel
network:
  nodes:
    - {name: s1, kind: host, stack: {name: dctcp, ecn: accecn}}
    - {name: s2, kind: host, stack: cubic}
    - {name: r1, kind: router}
    - {name: r2, kind: router}
    - {name: c1, kind: host, stack: {name: dctcp, ecn: accecn}}
    - {name: c2, kind: host, stack: cubic}
  links:
    - {name: s1-access, ends: [s1, r1], kind: kernel, forward: {delay: 0 ms}}
    - {name: s2-access, ends: [s2, r1], kind: kernel, forward: {delay: 0 ms}}
    - name: line
      ends: [r1, r2]
      kind: kernel
      forward: {rate: 20 Mbit/s, delay: 5 ms, queue: {policy: dualpi2, classify: any-ect}}
      reverse: {rate: 20 Mbit/s, delay: 5 ms}
    - {name: c1-access, ends: [r2, c1], kind: kernel, forward: {delay: 0 ms}}
    - {name: c2-access, ends: [r2, c2], kind: kernel, forward: {delay: 0 ms}}
workload:
  - {name: l4s, from: s1, to: c1}
  - {name: classic, from: s2, to: c2}
capture: {snaplen: 96 B, at: ["s1:s1-access", "s2:s2-access", "c1:c1-access", "c2:c2-access"]}
duration: 5 s
seed: 44
"""
#: Every other discipline that marks, drops or purges in the way of one flow.
CHAIN = """
name: chain
backend: virtual-kernel
network:
  nodes:
    - {name: s, kind: host}
    - {name: r1, kind: router}
    - {name: r2, kind: router}
    - {name: r3, kind: router}
    - {name: c, kind: host}
  links:
    - name: cake
      ends: [s, r1]
      kind: {kind: kernel, shaper: cake, ack_filter: aggressive}
      forward: {rate: 12 Mbit/s}
      reverse: {rate: 80 kbit/s}
    - {name: codel, ends: [r1, r2], kind: kernel, forward: {rate: 10 Mbit/s, queue: {policy: codel, ecn: true}}}
    - name: red
      ends: [r2, r3]
      kind: {kind: kernel, shaper: tbf}
      forward: {rate: 9 Mbit/s, queue: {policy: red, victim: tail, limit: 60 packets}}
    - name: fq-pie
      ends: [r3, c]
      kind: kernel
      forward:
        rate: 8 Mbit/s
        delay: 20 ms
        queue: {policy: fq_pie, ecn: true}
      reverse: {delay: 20 ms, errors: [{model: uniform, probability: 0.05}]}
stack: {name: cubic, ecn: true}
workload:
  - {name: download, from: s, to: c}
capture: {snaplen: 96 B, at: ["s:cake"]}
duration: 4 s
seed: 44
"""


@dataclass(frozen=True)
class Run:
    """A run's report and files, with the digest of each."""

    report: Report
    folder: Path
    digests: dict[str, str]

    def telemetry(self, link: str, direction: str) -> list[dict[str, Any]]:
        rows = map(json.loads, (self.folder / "telemetry/links.jsonl").read_text().splitlines())
        return [row for row in rows if (row["link"], row["direction"]) == (link, direction)]


def run(kernel: Kernel, text: str, out: Path) -> Run:
    scenario: Scenario = expand(source.parse("c.yaml", text)).runs[0].scenario
    report, digests = made(kernel, scenario, out)
    return Run(report, out, digests)


@pytest.fixture(scope="module")
def l4s(kernel: Kernel, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(kernel, L4S, tmp_path_factory.mktemp("l4s"))


@pytest.fixture(scope="module")
def chain(kernel: Kernel, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(kernel, CHAIN, tmp_path_factory.mktemp("chain"))


def packets(path: Path) -> Iterator[tuple[int, int]]:
    """ECN field and TCP flags, AE included, of each TCP segment of a capture."""
    for record in pcap.records(path.read_bytes()):
        frame = record.data
        if frame[12:14] == b"\x08\x00" and frame[23] == 6:
            tcp = 14 + 4 * (frame[14] & 15)
            yield frame[15] & 3, struct.unpack_from(">H", frame, tcp + 12)[0] & 0x1FF


def capture(of: Run, node: str) -> list[tuple[int, int]]:
    (path,) = (of.folder / "captures").glob(f"{node}-*.pcap")
    return list(packets(path))


def test_accurate_ecn_is_negotiated_where_both_ends_have_it_and_nowhere_else(l4s: Run) -> None:
    handshake = [flags for _, flags in capture(l4s, "s1") if flags & SYN]
    # RFC 9768, 3.1.1: a request, and the answer to one that arrived with ECT(0), as DCTCP sends it.
    assert handshake == [SYN | AE | CWR | ECE, SYN | ACK | AE]
    assert [flags & (AE | CWR | ECE) for _, flags in capture(l4s, "s2") if flags & SYN] == [0, 0]


def test_dualpi2_marks_l4s_traffic_and_keeps_its_delay_below_that_of_classic_traffic(l4s: Run) -> None:
    marked = l4s.report.driver.links["line"]["forward"].events["marked"]
    arrived = sum(ecn == CE for ecn, _ in capture(l4s, "c1"))
    assert marked > 200
    # A packet that both the probability and the step mark counts twice. Some are on their way when the run ends.
    steps = [row["step_marked_packets"] for row in l4s.telemetry("line", "forward") if row.get("class") == "l4s"]
    assert steps[-1] - 10 <= arrived <= marked
    assert not any(ecn for ecn, _ in capture(l4s, "c2"))
    classes = {
        name: [row for row in l4s.telemetry("line", "forward") if row.get("class") == name and row["t_ns"] > 2e9]
        for name in ("classic", "l4s")
    }
    delays_s = {name: [row["delay_s"] for row in rows] for name, rows in classes.items()}
    assert max(delays_s["l4s"]) < TARGET_S
    assert statistics.mean(delays_s["l4s"]) < STEP_S
    assert statistics.mean(delays_s["classic"]) == pytest.approx(TARGET_S, rel=0.5)
    last = {name: rows[-1] for name, rows in classes.items()}
    # Both probabilities come from one: its square, and its double.
    assert last["classic"]["probability"] == pytest.approx((last["l4s"]["probability"] / 2) ** 2)
    assert 0 < steps[-1] <= marked
    for flow in ("l4s", "classic"):
        assert l4s.report.flows[flow].receive.bytes * 8 / 5 > 5e6


def test_equal_seeds_give_equal_bytes(l4s: Run, kernel: Kernel, tmp_path: Path) -> None:
    assert {"links.jsonl", "l4s.jsonl", "s1-eth0.pcap"} <= set(l4s.digests)
    assert run(kernel, L4S, tmp_path / "again").digests == l4s.digests


@pytest.mark.slow("test_machine.py has other bytes from another seed")
def test_another_seed_gives_other_bytes(l4s: Run, kernel: Kernel, tmp_path: Path) -> None:
    assert run(kernel, L4S.replace("seed: 44", "seed: 45"), tmp_path / "other").digests != l4s.digests


def test_fq_pie_marks_and_cake_filters_acks(chain: Run) -> None:
    links = chain.report.driver.links
    assert links["fq-pie"]["forward"].events["marked"] > 0
    assert links["fq-pie"]["reverse"].events["lost"] > 1
    assert links["cake"]["reverse"].events["purged"] > 100
    tins = [row for row in chain.telemetry("cake", "reverse") if row.get("class") == "tin-1"]
    assert max(row["delay_s"] for row in tins) > 0


@pytest.mark.parametrize("name", ["l4s", "chain"])
def test_samples_add_up_to_the_counters_of_the_report(name: str, request: pytest.FixtureRequest) -> None:
    of: Run = request.getfixturevalue(name)
    kinds = set()
    for link, direction, counters in of.report.directions():
        total: Counter[str] = Counter()
        for row in of.telemetry(link, direction):
            if "event" in row:
                total[row["event"]] += row["count"]
        assert total == counters.events, (link, direction)
        kinds |= set(total)
    assert "marked" in kinds


def test_a_queue_is_sampled_every_10_ms_while_it_changes(l4s: Run) -> None:
    times = [row["t_ns"] for row in l4s.telemetry("line", "forward") if "packets" in row]
    gaps = [after - before for before, after in zip(times, times[1:], strict=False)]
    assert statistics.median(gaps) == pytest.approx(10e6, rel=0.01)
    assert times[0] < 1e6
    assert times == sorted(times)
