"""What is exported says what was measured; what is read back is the same, or is refused with a sentence."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import polars as pl
import pytest
from hypothesis import example, given, strategies as st

import analysis
from analysis.errors import AnalysisError
from analysis.exports import crate, crate_reader, flent, tables, xplot
from analysis.exports.si import in_si, wide
from analysis.exports.unpack import CAMPAIGN, METADATA, PREVIEW
from analysis.metrics import throughput
from analysis.store import Store, damage
from experiments import bundles
from tests.support.bundles import edited, redescribed, rewritten
from tests.support.called import called
from tests.support.campaign_texts import one_line
from tests.support.made_traces import Trace, path_scenario
from tests.support.rewriting import rewriting
from tests.support.simulated import ran


def a_run(results: Path) -> str:
    return str(analysis.open(results)["small"].values()["run_id"][0])


# Tables ----------------------------------------------------------------------------------------------------------


def test_tables_come_back_as_they_were(results: Path, tmp_path: Path) -> None:
    readers: dict[str, Callable[[Path], pl.DataFrame]] = {
        "csv": lambda path: pl.read_csv(path, schema_overrides=values.schema), "parquet": pl.read_parquet,
        "json": lambda path: pl.read_json(path, schema_overrides=values.schema),
    }  # fmt: skip
    campaign = analysis.open(results)["small"]
    values = in_si(campaign, campaign.values())
    for ending, reader in readers.items():
        path = tmp_path / f"values.{ending}"
        status, out, err = called("export", "values", "small", "--results", results, "--out", path)
        assert (status, out) == (0, f"{path}\n"), err
        # CSV has no empty text beside a missing one: the run's own metrics have no subject.
        back = reader(path).with_columns(pl.col("subject").fill_null(""))
        assert back.equals(values), ending


def test_tables_have_numbers_with_their_units(simulated_rates: Path) -> None:
    campaign = analysis.open(simulated_rates)["rates"]
    values = in_si(campaign, campaign.values())
    field = "network.forward.rate"
    assert values.select(field, f"{field}_unit").unique(maintain_order=True).rows() == [
        (500_000.0, "bit/s"), (1_000_000.0, "bit/s"),
    ]  # fmt: skip
    # The site counts repetitions from 1.
    assert sorted(values["repetition"].unique()) == [1, 2]
    units = dict(values.select("metric", "unit").unique().iter_rows())
    assert (units["throughput"], units["rtt_mean"], units["utilisation"]) == ("bit/s", "s", "1")
    runs = wide(campaign)
    assert runs.height == 4
    assert runs.columns[5] == "throughput of bulk (bit/s)", "the question's metric is the first"
    one = values.filter((pl.col("metric") == "rtt_mean") & (pl.col("run_id") == runs["run_id"][0]))["value"][0]
    assert runs["rtt_mean of bulk (s)"][0] == one


@pytest.fixture(scope="module")
def simulated_rates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = one_line("rates", "sweep: {network.forward.rate: [500 kbit/s, 1 Mbit/s]}\nrepetitions: 2")
    return ran(tmp_path_factory.mktemp("rates"), "rates.yaml", text).results


def test_infinities_are_null_in_json(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [1.0, math.inf, -math.inf, math.nan], "n": [1, 2, 3, 4]})
    tables.write(frame, tmp_path / "x.json")
    assert [row["x"] for row in json.loads((tmp_path / "x.json").read_text())] == [1.0, None, None, None]
    with pytest.raises(AnalysisError, match=r"a table's name ends in \.csv, \.parquet, \.json"):
        tables.write(frame, tmp_path / "x.xls")


def test_every_export_by_the_command_line(results: Path, tmp_path: Path) -> None:
    run = a_run(results)
    for kind, subject, name in (
        ("means", "small", "m.parquet"), ("metrics", run, "r.csv"), ("segments", run, "s.parquet"),
        ("connections", run, "c.json"), ("acks", run, "a.csv"),
    ):  # fmt: skip
        status, out, err = called("export", kind, subject, "--results", results, "--out", tmp_path / name)
        assert (status, out) == (0, f"{tmp_path / name}\n"), err
    assert pl.read_parquet(tmp_path / "s.parquet").height > 1000
    assert pl.read_csv(tmp_path / "a.csv").filter(pl.col("line") == "bottleneck/reverse")["entered"][0] > 100


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("csv", "small"), "unknown export 'csv'"),
        (("values", "smal"), "unknown campaign 'smal'; did you mean 'small'?"),
        (("metrics", "zz"), "unknown run 'zz'"),
        (("values", "small", "--out", "x.doc"), "a table's name ends in"),
        (("flent-raw", "/nowhere.flent"), "/nowhere.flent cannot be read: No such file or directory"),
        (("bundle", "small", "--out", "/proc/none/x.zip"), "cannot be written"),
    ],
)
def test_mistakes_are_sentences(words: tuple[str, ...], said: str, results: Path) -> None:
    status, _, err = called("export", *words, "--results", results)
    assert status == 2
    assert said in err


# xplot -----------------------------------------------------------------------------------------------------------


def commands(path: Path, zero: int = 0) -> list[tuple[str, ...]]:
    """What an xplot file draws: (colour, command, arguments..., text); sequence numbers less `zero`."""
    lines = iter(path.read_text().splitlines())
    assert next(lines).split() == ["timeval", "double"]
    colours = {"white", "green", "yellow", "red", "orange", "pink", "purple", "blue"}
    points = ("dot", "diamond", "uarrow", "darrow", "utick", "dtick", "htick", "atext", "rtext")
    lengths = {"line": 4, **dict.fromkeys(points, 2)}
    colour, result = "", []
    for line in lines:
        word, *rest = line.split()
        if word in ("title", "xlabel", "ylabel"):
            assert next(lines)
        elif word in colours:
            assert not rest
            colour = word
        elif word == "go":
            assert list(lines) == []
        else:
            assert len(rest) == lengths[word], line
            rest[1::2] = [str(int(number) - zero) if zero else number for number in rest[1::2]]
            result.append((colour, word, *rest, next(lines) if word.endswith("text") else ""))
    return result


def test_time_sequences_are_what_tcptrace_draws(results: Path, tmp_path: Path) -> None:
    """Line by line, of every run's two flows: the same segments, acks, windows and marks at the same places."""
    drawn = {"R": 0, "3": 0}
    for run in analysis.open(results)["small"].values()["run_id"].unique():
        data = analysis.open(results).run(run).data
        for flow in data.flows:
            assert data.folder is not None
            present = tmp_path / run / flow.name
            present.mkdir(parents=True)
            packed = data.folder / f"captures/{flow.sender}-eth0.pcap.gz"
            (present / "it.pcap").write_bytes(gzip.decompress(packed.read_bytes()))
            subprocess.run(["tcptrace", "-S", "-n", "it.pcap"], cwd=present, check=True, capture_output=True)
            port = f":{flow.spec.port} (time"
            (theirs,) = (path for path in present.glob("*_tsg.xpl") if f"{port}" in path.read_text().splitlines()[2])
            mine = xplot.write(flow, present / "mine")[0]
            assert mine.read_text().splitlines()[2] == theirs.read_text().splitlines()[2]
            zero = next(int(command[3]) for command in commands(theirs) if command[1] == "diamond")
            assert sorted(commands(mine)) == sorted(commands(theirs, zero))
            for mark in drawn:
                drawn[mark] += sum(command[-1] == mark for command in commands(mine))
    assert drawn["R"] > 20
    assert drawn["3"] > 0


