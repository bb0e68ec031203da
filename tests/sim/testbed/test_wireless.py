"""The wireless paper's testbed in virtual time: its peaks, and what local recovery does to a lossy hop (ton IV)."""

from __future__ import annotations

import gzip
import json
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import backchannel
from tests.support.simulated import means

FILE = """
name: air
backend: sim
network:
  topology: wireless
  link: wavelan
  forward: {rate: 2 Mbit/s, delay: 0.5 ms, queue: {policy: droptail, limit: 100 packets}, errors: []}
  access: {rate: 10 Mbit/s, delay: 1 ms, queue: {policy: droptail, limit: 100 packets}}
stack: {name: reno-bsd, packet: 1452 B, receive_buffer: 32 KiB}
workload:
  - {name: bulk, from: server, to: mobile, size: 8 MiB}
duration: 400 s
capture: {telemetry: false}
"""
LOSSY = FILE.replace("errors: []", "errors: [{model: exponential, mean: 65536 B}]")


def test_the_peaks_are_those_that_the_paper_measured(tmp_path: Path) -> None:
    """ton IV-A: 1.5 Mbit/s on the LAN, 1.35 on the WAN, whose round trip is 135 ms; within 5 %.

    Acks are 4.4BSD's, as the default overhead assumes: with timestamps every third segment's.
    """
    text = FILE.replace("name: reno-bsd,", "name: reno-bsd, acks_by_space: true,")
    lan, wan = means(tmp_path, text + "sweep: {network.access.delay: [1 ms, 66 ms]}\n")
    assert lan["throughput", "bulk"] == pytest.approx(1_500_000, rel=0.05)
    assert wan["throughput", "bulk"] == pytest.approx(1_350_000, rel=0.05)


def test_the_base_station_recovers_what_the_air_loses(tmp_path: Path) -> None:
    """ton IV-B: E2E far below LL; TCP-aware schemes above that, and with them the sender sends nothing twice."""
    zipped = """
repetitions: 3
sweep:
  zip:
    - network.middlebox: [none, ll, ll-tcp-aware, ll-smart-tcp-aware]
      stack.sack: [false, false, false, true]
      stack.sack_sender: [rfc6675, rfc6675, rfc6675, ignored]
"""
    end_to_end, local, aware, smart = means(tmp_path, LOSSY + zipped)
    rates = [point["throughput", "bulk"] for point in (end_to_end, local, aware, smart)]
    assert rates[0] < 0.75 * rates[1]
    assert rates[1] < rates[2]
    assert min(rates[2:]) > 1_300_000
    assert aware["retransmissions", "bulk"] == smart["retransmissions", "bulk"] == 0
    assert end_to_end["retransmissions", "bulk"] > 50


def test_bursts_cost_plain_snoop_more_than_one_with_selective_acks(tmp_path: Path) -> None:
    """ton table V: the gain of SMART grows with the length of the bursts."""
    sweep = """
repetitions: 3
sweep:
  network.forward.errors:
    - [{model: exponential, mean: 65536 B, burst: 2}]
    - [{model: exponential, mean: 65536 B, burst: 6}]
  zip:
    - network.middlebox: [ll-tcp-aware, ll-smart-tcp-aware]
      stack.sack: [false, true]
      stack.sack_sender: [rfc6675, ignored]
"""
    rates = [point["throughput", "bulk"] for point in means(tmp_path, LOSSY + sweep)]
    assert rates[3] / rates[2] > rates[1] / rates[0]
    assert rates[3] > 1.1 * rates[2]


