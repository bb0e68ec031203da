"""The sim backend: whole campaigns in virtual time, without root."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from analysis.captures import RunData
from benchmarks.simulator import dumbbell
from experiments.engine.execution import analyse
from testbed import node_binary
from testbed.addressing import as_json, interfaces
from testbed.errors import TestbedError
from testbed.report import Report
from tests.conftest import CAMPAIGN, backchannel, two_hosts, typed
from tests.support.addresses import planned


def simulate(scenario: dict[str, Any], out: Path) -> dict[str, Any]:
    plan = planned(scenario)
    given = json.dumps({"scenario": scenario, "nodes": as_json(plan)})
    report = node_binary.call("simulate", "--out", str(out), stdin=given)
    return {**report, "interfaces": [end.as_json() for end in interfaces(plan)]}


def scenario(stack: str = "reno-bsd", **changes: Any) -> dict[str, Any]:
    options = changes.pop("options", {})
    made = two_hosts(**changes)
    for node in made["nodes"]:
        node["stack"] = {"name": stack, "options": options}
    return made


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_same_scenario_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    lossy = scenario(duration_s=20.0)
    lossy["links"][0]["forward"] = lossy["links"][0]["forward"] | {
        "errors": [{"name": "uniform", "options": {"probability": 0.02}}]
    }
    first, second = simulate(lossy, tmp_path / "1"), simulate(lossy, tmp_path / "2")
    assert first == second
    assert digests(tmp_path / "1") == digests(tmp_path / "2")
    assert len(digests(tmp_path / "1")) == 4
    simulate({**lossy, "seed": 2}, tmp_path / "3")
    assert digests(tmp_path / "3") != digests(tmp_path / "1")


@pytest.mark.parametrize("stack", ["tahoe", "reno-bsd", "reno-ns", "newreno", "sack", "modern"])
def test_a_clean_line_is_filled(stack: str, tmp_path: Path) -> None:
    """1 Mbit/s less headers: 1448 of 1500 bytes are data. A window of 40 packets fills the line and not its queue."""
    made = scenario(stack, duration_s=30.0, options={"max_window_segments": 40})
    report = simulate(made, tmp_path)
    rows = analyse(tmp_path, typed(made), Report.read(report)).values
    assert rows["retransmissions", "bulk"] == 0
    assert 0.98 * 965_333 < rows["throughput", "bulk"] < 965_334
    assert rows["goodput", "bulk"] == pytest.approx(1448 / 1500, abs=0.02)


def test_a_transfer_of_a_size_completes_at_the_instant_arithmetic_gives(tmp_path: Path) -> None:
    """Ten segments on an empty line: SYN, SYN-ACK, then all of them at once, the first with the handshake's ack."""
    made = scenario("modern", duration_s=5.0, options={"timestamps": False, "sack": False})
    made["workload"][0]["bytes"] = 14_600
    report = simulate(made, tmp_path)
    rows = analyse(tmp_path, typed(made), Report.read(report)).values
    syn, syn_ack = (20 + 20 + 4 + 4) * 8e-6 + 0.01, (20 + 20 + 4 + 4) * 8e-6 + 0.01
    data = 10 * 1500 * 8e-6 + 0.01
    assert rows["completion_time", "bulk"] == pytest.approx(syn + syn_ack + data, abs=1e-6)
    assert report["flows"]["bulk"]["receive"] | {"first_s": 0, "last_s": 0} == {
        **report["flows"]["bulk"]["receive"], "bytes": 14_600, "end": "finished", "payload_ok": True,
        "first_s": 0, "last_s": 0,
    }  # fmt: skip


def test_a_full_interface_queue_quenches_its_own_host(tmp_path: Path) -> None:
    """4.4BSD's tcp_quench: the window is one segment after the first drop of slow start, so that hardly more follow."""
    drops = {}
    for quench in (False, True):
        made = scenario(duration_s=2.0, options={"quench": quench})
        made["links"][0]["forward"] |= {"queue": {"name": "droptail", "options": {"limit_packets": 20}}}
        report = simulate(made, tmp_path / str(quench))
        (link,) = report["driver"]["links"].values()
        drops[quench] = link["forward"]["events"]["dropped_full"]
    assert drops[True] <= 3
    assert drops[False] > 10