def test_xplot_of_samples_and_of_a_second_connection(tmp_path: Path) -> None:
    trace = Trace(path_scenario())
    for port in (40000, 40001):
        trace.data("a-eth0", 2.0, 0, port=port)
        trace.data("a-eth0", 2.5, 1000, kind="again" if port == 40001 else "new", port=port)
        trace.ack("a-eth0", 2.75, 2000, rtt_s=0.25, port=port)
    files = xplot.write(trace.run().flows[0], tmp_path)
    assert [path.name for path in files] == [
        f"{name}_{kind}.xpl" for name in ("bulk", "bulk-2") for kind in ("tsg", "rtt", "owin", "tput")
    ]
    of = {path.stem: commands(path) for path in files}
    assert of["bulk_rtt"] == [("red", "dot", "2.750000", "250.000", "")]
    assert [entry for entry in of["bulk_owin"] if entry[:2] == ("red", "dot")] == [
        ("red", "dot", "2.000000", "1000", ""), ("red", "dot", "2.500000", "2000", ""),
        ("red", "dot", "2.750000", "0", ""),
    ]  # fmt: skip
    assert ("yellow", "dot", "2.500000", "2000", "") in of["bulk_tput"]  # 1000 bytes in half a second
    assert ("red", "atext", "2.500000", "2001", "R") in of["bulk-2_tsg"]
    flow = trace.run().flows[0]
    flow.name = "../../etc/passwd flow"
    assert xplot.write(flow, tmp_path)[0] == tmp_path / "_.._etc_passwd_flow_tsg.xpl"
    assert not any(entry[0] == "red" for entry in of["bulk_tsg"])