def test_split_connections_shield_the_sender_and_smart_makes_them_fast(tmp_path: Path) -> None:
    """Ton IV-D: with Reno on the air as slow as E2E on the LAN, faster than it on the WAN; with SMART far faster.

    The wired part loses nothing.
    """
    sweep = """
repetitions: 3
sweep:
  network.access.delay: [1 ms, 66 ms]
  zip:
    - network.middlebox: [none, split, split-smart]
      stack.name: [reno-bsd, reno-bsd, smart]
"""
    measured = means(tmp_path, LOSSY + sweep)
    lan, wan = ([point["throughput", "bulk"] for point in three] for three in (measured[:3], measured[3:]))
    assert lan[1] == pytest.approx(lan[0], rel=0.25)
    assert wan[1] > 1.4 * wan[0]
    assert lan[2] > 1.6 * lan[1]
    assert wan[2] > 1.6 * wan[1]
    assert min(lan[2], wan[2]) > 1_100_000
    for point in (*measured[1:3], *measured[4:]):
        assert point["retransmissions", "bulk"] < 1
        # Every packet of 1452 bytes carries 1400 of data once.
        assert point["goodput", "bulk"] == pytest.approx(1400 / 1452, abs=0.001)


def test_the_wired_part_waits_while_the_wireless_one_times_out(tmp_path: Path) -> None:
    """Ton figures 10 and 11: the wired part sends nothing twice and is idle only when the wireless one times out.

    Its window grows and never shrinks, while that of the wireless part swings.
    """
    file = tmp_path / "air.yaml"
    file.write_text(LOSSY.replace("capture: {telemetry: false}\n", "") + "seed: 3\n")
    run = ("run", file, "--results", tmp_path / "results", "--set", "network.middlebox=split")
    assert backchannel(*run).returncode == 0
    (folder,) = (entry.parent for entry in (tmp_path / "results").glob("runs/*/*/manifest.json"))
    # A flow's telemetry counts from its start, that of links from the run's.
    start_ns = round(json.loads((folder / "scenario.json").read_text())["workload"][0]["start_s"] * 1e9)
    wired = [{**row, "t_ns": row["t_ns"] + start_ns} for row in rows(folder / "telemetry/bulk.jsonl.gz")]
    wireless = [row for row in rows(folder / "telemetry/links.jsonl.gz") if row.get("part") == "wireless"]
    assert {row["event"] for row in wired} == {"ack"}
    timeouts = [row["t_ns"] for row in wireless if row["event"] == "coarse_timeout"]
    forward = json.loads((folder / "manifest.json").read_text())["report"]["driver"]["links"]["air"]["forward"]
    assert forward["events"]["coarse_timeout"] == len(timeouts) > 5

    gaps = [(entry["t_ns"], two["t_ns"]) for entry, two in pairwise(wired) if two["t_ns"] - entry["t_ns"] > 500_000_000]
    assert len(gaps) > 5
    assert all(any(start < at < end for at in timeouts) for start, end in gaps)

    windows = [row["cwnd_segments"] for row in wireless]
    assert statistics.pstdev(windows) / statistics.mean(windows) > 0.3
    assert all(entry["cwnd_segments"] <= two["cwnd_segments"] for entry, two in pairwise(wired))


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]


def test_a_part_has_any_stack_but_none_that_is_not_there(tmp_path: Path) -> None:
    box = "network.middlebox={middlebox: split, wired: modern, wireless: sack, buffer: 16 KiB}"
    (point,) = means(tmp_path, LOSSY.replace("8 MiB", "1 MiB"), "--set", box)
    assert point["throughput", "bulk"] > 500_000
    file = tmp_path / "air.yaml"
    file.write_text(FILE.replace("link: wavelan", "link: wavelan\n  middlebox: {middlebox: split, wireless: smrt}"))
    done = backchannel("validate", file, status=2)
    assert "unknown choice 'smrt'; did you mean 'smart'?" in done.stderr + done.stdout


def test_a_middlebox_that_is_not_there_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "air.yaml"
    file.write_text(FILE.replace("link: wavelan", "link: wavelan\n  middlebox: snop"))
    done = backchannel("validate", file, status=2)
    assert "air.yaml:7: network.middlebox: unknown middlebox 'snop'" in done.stderr + done.stdout
