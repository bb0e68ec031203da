"""Pages by the Flask client: what they show, how they answer to arguments, and what they refuse."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flask.testing import FlaskClient
from markupsafe import Markup
from matplotlib.collections import LineCollection

from analysis.captures import RunData
from analysis.figures import printed
from analysis.figures.model import Series
from analysis.figures.registry import Asked, draw
from analysis.handle import OpenResults
from analysis.results import MetricValue
from analysis.store import PendingRun, Store
from analysis.store.documents import Documents
from analysis.store.rows import NewCampaign, RunRow
from analysis.thinning import View
from experiments import catalogue
from experiments.papers.page import PAPERS
from experiments.papers.scorecard import document, scorecard
from experiments.papers.targets import all_targets
from testbed import units
from testbed.errors import TestbedError
from testbed.report import InterfaceReport
from tests.conftest import backchannel, two_hosts, typed
from tests.support.simulated import Simulated, ran
from tests.support.site import DROPPING, SWEEP
from web import studies
from web.app import create_app

PERIOD = Asked(0.0, 10.0, 0.1)


def captured(folder: Path, run: RunRow) -> RunData:
    return RunData.load(folder, run.documents.scenario, run.documents.report, lazy=True)


def test_an_empty_store_invites_to_run_something(tmp_path: Path) -> None:
    empty = create_app(tmp_path / "results").test_client()
    assert "Nothing was run yet" in empty.get("/").text
    assert "No campaign has been run yet" in empty.get("/campaigns").text
    assert re.search(r"None of the \d+ published tables, figures and claims was run here", empty.get("/scorecard").text)
    assert "No campaign has been run yet" in empty.get("/compare").text
    for path in ("/launch", "/import", "/docs"):
        assert empty.get(path).status_code == 200


def test_home_tells_what_is_there(client: FlaskClient) -> None:
    page = client.get("/").text
    assert "A sweep of rates" in page
    assert "12 in the store" in page
    # What the campaign showed is its answer's first sentence.
    assert "Throughput of forward is highest with" in page
    assert "every run is valid" in page


def test_the_list_searches(client: FlaskClient) -> None:
    assert "A sweep of rates" in client.get("/campaigns").text
    assert "A sweep of rates" in client.get("/campaigns?q=sweep+RATES").text
    nothing = client.get("/campaigns?q=<b>zebra").text
    assert "No campaign matches" in nothing
    assert "<b>zebra" not in nothing


def test_a_campaign_shows_figure_table_runs_and_file(client: FlaskClient, simulated: Simulated) -> None:
    page = client.get(simulated.address).text
    assert "Varies reverse queue policy (droptail, acks-first) and reverse rate (9.6 kbit/s, " in page
    for wanted in ("2 runs at each combination.", "Mbit/s", "95 % confidence", "topology: asymmetric-path", "<svg"):
        assert wanted in page
    # Two lines of three points; two runs are dots without an interval.
    holder = page[page.index('id="live-figure"') :]
    drawn = json.loads(holder[holder.index("{") : holder.index("</script>")])
    lines = [entry for entry in drawn["series"] if entry["kind"] == "line"]
    assert [len(line["x"]) for line in lines] == [3, 3]
    assert {end for line in lines for end in (*line["low"], *line["high"])} == {None}
    dots = [entry for entry in drawn["series"] if entry["name"] == "single runs"]
    assert [len(dot["x"]) for dot in dots] == [6, 6]
    assert "<noscript><img src=" in holder


def test_a_campaign_is_answered_first(client: FlaskClient, simulated: Simulated) -> None:
    page = client.get(simulated.address).text
    before = page[: page.index('id="live-figure"')]
    assert "Throughput of forward is highest with policy=" in before
    assert "the next:" in before
    # Along the rates, each has an answer of its own.
    for rate in ("9.6 kbit/s", "28.8 kbit/s", "128 kbit/s"):
        assert f"<dt>{rate}</dt><dd>Highest with policy=" in before
    holder = before[before.index('id="live-tradeoff"') :]
    drawn = json.loads(holder[holder.index("{") : holder.index("</script>")])
    dots = [run for entry in drawn["series"] for run in entry.get("run", [])]
    assert len(dots) == 12
    assert simulated.run_id() in dots
    # One direction alone, or a fixed field, changes both.
    fixed = client.get(f"{simulated.address}?fix.network.reverse.queue.policy=acks-first").text
    assert "acks-first</b>" not in fixed
    assert fixed.count(simulated.run_id()) < page.count(simulated.run_id())
    alone = client.get(f"{simulated.address}?metric=aggregate_throughput/").text
    assert "Aggregate throughput is highest with" in alone
    assert 'id="live-tradeoff"' not in alone
    assert "Pareto edge" in before
    neither_way = client.get(f"{simulated.address}?metric=utilisation/bottleneck/forward").text
    assert "Pareto edge" not in neither_way, "a utilisation has no better end"
    assert client.get(f"{simulated.address}/tradeoff.svg").mimetype == "image/svg+xml"
    assert client.get(f"{simulated.address}/tradeoff.svg?metric=aggregate_throughput/").status_code == 404


def test_its_exports_agree_with_each_other_and_the_command_line(client: FlaskClient, simulated: Simulated) -> None:
    table = pl.read_csv(io.BytesIO(client.get(f"{simulated.address}.csv").data))
    assert table.columns[:5] == ["network.reverse.queue.policy", "network.reverse.rate", "metric", "flow", "unit"]
    chosen = table.filter((pl.col("metric") == "throughput") & (pl.col("flow") == "forward"))
    assert chosen.height == 6
    assert client.get(f"/api{simulated.address}").json == simulated.campaign
    by_hand = [
        entry["mean"]
        for point in simulated.campaign["points"]
        for entry in point["metrics"]
        if (entry["name"], entry["subject"]) == ("throughput", "forward")
    ]
    assert chosen["mean"].to_list() == pytest.approx(by_hand)
    figure = client.get(f"{simulated.address}/figure.csv?metric=throughput/forward")
    assert sorted(pl.read_csv(io.BytesIO(figure.data))["mean"]) == pytest.approx(sorted(by_hand))
    assert client.get(f"{simulated.address}.yaml").text == simulated.file.read_text()
    assert client.get(f"/api{simulated.address}/progress").json["state"] == "complete"  # type: ignore[index]


@pytest.mark.parametrize("path", ["/api{}", "{}.csv", "{}/runs.csv"])
def test_an_export_begins_before_its_values_are_read(
    client: FlaskClient, simulated: Simulated, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def noting(read: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, only: Any = None) -> Any:
            # One metric of all combinations is read before: how often each was attempted.
            asked.extend(given[2:])
            return read(*given, **({} if only is None else {"only": only}))

        return called

    monkeypatch.setattr(Store, "table", noting(Store.table))
    monkeypatch.setattr(Store, "values", noting(Store.values))
    answer = client.get(path.format(simulated.address), buffered=False)
    parts = answer.iter_encoded()
    assert next(parts)
    assert asked == []
    rest = b"".join(parts)
    # Point by point, each once.
    assert asked == [[number] for number in range(6)]
    assert rest.endswith(b"\n")


def test_the_table_of_runs_has_every_value_and_every_run(client: FlaskClient, simulated: Simulated) -> None:
    table = pl.read_csv(io.BytesIO(client.get(f"{simulated.address}/runs.csv").data))
    store = Store.open(simulated.results)
    stored = {
        (entry.run_id, entry.name, entry.subject): entry.value for entry in store.values(simulated.campaign["campaign"])
    }
    of_store = {
        (run_id, metric, flow or ""): value
        for run_id, metric, flow, value in table.select("run_id", "metric", "flow", "value").iter_rows()
    }
    assert of_store == stored
    assert set(table["network.reverse.rate"]) == {"9.6 kbit/s", "28.8 kbit/s", "128 kbit/s"}
    means = pl.read_csv(io.BytesIO(client.get(f"{simulated.address}.csv").data)).row(0, named=True)
    numbers = [float(value) for value in means["values"].split()]
    assert len(numbers) == means["runs"] == 2
    assert sum(numbers) / 2 == pytest.approx(means["mean"])


def test_the_table_of_runs_names_runs_without_a_result(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "results")
    where = campaign(store)
    commit(store, tmp_path, 0, throughput(1.0e6))
    lines = create_app(tmp_path / "results").test_client().get(f"/campaigns/{where}/runs.csv").text.splitlines()
    assert len(lines) == 1 + 1 + 3
    assert sum(",missing," in line for line in lines) == 3


def test_figures_are_svg_and_pdf(client: FlaskClient, simulated: Simulated) -> None:
    svg = client.get(f"{simulated.address}/figure.svg?x=network.reverse.queue.policy")
    assert svg.mimetype == "image/svg+xml"
    assert "<svg" in svg.text
    # Six bars, two of each of three colours.
    fills = Counter(re.findall(r'style="fill: (#\w+)"', svg.text))
    assert sum(count >= 2 for colour, count in fills.items() if colour != "#ffffff") >= 3
    pdf = client.get(f"{simulated.address}/figure.pdf")
    assert pdf.data.startswith(b"%PDF-")
    assert client.get(f"{simulated.address}/figure.gif").status_code == 404


def rows(client: FlaskClient, simulated: Simulated, query: str) -> dict[str, Any]:
    answer = client.get(f"/api{simulated.address}/runs?{query}")
    assert answer.status_code == 200
    assert answer.json is not None
    return dict(answer.json)


def test_runs_are_filtered_sorted_and_searched(client: FlaskClient, simulated: Simulated) -> None:
    def values(found: dict[str, Any]) -> list[float]:
        return [
            next(m["value"] for m in entry["metrics"] if (m["name"], m["subject"]) == ("throughput", "forward"))
            for entry in found["runs"]
        ]

    assert rows(client, simulated, "")["total"] == 12
    up = values(rows(client, simulated, "sort=throughput/forward"))
    assert up == sorted(up)
    assert values(rows(client, simulated, "sort=throughput/forward&order=desc")) == up[::-1]
    assert rows(client, simulated, "q=acks-first+9.6")["total"] == 2
    assert rows(client, simulated, f"q={simulated.run_id()[:9]}")["total"] == 1
    assert rows(client, simulated, "state=invalid")["total"] == 0
    assert rows(client, simulated, "q=%25")["total"] == 0
    page = client.get(f"{simulated.address}/explore?q=zebra").text
    assert "No run matches" in page


def test_a_run_shows_its_parts(client: FlaskClient, simulated: Simulated) -> None:
    page = client.get(f"/runs/{simulated.run_id()}").text
    for wanted in ("Provenance", "captures/client-eth0.pcap.gz", "bottleneck reverse", "Crossing bottleneck"):
        assert wanted in page
    capture = client.get(f"/runs/{simulated.run_id()}/files/captures/client-eth0.pcap.gz")
    assert capture.data[:2] == b"\x1f\x8b"
    assert client.get(f"/runs?q={simulated.run_id()[:8]}").status_code == 302


def test_a_link_in_a_run_is_not_followed(simulated: Simulated, tmp_path: Path) -> None:
    results = shutil.copytree(simulated.results, tmp_path / "results")
    visitor = create_app(results).test_client()
    name = f"/runs/{simulated.run_id()}/files/captures/client-eth0.pcap.gz"
    assert visitor.get(name).status_code == 200
    (capture,) = results.glob(f"runs/*/{simulated.run_id()}/captures/client-eth0.pcap.gz")
    # As long as the file, so that its length tells nothing.
    (tmp_path / "secret").write_bytes(b"x" * capture.stat().st_size)
    capture.unlink()
    capture.symlink_to(tmp_path / "secret")
    assert visitor.get(name).status_code == 404


@pytest.mark.parametrize("path", ["../../../../etc/passwd", "..%2f..%2fresults.sqlite", "captures", "nothing"])
def test_no_other_file_can_be_had(client: FlaskClient, simulated: Simulated, path: str) -> None:
    assert client.get(f"/runs/{simulated.run_id()}/files/{path}").status_code == 404


@pytest.mark.parametrize(
    "address",
    ["/campaigns/none", "/runs/none", "/nowhere", "/api/runs/none/queue", "/compare?run=none", "/compare?point=a:b",
     "/requests/77", "/import/none", "/launch?file=../cli.py", "/runs?q=zzzz"],
)  # fmt: skip
def test_what_does_not_exist_is_said(client: FlaskClient, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 404
    assert "Unknown" in answer.text or "not found" in answer.text


def test_series_hold_what_the_captures_hold(client: FlaskClient, simulated: Simulated) -> None:
    run_id = simulated.run_id(1)
    answer: Any = client.get(f"/api/runs/{run_id}/sequence?flow=forward").json
    data = next(entry for entry in answer["series"] if entry["name"] == "data")
    assert len(data["x"]) > 100
    assert data["x"] == sorted(data["x"])
    part: Any = client.get(f"/api/runs/{run_id}/sequence?flow=forward&from=1&to=2").json
    inner = next(entry for entry in part["series"] if entry["name"] == "data")["x"]
    assert sum(1 <= x <= 2 for x in inner) >= len(inner) - 2
    queue: Any = client.get(f"/api/runs/{run_id}/queue?flow=bottleneck/reverse").json
    assert max(queue["series"][0]["y"]) == 10
    cwnd: Any = client.get(f"/api/runs/{run_id}/cwnd?flow=forward").json
    assert max(cwnd["series"][0]["y"]) > 10
    rtt: Any = client.get(f"/api/runs/{run_id}/rtt?flow=forward").json
    assert min(rtt["series"][0]["y"]) > 59
    assert client.get(f"/api/runs/{run_id}/queue?from=x").status_code == 400
    assert client.get(f"/api/runs/{run_id}/weather").status_code == 404


def test_every_loss_of_a_run_is_explained(dropping: Simulated) -> None:
    client = create_app(dropping.results).test_client()
    run = dropping.run_id()
    drawn: Any = client.get(f"/api/runs/{run}/sequence?flow=forward").json
    losses = next(entry for entry in drawn["series"] if entry["name"] == "never arrived")
    assert len(losses["x"]) > 5
    told = []
    for t, end in zip(losses["x"][:20], losses["y"], strict=False):
        near: Any = client.get(f"/api/runs/{run}/segments?flow=forward&from={t - 2e-6}&to={t + 2e-6}").json
        entry = next(entry for entry in near["segments"] if entry["end"] == round(end * 1e3))
        asked = {"flow": "forward", "seq": entry["seq"], "payload": entry["payload"], "at": entry["time_s"]}
        result: Any = client.get(f"/api/runs/{run}/fate", query_string=asked).json
        told.append(result["sentence"])
        assert result["arrived_s"] is None
        assert (result["lost"]["link"], result["lost"]["event"]) == ("bottleneck", "dropped_full")
        assert result["again_s"] > result["sent_s"]
    assert all("Dropped at bottleneck forward" in entry and "queue 12 of 12 packets" in entry for entry in told)
    assert any(re.search(r"retransmitted at [\d.]+ s after [3-9]\d* duplicate acks", entry) for entry in told)
    assert client.get(f"/api/runs/{run}/fate", query_string=asked | {"seq": 1 << 40}).status_code == 404
    assert client.get(f"/api/runs/{run}/fate?flow=forward").status_code == 400
    assert client.get(f"/api/runs/{run}/fate", query_string=asked | {"seq": 10**30}).status_code == 400
    assert client.get(f"/api/runs/{run}/fate", query_string=asked | {"flow": "x"}).status_code == 404
    assert client.get(f"/api/runs/{run}/fate", query_string=asked | {"at": "nan"}).status_code == 404


def test_what_never_arrived_is_what_the_lines_dropped(client: FlaskClient, simulated: Simulated) -> None:
    run: Any = client.get(f"/api/runs/{simulated.run_id()}").json
    links = run["manifest"]["report"]["driver"]["links"]
    dropped = sum(links[name]["reverse"]["events"].get("dropped_full", 0) for name in links)
    assert dropped > 0
    answer: Any = client.get(f"/api/runs/{simulated.run_id()}/sequence?flow=reverse").json
    lost = [entry for entry in answer["series"] if entry["name"] == "never arrived"]
    # The same queue also drops the forward transfer's acks.
    assert lost
    assert len(lost[0]["x"]) <= dropped


def test_connections_of_one_flow_are_told_apart(simulated: Simulated, tmp_path: Path) -> None:
    store = Store.open(simulated.results)
    run = store.run(simulated.run_id(1))
    assert run is not None
    folder = tmp_path / "run"
    shutil.copytree(store.run_folder(run.id), folder)

    def lost() -> list[float]:
        figure = draw(captured(folder, run), "sequence", ["forward"], PERIOD)
        return next((line.points["x"].to_list() for line in figure.series if line.name == "never arrived"), [])

    before = lost()
    # A second connection of the client, whose bytes have the same numbers, 1 ms later; one of its segments is lost.
    connections, segments = (pl.read_parquet(folder / f"{name}.parquet") for name in ("connections", "segments"))
    flow = captured(folder, run).flow("forward")
    own, present = (flow.rows(("file", "conn"), receiver=receiver).row(0) for receiver in (False, True))
    pairs = {(own[0], own[1]): 900, (present[0], present[1]): 900}
    more_connections, more_segments = [connections], [segments]
    for (file, conn), number in pairs.items():
        chosen = (pl.col("file") == file) & (pl.col("conn") == conn)
        number_as = pl.lit(number).cast(connections.schema["conn"]).alias("conn")
        later = (pl.col("first_ns") + 1_000_000).alias("first_ns")
        port = (pl.col("client_port") + 1).alias("client_port")
        more_connections.append(connections.filter(chosen).with_columns(number_as, later, port))
        copied = segments.filter(chosen).with_columns(
            pl.lit(number).cast(segments.schema["conn"]).alias("conn"), pl.col("time_ns") + 1_000_000
        )
        if file == present[0]:
            data = copied.filter((pl.col("dir") == 0) & (pl.col("payload") > 0))
            seq = data["seq"].unique().sort()[7]
            copied = copied.filter((pl.col("dir") != 0) | (pl.col("seq") != seq))
        more_segments.append(copied)
    pl.concat(more_connections).write_parquet(folder / "connections.parquet")
    pl.concat(more_segments).sort("file", "time_ns", maintain_order=True).write_parquet(folder / "segments.parquet")
    # All that the first had lost, the second lost as well; and one more, though the first one's twin of it arrived.
    assert len(lost()) == 2 * len(before) + 1


def test_a_groups_flows_do_not_crowd_the_table(tmp_path: Path) -> None:
    alone = "{name: reverse, from: client, to: server, start: 2 s}"
    three = "{name: up, from: client, to: server, count: 3, start: [1 s, 2 s]}"
    text = SWEEP.replace(alone, three).replace("repetitions: 2", "repetitions: 1")
    text = text.replace("[9.6 kbit/s, 28.8 kbit/s, 128 kbit/s]", "[128 kbit/s]")
    (tmp_path / "many.yaml").write_text(text.replace("duration: 8 s", "duration: 3 s"))
    done = backchannel("run", tmp_path / "many.yaml", "--results", tmp_path / "results", "--json", status=0)
    page = create_app(tmp_path / "results").test_client().get(f"/campaigns/{json.loads(done.stdout)['campaign']}").text
    table = page.split('<table class="results cards">')[1].split("</table>")[0]
    assert 'data-title="Flow">forward</td>' in table
    assert 'data-title="Flow">up</td>' in table
    assert "up-1" not in table


def test_selective_acks_are_drawn_from_edge_to_edge(simulated: Simulated, tmp_path: Path) -> None:
    store = Store.open(simulated.results)
    run = store.run(simulated.run_id())
    assert run is not None
    folder = tmp_path / "run"
    shutil.copytree(store.run_folder(run.id), folder)
    (folder / "sacks.parquet").unlink(missing_ok=True)
    t0 = run.documents.report.t0_epoch_ns
    flow = captured(folder, run).flow("forward")
    sent = flow.rows(("file", "conn"))
    where = sent.select("file", "conn").row(0)
    assert flow.sack_blocks().is_empty()
    times = [t0 + 2_000_000_000, t0 + 1_000_000_000]
    blocks = {"time_ns": times, "dir": [1, 1], "ack": [1, 1], "left": [5000, 1000], "right": [9000, 4000]}
    frame = pl.DataFrame({**blocks, "file": [where[0]] * 2, "conn": [where[1]] * 2}, schema_overrides={
        "file": sent.schema["file"], "conn": sent.schema["conn"]})  # fmt: skip
    frame.write_parquet(folder / "sacks.parquet")
    figure = draw(captured(folder, run), "sequence", ["forward"], PERIOD).within(0, 8, 4000)
    bars = next(entry for entry in figure.as_json()["series"] if entry["name"] == "SACK")
    assert (bars["kind"], bars["x"], bars["low"], bars["y"]) == ("segments", [1, 2], [1, 5], [4, 9])
    (axes,) = printed.draw(figure).axes
    lines = [entry.get_segments() for entry in axes.collections if isinstance(entry, LineCollection)]
    upright = [segment.tolist() for segments in lines for segment in segments if len(segments) == 2]
    assert upright == [[[1, 1], [1, 4]], [[2, 5], [2, 9]]]


def test_the_window_of_a_connection_split_on_the_way_stands_beside_the_senders(tmp_path: Path) -> None:
    (tmp_path / "telemetry").mkdir()
    own = {"t_ns": 10, "cwnd_segments": 2.0, "ssthresh_segments": None}
    (tmp_path / "telemetry" / "bulk.jsonl").write_text(json.dumps(own) + "\n")
    part = {"t_ns": 2_000_000_000, "link": "air", "direction": "forward", "part": "wireless", "event": "ack"}
    lines = [
        part | {"from": "10.1.0.1:40000", "to": "10.2.0.2:5001", "cwnd_segments": 3.5},
        part | {"from": "10.1.0.1:40001", "to": "10.2.0.2:5002", "cwnd_segments": 9.0},
        {"t_ns": 5, "link": "air", "direction": "forward", "packets": 1, "bytes": 40, "max": 2},
        {"t_ns": 6, "link": "air", "direction": "forward", "jitter_ns": -3, "bytes": 40, "checksum": 7, "lost": False},
    ]
    (tmp_path / "telemetry" / "links.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    scenario = two_hosts()
    scenario["links"][0]["name"] = "air"
    interface = InterfaceReport(node="b", link="air", end=1, interface="b-eth0", address="10.2.0.2")
    run = RunData(typed(scenario), [interface], 0, pl.DataFrame(), pl.DataFrame(), {}, folder=tmp_path)
    result = draw(run, "cwnd", ["bulk"], PERIOD).within(0, 10, 100).as_json()["series"]
    shown = {entry["name"]: (entry["x"], entry["y"]) for entry in result}
    assert shown["cwnd, wireless part"] == ([2.0], [3.5])
    queue = draw(run, "queue", ["air/forward"], PERIOD)
    names = [line.name for line in queue.series]
    assert names == ["peak since the last sample", "waiting"], "a sender's acks are not events of the queue"


def test_single_segments_have_their_fields(client: FlaskClient, simulated: Simulated) -> None:
    address = f"/api/runs/{simulated.run_id()}/segments?flow=forward"
    first: Any = client.get(f"{address}&to=1").json
    assert first["segments"][0]["flags"] == ["SYN"]
    assert first["segments"][0]["seq"] == 0
    times = [entry["time_s"] for entry in first["segments"]]
    assert times == sorted(times)
    complete: Any = client.get(address).json
    assert complete["total"] > 500
    assert len(complete["segments"]) == 500
    last: Any = client.get(f"{address}&tail=1").json
    assert last["segments"][-1]["time_s"] > complete["segments"][-1]["time_s"]
    assert first["segments"][0]["sack"] == []


def test_a_segments_sack_blocks_are_among_its_fields(tmp_path: Path) -> None:
    sent = pl.DataFrame({"file": [3, 3], "frame": [7, 9]})
    run = RunData(typed(two_hosts()), [], 0, pl.DataFrame(), pl.DataFrame(), {}, folder=tmp_path)
    assert run.sack_blocks(sent) == {}
    pl.DataFrame(
        {"file": [3, 3, 4, 3], "frame": [9, 9, 9, 20], "left": [200, 100, 1, 2], "right": [300, 150, 2, 3]}
    ).write_parquet(tmp_path / "sacks.parquet")
    result = run.sack_blocks(sent)
    assert (result.get((3, 7)), result[(3, 9)]) == (None, [[200, 300], [100, 150]])
    assert run.sack_blocks(sent.clear()) == {}


def test_packets_cross_the_line_in_its_own_time(client: FlaskClient, simulated: Simulated) -> None:
    answer: Any = client.get(f"/api/runs/{simulated.run_id(1)}/crossing?from=1&to=3").json
    assert answer["link"] == "bottleneck"
    forward = [entry for entry in answer["packets"] if entry[3] == 0 and entry[2] is not None]
    reverse = [entry for entry in answer["packets"] if entry[3] == 1 and entry[2] is not None]
    assert forward
    assert reverse
    for entered, leaves, arrives, direction, size, _, _ in forward + reverse:
        rate, delay = (10e6, 0.005) if direction == 0 else (28.8e3, 0.05)
        assert entered <= leaves <= arrives
        assert arrives - entered >= delay + size * 8 / rate - 2e-6


def test_a_plot_is_a_file_too(client: FlaskClient, simulated: Simulated) -> None:
    base = f"/runs/{simulated.run_id()}/plots/sequence"
    assert client.get(f"{base}.pdf?flow=forward").data.startswith(b"%PDF-")
    svg = client.get(f"{base}.svg?flow=forward&from=1&to=2").text
    assert "sequence number (kB)" in svg
    table = pl.read_csv(io.BytesIO(client.get(f"{base}.csv?flow=forward&from=1&to=2").data))
    # Exactly the period, and every segment of it.
    assert 1 <= table["time_s"].min() <= table["time_s"].max() <= 2  # type: ignore[operator]
    told: Any = client.get(f"/api/runs/{simulated.run_id()}/segments?flow=forward&from=1&to=2").json
    data = sum(entry["direction"] == "data" and entry["payload"] > 0 for entry in told["segments"])
    assert table.filter(pl.col("series").is_in(["data", "retransmission", "fast retransmission"])).height == data > 0


def test_points_are_compared_in_pairs(client: FlaskClient, simulated: Simulated) -> None:
    campaign = simulated.campaign["campaign"]
    answer: Any = client.get(f"/api/compare?point={campaign}:0&point={campaign}:3").json
    row = next(entry for entry in answer["metrics"] if (entry["metric"], entry["flow"]) == ("throughput", "forward"))
    first, second = row["cells"]
    assert second["method"] == "paired"
    assert second["difference"] == pytest.approx(second["mean"] - first["mean"])
    page = client.get(f"/compare?point={campaign}:0&point={campaign}:3").text
    assert "policy=droptail" in page
    assert "policy=acks-first" in page
    assert client.get("/compare?" + "&".join(f"run={n}" for n in range(9))).status_code == 400
    single = client.get(f"/compare?run={simulated.run_id(0)}&run={simulated.run_id(2)}").text
    assert "no difference is called better or worse" in single
    assert "Holm" not in single


@pytest.mark.parametrize("query", ["from=nan", "to=inf", "from=-inf", "from=soon"])
def test_a_view_without_numbers_is_refused(client: FlaskClient, simulated: Simulated, query: str) -> None:
    answer = client.get(f"/api/runs/{simulated.run_id()}/throughput?{query}")
    assert answer.status_code == 400
    assert "are seconds" in answer.text


def test_between_two_samples_there_is_a_line_too() -> None:
    frame = pl.DataFrame({"x": [0.0, 10.0], "y": [0.0, 100.0]})
    line = Series("a", "line", frame).within(View(4, 6, 400)).points
    assert (line["x"].to_list(), line["y"].to_list()) == ([0, 4, 6, 10], [0, 40, 60, 100])
    steps = Series("a", "steps", frame).within(View(4, 6, 400)).points
    assert steps["y"].to_list() == [0, 0, 0, 100]


TARGETS = """
- id: asym-table9
  paper: asym
  title: Return <channels>
  section: '4.2'
  source: measured
  expected:
  - cell: {policy: droptail}
    metric: rate
    relation: approx
    value: 3.2e+6
    unit: bit/s
    tolerance: {rel: 0.1}
    origin: stated
  orderings:
  - {metric: rate, axis: policy, order: [acks-first, droptail], direction: descending, where: {}}
