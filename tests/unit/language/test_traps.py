"""Known traps of emulation: each is found where it applies, and only there."""

from __future__ import annotations

from functools import partial

import pytest

from experiments.language import source, traps
from experiments.language.backends import Backend
from experiments.language.campaign import expand, load
from experiments.language.problems import CampaignError
from testbed.node_binary import ROOT

CLEAN = """\
name: t
network:
  topology: asymmetric-path
  forward: {rate: 10 Mbit/s, delay: 5 ms, queue: {policy: droptail, limit: 30 packets}}
  reverse: {rate: 64 kbit/s, delay: 50 ms, queue: {policy: droptail, limit: 10 packets}}
  access: {rate: 100 Mbit/s, delay: 1 ms, queue: {policy: droptail, limit: 30 packets}}
workload:
  - {name: f, from: server, to: client}
duration: 30 s
"""


def found(text: str, backend: str | None = None) -> dict[str, traps.Trap]:
    plan = expand(source.parse("c.yaml", text))
    of_plan = traps.find(plan.backend if backend is None else Backend(backend), plan.runs[0].scenario)
    return {trap.name: trap for trap in of_plan}


def test_a_clean_campaign_has_none() -> None:
    assert found(CLEAN) == {}
    assert found(CLEAN.replace("name: t", "name: t\nbackend: sim\nstack: newreno")) == {}
    quickstart = ROOT / "experiments/quickstart.yaml"
    assert traps.warnings(load(quickstart), source.read(quickstart)) == []


@pytest.mark.parametrize(
    ("name", "was", "becomes", "link"),
    [
        ("queue below one burst", "limit: 30 packets", "limit: 8 packets", ("bottleneck", "forward")),
        ("timer coarser than a packet", "rate: 64 kbit/s", "rate: 400 Mbit/s", ("bottleneck", "reverse")),
        ("bottleneck elsewhere", "rate: 100 Mbit/s", "rate: 5 Mbit/s", ("client-access", "forward")),
        ("run shorter than a queue", "limit: 30 packets", "limit: 20000 packets", ("bottleneck", "forward")),
        ("few packets", "forward: {rate: 10 Mbit/s", "forward: {rate: 9.6 kbit/s", ("bottleneck", "forward")),
    ],
)  # fmt: skip
def test_each_is_found(name: str, was: str, becomes: str, link: tuple[str, str]) -> None:
    text = CLEAN.replace(was, becomes)
    if name == "few packets":
        text = text.replace("limit: 30 packets", "limit: 10 packets")
    trap = found(text)[name]
    assert (trap.link, trap.direction) == link


def test_headers_of_ipv6_are_not_compressed_and_its_acks_are_longer() -> None:
    v6 = CLEAN.replace("64 kbit/s", "1 Mbit/s") + "ip: 6\n"
    compressed = CLEAN.replace("delay: 50 ms", "delay: 50 ms, header_compression: cslip") + "ip: 6\n"
    trap = found(compressed)["headers of IPv6 are not compressed"]
    assert (trap.link, trap.direction) == ("bottleneck", "reverse")
    assert "flow f uses IPv6, and cslip compresses headers of IPv4 only (RFC 1144)" in trap.message
    aq = partial(v6.replace, "queue: {policy: droptail, limit: 10 packets}")
    by_size = aq("queue: {policy: aq, limit: 10 packets}")
    trap = found(by_size, "sim")["acks of IPv6 are longer"]
    assert (trap.link, trap.direction) == ("bottleneck", "reverse")
    assert "serves packets of at most 40 B as acks, so none of flow f" in trap.message
    good = [
        v6, compressed.replace("ip: 6", "ip: 4"), by_size.replace("ip: 6", "ip: 4"),
        *(aq(f"queue: {{policy: aq, limit: 10 packets, {option}}}") for option in ("classify: pure-ack", "ack: 60 B")),
    ]  # fmt: skip
    names = {"headers of IPv6 are not compressed", "acks of IPv6 are longer"}
    assert not [text for text in good if names & set(found(text, "sim"))]