def test_selective_blocks_are_drawn_where_the_tables_have_them(tmp_path: Path) -> None:
    trace = Trace(path_scenario())
    trace.data("a-eth0", 2.0, 0)
    trace.ack("a-eth0", 2.5, 1000)
    run = trace.run(tmp_path)
    rows = {
        "file": [0, 0, 1], "conn": [0, 0, 0], "dir": [1, 1, 1], "time_ns": [2_500_000_000] * 3, "ack": [1001] * 3,
        "left": [3001, 5001, 9001], "right": [4001, 6001, 9999],
    }  # fmt: skip
    kinds = {"file": pl.UInt16, "conn": pl.UInt32, "dir": pl.UInt8}
    pl.DataFrame(rows, schema_overrides=kinds).write_parquet(tmp_path / "sacks.parquet")
    drawn = commands(xplot.write(run.flows[0], tmp_path / "x")[0])
    assert [entry[1:] for entry in drawn if entry[0] == "purple"] == [
        ("line", "2.500000", "3001", "2.500000", "4001", ""), ("htick", "2.500000", "3001", ""),
        ("htick", "2.500000", "4001", ""), ("rtext", "2.500000", "4001", "1"),
        ("line", "2.500000", "5001", "2.500000", "6001", ""), ("htick", "2.500000", "5001", ""),
        ("htick", "2.500000", "6001", ""), ("rtext", "2.500000", "6001", "2"), ("atext", "2.500000", "4001", "S"),
    ]  # fmt: skip


# Flent -----------------------------------------------------------------------------------------------------------


def test_flent_reads_back_what_was_written(results: Path, tmp_path: Path) -> None:
    run = a_run(results)
    path = tmp_path / "run.flent.gz"
    status, _, err = called("export", "flent", run, "--results", results, "--out", path)
    assert status == 0, err
    data, read = analysis.open(results).run(run).data, flent.read(path)
    assert read.metadata["NAME"] == "tcp_bidirectional"
    assert read.metadata["TITLE"] == "small, policy=droptail, repetition 1"
    assert read.units["TCP download"] == "Mbits/s"
    flow = data.flows[0]
    mean = float(read.series["TCP download"].drop_nulls().sum()) * 0.2 * 1e6 / (6.0 - flow.start_s)
    assert mean == pytest.approx(throughput(flow), rel=1e-9)
    samples = read.raw.filter(pl.col("series") == "TCP download::tcp_rtt")
    ours = analysis.metrics.rtt_samples(flow)
    assert samples["value"].to_list() == pytest.approx((ours["rtt_s"] * 1e3).to_list())
    assert (samples["t_s"] - data.t0_epoch_ns / 1e9).to_list() == pytest.approx(ours["t_s"].to_list(), abs=1e-6)
    assert read.series["TCP upload::tcp_cwnd"].max() >= 1  # type: ignore[operator]
    # Equal runs give equal files; and the tables of a Flent file are exports too.
    flent.write(data, tmp_path / "again.flent.gz", "small, policy=droptail, repetition 1")
    assert (tmp_path / "again.flent.gz").read_bytes() == path.read_bytes()
    status, out, err = called("export", "flent-series", path, "--out", tmp_path / "series.csv")
    assert (status, out) == (0, f"{tmp_path / 'series.csv'}\n"), err
    assert pl.read_csv(tmp_path / "series.csv").columns == read.series.columns


