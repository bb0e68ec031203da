"""A wire that the hosts at its ends shape with tc: what is asked of tc, who may ask, and a run over one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.errors import AgentError
from agents.shaping import checked_line
from experiments import inventory
from experiments.language import campaign
from experiments.language.problems import CampaignError
from testbed import image, kernel_links, kernel_tcp, probing
from testbed.errors import TestbedError, Unavailable
from testbed.scenario import DirectionSpec, LinkSpec, Named
from tests.support.ansible_lab import write_yaml

CAMPAIGN = """
name: shaped
backend: physical
network:
  topology: line
  link: {kind: kernel, shaper: htb}
  forward: {rate: 1 Mbit/s, queue: {policy: droptail, limit: 20 packets}}
  reverse: {rate: 256 kbit/s}
workload:
  - {name: download, from: left, to: right}
duration: 5 s
"""


def lab(folder: Path, link: dict[str, Any], campaign_text: str = CAMPAIGN) -> Path:
    (folder / "shaped.yaml").write_text(campaign_text)
    hosts: dict[str, Any] = {"pc0": {"plays": "left"}, "pc1": {"plays": "right"}, "box": {}}
    file = {
        "plugin": "backchannel", "campaign": "shaped.yaml", "connection": "namespace", "hosts": hosts,
        "links": {"line": link},
    }  # fmt: skip
    return write_yaml(folder / "hosts.yml", file)


@pytest.mark.parametrize(
    "line",
    [
        "qdisc add dev eth7 root handle 1: stab overhead -14 linklayer ethernet htb default 1",
        "class add dev eth7 parent 1: classid 1:1 htb rate 1000000bit",
        "qdisc add dev eth7 handle ffff: ingress",
        "filter add dev eth7 parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev d-eth7",
        "qdisc add dev d-eth7 root netem limit 1000000 delay 20000us loss random 1.5%",
        "qdisc add dev d-eth7 root netem limit 1000000 delay 20000us 5000us",
    ],
)
def test_an_agent_accepts_lines_that_shape_an_interface(line: str) -> None:
    assert " ".join(checked_line(line, "eth7")) == line


@pytest.mark.parametrize(
    "line",
    [
        "qdisc add dev eth0 root pfifo limit 5",
        "qdisc del dev eth7 root",
        "qdisc add dev eth7 root hfsc default 1",
        "qdisc add dev eth7 root hfsc default a",
        "filter add dev eth7 parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev eth0",
        "filter add dev eth7 parent ffff: bpf object-file /root/x.o",
        "qdisc add dev eth7 root netem delay 1ms; reboot",
        "-batch /etc/shadow",
        "",
    ],
)
def test_an_agent_rejects_other_lines(line: str) -> None:
    with pytest.raises(AgentError, match="tc"):
        checked_line(line, "eth7")


def direction(policy: str, **options: Any) -> DirectionSpec:
    return DirectionSpec(rate_bps=1_000_000, queue=Named(name=policy, options=options))


def test_red_maps_to_the_kernels_red() -> None:
    near, _ = kernel_links.commands(
        direction("red", limit_packets=40, victim="tail", action="drop", weight=0.002), {"shaper": "htb"}, "near", "far"
    )
    (red,) = [line for line in near if " red " in line]
    # tc's formula makes 2^-9 of this burst: the power of a half that is nearest to 0.002.
    assert "limit 60000 min 9000 max 36000 avpkt 1500 burst 53 probability 0.1 bandwidth 1000000bit" in red
    assert "ecn" not in red
    with pytest.raises(TestbedError, match="the kernel's RED needs 'victim: tail'"):
        kernel_links.commands(direction("red"), {"shaper": "htb"}, "near", "far")
    with pytest.raises(TestbedError, match="needs 'gentle: false'"):
        kernel_links.commands(direction("red", victim="tail", gentle=True), {"shaper": "htb"}, "near", "far")


def test_options_of_queues_reach_tc() -> None:
    def queue(policy: str, **options: Any) -> str:
        return kernel_links.commands(direction(policy, **options), {"shaper": "htb"}, "near", "far")[0][-1]

    assert queue("droptail").endswith("pfifo limit 20")
    assert queue("droptail", buffer_bytes=3000).endswith("bfifo limit 3000")
    assert queue("codel", ecn=True, target_s=0.3).endswith("codel limit 1000 target 300000us ecn")
    assert queue("red", victim="tail", above_max="drop").endswith("ecn nodrop harddrop")
    near, _ = kernel_links.commands(direction("droptail"), {"shaper": "netem"}, "near", "far")
    assert near[0].endswith("netem rate 1000000bit limit 20")


@pytest.mark.parametrize(
    ("policy", "options", "of_link", "of_line", "sentence"),
    [
        ("droptail", {"limit_packets": 5, "buffer_bytes": 3000}, {}, {}, "a 'limit' or a 'buffer', not both"),
        ("codel", {"buffer_bytes": 3000}, {}, {}, "leave 'buffer' out"),
        ("codel", {"max_packet_bytes": 600}, {}, {}, "max_packet: 1500 B"),
        ("red", {"victim": "tail", "buffer_bytes": 3000}, {}, {}, "leave 'buffer' out"),
        ("red", {"victim": "tail", "typical_packet_bytes": 300}, {}, {}, "leave 'typical_packet' out"),
        ("droptail", {"buffer_bytes": 3000}, {"shaper": "netem"}, {}, "leave 'buffer' out"),
        ("droptail", {"limit_packets": 5}, {"shaper": "cake"}, {}, "cake is its own queue policy"),
        ("droptail", {}, {"ack_filter": "filter"}, {}, "'ack_filter' is an option of cake, not of htb"),
        ("droptail", {}, {"shaper": "netem", "rtt_s": 0.1}, {}, "'rtt' is an option of cake, not of netem"),
        ("droptail", {}, {"shaper": "cake", "burst_bytes": 5000}, {}, "'burst' is an option of htb and tbf"),
        ("droptail", {}, {"shaper": "tbf", "burst_bytes": 1500}, {}, "set at least 1514 B"),
        ("droptail", {}, {"framing_bytes": 8}, {}, "no 'framing'"),
        ("droptail", {}, {}, {"header_compression": "cslip"}, "no 'header_compression'"),
    ],
)
def test_options_that_a_kernel_does_not_have_are_refused(
    policy: str, options: dict[str, Any], of_link: dict[str, Any], of_line: dict[str, Any], sentence: str
) -> None:
    line = direction(policy, **options).replace(options=of_line)
    with pytest.raises(TestbedError, match=sentence):
        kernel_links.commands(line, of_link, "near", "far")


def test_the_queue_of_cake_does_not_affect_calibration() -> None:
    both = direction("droptail")
    options = {"shaper": "cake", "rtt_s": 0.03}
    link = LinkSpec(name="line", kind="kernel", ends=("a", "b"), options=options, forward=both, reverse=both)
    near, _ = kernel_links.commands(link.forward, link.options, "near", "far")
    assert "cake besteffort bandwidth 1000000bit rtt 30000us" in near[0]
    probed = probing.for_probing(link)
    near, _ = kernel_links.commands(probed.forward, probed.options, "near", "far")
    assert "rtt 1000000000us" in near[0]


@pytest.mark.parametrize("weight", [0.5, 0.1, 0.01, 0.002, 0.0005])
def test_the_burst_gives_the_weight_by_tcs_own_formula(weight: float) -> None:
    burst = kernel_links._red_burst(6.0, weight)
    exponents = [e for e in range(1, 32) if burst + 1 - 6.0 <= (1 - (1 - 0.5**e) ** burst) / 0.5**e]
    smallest = kernel_links._red_burst(6.0, 0.5)
    assert 0.5 ** exponents[0] == pytest.approx(weight, rel=0.5) or burst == smallest


def test_a_missing_congestion_control_is_reported_with_the_available_ones() -> None:
    assert kernel_tcp.lack("reno") is None
    lacking = kernel_tcp.lack("no-such-thing")
    assert lacking is not None
    assert "has no 'no-such-thing'; it has: " in lacking
    assert "reno" in lacking


@pytest.mark.parametrize("link", [{"box": "box"}, {"real": "modem"}, {"real": "wire", "queue_at": "left"}])
def test_a_kernel_link_is_a_wire_and_nothing_else(tmp_path: Path, link: dict[str, Any]) -> None:
    result = inventory.read(lab(tmp_path, link))
    scenario = campaign.load(tmp_path / "shaped.yaml").runs[0].scenario
    with pytest.raises(CampaignError, match="'line' is of kind 'kernel': .*set 'real: wire' for it"):
        inventory.placements(result, scenario.nodes, scenario.links)


def test_what_virtual_machines_lack_is_reported_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("testbed.image.platform.machine", lambda: "riscv64")
    monkeypatch.setattr("testbed.image.os.geteuid", lambda: 1000)
    monkeypatch.setattr("testbed.image.shutil.which", lambda program, path: None)
    with pytest.raises(Unavailable) as error:
        image.require()
    assert "this machine is riscv64" in str(error.value)
    assert "it needs root" in str(error.value)
    assert "apt-get install qemu-system-x86 mmdebstrap e2fsprogs" in str(error.value)


def test_a_full_disk_is_reported_with_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(image, "require", lambda: None)
    monkeypatch.setattr(image, "ROOM_BYTES", 1 << 60)
    with pytest.raises(TestbedError, match=rf"in {tmp_path}/backchannel/machines, where \d+ GiB are free: make room"):
        image.image(lambda text: None)
    assert not list(tmp_path.rglob("*-*"))