def test_backpressure_keeps_data_in_the_host_and_the_line_busy(tmp_path: Path) -> None:
    """Three segments wait at most, so that a queue of ten never drops one, and the line carries as much."""
    stats = {}
    for limit in (None, 3):
        made = scenario(duration_s=20.0, options={} if limit is None else {"backpressure_segments": limit})
        made["nodes"][0]["processing_s"] = 0.001
        made["links"][0]["forward"] |= {"queue": {"name": "droptail", "options": {"limit_packets": 10}}}
        report = simulate(made, tmp_path / str(limit))
        (link,) = report["driver"]["links"].values()
        telemetry = (tmp_path / str(limit) / "telemetry/links.jsonl").read_text()
        lines = [json.loads(line) for line in telemetry.splitlines()]
        longest = max(line["max"] for line in lines if "max" in line and line["direction"] == "forward")
        dropped = link["forward"]["events"].get("dropped_full", 0)
        stats[limit] = (longest, dropped, report["flows"]["bulk"]["receive"]["bytes"])
    assert (stats[None][0], stats[3][0]) == (10, 3)
    assert stats[None][1] > 10
    assert stats[3][1] == 0
    assert stats[3][2] > stats[None][2]


def frames(folder: Path, which: str) -> int:
    """Frames at host a for which a display filter holds."""
    words = ["tshark", "-r", str(folder / "captures/a-eth0.pcap"), "-Y", which]
    for check in ("ip.check_checksum", "tcp.check_checksum", "udp.check_checksum"):
        words += ["-o", f"{check}:TRUE"]
    return len(subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines())


def test_tshark_reads_simulated_captures_without_complaint(tmp_path: Path) -> None:
    made = scenario("sack", duration_s=10.0)
    made["capture"]["snaplen"] = 2000
    made["workload"] += [
        {"name": "new", "kind": "bulk", "from": "a", "to": "b", "start_s": 0.0, "port": 5002, "ip": 6},
        {"name": "probe", "kind": "probe", "from": "a", "to": "b", "port": 5003, "ip": 6},
        {"name": "old-probe", "kind": "probe", "from": "a", "to": "b", "port": 5004},
        {"name": "ping", "kind": "probe", "from": "a", "to": "b", "port": 5005, "options": {"protocol": "icmp"}},
        {
            "name": "ping-6",
            "kind": "probe",
            "from": "a",
            "to": "b",
            "port": 5006,
            "ip": 6,
            "options": {"protocol": "icmp"},
        },
    ]
    simulate(made, tmp_path)
    wrong = " || ".join(f"{protocol}.checksum.status == 0" for protocol in ("ip", "tcp", "udp", "icmp", "icmpv6"))
    assert frames(tmp_path, f"_ws.malformed || _ws.short || {wrong}") == 0
    for known in ("ip && tcp", "ipv6 && tcp", "ip && udp", "ipv6 && udp", "icmp", "icmpv6"):
        assert frames(tmp_path, known) > 100


def test_a_transfer_over_ipv6_takes_the_time_of_its_longer_headers(tmp_path: Path) -> None:
    """As above: the SYN is 20 bytes longer, and ten full segments of 1500 bytes carry 1440 each."""
    made = scenario("modern", duration_s=5.0, options={"timestamps": False, "sack": False})
    made["workload"][0] |= {"bytes": 14_400, "ip": 6}
    rows = analyse(tmp_path, typed(made), Report.read(simulate(made, tmp_path))).values
    syn = (40 + 20 + 4 + 4) * 8e-6 + 0.01
    assert rows["completion_time", "bulk"] == pytest.approx(2 * syn + 10 * 1500 * 8e-6 + 0.01, abs=1e-6)


def test_packets_too_short_for_ipv6_are_refused(tmp_path: Path) -> None:
    made = scenario(options={"packet_bytes": 100})
    made["workload"][0]["ip"] = 6
    with pytest.raises(TestbedError, match="flow 'bulk': packet_bytes is 100, and must be at least 108 over IPv6"):
        simulate(made, tmp_path)