def test_flows_of_one_way_are_numbered_and_summed(tmp_path: Path) -> None:
    scenario = path_scenario()
    scenario["workload"].append({**scenario["workload"][0], "name": "second", "port": 5002})
    trace = Trace(scenario)
    for flow in (0, 1):
        for number in range(2 + flow):
            trace.data("b-eth0", 2.05 + number * 0.2, 1000 * number, flow=flow, port=40000 + flow)
    document = flent.compose(trace.run(), "two")
    assert document["metadata"]["NAME"] == "tcp_ndown"
    assert document["metadata"]["TEST_PARAMETERS"] == {"download_streams": "2"}
    # A packet each 0.2 s, so slices of five steps: 2000 bytes from 2 s to 3 s, from the end of the first step on.
    at = round(2.2 / 0.2)
    assert document["results"]["TCP download::1"][at - 1 : at + 6] == pytest.approx([0, *[0.016] * 5, 0])
    assert document["results"]["TCP download::2::in_order"][at - 1 : at + 6] == pytest.approx([0, *[0.024] * 5, 0])
    assert document["results"]["TCP download sum"][at - 1 : at + 6] == pytest.approx([0, *[0.04] * 5, 0])


def flent_file(path: Path, **changes: Any) -> Path:
    document = {
        "version": 3,
        "metadata": {"NAME": "rrul", "SERIES_META": {"Ping (ms) UDP BE": {"UNITS": "ms"}, "a": {}}},
        "x_values": [0.0, 0.2, 0.4],
        "results": {"Ping (ms) UDP BE": [10.5, None, 11.0], "a": [None, 1, 2]},
        "raw_values": {
            "Ping (ms) UDP BE": [{"t": 1496158967.1, "dur": 0.2, "val": 80.0}, {"t": 1496158967.3, "dur": 0.2}],
            "a": [{"t": 1496158967.2, "val": 3.0}],
        },
        **changes,
    }  # fmt: skip
    path.write_text(json.dumps(document))
    return path


def test_flents_own_files_of_old_versions(tmp_path: Path) -> None:
    read = flent.read(flent_file(tmp_path / "old.flent"))
    assert read.series["Ping (ms) UDP BE"].to_list() == [10.5, None, 11.0]
    assert read.units == {"Ping (ms) UDP BE": "ms", "a": ""}
    # Version 3 kept a request-response rate: 80 a second are 12.5 ms.
    assert read.raw.rows() == [("Ping (ms) UDP BE", 1496158967.1, 12.5), ("a", 1496158967.2, 3.0)]
    new = flent.read(flent_file(tmp_path / "new.flent", version=4))
    assert new.raw["value"].to_list() == [80.0, 3.0]
    meta = {"NAME": "x", "SERIES_META": {"a": {"RAW_VALUES": [{"t": 1.0, "val": 2.0}]}}}
    first = flent.read(flent_file(tmp_path / "first.flent", version=1, metadata=meta, raw_values={}))
    assert first.raw.rows() == [("a", 1.0, 2.0)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 5}, "unsupported version 5 of Flent's format"),
        ({"x_values": [1]}, "does not have a value for each of 1"),
        ({"results": [1]}, "of the wrong kind"), ({"results": {"a": ["x", 1, 2]}}, "is not a number"),
        ({"raw_values": {"a": [{"t": "now", "val": 1}]}}, "is not a number"), ({"raw_values": [1]}, "is not a number"),
    ],
)  # fmt: skip
def test_a_bad_flent_file_is_told(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=said):
        flent.read(flent_file(tmp_path / "bad.flent", **changes))


#: Its deflate stream is damaged, which is a zlib.error and not an OSError.
DAMAGED_GZIP = gzip.compress(b'{"version": 4}' * 20, mtime=0)[:10] + b"\xff" * 9


