"""`./backchannel import`: captures of every format, damaged ones, several of one transfer with clocks apart."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.alignment import align
from testbed import node_binary, pcap
from tests.conftest import backchannel
from tests.sim.testbed.test_simulation import scenario, simulate
from web.app import create_app

SECONDS_APART = 3.5


@pytest.fixture(scope="module")
def transfer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One simulated transfer over a lossy line, as captured at its sender and at its receiver (raw IP)."""
    made = scenario("sack", rate_bps=2_000_000, delay_s=0.02, duration_s=4.0)
    made["links"][0]["forward"]["errors"] = [{"name": "uniform", "options": {"probability": 0.01}}]
    made["capture"]["snaplen"] = 262_144
    folder = tmp_path_factory.mktemp("transfer")
    simulate(made, folder)
    sender, receiver = sorted((folder / "captures").glob("*.pcap"))
    return sender, receiver


#: Two addresses and the EtherType of IPv4.
ETHERNET_HEADER = b"\2" * 12 + b"\x08\0"


def ethernet(source: Path, target: Path) -> Path:
    """A raw IP capture of ours with Ethernet headers, little-endian and with nanoseconds or microseconds as it was."""
    data = source.read_bytes()
    head = replace(pcap.header(data), link_type=pcap.ETHERNET)
    framed = (replace(raw, data=ETHERNET_HEADER + raw.data, wire_len=raw.wire_len + 14) for raw in pcap.records(data))
    target.write_bytes(pcap.written(head, framed))
    return target


def imported(results: Path, *words: str | Path) -> dict[str, Any]:
    done = backchannel("import", *words, "--results", results, "--json", status=0)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def values(found: dict[str, Any], name: str) -> list[float]:
    return [row["value"] for row in found["metrics"] if row["name"] == name]


