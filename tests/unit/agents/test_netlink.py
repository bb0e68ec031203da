"""rtnetlink: messages that add a dualpi2, and dumps as Linux 7.3 wrote them."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from agents import netlink, qdiscs
from agents.errors import AgentError
from agents.messages import ShapingCounters
from agents.shaping import checked_line

# struct nlmsghdr, struct tcmsg, TCA_KIND, TCA_OPTIONS with an attribute a row.
CHILD = """
6c000000 2400 0506 01000000 00000000
00000000 05000000 00001000 01000100 00000000
0c000100 6475616c70693200
3c000280
08000100 e8030000
08000300 983a0000
08000500 29000000
08000600 33030000
05000a00 02000000
05000c00 01000000
05000e00 03000000
"""
# The same at the root: TCA_STAB with struct tc_sizespec, and the default limit, because the kernel wants an option.
ROOT = """
5c000000 2400 0506 01000000 00000000
00000000 05000000 00000100 ffffffff 00000000
0c000100 6475616c70693200
20000880 1c000100 0000 0000 f2ffffff 01000000 00000000 00000000 00000000
0c000280
08000100 10270000
"""
#: A child of htb with two packets in its L4S queue, after 979 packets of DCTCP at 3 Mbit/s.
DUALPI2 = """
00000000030000000000100001000100010000000c0001006475616c70693200740002000800010010270000080002004009ce01
08000300983a000008000400803e00000800050028000000080006003203000008000800e8030000080009000000000005000a00
0200000005000b000100000005000c000000000005000d000a00000005000e000300000005000f000100000005000c0000000000
640007003400040004fd8a0200000000151a000000000000d303000006000000ce030000cb030000e026feffd0110000583e0000
4009ce01140001005451160000000000d1030000000000001800030002000000b80b00000000000000000000000000002c000300
5451160000000000d10300000000000000000000000000000000000002000000b80b0000000000003400040004fd8a0200000000
151a000000000000d303000006000000ce030000cb030000e026feffd0110000583e00004009ce01
"""
#: cake at the root with one tin, which marked one packet.
CAKE = """
000000000200000000000100ffffffff020000000900010063616b6500000000900002000c000200d01213000000000008000500
0700000008000700a0860100080008008813000008000a0000000000080009000000000008000f00000000000800100001000000
08000b0000000000080003000300000008000d0000000000080006000000000008000c0000000000080004000000000008000e00
000000000800110001000000080012000000000005000c0000000000200008001c00010000000000f2ffffff0100000000000000
000000000000000030010700000104000c000200d012130000000000080003000000400008000400b07c0000080005000e000000
08000700dc05000008000900dc050000080006003400000008000800340000000800110000000000b0000a00ac0001000c000c00
d0121300000000000c0003000c5d16000000000008000b000000000008000d008813000008000e00a086010008000200d3030000
080004000000000008000800010000000800060000000000080012008d0400000800130084010000080014000700000008000f00
000000000800100001000000080011000000000008001500000000000800160001000000080017000000000008001800dc050000
0800190031010000140001000c5d160000000000d303000000000000180003000000000000000000000000000000000084020000
2c0003000c5d160000000000d303000000000000840200000000000000000000000000000000000000000000
"""


def raw(text: str) -> bytes:
    return bytes.fromhex("".join(text.split()))


def test_a_dualpi2_is_added_as_a_child_and_at_the_root() -> None:
    words = "handle 10: dualpi2 limit 1000 target 15000us alpha 0.16 beta 3.2 coupling_factor 2 drop_enqueue any_ect"
    assert netlink.new_qdisc(5, ["parent", "1:1", *words.split()]) == raw(CHILD)
    root = "root handle 1: stab overhead -14 linklayer ethernet dualpi2"
    assert netlink.new_qdisc(5, root.split()) == raw(ROOT)


@pytest.mark.parametrize(
    "line",
    [
        "root handle 1: dualpi2 limit", "root handle 1: dualpi2 limit many", "root handle 1: dualpi2 limit -1",
        "root handle 1: dualpi2 coupling_factor 256", "root handle 1: dualpi2 ack-filter", "root handle x: dualpi2",
        "root handle 1: htb", "root stab overhead 0 linklayer atm dualpi2", "ingress dualpi2", "",
    ],
)  # fmt: skip
def test_what_adds_no_dualpi2_is_refused(line: str) -> None:
    with pytest.raises(AgentError, match="dualpi2|handle"):
        netlink.new_qdisc(5, line.split())


def test_an_agent_adds_dualpi2_to_its_own_interface_only() -> None:
    line = "qdisc add dev eth7 parent 1:1 handle 10: dualpi2 step_thresh 1000us drop_on_overload"
    assert " ".join(checked_line(line, "eth7")) == line
    with pytest.raises(AgentError, match="not a discipline of eth8"):
        checked_line(line, "eth8")


def test_the_kernels_reason_is_in_the_error() -> None:
    text = netlink.attribute(1, b"Exclusivity flag on, cannot modify\0")
    header = struct.pack("=IHHII", 36, 36, 0, 1, 0)
    with pytest.raises(AgentError, match="^Exclusivity flag on, cannot modify$"):
        netlink._raise_error(0x300, struct.pack("=i", -17) + header + text)
    with pytest.raises(AgentError, match="File exists"):
        netlink._raise_error(0, struct.pack("=i", -17) + header)
    netlink._raise_error(0x100, struct.pack("=i", 0) + header)


def test_a_dump_of_dualpi2_has_both_classes() -> None:
    found = qdiscs.read_qdisc(raw(DUALPI2))
    assert (found.kind, found.interface, found.parent, found.handle) == ("dualpi2", 3, 0x10001, 0x100000)
    assert (found.sent_packets, found.sent_bytes, found.queued_packets, found.queued_bytes) == (977, 1462612, 2, 3000)
    state = qdiscs.read_state(found)
    base = 0x028AFD04 / 0xFFFFFFFF
    assert state.marked == 974
    assert state.early == 0
    assert state.classes["l4s"] == {
        "delay_s": pytest.approx(0.006677), "probability": pytest.approx(2 * base), "arrived_packets": 979,
        "step_marked_packets": 971,
    }  # fmt: skip
    assert state.classes["classic"] == {"delay_s": 0, "probability": pytest.approx(base**2), "arrived_packets": 0}


def test_a_dump_of_cake_has_its_tins() -> None:
    found = qdiscs.read_qdisc(raw(CAKE))
    assert (found.kind, found.parent, found.drops, found.sent_packets) == ("cake", netlink.TC_ROOT, 0, 979)
    state = qdiscs.read_state(found)
    assert (state.early, state.purged, state.marked) == (0, 0, 1)
    tin = {
        "delay_s": 388e-6, "waiting_bytes": 0, "arrived_packets": 979, "dropped_packets": 0, "marked_packets": 1,
    }  # fmt: skip
    assert list(state.classes) == ["tin-1"]
    assert state.classes["tin-1"] == pytest.approx(tin)


@pytest.mark.parametrize(
    ("kind", "own", "early", "marked", "values"),
    [
        ("red", struct.pack("=4I", 3, 2, 0, 7), 3, 7, None),
        ("codel", struct.pack("=4Ii4I", 1514, 0, 0, 2500, 0, 2, 7, 0, 1), 8, 8, {"delay_s": 0.0025}),
        ("fq_codel", struct.pack("=I9I", 0, 1514, 2, 7, 9, 0, 0, 1, 0, 0), 8, 8, None),
        (
            "pie", struct.pack("=Q8I", 1 << 55, 2500, 0, 0, 90, 3, 7, 20, 5), 3, 5,
            {"delay_s": 0.0025, "probability": pytest.approx(0.5)},
        ),
        ("fq_pie", struct.pack("=9I", 90, 3, 7, 0, 5, 0, 0, 0, 0), 3, 5, None),
        ("pfifo", b"", 0, 0, None),
    ],
)  # fmt: skip
def test_other_statistics(kind: str, own: bytes, early: int, marked: int, values: dict[str, float] | None) -> None:
    state = qdiscs.read_state(qdiscs.Qdisc(3, kind, 0, 0, drops=10, own=own))
    assert (state.early, state.marked) == (early, marked)
    assert state.classes == ({} if values is None else {"all": values})


def test_counters_are_the_roots_with_what_the_queue_knows() -> None:
    root = qdiscs.Qdisc(3, "htb", 0x10000, netlink.TC_ROOT, sent_packets=100, sent_bytes=9000, drops=10)
    leaf = qdiscs.Qdisc(3, "fq_pie", 0x100000, 0x10001, drops=10, own=struct.pack("=9I", 110, 3, 7, 0, 5, 0, 0, 0, 0))
    other = qdiscs.Qdisc(4, "netem", 0x80010000, netlink.TC_ROOT, drops=2)
    found = [leaf, other, root]
    assert qdiscs.of_interface(found, 3) == (root, leaf)
    assert qdiscs.of_interface(found, 5) is None
    counters = qdiscs.counters(qdiscs.of_interface(found, 3))
    assert counters == ShapingCounters(100, 9000, 10, early=3, purged=0, marked=5)
    assert qdiscs.events(counters, is_delayed=False) == {"dropped_full": 7, "dropped_early": 3, "marked": 5}
    lost = qdiscs.counters(qdiscs.of_interface(found, 4))
    assert qdiscs.events(lost, is_delayed=True) == {"lost": 2}
    assert qdiscs.counters(None) == ShapingCounters(0, 0, 0)


def test_damaged_answers_are_no_endless_loop() -> None:
    with pytest.raises(ValueError, match="an attribute of 3 bytes"):
        list(netlink.attributes(struct.pack("=HHI", 3, 0, 0)))
    with pytest.raises(ValueError, match="a message of 3 bytes"):
        list(netlink.messages(struct.pack("=IHHII", 3, 0, 0, 0, 0)))


def payload(drops: int, queued: int) -> bytes:
    """The message of a red with these statistics at the root of interface 3."""
    own = struct.pack("=4I", drops, 0, 0, 2 * drops)
    statistics = netlink.attribute(1, struct.pack("=QI", 9000, 100))
    statistics += netlink.attribute(3, struct.pack("=5I", queued, 1500 * queued, drops, 0, 0))
    statistics += netlink.attribute(4, own)
    head = netlink.TC_MESSAGE.pack(0, 3, 0x10000, netlink.TC_ROOT, 0) + netlink.attribute(netlink.TCA_KIND, b"red\0")
    return head + netlink.attribute(netlink.TCA_STATS2, statistics)


def test_a_sampler_writes_changes_and_counts_until_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([payload(0, 2), payload(1, 2), payload(1, 2), payload(4, 0)])
    route = SimpleNamespace(qdiscs=lambda: [next(answers)], close=lambda: None)
    monkeypatch.setattr(qdiscs, "RouteSocket", lambda: route)
    in_an_hour_ns = time.monotonic_ns() + 3_600_000_000_000
    sampler = qdiscs.Sampler(tmp_path / "rows", {3: qdiscs.SampledInterface("line", "forward")}, in_an_hour_ns)
    for _ in range(3):
        sampler._sample()
    # What happened since the sample before is in the last one.
    assert sampler.stop() == {3: ShapingCounters(100, 9000, 4, early=4, marked=8)}
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert all((row.pop("link"), row.pop("direction")) == ("line", "forward") and row.pop("t_ns") for row in rows)
    assert rows == [
        {"packets": 2, "bytes": 3000, "max": 2},
        {"event": "dropped_early", "count": 1},
        {"event": "marked", "count": 2},
        {"event": "dropped_early", "count": 3},
        {"event": "marked", "count": 6},
        {"packets": 0, "bytes": 0, "max": 0},
    ]