@example(b"", DAMAGED_GZIP)
@given(st.binary(max_size=300), st.sampled_from([b"", b"\x1f\x8b\x08", b"BZh9", b'{"metadata":']))
def test_any_bytes_are_a_bad_flent_file(tmp_path_factory: pytest.TempPathFactory, rest: bytes, begins: bytes) -> None:
    path = tmp_path_factory.mktemp("flent") / "x.flent"
    path.write_bytes(begins + rest)
    with pytest.raises(AnalysisError):
        flent.read(path)


# Bundles ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def bundle(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "small.crate.zip"
    status, out, err = called(
        "export", "bundle", "small", "--results", results, "--out", path, "--author", "A. Researcher"
    )
    assert status == 0, err
    assert out.splitlines() == [str(path), f"sha256 {damage.digest(path)}"]
    return path


@pytest.fixture(autouse=True)
def one_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take most of the time of a bundle. That of the fixture `bundle` has all of them."""
    monkeypatch.setattr(crate, "FIGURES", ("throughput",))


def graph(path: Path) -> dict[str, dict[str, Any]]:
    with zipfile.ZipFile(path) as opened:
        return {load["@id"]: load for load in json.loads(opened.read(METADATA))["@graph"]}


def test_a_bundle_is_a_process_run_crate(bundle: Path, results: Path) -> None:
    result = graph(bundle)
    assert result[METADATA]["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.1"}
    root = result["./"]
    assert root["conformsTo"] == {"@id": "https://w3id.org/ro/wfrun/process/0.5"}
    assert all(root[key] for key in ("name", "description", "datePublished", "license"))
    files = {name for name, entry in result.items() if entry["@type"] == "File"}
    preview = result[PREVIEW]
    assert preview["about"] == {"@id": "./"}
    assert {entry["@id"] for entry in root["hasPart"]} == files
    actions = [entry for entry in result.values() if entry["@type"] == "CreateAction"]
    assert {entry["@id"] for entry in root["mentions"]} == {action["@id"] for action in actions}
    assert len(actions) == 4
    for action in actions:
        assert result[action["instrument"]["@id"]]["@type"] == "SoftwareApplication"
        assert result[action["agent"]["@id"]]["name"] == "A. Researcher"
        assert action["startTime"] <= action["endTime"]
        assert {entry["@id"] for entry in (*action["object"], *action["result"])} <= files
        assert any(entry["@id"].endswith("scenario.json") for entry in action["object"])
        assert any(entry["@id"].endswith(".pcap.gz") for entry in action["result"])
    assert {"campaign.yaml", "tables/values.csv", "figures/throughput.svg", "figures/throughput.pdf"} <= files
    with zipfile.ZipFile(bundle) as opened:
        assert set(opened.namelist()) == files | {METADATA, PREVIEW}
        text = opened.read(PREVIEW).decode()
        assert "<h1>A small campaign</h1>" in text
        assert all(f'"{name}"' in text for name in files if name.startswith("runs/"))
        assert text.count("figures/throughput.svg") == 2
        assert opened.namelist()[0] == METADATA


def contents(folder: Path) -> dict[str, Any]:
    with analysis.open(folder) as s:
        result = s["small"].row
        runs = [s.store.run(run_id) for run_id in s["small"].run_ids]
        document = crate._document(result, [run for run in runs if run])
        table = s.store.table(result.id)
    return {"document": document, "table": table, "state": result.state}


def test_the_figure_that_the_file_asks_for_comes_first(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "copy")
    handle = analysis.open(tmp_path / "copy")
    asked = """
measures: {rate: {metric: throughput, of: FLOW}}
figure:
  kind: bars
  x: {axis: AXIS, title: The policy}
  y: {measures: [rate], title: What came through, unit: Mbit/s}
