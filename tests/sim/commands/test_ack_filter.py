"""`ack-filter`: captures of lines of which the answer is known."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from testbed import pcap
from tests.conftest import backchannel

CAMPAIGN = """\
name: home
backend: sim
network:
  topology: asymmetric-path
  forward: {{rate: {down}, delay: 10 ms, queue: {{policy: droptail, limit: 150 packets}}}}
  reverse: {{rate: {up}, delay: 10 ms, queue: {{policy: droptail, limit: 30 packets}}}}
  access: {{rate: 1 Gbit/s, delay: 1 ms, queue: {{policy: droptail, limit: 1000 packets}}}}
stack: {{name: {stack}}}
ip: {ip}
workload:
  - {{name: download, from: server, to: client, count: 2}}
duration: 6 s
seed: 1
capture: {{snaplen: 128 B, at: ["client:client-access"]}}
"""


def capture(folder: Path, up: str, stack: str = "modern", ip: int = 4, down: str = "20 Mbit/s") -> Path:
    """A capture at the client of two downloads over such a line."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "home.yaml").write_text(CAMPAIGN.format(up=up, down=down, stack=stack, ip=ip))
    backchannel("run", folder / "home.yaml", "--results", folder / "results", status=0)
    (found,) = (folder / "results").rglob("client-*.pcap*")
    return found


def answer(file: Path, folder: Path, *words: str) -> dict[str, Any]:
    done = backchannel("ack-filter", file, "--results", folder / "trials", "--json", *words, status=0)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Acks of 20 Mbit/s need ten times this uplink."""
    return capture(tmp_path_factory.mktemp("slow"), "60 kbit/s")


def test_where_acks_do_not_fit_the_filter_is_recommended(slow: Path, tmp_path: Path) -> None:
    found = answer(slow, tmp_path, "--up", "60 kbit/s", "--down", "20 Mbit/s")
    assert found["advice"] == "on"
    assert found["ack_share_of_uplink_bytes"] > 0.95
    assert found["capture"]["shape"]["downloads"] == 2
    plain, filtered = found["replay"]["off"], found["replay"]["on"]
    assert plain["purged"] == 0
    assert filtered["purged"] > 0.3 * found["capture"]["up"]["pure_acks"]
    assert filtered["mean_wait_s"] < 0.5 * plain["mean_wait_s"]
    download = found["simulation"]["effects"][0]
    assert (download["of"], download["verdict"]) == ("download", "different")
    assert download["interval"][0] > 0


def test_on_a_symmetric_line_it_does_not_matter(tmp_path: Path) -> None:
    file = capture(tmp_path, "5 Mbit/s", down="5 Mbit/s")
    found = answer(file, tmp_path, "--up", "5 Mbit/s", "--down", "5 Mbit/s")
    assert found["advice"] == "no difference"
    assert found["uplink_utilisation"] < 0.05
    assert found["replay"]["on"]["purged"] < 0.05 * found["capture"]["up"]["pure_acks"]


def test_acks_of_quic_cannot_be_filtered(tmp_path: Path) -> None:
    file = rewritten_to_port_443(capture(tmp_path, "1 Mbit/s", "quic"), tmp_path / "quic.pcap")
    found = answer(file, tmp_path)
    assert found["advice"] == "nothing to filter"
    assert "QUIC's acks are encrypted" in found["why"]
    assert found["simulation"]["effects"] == []
    assert not (tmp_path / "trials").exists()


def rewritten_to_port_443(file: Path, target: Path) -> Path:
    """The capture, of raw IPv4, with the client's peer at the port of HTTP/3."""
    data = file.read_bytes()
    plain = bytearray(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)
    server = min(int.from_bytes(record.data[at : at + 2]) for record in pcap.records(bytes(plain)) for at in (20, 22))
    at = 24
    while at < len(plain):
        length = int.from_bytes(plain[at + 8 : at + 12], "little")
        for field in (at + 16 + 20, at + 16 + 22):
            if int.from_bytes(plain[field : field + 2]) == server:
                plain[field : field + 2] = (443).to_bytes(2)
        at += 16 + length
    target.write_bytes(bytes(plain))
    return target


def test_ipv6_compressed_and_without_rates(tmp_path: Path) -> None:
    file = capture(tmp_path, "60 kbit/s", ip=6)
    packed = tmp_path / "home.pcap.gz"
    data = file.read_bytes()
    packed.write_bytes(data if data.startswith(b"\x1f\x8b") else gzip.compress(data))
    found = answer(packed, tmp_path, "--repetitions", "3")
    assert found["up_is_estimated"]
    assert found["down_is_estimated"]
    # The client's own link is fast, so its busiest second has more than the line carries.
    assert found["capture"]["up"]["pure_acks"] > 100
    assert found["capture"]["found_by"] == "the host that receives most"


def test_text_is_for_people(slow: Path, tmp_path: Path) -> None:
    done = backchannel(
        "ack-filter", slow, "--up", "60 kbit/s", "--down", "20 Mbit/s", "--results", tmp_path / "trials", status=0
    )
    assert "Replayed through a queue at that rate, the filter removes" in done.stdout
    assert done.stdout.rstrip().endswith("Filter on.")


def test_errors_are_for_people(slow: Path, tmp_path: Path) -> None:
    (tmp_path / "text.pcap").write_text("not a capture")
    for words, message in (
        ([tmp_path / "absent.pcap"], "absent.pcap"),
        ([tmp_path / "text.pcap"], "is not a capture file"),
        ([slow, "--up", "fast"], "--up: "),
        ([slow, "--up", "1 bit/s"], "--up is a rate from 1 kbit/s"),
        ([slow, "--queue", "cakes"], "did you mean 'cake'"),
        ([slow, "--local", "9.9.9.9"], "has no packet of it"),
    ):
        done = backchannel("ack-filter", *words)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
