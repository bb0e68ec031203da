"""The site knows mechanisms of a crate of the user's that it was started with: form, editor, docs, requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from flask.testing import FlaskClient

from analysis import attached
from analysis.store import Store, requests
from testbed import node_binary, own_crates, own_nodes
from tests.conftest import backchannel
from tests.support.campaign_texts import one_line
from web.app import create_app

TEXT = one_line(
    "visited",
    "repetitions: 1",
    "rate: 1 Mbit/s, delay: 10 ms, queue: {policy: site-own, from: ./site-own, threshold: 3}",
)


@pytest.fixture(scope="module")
def crates(tmp_path_factory: pytest.TempPathFactory) -> list[own_crates.Crate]:
    """A policy and a controller of the user's."""
    folders = [tmp_path_factory.mktemp("site") / name for name in ("site-own", "site-control")]
    for kind, folder in zip(("policy", "controller"), folders, strict=True):
        assert backchannel("new", kind, folder).returncode == 0
    return [own_crates.read(folder, own_nodes.lockfile()) for folder in folders]


@pytest.fixture
def visitor(crates: list[own_crates.Crate], tmp_path: Path) -> Iterator[FlaskClient]:
    """Of a site that was started with --from."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own_nodes, "_in_use", {})
        patch.setenv(node_binary.VARIABLE, node_binary.path())
        own_nodes.use(crates)
        yield create_app(tmp_path / "results").test_client()


def post(visitor: FlaskClient, address: str, text: str) -> tuple[int, Any]:
    answer = visitor.post(address, json={"text": text, "file": "visited.yaml"})
    return answer.status_code, answer.json


def test_a_text_that_names_the_folder_is_good_and_its_request_has_the_sources(
    visitor: FlaskClient, crates: list[own_crates.Crate], tmp_path: Path
) -> None:
    status, verdict = post(visitor, "/api/check", TEXT)
    assert (status, verdict["problems"]) == (200, [])
    status, _ = post(visitor, "/api/requests", TEXT)
    assert status in (200, 201, 202)
    with Store.open(tmp_path / "results") as store:
        request = requests.take(store, "a runner")
        assert request is not None
    # Whoever exports the campaign later has the code that made its runs.
    assert attached.body_of(request.text, "./site-own") == crates[0].text


@pytest.mark.usefixtures("checked_here")
def test_a_wrong_parameter_has_its_line_and_range(visitor: FlaskClient) -> None:
    _, verdict = post(visitor, "/api/check", TEXT.replace("threshold: 3", "threshold: 0 packets"))
    (problem,) = verdict["problems"]
    assert problem.startswith("visited.yaml:3: network.forward.queue.threshold: '0 packets' is out of range")
    _, verdict = post(visitor, "/api/check", TEXT.replace("threshold: 3", "treshold: 3"))
    assert "did you mean 'threshold'" in verdict["problems"][0]


@pytest.mark.usefixtures("checked_here")
def test_a_folder_that_the_site_was_not_started_with_is_refused(visitor: FlaskClient) -> None:
    _, verdict = post(visitor, "/api/check", TEXT.replace("./site-own", "./other"))
    (problem,) = verdict["problems"]
    assert "visited.yaml:3: network.forward.queue.from: " in problem
    assert "./other is not attached to this text" in problem


@pytest.mark.usefixtures("checked_here")
@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({"forward.policy": "site-own", "stack": "newreno"}, ["queue: {policy: site-own, from: ./site-own}"]),
        (
            {"forward.policy": "droptail", "stack": "modern", "congestion": "site-control"},
            ["queue: {policy: droptail}", "name: modern\n  congestion: site-control\n  from: ./site-control\n"],
        ),
        # Only the sweep has them.
        (
            {
                "forward.policy": "droptail", "axis.0.field": "network.forward.queue.policy",
                "axis.0.values": "droptail, site-own", "stack": "modern", "axis.1.field": "stack.congestion",
                "axis.1.values": "cubic, site-control",
            },
            ["queue: {policy: droptail, from: ./site-own}", "name: modern\n  from: ./site-control\n"],
        ),
    ],
)  # fmt: skip
def test_the_form_offers_mechanisms_by_folder(visitor: FlaskClient, fields: dict[str, str], texts: list[str]) -> None:
    # A client without a session: the API asks one that has seen a page for its token.
    page = visitor.application.test_client().get("/launch").text
    assert ("<option>site-own</option>" in page, "<option>site-control</option>" in page) == (True, True)
    flow = {"flow.0.name": "f", "flow.0.from": "server", "flow.0.to": "client"}
    text = cast(Any, visitor.post("/api/build", data={"forward.rate": "1 Mbit/s", **flow, **fields}).json)["text"]
    for part in texts:
        assert part in text
    assert post(visitor, "/api/check", text)[1]["problems"] == []


def test_the_editor_offers_names_and_folders(visitor: FlaskClient) -> None:
    offered = cast(Any, visitor.get("/api/completions").json)["values"]
    assert "site-own" in offered["policy"]
    assert {"cubic", "site-control"} <= set(offered["congestion"])
    assert offered["from"] == ["./site-control", "./site-own"]


def test_docs_have_its_options_with_ranges(visitor: FlaskClient) -> None:
    page = visitor.get("/docs", follow_redirects=True).text
    assert "site-own" in page
    shown = json.loads(backchannel("show", "site-own", "--json").stdout)
    for param in shown[0]["params"]:
        assert param["help"] in page
