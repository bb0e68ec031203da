"""`./backchannel import` of qlog files: what the endpoints of a run logged gives what the run gave."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest

import analysis
from analysis import qlog
from analysis.captures import RunData
from experiments.engine.execution import analyse
from testbed.report import Report
from tests.conftest import backchannel, typed
from tests.fuzz import readers
from tests.sim.analysis.test_quic import BYTES, scenario
from tests.sim.experiments.test_importing import imported
from tests.sim.testbed.test_simulation import simulate

LOGS = Path(readers.__file__).parent / "corpus/qlog"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunData]:
    folder = tmp_path_factory.mktemp("run")
    report = Report.read(simulate(scenario(), folder))
    made = typed(scenario())
    analyse(folder, made, report)
    return folder, RunData.load(folder, made, report)


def logs(folder: Path) -> tuple[Path, Path]:
    """Of the sender and of the receiver."""
    sender, receiver = (next((folder / qlog.FOLDER).glob(f"down-{end}-*")) for end in ("sender", "receiver"))
    return sender, receiver


def values(found: dict[str, Any], flow: str) -> dict[str, float]:
    return {row["name"]: row["value"] for row in found["metrics"] if row["subject"] == flow}


def test_the_senders_log_gives_the_metrics_and_figures_of_the_run(run: tuple[Path, RunData], tmp_path: Path) -> None:
    folder, data = run
    found = imported(tmp_path, logs(folder)[0])
    assert [flow["name"] for flow in found["flows"]] == ["client-server:1"]
    values_ = values(found, "client-server:1")
    flow = data.flow("down")
    assert flow.log is not None
    assert values_["quic_packets_sent"] == flow.log.sent.height
    assert values_["quic_packets_lost"] == flow.log.lost.height > 0
    assert values_["quic_packets_acked"] == flow.log.acks["packets"].sum()
    assert values_["rtt_mean"] == pytest.approx(flow.rtt_mean_s(), rel=1e-9)
    assert values_["cwnd_mean"] == pytest.approx(flow.cwnd_mean_segments(), rel=0.25), "over the log's time"
    with analysis.open(tmp_path) as store:
        kept = store.run(found["run"])
        captured = data.flow("down").log
        # The run begins with the log's first event, half a second after the simulation.
        (again,) = (flow for flow in kept.view().flows if flow.name == "client-server:1")
        assert again.log.sent["t_s"][0] == 0.0  # type: ignore[attr-defined]
        shifted = captured.sent["t_s"] - captured.sent["t_s"][0]  # type: ignore[union-attr]
        assert again.log.sent["t_s"].to_list() == pytest.approx(shifted.to_list(), abs=1e-9)  # type: ignore[attr-defined]
        for kind in ("sequence", "cwnd", "rtt", "throughput"):
            figure = kept.plot(kind)
            assert not figure.is_empty, kind
            assert any("own logs" in note for note in figure.notes), kind
        names = [line.name for line in kept.plot("sequence").series]
        assert names == ["acknowledged", "data", "sent again"]
        assert kept.plot("sequence").series[0].points["y"].max() == BYTES / 1e3


def test_both_ends_are_one_connection_of_which_the_receiver_counts(run: tuple[Path, RunData], tmp_path: Path) -> None:
    folder, data = run
    received = data.flow("down").received
    found = imported(tmp_path / "results", logs(folder)[1])
    (flow,) = found["flows"]
    whole_bps = received["bytes"].sum() * 8 / flow["stop_s"]
    # From the client's first packet, which the capture has at the same instant, to the last event.
    assert values(found, "client-server:1")["throughput"] == pytest.approx(whole_bps, rel=0.01)
    both = []
    for path in logs(folder):
        text = gzip.decompress(path.read_bytes()).replace(b'"time_format"', b'"group_id":"c0ffee","time_format"', 1)
        both.append(tmp_path / path.name)
        both[-1].write_bytes(gzip.compress(text))
    found = imported(tmp_path / "results", *both)
    assert [flow["name"] for flow in found["flows"]] == ["client-server:1"]
    got = values(found, "client-server:1")
    assert got["quic_packets_sent"] > data.flow("down").received.height
    assert got["acks_delivered"] <= got["acks_sent"]
    # Without an id they are two connections.
    apart = imported(tmp_path / "results", *logs(folder))
    assert sorted(flow["name"] for flow in apart["flows"]) == ["client-server:1", "client-server:2"]


@pytest.mark.parametrize("name", sorted(path.name for path in LOGS.iterdir()))
def test_logs_of_other_programs_are_imported(name: str, tmp_path: Path) -> None:
    found = imported(tmp_path, LOGS / name)
    side = "client" if "client" in name else "server"
    own = [flow for flow in found["flows"] if flow["from"] == side]
    assert own, "it sent data"
    got = values(found, own[0]["name"])
    assert got["quic_packets_sent"] > 0
    assert got["throughput"] > 0
    assert found["logs"]
    assert found["files"][0]["format"].startswith("qlog ")


def test_a_log_that_a_killed_program_left_is_imported_to_its_end(run: tuple[Path, RunData], tmp_path: Path) -> None:
    cut = tmp_path / "cut.sqlog"
    cut.write_bytes(gzip.decompress(logs(run[0])[0].read_bytes())[:-200])
    found = imported(tmp_path / "results", cut)
    (damage,) = found["files"][0]["damage"]
    assert damage["reason"] == "the last record is cut off"
    assert damage["offset"] + damage["bytes"] == cut.stat().st_size


def test_what_cannot_be_imported_is_a_sentence_and_leaves_nothing(run: tuple[Path, RunData], tmp_path: Path) -> None:
    log, results = logs(run[0])[0], tmp_path / "results"
    text = gzip.decompress(log.read_bytes())
    capture = next((run[0] / "captures").iterdir())
    cases: list[tuple[str, list[Path | bytes], str]] = [
        ("field.sqlog", [text.replace(b'"packet_number":5,', b'"packet_number":"five",', 1)],
         r"field.sqlog, line \d+: data.header.packet_number: \"five\" is not a whole number"),
        ("network.sqlog", [text.replace(b'"type":"client"', b'"type":"network"', 1)], "no trace of a client or server"),
        ("empty.sqlog", [text.splitlines(keepends=True)[0]], "no trace of a client or server"),
        ("bare.sqlog", [b"".join(text.splitlines(keepends=True)[:2])], "no data of streams was found in bare.sqlog"),
        ("mixed.sqlog", [text, capture], "mixed.sqlog is a qlog file and .* is not; import captures and logs separat"),
        ("deep.qlog", [b'{"traces":' + b"[" * 1_000_000], "deep.qlog: not JSON: nested too deep"),
    ]  # fmt: skip
    for name, files, words in cases:
        paths = []
        for file in files:
            paths.append(file if isinstance(file, Path) else tmp_path / name)
            if isinstance(file, bytes):
                paths[-1].write_bytes(file)
        done = backchannel("import", *paths, "--results", results)
        assert done.returncode == 2, name
        assert re.search(words, done.stderr), (name, done.stderr)
        assert "Traceback" not in done.stderr
    assert not list(results.glob("runs/*/*"))
    assert not list(results.glob("incoming/*"))


def test_a_short_file_of_much_is_bounded(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.sqlog.gz"
    with gzip.open(bomb, "wb") as out:
        out.write(b'\x1e{"qlog_version":"0.3","trace":{"vantage_point":{"type":"client"}}}\n\x1e')
        for _ in range(64):
            out.write(b" " * (1 << 20))
    done = backchannel("import", bomb, "--results", tmp_path / "results", "--memory-limit", "0.8", status=2)
    assert "line 2: a record of more than 16 MiB" in done.stderr
