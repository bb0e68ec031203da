"""Packets crossing the line, held against what the line itself told of its drops; and other answers of the site."""

from __future__ import annotations

import csv
import io
from typing import Any

import polars as pl
import pytest
from flask.testing import FlaskClient

import analysis
from analysis.figures.campaign import of_points
from analysis.figures.means import MOST_SERIES
from analysis.store.rows import PointRow, TableRow
from tests.support.simulated import Simulated
from web.app import create_app
from web.crossing import ENDS, _arrivals

FORWARD = ("bottleneck", "forward")


def rows(*packets: tuple[float, int]) -> pl.DataFrame:
    made = [(t_s, "a", 1, "b", 2, 0, seq, 0, 1000, 1040, False, True, 2) for t_s, seq in packets]
    names = ["t_s", *ENDS, "dir", "seq", "ack", "payload", "ip_len", "again", "data", "listening_port"]
    return pl.DataFrame(made, schema=names, orient="row")


def test_an_arrival_is_of_the_latest_sending_before_it() -> None:
    # Dropped and sent again; sent twice and both arrived; one more sending after the only arrival.
    assert _arrivals(rows((0, 1), (0.3, 1)), rows((0.4, 1)), 1) == {1: 0.4}
    assert _arrivals(rows((0, 1), (0.3, 1)), rows((0.35, 1), (0.6, 1)), 1) == {0: 0.35, 1: 0.6}
    assert _arrivals(rows((0, 1), (0.3, 1)), rows((0.2, 1)), 1) == {0: 0.2}
    # An arrival that is too late for any of them takes none.
    assert _arrivals(rows((0, 1)), rows((5, 1)), 1) == {}


def test_what_is_lost_is_what_the_line_dropped(dropping: Simulated) -> None:
    with analysis.open(dropping.results) as s:
        told = s.run(dropping.run_id()).telemetry.filter(
            pl.col("link") == FORWARD[0], pl.col("direction") == FORWARD[1], pl.col("event") == "dropped_full"
        )
        dropped = told.collect()["t_s"].sort().to_list()
    client = create_app(dropping.results).test_client()
    lost: list[float] = []
    # By parts, as the strip asks for them; what is on its way at the end has not arrived either, and is not a loss.
    for second in range(11):
        answer: Any = client.get(f"/api/runs/{dropping.run_id()}/crossing?from={second}&to={second + 1}").json
        assert not answer["cut"]
        lost += [entry[0] for entry in answer["packets"] if entry[3] == 0 and entry[2] is None]
    assert len(dropped) > 20
    assert sorted(lost) == pytest.approx([t_s for t_s in dropped if t_s < 11], abs=2e-6)


def test_a_look_at_the_head_takes_no_place_of_a_stream(client: FlaskClient) -> None:
    watcher = client.application.extensions["watcher"]
    before = watcher._streams
    for _ in range(3):
        client.head("/api/events")
    assert watcher._streams == before


def test_a_table_has_the_series_that_a_picture_has_no_room_for() -> None:
    points = [PointRow(n, [("x", "1"), ("y", f"v{n}")]) for n in range(15)]
    values = [TableRow(n, "m", "", "", 1, 1.0, None, values=[1.0]) for n in range(15)]
    figure = of_points(points, values, title="M", unit="", metric="m", subject="", x_field="x", fixed={})
    assert (len(figure.groups), figure.left_out) == (MOST_SERIES, 3)
    assert len({row["series"] for row in csv.DictReader(io.StringIO(figure.as_csv()))}) == 15


def test_a_page_is_chosen_by_its_number(client: FlaskClient, simulated: Simulated) -> None:
    template = client.application.jinja_env.get_template("_parts.html")
    with client.application.test_request_context("/campaigns?q=a&page=3"):
        text = template.module.pager(3, 9, lambda number: f"?page={number}")  # type: ignore[attr-defined]
    assert 'href="?page=1">First' in text
    assert 'href="?page=9">Last' in text
    assert 'name="page" min="1" max="9" value="3"' in text
    assert '<input type="hidden" name="q" value="a">' in text
    assert client.get(simulated.address).status_code == 200
