"""Our classification beside Wireshark's, on captures of real campaigns and of the kernel's TCP under loss.

Every difference is explained by a rule of docs/traces.md, or is a bug.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from testbed import node_binary
from testbed.cell import Cell
from tests.conftest import Finished, two_hosts

FIELDS = (
    "frame.number", "tcp.stream", "ip.len", "tcp.len", "tcp.seq", "tcp.ack", "tcp.srcport",
    "tcp.analysis.retransmission", "tcp.analysis.fast_retransmission", "tcp.analysis.spurious_retransmission",
    "tcp.analysis.out_of_order", "tcp.analysis.duplicate_ack", "tcp.analysis.ack_rtt", "tcp.analysis.window_update",
    "tcp.analysis.zero_window", "tcp.analysis.keep_alive",
)  # fmt: skip
NEW, RETRANSMISSION, SPURIOUS, OUT_OF_ORDER, DUPLICATE = 1, 2, 8, 16, 64
WINDOW_UPDATE, ZERO_WINDOW, KEEP_ALIVE = 128, 256, 512
BAD_CHECKSUM = 1 << 21


def tshark(capture: Path) -> pl.DataFrame:
    """Wireshark's fields of every TCP segment, in file order."""
    words = ["tshark", "-r", str(capture), "-Y", "tcp", "-T", "fields", "-E", "separator=/t"]
    for name in FIELDS:
        words += ["-e", name]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    rows = [line.split("\t") for line in said.splitlines()]
    return pl.DataFrame(rows, schema=dict.fromkeys(FIELDS, pl.String), orient="row")


def ours(capture: Path, out: Path) -> pl.DataFrame:
    node_binary.call("trace", "--out", str(out), f"one={capture}")
    return pl.read_parquet(out / "segments.parquet")


def without_bad_checksums(capture: Path, out: Path) -> tuple[Path, pl.DataFrame]:
    """Rule "bad checksum": no receiver takes such a segment, and ours changes nothing by it; Wireshark follows it.

    So its frames are taken out for Wireshark; what ours says of the others must not depend on them.
    """
    own = ours(capture, out / "whole")
    bad = own.filter(pl.col("class") & BAD_CHECKSUM != 0)["frame"].to_list()
    if not bad:
        return capture, own
    cleaned = out / capture.name
    subprocess.run(["editcap", str(capture), str(cleaned), *map(str, bad)], check=True, capture_output=True)
    again, rest = ours(cleaned, out / "cleaned"), own.filter(pl.col("class") & BAD_CHECKSUM == 0)
    assert again.drop("frame").equals(rest.drop("frame")), f"{capture}: a bad checksum changed what was said of others"
    return cleaned, again


def lossy_captures(folder: Path) -> Iterator[Path]:
    """The kernel's TCP over lines that lose and damage packets, captured at both ends."""
    variants: list[dict[str, Any]] = [
        {"errors": [{"name": "uniform", "options": {"probability": 0.02}}]},
        {"errors": [{"name": "uniform", "options": {"probability": 0.03, "effect": "damage"}}]},
        {"queue": {"name": "droptail", "options": {"limit_packets": 4}}},
    ]
    with Cell("lossy") as cell:
        for number, variant in enumerate(variants):
            for stack in ("reno", "cubic"):
                scenario = two_hosts(rate_bps=4_000_000, delay_s=0.015, duration_s=4.0, seed=number + 1)
                scenario["links"][0]["forward"] |= variant
                scenario["links"][0]["reverse"] = scenario["links"][0]["reverse"] | {
                    "errors": variant.get("errors", [])
                }
                for node in scenario["nodes"]:
                    node["stack"] = {"name": stack, "options": {"sack": number != 2}}
                cell.build(scenario)
                out = folder / f"{number}-{stack}"
                cell.run(scenario, out)
                yield from sorted((out / "captures").glob("*.pcap"))


@pytest.fixture(scope="module")
def captures(emulation: None, finished: Finished, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("captures")
    found = []
    for number, packed in enumerate(sorted(finished.results.glob("runs/*/*/captures/*.pcap.gz"))):
        path = folder / f"campaign-{number}-{packed.name.removesuffix('.gz')}"
        with gzip.open(packed) as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)
        found.append(path)
    found += lossy_captures(folder)
    assert len(found) >= 36
    return found


@pytest.mark.emulated
def test_every_segment_agrees_with_wireshark(captures: list[Path], tmp_path: Path) -> None:
    seen = {"damaged": 0, "segments": 0, "again": 0, "duplicates": 0, "samples": 0}
    for number, capture in enumerate(captures):
        name = capture.parent.parent.name + "/" + capture.name
        cleaned, own = without_bad_checksums(capture, tmp_path / str(number))
        theirs = tshark(cleaned)
        seen["damaged"] += cleaned != capture
        assert own.height == theirs.height, name
        seen["segments"] += own.height
        for column, field in (("ip_len", "ip.len"), ("payload", "tcp.len"), ("seq", "tcp.seq"), ("conn", "tcp.stream")):
            assert own[column].cast(pl.Int64).to_list() == theirs[field].cast(pl.Int64).to_list(), (name, column)

        again = own["class"] & (RETRANSMISSION | OUT_OF_ORDER) != 0
        their_again = pl.Series([False] * theirs.height)
        for field in FIELDS[7:11]:
            their_again = their_again | (theirs[field] != "")
        assert again.to_list() == their_again.to_list(), name
        seen["again"] += int(again.sum())

        for bit, field in (
            (DUPLICATE, "tcp.analysis.duplicate_ack"), (WINDOW_UPDATE, "tcp.analysis.window_update"),
            (ZERO_WINDOW, "tcp.analysis.zero_window"), (KEEP_ALIVE, "tcp.analysis.keep_alive"),
        ):  # fmt: skip
            assert (own["class"] & bit != 0).to_list() == (theirs[field] != "").to_list(), (name, field)
        seen["duplicates"] += int((own["class"] & DUPLICATE != 0).sum())

        # Karn: we give no sample where Wireshark may; where we give one, it is Wireshark's.
        pairs = pl.DataFrame({"own": own["rtt_ns"] / 1e9, "theirs": theirs["tcp.analysis.ack_rtt"]}).filter(
            pl.col("own").is_not_null()
        )
        assert (pairs["theirs"] != "").all(), name
        assert ((pairs["own"] - pairs["theirs"].cast(pl.Float64)).abs() < 2e-9).all(), name
        seen["samples"] += pairs.height
    # The captures must hold what the test is about.
    assert seen["segments"] > 50_000
    assert seen["damaged"] > 0
    assert seen["again"] > 300
    assert seen["duplicates"] > 300
    assert seen["samples"] > 5_000