def test_captures_of_an_encrypted_flow_are_whole() -> None:
    encrypted = CLEAN + "backend: sim\nstack: {name: quic, session: tls}\n"
    assert "'snaplen: 1514 B'" in found(encrypted)["captures cut off"].message
    for clear in (
        encrypted + "capture: {snaplen: 1514 B}\n", encrypted + "capture: {at: [none]}\n",
        encrypted.replace("session: tls", "session: plain"), CLEAN,
    ):  # fmt: skip
        assert "captures cut off" not in found(clear)


def test_wider_limits_cause_a_warning() -> None:
    wide = CLEAN + "fidelity: {delay: 30 ms, rate: 0.1 %, stalled: 5 %}\n"
    trap = found(wide)["wider limits"]
    assert "delay 30 ms instead of 1 ms, stalled 5 % instead of 1 %" in trap.message
    assert "wider limits" not in found(CLEAN + "fidelity: {delay: 0.5 ms, lateness: 1 ms, stall: 10 ms}\n")
    read = source.parse("c.yaml", wide)
    (line,) = traps.warnings(expand(read), read)
    assert line.startswith("c.yaml:10: fidelity: warning: ")


def test_limits_are_part_of_a_run_with_real_packets_only() -> None:
    wide = CLEAN + "fidelity: {delay: 30 ms}\n"
    for backend, count in (("", 2), ("backend: sim\nstack: newreno\n", 1)):
        assert len({expand(source.parse("c.yaml", text + backend)).runs[0].id for text in (CLEAN, wide)}) == count
    with pytest.raises(CampaignError, match=r"fidelity\.delay.*greater than 0"):
        expand(source.parse("c.yaml", CLEAN + "fidelity: {delay: 0 s}\n"))


def test_a_small_initial_window_needs_only_a_small_queue() -> None:
    text = CLEAN.replace("limit: 30 packets", "limit: 8 packets")
    assert "queue below one burst" in found(text)
    assert found(text + "stack: newreno\n") == {}
    assert "queue below one burst" in found(text + "stack: {name: newreno, initial_window: 10}\n")


def test_a_queue_behind_a_slower_line_needs_no_limit() -> None:
    # Packets reach the client's wire at the rate of the line under study.
    text = CLEAN.replace("delay: 1 ms, queue: {policy: droptail, limit: 30 packets}", "queue: {limit: 2 packets}")
    plan = expand(source.parse("c.yaml", text.replace("queue: {limit", "queue: {policy: droptail, limit")))
    assert {trap.link for trap in traps.find(Backend.EMULATED, plan.runs[0].scenario)} == {"server-access"}


LINE = (
    CLEAN.replace("asymmetric-path", "line")
    .replace("  access: {rate: 100 Mbit/s, delay: 1 ms, queue: {policy: droptail, limit: 30 packets}}\n", "")
    .replace("server", "left")
    .replace("client", "right")
)


def test_shaping_on_the_senders_host_matters_only_in_the_kernel() -> None:
    name = "small queues on the sender's host"
    shaped = LINE.replace("topology: line\n", "topology: line\n  link: {kind: kernel, shaper: htb}\n")
    # The emulated backend would require the qdisc in this machine's kernel.
    shaped = shaped.replace("name: t\n", "name: t\nbackend: physical\n")
    for backend in ("emulated", "physical"):
        assert name in found(shaped, backend)
        assert name not in found(LINE, backend), "the emulator and a link box are not part of the sender's host"
        assert name not in found(shaped + "stack: newreno\n", backend)


def test_real_hosts_have_offloads_and_clocks() -> None:
    assert {"offloads", "clocks apart"} <= found(CLEAN, "physical").keys()


def test_virtual_time_has_no_timers() -> None:
    text = CLEAN.replace("64 kbit/s", "400 Mbit/s").replace("name: t", "name: t\nbackend: sim\nstack: newreno")
    assert "timer coarser than a packet" not in found(text)


def test_warnings_have_line_and_points() -> None:
    text = CLEAN + "sweep: {network.forward.queue.limit: [8 packets, 30 packets]}\n"
    read = source.parse("c.yaml", text)
    (line,) = traps.warnings(expand(read), read)
    assert line.startswith("c.yaml:4: network.forward: warning: queue below one burst: flow f begins with 10 segments")
    assert line.endswith("(at 1 of 2 combinations)")
