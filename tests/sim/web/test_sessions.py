"""Pages of running sessions, without a browser."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tests.sim.web.test_safety import csrf
from tests.support.site import FakeSession
from web.app import create_app


@pytest.fixture
def site(tmp_path: Path) -> FlaskClient:
    return create_app(tmp_path).test_client()


def test_the_page_shows_every_direction(session: FakeSession, site: FlaskClient) -> None:
    page = site.get("/sessions").text
    assert "right behind dialup-28.8" in page
    assert "28.8 kbit/s" in page
    assert "3 packets" in page
    # Its uniform errors.
    assert 'name="loss" value="" placeholder="2 %"' in page
    found = site.get("/api/sessions").json
    assert found is not None
    assert any(one["name"] == f"test{os.getpid()}" for one in found)


def test_a_change_reaches_the_session_and_a_wrong_one_is_explained(session: FakeSession, site: FlaskClient) -> None:
    form = {"csrf": csrf(site), "link": "line", "direction": "reverse", "rate": "1 Mbit/s", "policy": "codel"}
    answer = site.post(f"/sessions/test{os.getpid()}", data=form, follow_redirects=True).text
    assert "at 2.000 s, line reverse: rate 1 Mbit/s, queue codel" in answer
    sent = next(words for op, words in session.asked if op == "change")
    assert list(sent) == ["reverse.rate=1 Mbit/s", "reverse.policy=codel"]
    answer = site.post(f"/sessions/test{os.getpid()}", data={**form, "rate": "0"}, follow_redirects=True).text
    assert "use loss=100%" in answer


def test_a_change_that_is_rejected_stays_in_its_form(session: FakeSession, site: FlaskClient) -> None:
    form = {"csrf": csrf(site), "link": "line", "direction": "reverse", "rate": "0", "delay": "7 ms", "policy": "codel"}
    forward, reverse = site.post(f"/sessions/{session.name}", data=form, follow_redirects=True).text.split(
        "Change line "
    )[1:]
    assert 'name="rate" value="0"' in reverse
    assert 'name="delay" value="7 ms"' in reverse
    assert "<option selected>codel" in reverse
    assert 'name="delay" value="7 ms"' not in forward
    assert "selected" not in forward
    # The message is shown once, and a reload keeps the rest.
    assert 'value="7 ms"' not in site.get("/sessions").text


def test_a_message_waits_for_the_page_that_a_person_sees(session: FakeSession, site: FlaskClient) -> None:
    # The page that is being left may ask for itself once more between the answer to its form and the next page.
    form = {"csrf": csrf(site), "link": "line", "direction": "reverse", "rate": "1 Mbit/s"}
    site.post(f"/sessions/test{os.getpid()}", data=form)
    message = "at 2.000 s, line reverse: rate 1 Mbit/s"
    assert message not in site.get("/sessions", headers={"X-Requested-With": "fetch"}).text
    assert message in site.get("/sessions").text
    assert message not in site.get("/sessions").text


def test_a_change_from_another_site_is_refused(session: FakeSession, site: FlaskClient) -> None:
    form = {"link": "line", "direction": "reverse", "rate": "1 Mbit/s"}
    assert site.post(f"/sessions/test{os.getpid()}", data=form).status_code == 403
    assert all(op != "change" for op, _ in session.asked)


def test_a_session_that_has_ended_is_explained(site: FlaskClient) -> None:
    form = {"csrf": csrf(site), "link": "line", "direction": "reverse", "rate": "1 Mbit/s"}
    assert "unknown session" in site.post("/sessions/gone", data=form, follow_redirects=True).text
