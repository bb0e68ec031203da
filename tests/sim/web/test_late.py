"""Pages that take long, by an application that waits to be told to end."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client, TestResponse

from tests.support.waiting import HANGS_S, wait_until
from web import late
from web.app import create_app

AS_BROWSER = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


class Slow:
    """An application whose answers are its visitors' cookies."""

    def __init__(self) -> None:
        self.may_end, self.read = threading.Event(), threading.Event()
        self.threads: list[threading.Thread] = []

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        self.threads.append(threading.current_thread())
        late.show(3, 9)
        self.read.set()
        self.may_end.wait()
        if environ["PATH_INFO"] == "/bad":
            raise RuntimeError("bad")
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [f"page of {environ.get('HTTP_COOKIE', 'nobody')}".encode()]


@pytest.fixture
def slow() -> Iterator[Slow]:
    app = Slow()
    yield app
    app.may_end.set()


def get(app: Any, path: str = "/campaigns/a", **headers: str) -> TestResponse:
    return Client(app, use_cookies=False).get(path, headers={**AS_BROWSER, **headers})


def test_a_browser_is_told_how_far_a_page_is_and_has_it_when_it_is_there(slow: Slow) -> None:
    site = late.Late(slow, within_s=0.0)
    first = get(site, Cookie="a")
    assert slow.read.wait(HANGS_S)
    for response in (first, get(site, Cookie="a")):
        assert response.status_code == 202
        assert 'http-equiv="refresh"' in response.text
    assert "3 of 9 runs are read" in get(site, Cookie="a").text
    assert get(site, Cookie="b").status_code == 202
    wait_until(lambda: len(slow.threads) == 2, "the other visitor's page")
    slow.may_end.set()
    site.within_s = HANGS_S
    assert [get(site, Cookie=name).text for name in ("b", "a")] == ["page of b", "page of a"]
    # It is given once; the next request makes it again.
    assert (get(site, Cookie="a").text, len(slow.threads)) == ("page of a", 3)


def test_what_no_browser_shows_as_a_page_waits(slow: Slow) -> None:
    slow.may_end.set()
    site = late.Late(slow, within_s=0.0)
    me = threading.current_thread()
    assert Client(site).get("/campaigns/a").text == "page of nobody"
    assert get(site, "/campaigns/a/explore.csv").text == "page of nobody"
    # An event stream, opened as a page, would never be complete.
    assert get(site, "/api/events").text == "page of nobody"
    assert Client(site).post("/campaigns/a", headers=AS_BROWSER).text == "page of nobody"
    assert slow.threads == [me, me, me, me]


def test_an_error_is_raised_where_the_page_is_fetched(slow: Slow) -> None:
    slow.may_end.set()
    with pytest.raises(RuntimeError, match="bad"):
        get(late.Late(slow, within_s=HANGS_S), "/bad")


def test_more_pages_than_are_made_at_a_time_wait(slow: Slow) -> None:
    site = late.Late(slow, within_s=0.0)
    assert [get(site, f"/{number}").status_code for number in range(late.MOST)] == [202] * late.MOST
    slow.may_end.set()
    assert get(site, "/one-more").text == "page of nobody"
    # Threads of the others may begin later.
    assert threading.current_thread() in slow.threads


def test_the_site_answers_browsers_so(tmp_path: Path) -> None:
    app = create_app(tmp_path / "results")
    assert isinstance(app.wsgi_app, late.Late)
    app.wsgi_app.within_s = HANGS_S
    assert "Backchannel" in app.test_client().get("/", headers=AS_BROWSER).text
    # What is read of values is noted by the page that is made.
    assert app.extensions["store"].show is late.show