@pytest.fixture(scope="module")
def plain(transfer: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The sender's capture in the commonest format, and what its import says."""
    folder = tmp_path_factory.mktemp("plain")
    file = ethernet(transfer[0], folder / "plain.pcap")
    return file, imported(folder / "results", file)


#: Two that are read here, and one that TShark reads.
READERS = ("pcapng", "nsecpcap", "erf")
OTHERS = ("snoop", "netmon1", "netmon2", "visual", "lanalyzer", "ngsniffer")
_BY_TSHARK = pytest.mark.slow(reason="TShark reads it, as it reads erf")


@pytest.mark.parametrize("kind", [*READERS, *(pytest.param(kind, marks=_BY_TSHARK) for kind in OTHERS)])
def test_every_format_gives_the_same_transfer(kind: str, plain: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    file, expected = plain
    other = tmp_path / f"other.{kind}"
    if kind == "erf":
        # An ERF record: time in 2^-32 s, type 2 (Ethernet), lengths, and two bytes before the frame.
        parts = []
        for frame in pcap.records(file.read_bytes()):
            seconds, rest_ns = divmod(frame.time_ns, 10**9)
            ticks = seconds << 32 | (rest_ns << 32) // 10**9
            lengths = struct.pack(">BBHHH", 2, 4, 18 + len(frame.data), 0, frame.wire_len)
            parts.append(struct.pack("<Q", ticks) + lengths + b"\0\0" + frame.data)
        other.write_bytes(b"".join(parts))
    else:
        subprocess.run(["editcap", "-F", kind, str(file), str(other)], check=True, capture_output=True)
    result = imported(tmp_path / "results", other)
    assert result["files"][0]["read_by"].startswith("backchannel" if kind in {"pcapng", "nsecpcap"} else "TShark")
    for key in ("packets", "not_tcp", "connections_total"):
        assert result["files"][0][key] == expected["files"][0][key]
    assert values(result, "retransmissions") == values(expected, "retransmissions") != [0.0]
    assert values(result, "throughput") == pytest.approx(values(expected, "throughput"), rel=1e-3)


@pytest.mark.parametrize(
    "ahead_s",
    [pytest.param(SECONDS_APART, marks=pytest.mark.slow(reason="as behind, with another sign")), -SECONDS_APART, 0.0],
)
def test_clocks_of_two_captures_are_aligned(ahead_s: float, transfer: tuple[Path, Path], tmp_path: Path) -> None:
    sender, receiver = transfer
    late = tmp_path / "late.pcap"
    subprocess.run(["editcap", "-t", str(ahead_s), str(receiver), str(late)], check=True, capture_output=True)
    result = imported(tmp_path / "results", sender, late)
    shift_ns, uncertain_ns = result["files"][1]["shift_ns"], result["files"][1]["uncertain_ns"]
    # Both directions have 20 ms; the queue and the packets' own length come to that of the data.
    assert uncertain_ns <= 30e6
    assert abs(shift_ns / 1e9 + ahead_s) <= uncertain_ns / 1e9
    assert (shift_ns == 0) == (ahead_s == 0.0)
    as_it_is = imported(tmp_path / "results", sender, late, "--no-align")["files"][1]
    assert as_it_is["shift_ns"] == 0
    assert as_it_is["clock"].endswith("not corrected (--no-align)") == (ahead_s != 0.0)
    folder = tmp_path / "results" / "runs" / result["run"][:2] / result["run"]
    # Read again, the tables agree; and what is measured at either end is what the captures alone say.
    aligned = align(folder, 2)
    assert aligned.files[1].shift_ns == 0
    nearest = {flow["from"]: 0 for flow in result["flows"]} | {flow["to"]: 1 for flow in result["flows"]}
    assert dict(aligned.nearest) == nearest
    complete = imported(tmp_path / "other", receiver)
    assert values(result, "throughput") == pytest.approx(values(complete, "throughput"), rel=0.02)


def test_a_download_is_a_flow_from_its_server(transfer: tuple[Path, Path], tmp_path: Path) -> None:
    """Without the client's SYN and first data, the other side is taken for the client: the data tell who sends."""
    cut = tmp_path / "cut.pcap"
    raw = transfer[1].read_bytes()
    # From the first ack of the receiver on.
    frames = list(pcap.records(raw))
    first = next(n for n, frame in enumerate(frames) if n >= 3 and int.from_bytes(frame.data[2:4]) <= 60)
    cut.write_bytes(pcap.written(pcap.header(raw), frames[first:]))
    result, complete = imported(tmp_path / "a", cut), imported(tmp_path / "b", transfer[1])
    assert [flow["from"] for flow in result["flows"]] == [flow["from"] for flow in complete["flows"]]
    folder = tmp_path / "a" / "runs" / result["run"][:2] / result["run"]
    connections = pl.read_parquet(folder / "connections.parquet")
    assert connections["opened_by_server"].to_list() == [True]
    assert connections["client_payload_bytes"][0] > 0 == connections["server_payload_bytes"][0]
    segments = pl.read_parquet(folder / "segments.parquet")
    assert (segments.filter(pl.col("payload") > 0)["dir"] == 0).all()
    assert values(result, "throughput") == pytest.approx(values(complete, "throughput"), rel=0.05)


@pytest.mark.parametrize("skipped", [pytest.param(0, marks=pytest.mark.slow(reason="with less it is harder")), 5])
def test_acks_alone_tell_what_was_transferred(skipped: int, transfer: tuple[Path, Path], tmp_path: Path) -> None:
    raw = transfer[1].read_bytes()
    # Raw IP: the source is at byte 12; the first packet is the sender's SYN.
    frames = list(pcap.records(raw))
    sender = frames[0].data[12:16]
    acks = [frame for frame in frames if frame.data[12:16] != sender]
    half = tmp_path / "half.pcap"
    half.write_bytes(pcap.written(pcap.header(raw), acks[skipped:]))
    result, complete = imported(tmp_path / "a", half), imported(tmp_path / "b", transfer[1])
    assert [flow["from"] for flow in result["flows"]] == [flow["from"] for flow in complete["flows"]]
    # Without its beginning the flow has no slow start.
    near = 0.1 if skipped else 0.03
    assert values(result, "throughput") == pytest.approx(values(complete, "throughput"), rel=near)
    assert values(complete, "throughput")[0] > 1e5


def test_a_single_packet_has_no_rate(transfer: tuple[Path, Path], tmp_path: Path) -> None:
    raw = transfer[0].read_bytes()
    entry = tmp_path / "one.pcap"
    entry.write_bytes(pcap.written(pcap.header(raw), [list(pcap.records(raw))[20]]))
    result = imported(tmp_path / "results", entry)
    assert (result["files"][0]["connections_total"], result["flows"], values(result, "throughput")) == (1, [], [])


def test_what_a_translator_changed_is_not_matched_and_told_so(transfer: tuple[Path, Path], tmp_path: Path) -> None:
    raw = transfer[1].read_bytes()
    frames = list(pcap.records(raw))
    sender, inside = frames[0].data[12:16], bytes([192, 168, 1, 5])

    def translated(data: bytes) -> bytes:
        """With another address of the sender, and no checksum of the header."""
        return data[:10] + b"\0\0" + data[12:20].replace(sender, inside) + data[20:]

    beyond = tmp_path / "beyond.pcap"
    changed = [replace(frame, data=translated(frame.data)) for frame in frames]
    beyond.write_bytes(pcap.written(pcap.header(raw), changed))
    result = imported(tmp_path / "results", transfer[0], beyond)
    assert "no transfer in common" in result["files"][1]["clock"]
    assert len({flow["from"] for flow in result["flows"]}) == 2


def test_imports_are_labelled_annotated_compared_and_made_once(transfer: tuple[Path, Path], tmp_path: Path) -> None:
    results = tmp_path / "results"
    first = imported(results, transfer[0], "--label", "sender", "--note", "at the sender")
    again = imported(results, transfer[0], "--label", "sender", "--note", "at the sender")
    other = imported(results, transfer[1], "--label", "receiver")
    assert (first["known"], again["known"], first["run"]) == (False, True, again["run"])
    assert first["note"] == "at the sender"
    assert other["campaign"] == first["campaign"]
    table = json.loads(backchannel("results", "imports", "--results", results, "--json").stdout)
    assert [point["parameters"] for point in table["points"]] == [{"import": "sender"}, {"import": "receiver"}]
    client = create_app(results).test_client()
    page = client.get(f"/runs/{first['run']}").get_data(as_text=True)
    assert "at the sender" in page
    assert transfer[0].stem in page
    assert client.get(f"/campaigns/{first['campaign']}").status_code == 200
    flow = first["flows"][0]["name"]
    sequence = client.get(f"/api/runs/{first['run']}/sequence", query_string={"flow": flow}).get_json()
    assert sum(len(entry["x"]) for entry in sequence["series"]) > 100


def test_what_cannot_be_imported_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "letter.pcap").write_text("Dear Sir or Madam, this is no capture at all. " * 9)
    (tmp_path / "empty.pcap").write_bytes(b"")
    (tmp_path / "none.pcap").write_bytes(pcap.written(pcap.Header(pcap.ETHERNET, 1000), []))
    frame = pcap.Record(time_ns=1_000_001_000, data=b"abcd", wire_len=4)
    (tmp_path / "radio.pcap").write_bytes(pcap.written(pcap.Header(147, 1000), [frame]))
    (tmp_path / "cut.pcap.gz").write_bytes(gzip.compress(b"abcdefgh" * 99)[:9])
    short = pcap.Record(time_ns=0, data=b"\2" * 12 + b"\x08\0E\0\0\x34" + b"\0" * 5 + b"\6" + b"\0" * 10, wire_len=66)
    (tmp_path / "short.pcap").write_bytes(pcap.written(pcap.Header(pcap.ETHERNET, 1000), [short]))
    for name, said in (
        ("short.pcap", "1 have headers that are cut off"),
        ("absent.pcap", "does not exist"), ("letter.pcap", "tshark cannot read it"), ("empty.pcap", "no TCP, UDP"),
        ("none.pcap", "no TCP, UDP or ping"), ("radio.pcap", "link type 147"), ("cut.pcap.gz", "reading failed"),
    ):  # fmt: skip
        done = backchannel("import", tmp_path / name, "--results", tmp_path / "results")
        assert done.returncode == 2, (name, done.stdout, done.stderr)
        assert said in done.stderr, (name, done.stderr)
        assert "Traceback" not in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    twice = backchannel("import", *[tmp_path / "none.pcap"] * 2, "--results", tmp_path / "results", status=2)
    assert "have the same content; give each capture once" in twice.stderr
    assert list((tmp_path / "results" / "incoming").iterdir()) == []


def test_no_damage_makes_it_fail_and_all_of_it_is_told(transfer: tuple[Path, Path], tmp_path: Path) -> None:
    """Mutations of whole captures: bytes, lengths, cuts, repeated and missing parts, in both formats and compressed."""
    draw = random.Random(6)
    plain = ethernet(transfer[0], tmp_path / "plain.pcap")
    ng = tmp_path / "plain.pcapng"
    subprocess.run(["editcap", "-F", "pcapng", str(plain), str(ng)], check=True, capture_output=True)
    damaged = told = 0
    for number in range(60):
        source = draw.choice([plain, ng])
        data = bytearray(source.read_bytes())
        for _ in range(draw.randint(1, 8)):
            at, length = draw.randrange(24, len(data)), draw.randint(1, 400)
            match draw.randrange(5):
                case 0:
                    data[at : at + length] = draw.randbytes(length)
                case 1:
                    del data[at : at + length]
                case 2:
                    data[at:at] = data[at : at + length]
                case 3:
                    data[at : at + 4] = draw.choice([b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff", b"\0\0\1\0"])
                case 4:
                    del data[max(at, len(data) // 2) :]
        path = tmp_path / f"{number}.cap"
        path.write_bytes(gzip.compress(bytes(data)) if draw.random() < 0.3 else bytes(data))
        out = tmp_path / f"out-{number}"
        done = subprocess.run(
            [node_binary.path(), "trace", "--out", str(out), f"one={path}"], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            summary = json.loads((out / "summary.json").read_text())["files"][0]
            assert summary["packets"] > 0
            pl.read_parquet(out / "segments.parquet")
            told += summary["damages"] > 0
            assert all(0 <= entry["offset"] <= len(data) and entry["reason"] for entry in summary["damage"])
        else:
            assert done.returncode == 1
            assert "is not a capture file" in done.stderr
        damaged += 1
        shutil.rmtree(out, ignore_errors=True)
    assert damaged == 60
    assert told > 20
