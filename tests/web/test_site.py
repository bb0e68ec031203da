"""The site: pages by the Flask client, then plots and looks in a real browser."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import waitress
from flask.testing import FlaskClient
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.conftest import Finished
from web import series
from web.app import create_app


@pytest.fixture(scope="module")
def client(finished: Finished) -> FlaskClient:
    return create_app(finished.results).test_client()


@pytest.fixture(scope="module")
def run_id(finished: Finished) -> str:
    return str(finished.campaign["points"][0]["runs"][0]["run_id"])


def test_an_empty_store_invites_to_run_something(tmp_path: Path) -> None:
    page = create_app(tmp_path / "results").test_client().get("/")
    assert page.status_code == 200
    assert "No campaign has been run yet" in page.text


def test_the_index_lists_and_searches(client: FlaskClient) -> None:
    assert "A small campaign" in client.get("/").text
    assert "A small campaign" in client.get("/?q=small").text
    nothing = client.get("/?q=<b>zebra").text
    assert "No campaign matches" in nothing
    assert "<b>zebra" not in nothing


def test_a_campaign_shows_its_table_charts_and_exports(client: FlaskClient, finished: Finished) -> None:
    address = f"/campaigns/{finished.campaign['campaign']}"
    page = client.get(address).text
    assert "acks-first" in page
    assert "Mbit/s" in page
    assert page.count("<rect") >= 10
    table = pl.read_csv(io.BytesIO(client.get(f"{address}.csv").data))
    assert table.columns[:4] == ["network.reverse.queue.policy", "metric", "flow", "unit"]
    assert table.filter((pl.col("metric") == "throughput") & (pl.col("flow") == "forward")).height == 2
    assert client.get(f"/api{address}").json == finished.campaign
    assert client.get(f"/api{address}/progress").json["state"] == "complete"  # type: ignore[index]


def test_a_run_shows_verdict_provenance_and_files(client: FlaskClient, run_id: str, finished: Finished) -> None:
    page = client.get(f"/runs/{run_id}").text
    for wanted in ("Fidelity", "Provenance", "captures/client-eth0.pcap.gz", "bottleneck reverse"):
        assert wanted in page
    capture = client.get(f"/runs/{run_id}/files/captures/client-eth0.pcap.gz")
    assert capture.data[:2] == b"\x1f\x8b"


@pytest.mark.parametrize("path", ["../../../../etc/passwd", "..%2f..%2fresults.sqlite", "captures", "nothing"])
def test_no_other_file_can_be_had(client: FlaskClient, run_id: str, path: str) -> None:
    assert client.get(f"/runs/{run_id}/files/{path}").status_code == 404


@pytest.mark.parametrize("address", ["/campaigns/none", "/runs/none", "/nowhere", "/api/runs/none/queue"])
def test_what_does_not_exist_is_said(client: FlaskClient, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 404
    assert "There is no" in answer.text or "not found" in answer.text


def test_nothing_comes_from_elsewhere_or_inline(client: FlaskClient, run_id: str) -> None:
    answer = client.get(f"/runs/{run_id}")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for bad in ("http://", "https://", "style=", "onclick"):
        assert bad not in answer.text


def test_the_window_of_a_connection_split_on_the_way_stands_beside_the_senders(tmp_path: Path) -> None:
    (tmp_path / "telemetry").mkdir()
    own = {"t_ns": 10, "cwnd_segments": 2.0, "ssthresh_segments": None}
    (tmp_path / "telemetry" / "bulk.jsonl").write_text(json.dumps(own) + "\n")
    part = {"t_ns": 2_000_000_000, "link": "air", "direction": "forward", "part": "wireless", "event": "ack"}
    lines = [
        part | {"from": "10.1.0.1:40000", "to": "10.2.0.2:5001", "cwnd_segments": 3.5},
        part | {"from": "10.1.0.1:40001", "to": "10.2.0.2:5002", "cwnd_segments": 9.0},
        {"t_ns": 5, "link": "air", "direction": "forward", "packets": 1, "bytes": 40, "max": 2},
    ]
    (tmp_path / "telemetry" / "links.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = {"scenario": {"workload": [{"name": "bulk", "port": 5001}]}}
    view = series.View(0, 10, 100)
    shown = {one["name"]: (one["x"], one["y"]) for one in series.cwnd(tmp_path, run, "bulk", view)["series"]}
    assert shown["cwnd, wireless part"] == ([2.0], [3.5])
    queue = series.queue(tmp_path, run, "air/forward", view)["series"]
    assert [one["name"] for one in queue] == ["waiting"], "a sender's acks are no events of the queue"


def test_series_hold_what_the_captures_hold(client: FlaskClient, run_id: str) -> None:
    answer: Any = client.get(f"/api/runs/{run_id}/sequence?flow=forward").json
    data = next(one for one in answer["series"] if one["name"] == "data")
    assert len(data["x"]) > 100
    assert data["x"] == sorted(data["x"])
    part: Any = client.get(f"/api/runs/{run_id}/sequence?flow=forward&from=1&to=2").json
    inner = next(one for one in part["series"] if one["name"] == "data")["x"]
    assert sum(1 <= x <= 2 for x in inner) >= len(inner) - 2
    queue: Any = client.get(f"/api/runs/{run_id}/queue?flow=bottleneck/reverse").json
    assert max(queue["series"][0]["y"]) == 10
    cwnd: Any = client.get(f"/api/runs/{run_id}/cwnd?flow=forward").json
    assert max(cwnd["series"][0]["y"]) > 10
    assert client.get(f"/api/runs/{run_id}/queue?from=x").status_code == 400
    assert client.get(f"/api/runs/{run_id}/weather").status_code == 404


def test_thinning_keeps_every_mark() -> None:
    frame = pl.DataFrame({"x": [i / 1000 for i in range(100_000)], "y": [0.0] * 100_000})
    shown = series._series("retransmitted", "marks", frame, series.View(0, 100, 400))
    assert len(shown["x"]) == 100_000


@pytest.mark.parametrize("query", ["from=nan", "to=inf", "from=-inf", "from=soon"])
def test_a_view_without_numbers_is_refused(client: FlaskClient, run_id: str, query: str) -> None:
    answer = client.get(f"/api/runs/{run_id}/throughput?{query}")
    assert answer.status_code == 400
    assert "are seconds" in answer.text


def test_thinning_keeps_every_peak() -> None:
    y = [0.0] * 100_000
    y[54_321], y[7] = 99.0, -5.0
    frame = pl.DataFrame({"x": [i / 1000 for i in range(100_000)], "y": y})
    thinned = series.thin(frame, series.View(0, 100, 400))
    assert thinned.height <= 404
    assert (thinned["y"].max(), thinned["y"].min()) == (99.0, -5.0)
    assert thinned["x"].is_sorted()


@pytest.fixture(scope="module")
def address(finished: Finished) -> Iterator[str]:
    server = waitress.create_server(create_app(finished.results), host="127.0.0.1", port=0, threads=8)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.effective_port}"
    server.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which any message of the console, and any error, fails the test."""
    said: list[str] = []
    page = browser.new_page(viewport={"width": 1280, "height": 900})

    def note(message: ConsoleMessage) -> None:
        said.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: said.append(str(error)))
    yield page
    page.close()
    assert said == []


