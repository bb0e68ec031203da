"""Dumbbells: hosts by the flow, round trips by the draw, groups in the metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.language.campaign import load
from tests.conftest import backchannel
from tests.support.simulated import means

FILE = """
name: pairs
backend: sim
network:
  topology: dumbbell
  forward: {rate: 10 Mbit/s, delay: 5 ms}
  reverse: {rate: 1 Mbit/s, delay: 5 ms}
  access: {rate: 100 Mbit/s, delay: 1 ms}
  rtt: [20 ms, 300 ms]
stack: {name: newreno, timestamps: false, ack_every: 1}
workload:
  - {name: download, from: server, to: client, count: 3, start: [0 s, 1 s]}
  - {name: upload, from: client, to: server}
duration: 20 s
warm_up: 5 s
repetitions: 2
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.yaml"
    path.write_text(FILE)
    return path


def test_each_flow_has_its_own_pair_of_hosts(file: Path) -> None:
    first, second = (run.document.document for run in load(file).runs)
    assert [(flow["name"], flow["from"], flow["to"], flow.get("group")) for flow in first["workload"]] == [
        ("download-1", "server1", "client1", "download"),
        ("download-2", "server2", "client2", "download"),
        ("download-3", "server3", "client3", "download"),
        ("upload", "client4", "server4", None),
    ]
    delays = {link["name"]: link["forward"]["delay_s"] for link in first["links"]}
    for number in range(1, 5):
        rtt_s = 2 * (delays[f"server{number}-access"] + delays[f"client{number}-access"] + delays["bottleneck"])
        assert 0.02 <= rtt_s <= 0.3
        assert delays[f"client{number}-access"] == 0.001
    # Another repetition, another draw.
    assert delays["server1-access"] != next(
        link["forward"]["delay_s"] for link in second["links"] if link["name"] == "server1-access"
    )


def test_a_round_trip_shorter_than_the_line_is_refused(file: Path) -> None:
    file.write_text(FILE.replace("[20 ms, 300 ms]", "[5 ms, 300 ms]"))
    done = backchannel("validate", file, status=2)
    assert (
        "network.rtt: must be at least 12 ms, the delay of the link and of the clients' access links"
        in done.stderr + done.stdout
    )


def test_a_group_is_measured_as_its_members_after_the_warm_up(tmp_path: Path) -> None:
    (rows,) = means(tmp_path, FILE)
    members = [rows["throughput", f"download-{number}"] for number in (1, 2, 3)]
    assert rows["throughput", "download"] == pytest.approx(sum(members))
    # Whole packets: 1460 bytes of data travel in 1500.
    assert rows["packet_throughput", "upload"] / rows["throughput", "upload"] == pytest.approx(1500 / 1460, rel=1e-3)
    assert rows["packet_throughput", "download"] < 10_000_000
