"""Header compression on the project's own captures, beside Wireshark's decompressor, and on lines in virtual time."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbed import node_binary
from tests.conftest import backchannel
from tests.sim.testbed.test_simulation import scenario, simulate
from tests.support.simulated import means
from tests.support.traces.readers import tshark_fields

FIELDS = (
    "ip.len", "ip.id", "ip.ttl", "ip.dsfield", "ip.flags", "ip.src", "ip.dst", "tcp.srcport", "tcp.dstport", "tcp.len",
    "tcp.flags", "tcp.window_size_value", "tcp.checksum", "tcp.urgent_pointer", "tcp.hdr_len", "tcp.ack_raw",
    "tcp.seq_raw",
)  # fmt: skip
UNCOMPRESSED, DATA_ONE_WAY = 0x2F, 0x0F


def compress(capture: Path, out: Path, *more: str) -> dict[str, Any]:
    """The line's report. The program itself fails where a packet does not come out as it went in."""
    done = subprocess.run(
        [node_binary.path(), "serial-line", "--out", str(out), str(capture), *more],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["damage"] == []
    return report


def tshark(capture: Path, *fields: str) -> list[list[str]]:
    return tshark_fields(capture, fields, "-o", "tcp.relative_sequence_numbers:FALSE")


def together(report: dict[str, Any], kind: str) -> int:
    count = sum(report[way]["headers"][kind] for way in ("from_the_lower_address", "from_the_higher_address"))
    assert isinstance(count, int)
    return count


def conversations(stack: str = "sack", timestamps: bool = False) -> dict[str, Any]:
    """Three flows, two of them against the third, over a lossy line: headers change as TCP changes them."""
    made = scenario(stack, duration_s=20.0, options={"timestamps": timestamps})
    lossy = {"errors": [{"name": "uniform", "options": {"probability": 0.02}}]}
    for way in ("forward", "reverse"):
        made["links"][0][way] = made["links"][0][way] | lossy
    flow = made["workload"][0]
    made["workload"] += [
        flow | {"name": "second", "port": 5002, "start_s": 1.0},
        flow | {"name": "back", "port": 5003, "from": "b", "to": "a", "start_s": 2.0, "bytes": 200_000},
    ]
    return made


def test_simulated_captures_cross_the_line(tmp_path: Path) -> None:
    simulate(conversations(), tmp_path)
    for host in "ab":
        report = compress(tmp_path / f"captures/{host}-eth0.pcap", tmp_path / "line.pcap")
        assert together(report, "compressed") > 3 * together(report, "uncompressed") > 0
        assert together(report, "unmodified") >= 6, "a SYN and its answer for each flow, at least"
        for way in ("from_the_lower_address", "from_the_higher_address"):
            entry = report[way]
            assert (
                entry["compressed_bytes"] < entry["slip_bytes"] < entry["ppp_without_accm_bytes"] < entry["ppp_bytes"]
            )
            assert entry["compressed_bytes"] < entry["bytes"]
    named = compress(tmp_path / "captures/a-eth0.pcap", tmp_path / "line.pcap", "--name-every-slot", "--slots", "2")
    assert together(named, "uncompressed") > 0


def test_timestamps_leave_little_to_compress(tmp_path: Path) -> None:
    """asym 9.1: options change, but for segments within one tick of both clocks: on a fast line, those of a burst."""
    simulate(conversations(timestamps=True), tmp_path)
    report = compress(tmp_path / "captures/a-eth0.pcap", tmp_path / "line.pcap")
    stamps = tshark(tmp_path / "captures/a-eth0.pcap", "tcp.srcport", "tcp.dstport", "tcp.options.timestamp.tsval",
                    "tcp.options.timestamp.tsecr")  # fmt: skip
    last: dict[str, list[str]] = {}
    same = 0
    for source, destination, *stamp in stamps:
        same += last.get(source + destination) == stamp
        last[source + destination] = stamp
    assert 0 < together(report, "compressed") <= same < together(report, "uncompressed")


def test_wireshark_decompresses_the_line_alike(tmp_path: Path) -> None:
    """Every field of every packet, but for what Wireshark 4.0 does otherwise than RFC 1144's own code (appendix A.3).

    It has one last slot for both directions, so each packet here names its own. It leaves options out, so these
    segments have none. And it takes 20 bytes of the TCP header of a packet that came whole for data, where cs_hlen
    counts both headers: so after such a packet the special mask for data gives sequence numbers that are 20 too high.
    """
    simulate(conversations("newreno"), tmp_path)
    capture, line = tmp_path / "captures/a-eth0.pcap", tmp_path / "line.pcap"
    report = compress(capture, line, "--name-every-slot")
    own, theirs = tshark(capture, *FIELDS), tshark(line, "ppp.protocol", "vjc.change_mask", *FIELDS)
    assert len(own) == len(theirs) > 1000
    too_high: dict[str, int] = {}
    fresh: set[str] = set()
    seen = 0
    for number, (sent, (protocol, mask, *came)) in enumerate(zip(own, theirs, strict=True), 1):
        assert came[:-1] == sent[:-1], number
        flow = sent[7] + sent[8]
        if int(protocol, 0) == UNCOMPRESSED:
            too_high[flow] = 0
            fresh.add(flow)
        elif mask:
            seen += 1
            if int(mask, 0) & 0x0F == DATA_ONE_WAY and flow in fresh:
                too_high[flow] = 20
            fresh.discard(flow)
        excess = too_high.get(flow, 0) if mask else 0
        assert int(came[-1]) == (int(sent[-1]) + excess) % 2**32, number
    assert seen == together(report, "compressed")


def modem(stack: str = "newreno", timestamps: bool = False, **reverse: Any) -> dict[str, Any]:
    """Data over 1 Mbit/s, acks back over 9.6 kbit/s."""
    made = scenario(stack, duration_s=60.0, options={"timestamps": timestamps})
    errors = reverse.pop("errors", [])
    made["links"][0]["reverse"] = {
        "rate_bps": 9600, "delay_s": 0.05, "queue": {"name": "droptail", "options": {"limit_packets": 10}},
        "options": reverse, "errors": errors,
    }  # fmt: skip
    made["workload"][0]["bytes"] = 1_000_000
    return made


def reverse_of(report: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = report["driver"]["links"]["line"]["reverse"]
    return result


def test_a_modem_line_carries_more_acks_with_compressed_headers(tmp_path: Path) -> None:
    done = {}
    framings: dict[str, dict[str, Any]] = {
        "plain": {"framing": "ppp", "accm": 0},
        "sizes": {"header_compression": "cslip", "framing": "ppp", "accm": 0},
        "real": {"header_compression": "rfc1144", "framing": "ppp", "accm": 0},
        "async": {"header_compression": "rfc1144", "framing": "ppp", "bits_per_byte": 10},
    }
    for name, options in framings.items():
        report = simulate(modem(**options), tmp_path / name)
        flow, line = report["flows"]["bulk"]["receive"], reverse_of(report)
        assert (flow["bytes"], flow["end"], flow["payload_ok"]) == (1_000_000, "finished", True)
        assert ("headers" in line) == (name in ("real", "async"))
        each = line["transmitted_wire_bytes"] / line["transmitted_packets"]
        done[name] = (flow["last_s"], each)
        if name == "real":
            assert (line["headers"]["tossed"], line["headers"]["wrong"]) == (0, 0)
            assert sum(line["headers"].values()) == line["transmitted_packets"]
    assert done["real"][0] < done["plain"][0]
    # 40 bytes and 7 or 8 of PPP; by the papers' sizes 34 less. The real thing: 4 to 7 of header, and now and then 40.
    assert 47 <= done["plain"][1] <= 49
    assert 13 <= done["sizes"][1] <= 15
    assert 11 < done["real"][1] < 20
    assert done["async"][1] > done["real"][1] * 1.25


def test_with_timestamps_the_line_gains_nothing(tmp_path: Path) -> None:
    line = reverse_of(simulate(modem(timestamps=True, header_compression="rfc1144"), tmp_path))
    assert line["headers"]["uncompressed"] > 20 * line["headers"]["compressed"]


@pytest.mark.parametrize(("framing", "sign", "other"), [("ppp", "tossed", "wrong"), ("slip", "wrong", "tossed")])
def test_a_lost_ack_silences_the_line_until_a_whole_one(framing: str, sign: str, other: str, tmp_path: Path) -> None:
    """More acks are lost to the far end's state than to the line, and TCP comes through."""
    errors = [{"name": "uniform", "options": {"probability": 0.03}}]
    options: dict[str, Any] = {"header_compression": "rfc1144", "framing": framing, "errors": errors}
    report = simulate(modem("reno-bsd", **options), tmp_path)
    line, flow = reverse_of(report), report["flows"]["bulk"]["receive"]
    assert line["headers"][sign] > line["events"]["lost"] > 0
    assert line["headers"][other] == 0
    assert line["events"].get("tossed", 0) == line["headers"]["tossed"]
    assert line["delivered_packets"] == line["transmitted_packets"] - line["events"]["lost"] - line["headers"]["tossed"]
    assert (flow["bytes"], flow["payload_ok"]) == (1_000_000, True)


CAMPAIGN = """
name: modem
backend: sim
network:
  topology: asymmetric-path
  forward: {rate: 10 Mbit/s, delay: 5 ms, queue: {policy: droptail, limit: 30 packets}}
  reverse:
    {rate: 28.8 kbit/s, delay: 50 ms, header_compression: none, framing: ppp, accm: 0, bits_per_byte: 10, slots: 4}
stack: {name: newreno, timestamps: false}
workload:
  - {name: bulk, from: server, to: client}
duration: 20 s
sweep:
  network.reverse.header_compression: [none, cslip, rfc1144]
"""


def test_a_campaign_says_what_stands_on_the_line(tmp_path: Path) -> None:
    none, cslip, real = (point["throughput", "bulk"] for point in means(tmp_path, CAMPAIGN))
    assert none < real
    assert none < cslip
    file = tmp_path / "modem.yaml"
    file.write_text(CAMPAIGN.replace("bits_per_byte: 10", "bits_per_byte: 9"))
    done = backchannel("validate", file, status=2)
    assert "bits_per_byte" in done.stderr


def test_what_a_modem_holds_is_out_of_a_filters_reach(tmp_path: Path) -> None:
    """Acks that wait in the device are filtered no more: they make round trips of its buffer's time."""
    buffer = "network.reverse.device_buffer"
    sweep = f"  axes: {{modem: {{bare: {{{buffer}: null}}, queues: {{{buffer}: 3.25 KiB}}}}}}\n"
    text = CAMPAIGN.replace("header_compression: none", "queue: ack-filtering")
    bare, queues = means(tmp_path, text[: text.index("  network.reverse.header")] + sweep)
    assert bare["rtt_mean", "bulk"] < 0.3
    # Never less than half full once the line is behind: 1664 bytes of 10 bits at 28.8 kbit/s are 0.58 s.
    assert 0.58 < queues["rtt_mean", "bulk"] < 1.5
    file = tmp_path / "modem.yaml"
    file.write_text(text.replace("queue: ack-filtering", "device_buffer: 0 B"))
    refused = backchannel("validate", file)
    assert (refused.returncode, "device_buffer" in refused.stderr) == (2, True)