def test_a_bad_input_is_told_in_a_sentence(tmp_path: Path) -> None:
    bad = (("{}", "missing field"), ("nonsense", "invalid scenario"), ('{"scenario": 1}', "invalid scenario"))
    for text, said in bad:
        done = subprocess.run(
            [node_binary.path(), "simulate", "--out", str(tmp_path)],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_campaign_runs_in_virtual_time(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(CAMPAIGN.replace("workload:", "backend: sim\nstack: newreno\nworkload:"))
    done = backchannel("run", file, "--results", tmp_path / "results", "--json", status=0)
    campaign = json.loads(done.stdout)
    assert campaign["state"] == "complete"
    first, second = (
        next(row["mean"] for row in point["metrics"] if (row["name"], row["subject"]) == ("throughput", "forward"))
        for point in campaign["points"]
    )
    assert second > first, "acks first helps the forward transfer (asym 6.5)"


def test_a_kernel_stack_is_refused_in_virtual_time(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(CAMPAIGN)
    done = backchannel("plan", file, "--set", "backend=sim", status=2)
    assert "stack reno does not run on the sim backend" in done.stderr
    assert "newreno" in done.stderr


def test_stack_options_that_do_not_go_together_are_refused_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(CAMPAIGN.replace("workload:", "backend: sim\nstack: {name: tahoe, sack: true}\nworkload:"))
    done = backchannel("validate", file, status=2)
    line = 1 + file.read_text().splitlines().index("stack: {name: tahoe, sack: true}")
    assert f"small.yaml:{line}: stack: " in done.stderr
    assert "tahoe" in done.stderr


def test_metrics_need_their_captures(tmp_path: Path) -> None:
    made = scenario(duration_s=2.0)
    made["capture"]["at"] = ["a:line"]
    report = simulate(made, tmp_path)
    node_binary.call("trace", "--out", str(tmp_path), f"a-eth0={tmp_path / 'captures/a-eth0.pcap'}")
    data = RunData.load(tmp_path, typed(made), Report.read(report))
    assert data.flows[0].at_sender.height > 0
    with pytest.raises(Exception, match="was not captured at b"):
        _ = data.flows[0].at_receiver


def test_hosts_by_the_hundred_share_a_line(tmp_path: Path) -> None:
    made = dumbbell(200, seconds=20.0, capture=False)
    report = simulate(made, tmp_path)
    received = [flow["receive"]["bytes"] for flow in report["flows"].values()]
    # The line has room for one packet and a half of each: timeouts that double keep a few out for a while.
    assert received.count(0) < len(received) / 10
    assert all(flow["receive"]["segments_received"] for flow in report["flows"].values())
    # 100 Mbit/s for 20 s, less headers and the starts within the first second.
    assert 0.9 * 243_000_000 < sum(received) < 250_000_000
    assert not list((tmp_path / "telemetry").iterdir())
    assert not list((tmp_path / "captures").iterdir())


def test_ports_come_again_after_thirty_thousand_connections(tmp_path: Path) -> None:
    made = scenario("modern", duration_s=6.25, rate_bps=100_000_000, delay_s=0.0001)
    options = {"arrivals": "constant", "distance_s": 0.0002, "sizes": "constant", "mean_bytes": 1}
    made["workload"] = [
        {"name": "short", "kind": "transfers", "from": "a", "to": "b", "port": 5001, "options": options}
    ]
    made["capture"] = {"snaplen": 96, "at": ["none"]}
    short = simulate(made, tmp_path)["flows"]["short"]
    # A byte each; the last two or three are under way.
    assert short["send"]["bytes"] <= short["receive"]["bytes"] <= 31_251
    assert short["send"]["bytes"] > 31_240


def test_ten_thousand_virtual_seconds_pass(tmp_path: Path) -> None:
    made = scenario("newreno", duration_s=10_000.0, rate_bps=64_000, options={"max_window_segments": 20})
    made["capture"] = {"snaplen": 96, "at": ["none"]}
    report = simulate(made, tmp_path)
    flow = report["flows"]["bulk"]
    assert flow["receive"]["bytes"] == pytest.approx(64_000 / 8 * 1448 / 1500 * 10_000, rel=0.001)
    assert flow["receive"]["last_s"] == pytest.approx(10_000, abs=1)
