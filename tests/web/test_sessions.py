"""The page of running sessions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from experiments.sessions.changes import parse_changes
from experiments.sessions.control import ControlServer
from web.app import create_app

DIRECTION = {"submitted_packets": 9, "delivered_packets": 8, "transmitted_bytes": 700, "queue_packets": 3,
             "queue_bytes": 300, "events": {"dropped_full": 2, "lost": 1}}  # fmt: skip


class Recorded:
    """A session's end of the socket: answers as a session does, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(request)
        if request["op"] == "set":
            changes = parse_changes(request["words"])
            return {"changes": [{"at_s": 2.0, "link": request["link"], "direction": way, "fields": fields}
                                for way, fields in changes.items()]}  # fmt: skip
        declared = {"rate_bps": 28_800, "delay_s": 0.05, "policy": "droptail", "errors": []}
        return {
            "name": f"test{os.getpid()}", "label": "dialup-28.8", "host": "right", "started": 0.0, "changes": [],
            "declared": {"line": {"forward": declared, "reverse": declared}}, "passed_s": 5.0, "recorded_bytes": 5,
            "links": {"line": {"forward": DIRECTION, "reverse": DIRECTION}},
        }  # fmt: skip


@pytest.fixture
def session() -> Iterator[Recorded]:
    recorded = Recorded()
    server = ControlServer(f"test{os.getpid()}", recorded.answer)
    yield recorded
    server.close()


@pytest.fixture
def site(tmp_path: Path) -> FlaskClient:
    return create_app(tmp_path).test_client()


def csrf(client: FlaskClient) -> str:
    page = client.get("/sessions").text
    return page.split('name="csrf" content="')[1].split('"')[0]


def test_the_page_shows_every_direction(session: Recorded, site: FlaskClient) -> None:
    page = site.get("/sessions").text
    assert "right behind dialup-28.8" in page
    assert "28.8 kbit/s" in page
    assert "3 packets" in page
    found = site.get("/api/sessions").json
    assert found is not None
    assert any(one["name"] == f"test{os.getpid()}" for one in found)


def test_a_change_reaches_the_session_and_a_wrong_one_is_explained(session: Recorded, site: FlaskClient) -> None:
    form = {"csrf": csrf(site), "link": "line", "direction": "reverse", "rate": "1 Mbit/s", "policy": "codel"}
    answer = site.post(f"/sessions/test{os.getpid()}", data=form, follow_redirects=True).text
    assert "at 2.000 s, line reverse: rate 1 Mbit/s, queue codel" in answer
    sent = next(request for request in session.asked if request["op"] == "set")
    assert sent["words"] == ["reverse.rate=1 Mbit/s", "reverse.policy=codel"]
    answer = site.post(f"/sessions/test{os.getpid()}", data={**form, "rate": "0"}, follow_redirects=True).text
    assert "use loss=100%" in answer


def test_a_change_from_another_site_is_refused(session: Recorded, site: FlaskClient) -> None:
    form = {"link": "line", "direction": "reverse", "rate": "1 Mbit/s"}
    assert site.post(f"/sessions/test{os.getpid()}", data=form).status_code == 403
    assert all(request["op"] != "set" for request in session.asked)


def test_a_session_that_has_ended_is_explained(site: FlaskClient) -> None:
    form = {"csrf": csrf(site), "link": "line", "direction": "reverse", "rate": "1 Mbit/s"}
    assert "there is no session" in site.post("/sessions/gone", data=form, follow_redirects=True).text
