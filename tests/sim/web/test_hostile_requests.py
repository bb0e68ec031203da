"""Every route with hostile values: an answer below 500, with a sentence for what is unknown."""

from __future__ import annotations

import re
from typing import Any, ClassVar
from urllib.parse import quote

import pytest
from flask import Request
from flask.testing import FlaskClient
from werkzeug.datastructures import ImmutableMultiDict

from tests.sim.web.test_safety import csrf
from tests.support.simulated import Simulated
from web.app import create_app
from web.figures import attachment

#: Line ends, NUL, paths, numbers out of range, markup, bytes that are no UTF-8, and more than any name has.
HOSTILE = (
    "%0D%0AX", "%00", "..%2F..%2Fetc%2Fpasswd", "%FF%FE", "%D9%A1", "-1", "1e308", "nan", "inf", "9" * 30,
    quote("'\"; DROP TABLE runs; --"), "%3Cscript%3E", "%7B%7D", "x" * 3000, "%25", "",
)  # fmt: skip
#: Parameters of the pages and of the API.
PARAMETERS = (
    "flow", "queue", "from", "to", "side", "tail", "at", "seq", "payload", "state", "q", "sort", "order", "page",
    "metric", "x", "points", "run", "point", "set", "file", "campaign", "paper", "show", "fix.network.reverse.rate",
    "example", "profile", "kind", "panel", "col", "pin", "tag", "by", "box",
)  # fmt: skip
#: Streams that stay open.
ENDLESS = {"/api/events"}


def addresses(client: FlaskClient, simulated: Simulated, method: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Every rule of a method with values of its arguments that exist."""
    known = {
        "campaign_id": str(simulated.campaign["campaign"]), "run_id": simulated.run_id(), "kind": "sequence",
        "form": "csv", "path": "manifest.json", "number": "1", "import_id": "x", "filename": "site.css",
        "file": "quickstart.yaml", "action": "stop", "removal": "archive", "artefact_id": "asym-fig8",
        "name": "session",
    }  # fmt: skip
    return {
        rule.rule: (re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule), {name: known[name] for name in rule.arguments})
        for rule in client.application.url_map.iter_rules()
        if method in (rule.methods or ()) and rule.rule not in ENDLESS
    }


def check(client: FlaskClient, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code < 500, f"{address[:200]}: {answer.status_code}"
    if address.startswith("/api/") and answer.status_code >= 400:
        assert answer.json is not None, address
        assert len(answer.json["error"]) > 10, address
    answer.close()


def test_no_argument_of_an_address_breaks_the_site(client: FlaskClient, simulated: Simulated) -> None:
    for template, known in addresses(client, simulated, "GET").values():
        for name in known:
            for value in HOSTILE:
                check(client, template.format(**{**known, name: value}))


class Arguments(ImmutableMultiDict[str, str]):
    """Arguments of a request, which record the names that a page reads."""

    read: ClassVar[set[str]] = set()

    def __getitem__(self, key: str) -> str:
        self.read.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.read.add(str(key))
        return super().__contains__(key)

    def getlist(self, key: str, type: Any = None) -> list[Any]:  # noqa: A002 (of werkzeug)
        self.read.add(key)
        return super().getlist(key, type)

    def items(self, multi: bool = False) -> Any:
        """A page that takes all reads each."""
        self.read.update(PARAMETERS)
        return super().items(multi)

    def copy(self) -> Any:
        self.read.update(PARAMETERS)
        return super().copy()


class Recorded(Request):
    parameter_storage_class = Arguments


def test_no_parameter_breaks_the_site(simulated: Simulated) -> None:
    app = create_app(simulated.results)
    app.request_class = Recorded
    client, run = app.test_client(), f"run={simulated.run_id()}"
    known_by_some: set[str] = set()
    for number, (template, known) in enumerate(addresses(client, simulated, "GET").values()):
        address = template.format(**known)
        Arguments.read.clear()
        check(client, f"{address}?{run}")
        # All hostile at once, and each that the page reads alone, with a value that turns with the address.
        for value in HOSTILE if Arguments.read else (HOSTILE[number % len(HOSTILE)],):
            check(client, f"{address}?" + "&".join(f"{name}={value}" for name in PARAMETERS))
        tried: set[str] = set()
        while untried := sorted(Arguments.read - tried):
            for name in untried:
                at = PARAMETERS.index(name) if name in PARAMETERS else len(tried)
                beside = "" if name == "run" else f"&{run}"
                check(client, f"{address}?{name}={HOSTILE[(number + at) % len(HOSTILE)]}{beside}")
                tried.add(name)
        known_by_some |= tried
    assert set(PARAMETERS) - known_by_some == set()


def test_no_body_breaks_the_site(client: FlaskClient, simulated: Simulated) -> None:
    bodies = (
        b"",
        b"\0",
        b"[]",
        b"{}",
        b'{"text": 1}',
        b'{"file": [], "text": "a: ["}',
        b"\xff",
        b'{"text": "' + b"[" * 9999,
    )
    token = csrf(client)
    for template, known in addresses(client, simulated, "POST").values():
        address = template.format(**known)
        for body in bodies:
            for kind in ("application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
                answer = client.post(address, data=body, content_type=kind, headers={"X-CSRF-Token": token})
                assert answer.status_code < 500, f"{address} {body[:40]!r} {kind}: {answer.status_code}"


@pytest.mark.parametrize("kind", ["sequence", "received", "throughput", "rtt", "cwnd", "queue"])
def test_an_unknown_flow_is_named(kind: str, client: FlaskClient, simulated: Simulated) -> None:
    for address in (f"/runs/{simulated.run_id()}/plots/{kind}.csv", f"/api/runs/{simulated.run_id()}/{kind}"):
        answer = client.get(f"{address}?flow=%0d%0aX")
        assert answer.status_code == 404
        assert r"; this run has: " in answer.text


def test_the_name_of_a_file_holds_no_line_end() -> None:
    answer = attachment("", "csv", 'flow\r\nX: "1", ä')
    assert answer.headers["Content-Disposition"] == 'attachment; filename="flow__X:__1____.csv"'