@pytest.mark.browser
def test_plots_are_drawn_zoom_together_and_come_back(page: Page, address: str, run_id: str) -> None:
    page.goto(f"{address}/runs/{run_id}")
    page.wait_for_selector("[data-drawn] canvas")
    ink = page.evaluate(
        """() => { const c = document.querySelector("[data-drawn] canvas");
        const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
        let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; }"""
    )
    assert ink > 2000
    assert page.evaluate("view") == [0, 6]
    over = page.locator("[data-drawn] .u-over").first.bounding_box()
    assert over is not None
    y = over["y"] + over["height"] / 2
    with page.expect_response(
        lambda response: "from=" in response.url and "from=0" not in response.url.replace("from=0.", "")
    ):
        page.mouse.move(over["x"] + over["width"] * 0.25, y)
        page.mouse.down()
        page.mouse.move(over["x"] + over["width"] * 0.5, y, steps=5)
        page.mouse.up()
    low, high = page.evaluate("view")
    assert low == pytest.approx(1.5, abs=0.05)
    assert high == pytest.approx(3.0, abs=0.05)
    assert (
        len({tuple(one) for one in page.evaluate("plots.map((p) => [p.chart.scales.x.min, p.chart.scales.x.max])")})
        == 1
    )
    page.mouse.dblclick(over["x"] + over["width"] * 0.5, y)
    page.wait_for_function("view[0] === 0 && view[1] === 6")


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_their_window(
    browser: Browser, address: str, finished: Finished, run_id: str, width: int, scheme: Any
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    for path in ("/", f"/campaigns/{finished.campaign['campaign']}", f"/runs/{run_id}"):
        page.goto(address + path)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(19, 23, 22)") == (scheme == "dark")
    page.close()