"""
    values = handle["small"].values()
    swept = next(name for name in values.columns if name.startswith(("network", "stack")))
    flow = values.filter(pl.col("metric") == "throughput")["subject"][0]
    more = asked.replace("FLOW", flow).replace("AXIS", swept)
    with rewriting(handle.store) as connection:
        connection.exec_driver_sql("UPDATE campaign SET text = text || ?", (more,))
    crate.write(handle["small"], tmp_path / "out.zip")
    with zipfile.ZipFile(tmp_path / "out.zip") as opened:
        assert opened.read("figures/figure.pdf").startswith(b"%PDF-")
        drawing = opened.read("figures/figure.svg").decode()
        assert "What came through" in drawing
        preview = opened.read(PREVIEW).decode()
    assert preview.index("figures/figure.svg") < preview.index("figures/throughput.svg")
    assert "figures/figure.svg" in graph(tmp_path / "out.zip")
    # What came in a bundle from elsewhere may ask for anything.
    with rewriting(handle.store) as connection:
        connection.exec_driver_sql("UPDATE campaign SET text = ?", ("measures: [3]\nfigure: {kind: bars, x: 3}\n",))
    crate.write(handle["small"], tmp_path / "plain.zip")
    assert "figures/figure.svg" not in graph(tmp_path / "plain.zip")


def test_another_installation_has_it_all(bundle: Path, results: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    status, out, err = called("import", bundle, "--results", other)
    assert status == 0, err
    assert "4 runs, 4 new here" in out
    assert contents(other) == contents(results)
    for path in (results / "runs").rglob("*"):
        if path.is_file():
            assert (other / path.relative_to(results)).read_bytes() == path.read_bytes()
    assert list((other / "incoming").iterdir()) == []
    # Again: nothing is new; and what runs next finds its runs done.
    status, out, _ = called("import", bundle, "--results", other)
    assert "4 runs, 0 new here" in out
    run = analysis.open(other).run(a_run(other)).data
    assert throughput(run.flows[0]) > 0


def redescribed_run(files: dict[str, bytes], ending: str, data: bytes) -> None:
    """The same of a file of a run."""
    name = of_run(files, ending)
    redescribed(files, name, data)
    document = json.loads(files[CAMPAIGN])
    for run in document["runs"]:
        for file in run["files"]:
            if name == f"runs/{run['id']}/{file['path']}":
                file.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    redescribed(files, CAMPAIGN, json.dumps(document).encode())


def of_run(files: dict[str, bytes], ending: str) -> str:
    return next(name for name in files if name.startswith("runs/") and name.endswith(ending))


def flip(files: dict[str, bytes]) -> None:
    name = of_run(files, ".pcap.gz")
    files[name] = files[name][:-1] + bytes([files[name][-1] ^ 1])


def climb(files: dict[str, bytes]) -> None:
    document = json.loads(files[METADATA])
    entry = next(entry for entry in document["@graph"] if entry["@id"] == "campaign.yaml")
    document["@graph"].append({**entry, "@id": "../../campaign.yaml"})
    files[METADATA] = json.dumps(document).encode()
    files["../../campaign.yaml"] = files["campaign.yaml"]


def no_campaign(files: dict[str, bytes]) -> None:
    document = json.loads(files[METADATA])
    document["@graph"] = [entry for entry in document["@graph"] if entry["@id"] != CAMPAIGN]
    files[METADATA] = json.dumps(document).encode()
    del files[CAMPAIGN]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (flip, "size or checksum mismatch"), (climb, "points outside the bundle"),
        (lambda files: files.update({of_run(files, "manifest.json"): b"{}"}), "size or checksum mismatch"),
        (lambda files: files.pop(of_run(files, "segments.parquet")), "segments.parquet is missing"),
        (lambda files: files.update({"runs/more.sh": b"#!/bin/sh\n"}), "runs/more.sh is not described in it"),
        (lambda files: files.update({METADATA: files[METADATA].replace(b'"sha256"', b'"md5"')}), "no size and SHA-256"),
        (lambda files: files.update({PREVIEW: files[PREVIEW] + b"<script>"}), "preview.html is corrupt or was mod"),
        (no_campaign, "not of a Backchannel campaign"),
        (lambda files: files.pop(METADATA), "it has no ro-crate-metadata.json"),
        (lambda files: files.update({METADATA: b"{"}), "is not JSON"),
        (edited(lambda document: document["campaign"].update(title="\ud800")), "campaign.json is not JSON"),
        (edited(lambda document: document.update(version=9)), "unsupported bundle version 9"),
        (edited(lambda document: document.pop("members")), "schema: members: missing"),
        (edited(lambda document: document["runs"][0].update(id="../../etc")), "the id of a run, found '../../etc'"),
        (edited(lambda document: document["runs"][0].update(state="valid", problems=["late"])), "contradicts"),
        (edited(lambda document: document["runs"][0]["files"].pop()), "do not match their description in the bundle"),
        (edited(lambda document: document["runs"][0]["metrics"].append(document["runs"][0]["metrics"][0])), "twice"),
        (edited(lambda document: document["members"].append(document["members"][0])), "a repetition of a parameter"),
        (edited(lambda document: document["members"][0].__setitem__(0, 7)), "combination that is missing"),
        (edited(lambda document: document["runs"][0]["metrics"][0].update(value="fast")), "0.value: expected a number"),
        (edited(lambda document: document["runs"][0]["scenario"]["workload"][0].update(name="../x")), "a file name"),
        (edited(lambda document: document["runs"][0].update(seed=10**40)), "runs.0.seed: expected an integer from 0"),
        (edited(lambda document: document["campaign"].update(seed=10**40)), "campaign.seed: expected an integer"),
        (edited(lambda document: document["runs"][1]["scenario"].update(duration_s="1")), "duration_s: expected a num"),
        (edited(lambda document: document["runs"][2]["manifest"].update(batch=3)), "batch: expected an object"),
        (edited(lambda document: document["runs"][0]["manifest"]["report"]["captures"][0].update(path="../x")),
         "expected a file name, found '../x'"),
        (edited(lambda document: document["runs"][3]["scenario"].update(warm_up_s=0.5)), "does not match its scenario"),
        (edited(lambda document: document["runs"][3].update(duration_s=7)), "its seed or duration does not"),
        (edited(lambda document: document["runs"][0]["manifest"].pop("report")), "manifest has no report"),
        (lambda files: redescribed_run(files, ".pcap.gz", b"no gzip"), "cannot be measured again: Not a gzipped file"),
    ],
)  # fmt: skip
def test_a_bundle_that_is_not_what_it_says_changes_nothing(
    change: Callable[[dict[str, bytes]], None], said: str, bundle: Path, tmp_path: Path
) -> None:
    bad = rewritten(bundle, tmp_path / "bad.zip", change)
    status, _, err = called("import", bad, "--results", tmp_path / "other")
    assert status == 2
    assert said in err
    store = Store.open(tmp_path / "other")
    assert store.campaigns() == []
    assert store.run_ids("") == []
    assert [path for path in tmp_path.rglob("*") if path.is_file() and "runs" in path.parts] == []
    assert list((tmp_path / "other/incoming").iterdir()) == []
    assert not (tmp_path / "campaign.yaml").exists()


def test_values_are_those_of_the_captures(bundle: Path, results: Path, tmp_path: Path) -> None:
    def faster(document: dict[str, Any]) -> None:
        for row in document["runs"][0]["metrics"]:
            row["value"] *= 10

    bad = rewritten(bundle, tmp_path / "bad.zip", edited(faster))
    status, out, err = called("import", bad, "--results", tmp_path / "other")
    assert status == 0, err
    assert "1 of 4 runs give other values than the bundle has" in out
    assert contents(tmp_path / "other") == contents(results)


def test_values_without_captures_are_marked(tmp_path: Path, results: Path) -> None:
    shutil.copytree(results, tmp_path / "copy")
    with Store.open(tmp_path / "copy") as store:
        run_id = store.run_ids("")[0]
        for file in store.run_folder(run_id).rglob("*.pcap.gz"):
            file.unlink()
        with rewriting(store) as connection:
            connection.exec_driver_sql("DELETE FROM file WHERE path LIKE '%.gz' AND run_id = ?", (run_id,))
        crate.write(analysis.open(tmp_path / "copy")["small"], tmp_path / "out.zip")
    told = bundles.read(Store.open(tmp_path / "other"), tmp_path / "out.zip")
    assert (told.landed, told.measured, told.corrected) == (4, 3, 0)
    with analysis.open(tmp_path / "other") as other:
        runs = [other.run(run) for run in other["small"].run_ids]
        assert [run.id for run in runs if run.row.documents.manifest.values_from_bundle] == [run_id]


def test_a_campaign_that_is_there_is_never_replaced(bundle: Path, results: Path, tmp_path: Path) -> None:
    def emptied(document: dict[str, Any]) -> None:
        document.update(runs=[], members=[], points=[])

    shutil.copytree(results, tmp_path / "copy")
    with zipfile.ZipFile(bundle) as opened:
        without = [name for name in opened.namelist() if name.startswith("runs/")]

    def change(files: dict[str, bytes]) -> None:
        edited(emptied)(files)
        document = json.loads(files[METADATA])
        document["@graph"] = [entry for entry in document["@graph"] if not entry["@id"].startswith("runs/")]
        files[METADATA] = json.dumps(document).encode()
        for name in without:
            del files[name]

    bad = rewritten(bundle, tmp_path / "bad.zip", change)
    status, _, err = called("import", bad, "--results", tmp_path / "copy")
    assert status == 2
    assert "with other settings or runs, which a bundle does not replace" in err
    assert contents(tmp_path / "copy") == contents(results)


def test_a_truncated_bundle_and_another_file_are_refused(bundle: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.zip"
    cut.write_bytes(bundle.read_bytes()[:-2000])
    (tmp_path / "text.zip").write_text("no zip")
    for path in (cut, tmp_path / "text.zip"):
        status, _, err = called("import", path, "--results", tmp_path / "other")
        assert status == 2
        assert "not a bundle, or damaged" in err
    status, _, err = called("import", tmp_path / "nothing.zip", "--results", tmp_path / "other")
    assert (status, "does not exist" in err) == (2, True)


def test_a_disk_that_is_full_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path, _folder: Path) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(crate_reader, "_unpacked", full)
    with pytest.raises(AnalysisError, match=r"b\.zip cannot be read: No space left on device"):
        bundles.read(Store.open(tmp_path / "other"), tmp_path / "b.zip")


@pytest.mark.parametrize("places", [10, pytest.param(40, marks=pytest.mark.slow(reason="at more places"))])
def test_damage_anywhere_is_found(places: int, bundle: Path, tmp_path: Path) -> None:
    """One bit anywhere in the zip: refused, or it was in a place that means nothing and all checksums still hold."""
    complete = bundle.read_bytes()
    store = Store.open(tmp_path / "other")
    refused = 0
    for at in range(11, len(complete), len(complete) // places):
        path = tmp_path / "bad.zip"
        path.write_bytes(complete[:at] + bytes([complete[at] ^ 0x10]) + complete[at + 1 :])
        try:
            bundles.read(store, path)
        except AnalysisError:
            refused += 1
    assert refused >= places - 2


def test_a_file_that_changed_since_its_run_landed_is_not_bundled(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "copy")
    victim = next((tmp_path / "copy/runs").rglob("summary.json"))
    victim.write_text(victim.read_text() + " ")
    for reason in ("is corrupt or was modified after its run was stored", "is missing"):
        with analysis.open(tmp_path / "copy") as s, pytest.raises(AnalysisError, match=reason):
            crate.write(s["small"], tmp_path / "out.zip")
        assert not (tmp_path / "out.zip").exists()
        victim.unlink(missing_ok=True)


def test_invalid_runs_travel_as_what_they_are(tmp_path: Path, results: Path) -> None:
    shutil.copytree(results, tmp_path / "copy")
    store = Store.open(tmp_path / "copy")
    run_id = store.run_ids("")[0]
    with rewriting(store) as connection:
        connection.exec_driver_sql(
            "UPDATE run SET state = 'invalid', problems = '[\"it was late\"]' WHERE id = ?", (run_id,)
        )
    crate.write(analysis.open(tmp_path / "copy")["small"], tmp_path / "out.zip")
    action = graph(tmp_path / "out.zip")[f"#run-{run_id}"]
    assert (action["actionStatus"], action["error"]) == ("http://schema.org/FailedActionStatus", "it was late")
    other = Store.open(tmp_path / "other")
    told = bundles.read(other, tmp_path / "out.zip")
    assert (told.runs, told.landed) == (4, 3)
    run = other.run(run_id)
    assert run is not None
    assert (run.state, run.problems) == ("invalid", ["it was late"])
    assert other.campaigns()[0].state == "incomplete"