- {id: asym-fig99, paper: asym, title: Not run, section: '4', source: measured, expected: [], orderings: []}
"""
ARTEFACT = """
artefact: asym-table9
measures: {rate: {metric: throughput, of: forward}}
"""


def throughput(value: float) -> MetricValue:
    return MetricValue("throughput", "forward", value, "rate")


def commit(
    store: Store,
    folder: Path,
    number: int,
    *rows: MetricValue,
    problems: Sequence[str] = (),
    backend: str = "sim",
    replaces: bool = False,
    **more: Any,
) -> str:
    """Commits a run whose id is this number with these values, or with problems. Returns its id."""
    run_id = f"{number:024x}"
    (folder / run_id).mkdir()
    documents = Documents(two_hosts(seed=number, duration_s=1.0) | more, {})
    run = PendingRun(run_id, backend, documents, list(rows), list(problems), 1, folder / run_id)
    store.commit_run(run, replaces=replaces)
    return run_id


def campaign(
    store: Store, text: str = "", policies: Sequence[str] = ("droptail", "acks-first"), backend: str = "sim"
) -> str:
    new = NewCampaign("c" * 16, "own", "Own", "own.yaml", text, {}, backend, seed=1, repetitions=2)
    members = [(n, r, f"{10 * n + r:024x}") for n in range(len(policies)) for r in range(2)]
    store.begin_campaign(new, [[("policy", policy)] for policy in policies], members)
    return new.id


def test_the_scorecard_comes_from_the_store_and_hides_no_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "asym").mkdir()
    (tmp_path / "asym/targets.yaml").write_text(TARGETS)
    # The home page of an empty store shows it.
    shutil.copy(catalogue.FOLDER / "quickstart.yaml", tmp_path)
    monkeypatch.setattr(catalogue, "FOLDER", tmp_path)
    store = Store.open(tmp_path / "results")
    client = create_app(tmp_path / "results").test_client()
    assert "None of the 2 published" in client.get("/").text
    assert "published tables, figures and claims was run here" in client.get("/scorecard").text
    where = campaign(store, ARTEFACT)
    commit(store, tmp_path, 0, throughput(1.0e6))
    assert "inconclusive: no interval" in client.get("/scorecard").text, "a single run decides nothing"
    for number, value in ((1, 1.2e6), (10, 2.0e6)):
        commit(store, tmp_path, number, throughput(value))
    page = client.get("/scorecard").text
    summary = "Of 2 published tables, figures and claims, 1 was run here, and 0 of these pass."
    for wanted in (
        summary,
        "sim: incomplete",
        "3.2 Mbit/s",
        "1.1 \u00b1 1.3 Mbit/s",
        "Return &lt;channels",
        "3 of 4 runs",
    ):
        assert wanted in page
    assert "sim: fail" not in page
    assert "asym-table9" in client.get("/scorecard?show=incomplete").text
    assert "asym-table9" not in client.get("/scorecard?show=not+run").text
    home = client.get("/").text
    assert summary in home
    assert "1 incomplete, 1 not run" in home
    told: Any = client.get("/api/scorecard").json
    assert told == json.loads(json.dumps(document(scorecard(OpenResults(store, "")))))
    # Its figure has what was published beside.
    assert "open diamonds: published values" in client.get(f"/campaigns/{where}").text
    # What lands later counts at once; also what takes an earlier one's place.
    commit(store, tmp_path, 11, throughput(2.0e6))
    page = client.get("/scorecard").text
    assert "4 of 4 runs" in page
    assert "sim: fail" in page
    assert "Known causes" not in page
    why = studies.Section("asym-table9: why", "why", frozenset({"asym-table9"}), Markup("<p>So.</p>"), "So.")
    monkeypatch.setattr(studies, "sections", lambda paper: [why] if paper == "asym" else [])
    assert re.search('<a href="/docs/studies/asym#why">.*<p>So.</p>', client.get("/scorecard").text)
    for number in (0, 1):
        commit(store, tmp_path, number, throughput(3.2e6), replaces=True)
    page = client.get("/scorecard").text
    assert "1 of 1 stated values" in page
    assert "0 of 1 orderings" in page
    assert "inconclusive" not in page
    # Two runs that are far apart decide nothing.
    commit(store, tmp_path, 0, throughput(0.2e6), replaces=True)
    page = client.get("/scorecard").text
    for wanted in ("1 verdict of a backend is inconclusive", "interval crosses a limit", "order is not significant"):
        assert wanted in page


@pytest.mark.parametrize(("backend", "told"), [("emulated", True), ("sim", False)])
def test_limits_wider_than_usual_are_told_where_runs_are_held_to_them(tmp_path: Path, backend: str, told: bool) -> None:
    store = Store.open(tmp_path / "results")
    client = create_app(tmp_path / "results").test_client()
    where = campaign(store, backend=backend)
    limits = {"lateness_p99_s": 0.02, "stall_s": 0.01}
    run_id = commit(store, tmp_path, 0, throughput(1e6), backend=backend, fidelity=limits)
    for address in (f"/campaigns/{where}", f"/runs/{run_id}"):
        assert (
            "checked against limits wider than usual: lateness 20 ms instead of 2 ms." in client.get(address).text
        ) == told


def test_headings_of_studies_name_artefacts() -> None:
    named = {paper: {name for section in studies.sections(paper) for name in section.artefacts} for paper in PAPERS}
    assert all(named.values())
    assert set().union(*named.values()) <= {target.id for target in all_targets()}


@pytest.mark.parametrize("name", [*PAPERS, "choices"])
def test_the_site_has_the_studies(tmp_path: Path, name: str) -> None:
    client = create_app(tmp_path).test_client()
    page = client.get(f"/docs/studies/{name}").text
    assert '<div class="scroll" tabindex="0"><table>' in page
    assert "&lt;" not in page, "HTML of the page is shown as text"
    assert not re.search(r'href="[^"]*\.md', page), "links to files of the repository lead nowhere on the site"
    anchors = [section.anchor for section in studies.sections(name)]
    assert anchors
    assert [place for place in anchors if f'<h2 id="{place}">' not in page] == []
    assert client.get("/docs/studies/..%2Fcampaigns").status_code == 404


def test_a_campaign_page_keeps_means_until_a_run_of_the_point_lands(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "results")
    client = create_app(tmp_path / "results").test_client()
    where = campaign(store)
    commit(store, tmp_path, 0, throughput(1.0e6))
    assert "1 Mbit/s" in client.get(f"/campaigns/{where}").text
    commit(store, tmp_path, 1, throughput(3.0e6))
    assert "1, 3 Mbit/s" in client.get(f"/campaigns/{where}").text
    commit(store, tmp_path, 0, throughput(5.0e6), replaces=True)
    assert "5, 3 Mbit/s" in client.get(f"/campaigns/{where}").text


@pytest.mark.parametrize(
    ("value", "unit", "reference", "text"),
    [(698321.0, "bit/s", 7e5, "698.3 kbit/s"), (7e5, "bit/s", 7e5, "700 kbit/s"), (0.00052, "s", 0.0005, "520 us"),
     (None, "s", 1.0, "nothing"), (12.345, "%", 12.0, "12.35 %"), (123456.0, "1", 1e5, "123456"), (0.5, "1", 1, "0.5")],
)  # fmt: skip
def test_values_have_the_unit_of_the_published(value: float | None, unit: str, reference: float, text: str) -> None:
    assert units.in_unit(value, unit, reference) == text


def test_runs_that_are_still_to_come_are_told_from_invalid_ones(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "results")
    where = campaign(store)
    commit(store, tmp_path, 0, throughput(1.0e6))
    store.end_campaign(where, complete=False)
    client = create_app(tmp_path / "results").test_client()
    assert "3 of 4 runs have no result yet</li>" in client.get("/").text
    commit(store, tmp_path, 1, problems=["late"])
    assert "2 of 4 runs have no result yet, 1 is invalid</li>" in client.get("/").text


@pytest.mark.parametrize(
    ("words", "points"),
    [("policy=acks-first", 2), ("acks-first", 2), ("acks", 4), ("filtering", 2), ("rate=9.6 kbit/s", 2),
     ("policy=acks-first, rate=9.6 kbit/s", 1), ("1", 2), ("queue.policy", 4), ("none", 0)],
)  # fmt: skip
def test_a_search_finds_labels_and_whole_words_first(tmp_path: Path, words: str, points: int) -> None:
    store = Store.open(tmp_path / "results")
    client = create_app(tmp_path / "results").test_client()
    new = NewCampaign("c" * 16, "own", "Own", "own.yaml", "", {}, "sim", seed=1, repetitions=1)
    swept = [(policy, rate) for policy in ("acks-first", "acks-filtering-acks-first") for rate in ("9.6", "128")]
    store.begin_campaign(
        new, [[("queue.policy", policy), ("line.rate", f"{rate} kbit/s")] for policy, rate in swept],
        [(n, 0, f"f{n:023x}") for n in range(4)],
    )  # fmt: skip
    result: Any = client.get(f"/api/campaigns/{new.id}/runs", query_string={"q": words}).json
    assert result["total"] == points


@pytest.mark.parametrize(
    ("argument", "told"),
    [("metric=thruput/forward", "Unknown metric &#39;thruput/forward&#39;; did you mean"),
     ("sort=speed", "Unknown order of runs &#39;speed&#39;"),
     ("x=colour", "Unknown swept field &#39;colour&#39;"),
     ("state=good", "Unknown state of runs"), ("kind=pie", "Unknown view &#39;pie&#39;"),
     ("colour=hue", "Unknown swept field &#39;hue&#39;"), ("box=9:0:1", "The box over a figure is not"),
     ("fix.colour=red", "Unknown swept field &#39;colour&#39;"),
     ("fix.network.reverse.rate=1", "Unknown value of network.reverse.rate &#39;1&#39;")],
)  # fmt: skip
def test_an_unknown_argument_is_reported(client: FlaskClient, simulated: Simulated, argument: str, told: str) -> None:
    page = client.get(f"{simulated.address}/explore?{argument}").text
    assert told in page
    assert 'role="alert"' in page
    fine = "metric=goodput/forward&sort=landed&state=valid&x=none&kind=box&sort=network.reverse.rate"
    assert 'role="alert"' not in client.get(f"{simulated.address}/explore?{fine}").text


def test_a_campaign_that_failed_says_why(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "results")
    where = campaign(store)
    store.note_failure(f"{0:024x}", 1, "the sender <forward> ended with status 1")
    store.end_campaign(where, complete=False)
    client = create_app(tmp_path / "results").test_client()
    assert "the sender &lt;forward&gt; ended with status 1" in client.get(f"/campaigns/{where}").text
    page = client.get(f"/campaigns/{where}/explore").text
    assert "the sender &lt;forward&gt; ended with status 1" in page
    assert page.count(">failed</span>") == 1
    assert page.count(">not run</span>") == 3
    assert "Compare the chosen" not in page


def test_known_troubles_are_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = create_app(tmp_path).test_client()

    def gone(*_: Any) -> Any:
        raise TestbedError("the node binary is not built")

    monkeypatch.setattr("experiments.language.registry.of_kind", gone)
    answer = client.get("/docs")
    assert answer.status_code == 503
    assert "The node binary is not built." in answer.text
    assert client.get("/api/registry").json == {"error": "The node binary is not built."}


def test_a_comparison_gives_its_verdict_in_words(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "results")
    client = create_app(tmp_path / "results").test_client()
    for name, factor in (("own", 1.0), ("other", 2.0)):
        new = NewCampaign(name * 4, name, f"The {name} one", "own.yaml", "", {}, "sim", seed=1, repetitions=3)
        numbers = range(16 * int(factor), 16 * int(factor) + 3)
        store.begin_campaign(new, [[("policy", "red")]], [(0, n, f"{number:024x}") for n, number in enumerate(numbers)])
        for n, number in enumerate(numbers):
            rows = [
                throughput(factor * 1e6 + 1e4 * n * n),
                MetricValue("goodput", "forward", 0.9 - 0.1 * factor + 0.001 * n * n * factor, "fraction"),
                MetricValue("retransmissions", "forward", 10.0 * n, "count"),
            ]
            commit(store, tmp_path, number, *rows, seed=n)
    page = client.get(f"/compare?point={'own' * 4}:0&point={'other' * 4}:0").text
    # The campaign is part of a label where there are several.
    assert "other: policy=red against own: policy=red, of 3 metrics: " in page
    assert "better in 1 (throughput, forward)" in page
    assert "worse in 1 (goodput, forward)" in page
    assert '<span class="word better">better</span>' in page
    assert '<span class="word worse">worse</span>' in page
    assert re.search(r"\+1\.0+ ± 0\.\d+ Mbit/s \(\+9\d\u00a0%\)", page)
    # A share changes by points, not by percent of itself.
    assert re.search(r"−9\.\d+ ± [\d.]+ points<", page)
    assert page.count(">n = 3</small>") == 6


def taken_along(client: FlaskClient, links: list[str]) -> None:
    assert links
    for link in links:
        answer = client.get(link.replace("&amp;", "&"))
        assert answer.status_code == 200, link
        assert answer.headers["Content-Disposition"].startswith("attachment")


@pytest.mark.slow("more pictures; the default tier has one of the figure and one of a plot")
def test_every_picture_of_what_is_compared_can_be_taken_along(client: FlaskClient, simulated: Simulated) -> None:
    campaign_id = simulated.campaign["campaign"]
    page = client.get(f"/compare?point={campaign_id}:0&point={campaign_id}:3&metric=goodput/forward").text
    taken_along(client, [link for link in re.findall(r'href="(/compare/[^"]+)"', page) if ".csv" not in link])


def test_what_is_compared_can_be_taken_along(client: FlaskClient, simulated: Simulated) -> None:
    campaign_id = simulated.campaign["campaign"]
    points = f"point={campaign_id}:0&point={campaign_id}:3"
    page = client.get(f"/compare?{points}&metric=goodput/forward").text
    links = re.findall(r'href="(/compare/[^"]+)"', page)
    assert len(links) == 3 + 5 * 3
    # All as tables, and each kind of picture once.
    pictures = ("/compare/figure.svg", "/compare/plots/sequence.pdf")
    taken_along(client, [link for link in links if ".csv" in link or link.startswith(pictures)])
    told: Any = client.get(f"/api/compare?{points}").json
    means = [
        cell["mean"] for row in told["metrics"] for cell in row["cells"]
        if (row["metric"], row["flow"]) == ("goodput", "forward")
    ]  # fmt: skip
    rows = list(csv.DictReader(client.get(f"/compare/figure.csv?{points}&metric=goodput/forward").text.splitlines()))
    assert [float(row["mean"]) for row in rows] == means
    laid = client.get(f"/compare/plots/cwnd.csv?{points}&flow=forward&from=1&to=2").text
    rows = list(csv.DictReader(laid.splitlines()))
    assert {row["series"] for row in rows} == {"policy=droptail, rate=9.6 kbit/s", "policy=acks-first, rate=9.6 kbit/s"}
    assert client.get(f"/compare/plots/weather.csv?{points}").status_code == 404
    assert client.get(f"/compare/figure.svg?point={campaign_id}:0").status_code == 404


def test_a_plot_leaves_out_who_has_nothing_to_lay_over(dropping: Simulated, tmp_path: Path) -> None:
    shutil.copytree(dropping.results, tmp_path / "results")
    upload = DROPPING.replace("name: dropping", "name: upload").partition("workload:")[0]
    (tmp_path / "upload.yaml").write_text(upload + "workload: [{name: up, from: client, to: server}]\nduration: 1 s\n")
    done = backchannel("run", tmp_path / "upload.yaml", "--results", tmp_path / "results", "--json", status=0)
    runs = f"run={dropping.run_id()}&run={json.loads(done.stdout)['points'][0]['runs'][0]['run_id']}"
    client = create_app(tmp_path / "results").test_client()

    def names(query: str) -> set[str]:
        answer: Any = client.get(f"/api/compare/throughput?{runs}&{query}")
        assert answer.status_code == 200, answer.text
        return {entry["name"].partition(":")[0] for entry in answer.json["series"]}

    # The other run only uploads.
    assert names("flow=forward") == {"dropping"}
    assert names("flow=forward&as=up:forward") == {"dropping", "upload"}
    assert client.get(f"/api/compare/throughput?{runs}&flow=neither").status_code == 404


def test_the_picture_of_a_network_is_a_file_too(client: FlaskClient, simulated: Simulated) -> None:
    for place in (simulated.address, f"/runs/{simulated.run_id()}"):
        assert f'href="{place}/network.pdf"' in client.get(place).text
        assert client.get(f"{place}/network.pdf").data.startswith(b"%PDF-")
        # Of the first point.
        assert "9.6 kbit/s, 50 ms" in client.get(f"{place}/network.svg").text
        assert client.get(f"{place}/network.csv").status_code == 404


#: Counters in place of captures, of one of the links.
COUNTED = "capture: {at: [none], telemetry: false, counters: {every: 100 ms, at: [bottleneck]}}\n"


def test_a_run_with_counters_shows_its_throughput_window_and_queue(tmp_path: Path) -> None:
    text = SWEEP.partition("sweep:")[0].replace("name: sweep", "name: counted") + COUNTED
    run = ran(tmp_path, "counted.yaml", text)
    client = create_app(run.results).test_client()
    address = f"/runs/{run.run_id()}"
    page = client.get(address).text
    kinds = re.findall(r'data-kind="(\w+)"', page)
    assert kinds == ["throughput", "throughput", "cwnd", "queue", "queue"]
    assert "counters in bins of 100 ms" in page
    compared = client.get(f"/compare?run={run.run_id()}").text
    assert re.findall(r'data-kind="(\w+)"', compared) == ["throughput", "cwnd", "queue"]
    assert "Crossing" not in page
    # The uppermost plot's data are asked for with the page.
    assert f'href="/api{address}/throughput' in page
    answer: Any = client.get(f"/api{address}/throughput").json
    counted = json.loads((Store.open(run.results).run_folder(run.run_id()) / "counters.json").read_text())
    delivered = {entry["name"].removesuffix(", in order"): entry for entry in answer["series"]}
    for name, flow in counted["flows"].items():
        # The last value is there twice: it ends the last step.
        got = sum(delivered[name]["y"][:-1]) * 1e3 * counted["every_s"] / 8
        assert got == pytest.approx(sum(flow["delivered_bytes"]))
    for kind, of, bins in (
        ("cwnd", "forward", counted["flows"]["forward"]["cwnd_segments"]),
        ("queue", "bottleneck/reverse", counted["links"]["bottleneck"]["reverse"]["queue_packets"]),
    ):
        drawn: Any = client.get(f"/api{address}/{kind}?flow={of}").json
        assert [series["name"] for series in drawn["series"]] == ["cwnd" if kind == "cwnd" else "waiting"]
        assert drawn["series"][0]["y"][: len(bins)] == pytest.approx(bins)
        assert drawn["series"][0]["x"][:2] == [0, 0.1]
        # Beside the head, the last value is there twice.
        assert client.get(f"{address}/plots/{kind}.csv?flow={of}").text.count("\n") == len(bins) + 2
    away: Any = client.get(f"/api{address}/queue?flow=server-access/forward").json
    assert "was not counted" in away["empty"]


def test_throughput_adds_up_to_what_was_delivered(client: FlaskClient, simulated: Simulated) -> None:
    run_id = simulated.run_id(1)
    answer: Any = client.get(f"/api/runs/{run_id}/throughput").json
    store = Store.open(simulated.results)
    run = store.run(run_id)
    assert run is not None
    data = RunData.load(store.run_folder(run_id), run.documents.scenario, run.documents.report)
    drawn = {entry["name"]: entry for entry in answer["series"]}
    for flow in data.flows:
        for name, size in (
            (f"{flow.name}, in order", flow.delivered_bytes(0, 9)),
            (flow.name, flow.received["bytes"].sum()),
        ):
            x, y = drawn[name]["x"], drawn[name]["y"]
            bits = sum((end - begin) * rate * 1e3 for begin, end, rate in zip(x, x[1:], y, strict=False))
            assert bits / 8 == pytest.approx(size, rel=1e-3)


def test_throughput_is_plotted_by_direction_in_bins_of_the_zoom(client: FlaskClient, simulated: Simulated) -> None:
    run_id = simulated.run_id(1)
    page = client.get(f"/runs/{run_id}").text
    assert all(f"Throughput, received by {host}" in page for host in ("client", "server"))

    def series(query: str) -> dict[str, tuple[list[float], list[float]]]:
        answer: Any = client.get(f"/api/runs/{run_id}/throughput?{query}").json
        return {entry["name"]: (entry["x"], entry["y"]) for entry in answer["series"]}

    down = {"forward", "forward, in order", "rate of bottleneck/forward"}
    up = {"reverse", "reverse, in order", "rate of bottleneck/reverse"}
    assert set(series("flow=client")) == down
    assert set(series("flow=server")) == set(series("flow=reverse")) == up
    assert set(series("")) == down | up
    complete, near = series("flow=client")["forward"], series("flow=client&from=2&to=4")["forward"]
    assert [x[-1] - x[-2] for x, _ in (complete, near)] == pytest.approx([0.08, 0.02])
    # The same bytes, in a quarter of the width.
    assert sum(y for x, y in zip(*near, strict=True) if 2.4 - 1e-6 < x < 3.2 - 1e-6) / 4 == pytest.approx(
        sum(y for x, y in zip(*complete, strict=True) if 2.4 - 1e-6 < x < 3.2 - 1e-6)
    )
    assert "bins of 20 ms" in client.get(f"/runs/{run_id}/plots/throughput.svg?flow=client&from=2&to=4").text


def test_the_docs_hold_all_that_the_registry_holds(client: FlaskClient) -> None:
    page = client.get("/docs").text
    entries: Any = client.get("/api/registry").json
    assert len(entries) > 40
    for entry in entries:
        assert f"<b>{entry['name']}</b>" in page
    for metric in client.get("/api/metrics").json:  # type: ignore[union-attr]
        assert f"<b>{metric['name']}</b>" in page
    assert "ack-filtering" not in client.get("/docs?q=wavelan").text


def test_the_api_describes_itself(client: FlaskClient) -> None:
    document: Any = client.get("/api/openapi.json").json
    assert document["openapi"].startswith("3.1")
    for path, operations in document["paths"].items():
        named = set(re.findall(r"{(\w+)}", path))
        for operation in operations.values():
            assert operation["summary"]
            assert {entry["name"] for entry in operation["parameters"] if entry["in"] == "path"} == named
    assert "/api/campaigns/{campaign_id}/runs" in document["paths"]
    ids = [operation["operationId"] for operations in document["paths"].values() for operation in operations.values()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", ["kind", "endpoint", "campaign_id", "_external", "page", "points"])
def test_no_argument_of_an_address_breaks_a_page(client: FlaskClient, simulated: Simulated, name: str) -> None:
    for value in ("x", "99999999999999999999"):
        answer = client.get(f"{simulated.address}?{name}={value}")
        assert answer.status_code == 200
        assert f"/figure.svg?{name}={value}" in answer.text


def test_answers_are_what_the_description_says(client: FlaskClient, simulated: Simulated) -> None:
    run_id, campaign_id = simulated.run_id(), simulated.campaign["campaign"]
    paths: Any = client.get("/api/openapi.json").json["paths"]  # type: ignore[index]
    values = {"campaign_id": campaign_id, "run_id": run_id, "kind": "sequence", "file": "quickstart.yaml"}
    kinds: dict[str, type | tuple[type, ...]] = {
        "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
    }  # fmt: skip

    def hold(schema: dict[str, Any], given: Any, where: str) -> None:
        if "type" in schema:
            assert isinstance(given, kinds[schema["type"]]), where
        for name in schema.get("required", ()):
            assert name in given, f"{where}: {name}"
            hold(schema["properties"][name], given[name], f"{where}.{name}")
        for entry in given if "items" in schema else ():
            hold(schema["items"], entry, where)

    held = 0
    for path, operations in paths.items():
        responses = operations.get("get", {}).get("responses", {})
        told = responses.get("200", {}).get("content", {}).get("application/json", {})
        if "schema" not in told or "{number}" in path or "{import_id}" in path:
            continue
        extra = "flow=forward" if path.startswith("/api/runs/") else f"run={run_id}" if "compare" in path else ""
        answer = client.get(path.format(**values), query_string=extra)
        assert answer.status_code == 200, path
        hold(told["schema"], answer.json, path)
        held += 1
    assert held >= 14


def test_a_file_has_a_name_whatever_the_campaign_is_called(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        new = NewCampaign("c" * 16, 'n→"\nx', "Own", "own.yaml", "name: ä", {}, "sim", seed=1, repetitions=1)
        store.begin_campaign(new, [[]], [(0, 0, "0" * 24)])
    answer = create_app(tmp_path).test_client().get(f"/campaigns/{'c' * 16}.yaml")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="n___x.yaml"'
    assert (answer.content_type, answer.text) == ("text/plain; charset=utf-8", "name: ä")


def test_every_status_with_a_document_is_described(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "results")
    where = campaign(store, text="name: own")
    store.end_campaign(where, complete=False)
    client = create_app(tmp_path / "results").test_client()
    paths: Any = client.get("/api/openapi.json").json["paths"]  # type: ignore[index]

    def described(path: str, method: str, address: str) -> int:
        answer = client.open(address, method=method)
        told = paths[path][method.lower()]["responses"][str(answer.status_code)]
        assert answer.json is not None
        assert set(told["content"]["application/json"]["schema"]["required"]) <= set(answer.json)
        return answer.status_code

    act = "/api/campaigns/{campaign_id}/{action}"
    told = [described(act, "POST", f"/api/campaigns/{where}/{action}") for action in ("archive", "restore", "rerun")]
    assert told == [200, 200, 202]
    # The rerun waits for a runner.
    assert described("/api/health", "GET", "/api/health") == 503


def test_runs_without_a_valid_result_are_grouped_by_cause(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "results")
    where = campaign(store, policies=("droptail", "acks-first", "red"))
    for number, late in ((0, "2"), (1, "3.5"), (10, "41")):
        commit(store, tmp_path, number, problems=[f"bottleneck forward left {late} ms late"])
    store.note_failure(f"{11:024x}", 1, "the sender ended with status 1")
    client = create_app(tmp_path / "results").test_client()
    for path, words in (("/", "3 runs of Own"), (f"/campaigns/{where}", "3 runs")):
        page = client.get(path).text
        assert f'/campaigns/{where}/explore?state=invalid#runs">{words}</a>' in page
        assert re.search(r"bottleneck forward left \S+ ms late</li>", page)
        assert "the sender ended with status 1</li>" in page
    shown = client.get(f"/campaigns/{where}/explore?state=invalid").text
    assert ">3 runs</span>" in shown
