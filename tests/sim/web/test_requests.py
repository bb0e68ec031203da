"""Asking for runs: the launch page, requests in the store, the runner that takes them up, cancel and resume."""

from __future__ import annotations

import html
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from analysis.store import Store, requests
from analysis.store.rows import CampaignRow, NewCampaign, RequestRow
from experiments import api, catalogue
from experiments.language import source
from experiments.language.campaign import expand
from tests.conftest import backchannel
from tests.sim.web.test_safety import csrf
from tests.support.campaign_texts import one_line
from tests.support.waiting import HANGS_S, wait_until
from web import launch
from web.app import create_app, runner_command

TINY = one_line("tiny", "repetitions: 2", "rate: 1 Mbit/s, delay: 20 ms")
#: Minutes of work for two processors, so that a cancel comes in the middle.
LONG = TINY.replace("name: tiny", "name: long").replace("repetitions: 2", "repetitions: 1000").replace("2 s", "20 s")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
def store(results: Path) -> Store:
    return Store.open(results)


@pytest.fixture
def visitor(results: Path) -> FlaskClient:
    return create_app(results).test_client()


@pytest.fixture
def runner(results: Path) -> Iterator[subprocess.Popen[str]]:
    """The runner as a person starts it."""
    started = subprocess.Popen(
        [sys.executable, "-m", "experiments", "serve", "runner", "--results", str(results)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    yield started
    if started.poll() is None:
        started.send_signal(signal.SIGINT)
        started.wait(HANGS_S)


def head_of(store: Store, campaign_id: str) -> CampaignRow:
    head = store.campaign_head(campaign_id)
    assert head is not None
    return head


def request_of(store: Store, number: int) -> RequestRow:
    request = requests.find(store, number)
    assert request is not None
    return request


def problems(file: str, *texts: str) -> list[str]:
    """What the site's check says of a text with overrides, without its process."""
    with pytest.raises(api.CampaignError) as refused:
        api.expand(file, texts[0], texts[1:])
    return [problem.text(refused.value.file) for problem in refused.value.problems]


def await_done(store: Store, number: int) -> None:
    wait_until(lambda: request_of(store, number).state == requests.DONE)


def test_the_validator_says_the_same_on_the_page_and_on_the_command_line(visitor: FlaskClient, tmp_path: Path) -> None:
    bad = TINY.replace("newreno", "newrno").replace("20 ms", "20 mss")
    file = tmp_path / "bad.yaml"
    file.write_text(bad)
    told = backchannel("validate", file).stderr.strip().splitlines()
    answer: Any = visitor.post("/api/check", json={"text": bad, "file": str(file)}).json
    assert answer["problems"] == told
    assert len(told) == 2
    page = visitor.post("/launch", data={"csrf": csrf(visitor), "text": bad, "file": str(file), "do": "launch"}).text
    assert "did you mean &#39;newreno&#39;?" in page
    assert requests.recent(Store.open(visitor.application.config["RESULTS"]), 1) == []


@pytest.mark.usefixtures("checked_here")
def test_launching_warns_of_the_traps_that_validate_warns_of(visitor: FlaskClient, tmp_path: Path) -> None:
    queue = "rate: 1 Mbit/s, delay: 20 ms, queue: {policy: droptail, limit: 2 packets}"
    small = one_line("small", "", queue).replace("stack: newreno", "stack: {name: newreno, initial_window: 4}")
    file = tmp_path / "small.yaml"
    file.write_text(small)
    told = backchannel("validate", file).stdout.strip().splitlines()[:-1]
    assert any("the first window always loses packets" in line for line in told)
    answer: Any = visitor.post("/api/check", json={"text": small, "file": str(file)}).json
    assert answer["problems"] == []
    assert answer["warnings"] == told
    page = visitor.post("/launch", data={"csrf": csrf(visitor), "text": small, "file": str(file), "do": "check"}).text
    assert html.escape(told[0]) in page


@pytest.mark.usefixtures("checked_here")
def test_a_check_keeps_the_fields_of_the_form(visitor: FlaskClient) -> None:
    fields = {"csrf": csrf(visitor), "name": "half-done", "flow.1.size": "123 kB", "axis.0.values": "red, codel"}
    built = visitor.post("/launch", data={**fields, "do": "build"}).text
    checked = visitor.post("/launch", data={**fields, "do": "check", "text": TINY, "file": "new.yaml"}).text
    for page in (built, checked):
        for value in ("half-done", "123 kB", "red, codel"):
            assert f'value="{value}"' in page
        # They belong to the form that is checked.
        assert re.search('<input name="flow.1.size" value="123 kB"[^>]* form="launch"', page)


@pytest.mark.usefixtures("checked_here")
def test_the_runner_that_is_named_has_this_sites_results(visitor: FlaskClient, results: Path) -> None:
    command = f"./backchannel serve runner --results {results}"
    assert command in html.unescape(visitor.get("/launch").text)
    assert command in html.unescape(visitor.get("/").text)
    assert runner_command("results") == "./backchannel serve runner"
    assert runner_command("a b") == "./backchannel serve runner --results 'a b'"
    assert "secret" not in runner_command("postgresql://me:secret@host/db")


@pytest.mark.usefixtures("checked_here")
def test_a_good_file_is_estimated_and_drawn(visitor: FlaskClient) -> None:
    asked = {"text": TINY, "overrides": ["repetitions=5", "variation.round_trip=none"]}
    answer: Any = visitor.post("/api/check", json=asked).json
    assert (answer["points"], answer["runs"], answer["known"]) == (1, 5, 0)
    assert answer["estimate"]["runs"] == 5
    assert "5 runs, about" in answer["estimate"]["sentence"]
    assert "1 Mbit/s, 20 ms" in answer["picture"]


def test_what_expands_without_end_meets_a_limit(visitor: FlaskClient) -> None:
    layers = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    layers += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    answer: Any = visitor.post("/api/check", json={"text": "\n".join(layers)}).json
    assert "more than 50000 values once its aliases are written out" in answer["problems"][0]


@pytest.mark.usefixtures("checked_here")
def test_the_form_makes_a_file_that_is_valid(visitor: FlaskClient) -> None:
    form = {
        "name": "made", "title": "Made: by hand", "backend": "sim", "topology": "asymmetric-path",
        "forward.rate": "10 Mbit/s", "forward.delay": "5 ms", "forward.policy": "droptail",
        "forward.limit": "30 packets", "reverse.rate": "28.8 kbit/s",
        "stack": "newreno", "flow.0.name": "download", "flow.0.from": "server", "flow.0.to": "client",
        "flow.0.start": "0 s, 0.5 s", "duration": "3 s", "axis.0.field": "network.reverse.queue.policy",
        "axis.0.values": "droptail, acks-first", "repetitions": "2",
    }  # fmt: skip
    made: Any = visitor.post("/api/build", data=form).json
    plan = expand(source.parse("made.yaml", made["text"]))
    assert plan.title == "Made: by hand"
    assert len(plan.runs) == 4
    assert plan.runs[0].document.document["workload"][0]["start_s"] < 0.5


@pytest.mark.usefixtures("checked_here")
def test_a_campaign_with_an_include_is_launched_with_what_it_includes(
    visitor: FlaskClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/base.yaml").write_text(TINY)
    (tmp_path / "mine/own.yaml").write_text(
        "include: base.yaml\nname: own\nrepetitions: 2\ndefaults: {flow: {size: 20 kB}}\n"
    )

    def text_of(name: str) -> str:
        # Only here, since the list of campaign files is kept.
        with monkeypatch.context() as patch:
            patch.setattr(catalogue, "FOLDER", tmp_path)
            return catalogue.campaign_text(name)

    monkeypatch.setattr(launch, "campaign_text", text_of)
    text = launch._file("mine/own.yaml")
    answer: Any = visitor.post("/api/requests", json={"text": text, "file": "mine/own.yaml"}).json
    assert answer["problems"] == []
    asked = request_of(Store.open(visitor.application.config["RESULTS"]), answer["request"])
    plan = expand(source.parse(asked.file, asked.text))
    assert (plan.name, len(plan.runs), plan.runs[0].document.document["workload"][0]["bytes"]) == ("own", 2, 20_000)
    # What is pasted reaches no file, not even one of the repository's.
    names = ("mine/base.yaml", "/etc/hostname", "../../etc/passwd")
    texts = [f"name: a\ninclude: {name}\n" for name in names]
    pasted: Any = visitor.post("/api/check", json={"text": texts[0], "file": "mine/x.yaml"}).json
    for (problem,) in (pasted["problems"], *(problems("mine/x.yaml", text) for text in texts[1:])):
        assert problem.startswith("mine/x.yaml:2: include: files cannot be included here")
    assert "2 runs" in visitor.get("/launch?file=mine/own.yaml").text
    assert visitor.get("/launch?file=../base.yaml").status_code == 404


def campaign_cases() -> Iterator[Any]:
    """Names of the campaign files. The first of each kind that differs in what opening it takes is in the default tier:
    whether it includes a file, whether it names a recording, and how deep in folders it is.
    """
    seen = set()
    for name in api.campaign_files():
        text = (catalogue.FOLDER / name).read_text()
        kind = ("include:" in text, "trace:" in text, name.count("/"))
        yield (
            pytest.param(name, marks=pytest.mark.slow("another file of a kind that is opened"))
            if kind in seen
            else name
        )
        seen.add(kind)


@pytest.mark.parametrize("name", list(campaign_cases()))
def test_every_campaign_file_can_be_opened(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Wherever the site was started, and with no folder to look for files in.
    monkeypatch.chdir(tmp_path)
    assert expand(source.parse(name, launch._file(name))).runs


@pytest.mark.usefixtures("checked_here")
def test_what_is_pasted_opens_no_file(visitor: FlaskClient, store: Store, results: Path, tmp_path: Path) -> None:
    trace = tmp_path / "secret.down"
    trace.write_text("root:x:0:0\n")
    line = "{rate: 1 Mbit/s, delay: 20 ms}}"
    for name in (str(trace), "secret.down", "/etc", str(tmp_path / "nothing")):
        text = TINY.replace(line, f"{{trace: {name}, delay: 20 ms}}, link: mahimahi}}")
        lossy = TINY.replace(line, f"{{rate: 1 Mbit/s, errors: [{{model: recorded, trace: {name}}}]}}}}")
        for pasted, *overrides in (
            (text,), (lossy,), (TINY, f"network.forward.trace={name}", "network.link=mahimahi")
        ):  # fmt: skip
            found = problems(f"{tmp_path}/x.yaml", pasted, *overrides)
            if name == str(trace):
                asked_for = {"text": pasted, "file": f"{tmp_path}/x.yaml", "overrides": overrides}
                checked: Any = visitor.post("/api/check", json=asked_for).json
                assert checked["problems"] == found
            assert "files cannot be read here" in found[0]
            assert "root:x" not in str(found)
            assert overrides or (len(found) == 1 and "is not attached to this text" in found[0])
    # The runner takes no path from a request either, whoever entered it.
    asked = requests.ask_run(store, f"{tmp_path}/x.yaml", text.replace(str(tmp_path / "nothing"), str(trace)))
    assert backchannel("serve", "runner", "--once", "--results", results).returncode == 1
    assert "files cannot be read here" in request_of(store, asked).message


@pytest.mark.usefixtures("checked_here")
def test_a_request_ends_as_a_campaign(visitor: FlaskClient, store: Store, runner: subprocess.Popen[str]) -> None:
    form = {"csrf": csrf(visitor), "text": TINY, "file": "tiny.yaml", "do": "launch"}
    answer = visitor.post("/launch", data=form, follow_redirects=True)
    assert "Request 1" in answer.text
    wait_until(lambda: requests.runners(store))
    await_done(store, 1)
    done = request_of(store, 1)
    assert "2 runs made" in done.message
    head = head_of(store, done.campaign_id or "")
    assert (head.state, head.valid) == ("complete", 2)
    assert "See the campaign" in visitor.get("/requests/1").text
    # Again, everything is there already; forced, it is made anew.
    for action, wanted in (("resume", "0 runs made"), ("rerun", "2 runs made")):
        told: Any = visitor.post(f"/api/campaigns/{head.id}/{action}", headers={"X-CSRF-Token": csrf(visitor)}).json
        number = told["request"]
        await_done(store, number)
        assert wanted in request_of(store, number).message


def test_a_campaign_is_cancelled_and_resumed(store: Store, visitor: FlaskClient, runner: subprocess.Popen[str]) -> None:
    number = requests.ask_run(store, "long.yaml", LONG)
    campaign = wait_until(lambda: store.campaigns(state="running"))[0].id
    wait_until(lambda: head_of(store, campaign).valid >= 2)
    page = visitor.get(f"/campaigns/{campaign}").text
    assert "Cancel" in page
    told = visitor.post(f"/campaigns/{campaign}/cancel", data={"csrf": csrf(visitor)}, follow_redirects=True)
    assert "Results so far are kept" in told.text
    wait_until(lambda: request_of(store, number).state == requests.FAILED)
    head = head_of(store, campaign)
    assert head.state == "incomplete"
    assert 2 <= head.valid < 1000
    assert "stopped" in request_of(store, number).message
    # The runner itself goes on with what comes next.
    following = requests.ask_run(store, "tiny.yaml", TINY)
    await_done(store, following)
    assert runner.poll() is None
    assert "Resume" in visitor.get(f"/campaigns/{campaign}").text


def test_a_request_that_cannot_be_run_says_why(store: Store, results: Path) -> None:
    bad = requests.ask_run(store, "bad.yaml", TINY.replace("newreno", "newrno"))
    backchannel("serve", "runner", "--once", "--results", results, status=1)
    result = request_of(store, bad)
    assert result.state == requests.FAILED
    assert "did you mean 'newreno'?" in result.message
    assert requests.runners(store) == []


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow("a site alone that ends by it is in test_safety")),
        signal.SIGKILL,
    ],
)
def test_a_site_with_a_runner_runs_requests_and_both_end(store: Store, results: Path, number: signal.Signals) -> None:
    asked = requests.ask_run(store, "tiny.yaml", TINY)
    site = subprocess.Popen(
        [sys.executable, "-m", "experiments", "serve", "--with-runner", "--port", "0", "--results", str(results)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    await_done(store, asked)
    (there,) = wait_until(lambda: requests.runners(store), "the runner's next sign of life")
    assert Path(f"/proc/{there.id.split(':')[1]}/cmdline").read_bytes().count(str(results).encode()) == 1
    site.send_signal(number)
    said, _ = site.communicate(timeout=HANGS_S)
    assert "http://127.0.0.1:" in said
    assert "goes on without it" not in said
    wait_until(lambda: not Path(f"/proc/{there.id.split(':')[1]}").exists())


def test_what_a_runner_left_behind_is_told(
    store: Store, runner: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    number = requests.ask_run(store, "long.yaml", LONG)
    campaign = wait_until(lambda: store.campaigns(state="running"))[0].id
    runner.kill()
    runner.wait()
    # Its last sign of life may be older than a quarter of a minute where it had little CPU time.
    monkeypatch.setattr(requests, "GONE_AFTER_S", HANGS_S)
    assert requests.release_lost(store) == 0
    monkeypatch.setattr(requests, "GONE_AFTER_S", 0.0)
    assert requests.release_lost(store) == 1
    assert "resume the campaign" in request_of(store, number).message
    assert head_of(store, campaign).state == "incomplete"


def begin(store: Store, **overrides: str) -> None:
    """Enters the campaign c1 with a run that nobody makes."""
    new = NewCampaign("c1", "tiny", "t", "tiny.yaml", TINY, overrides, "sim", seed=1, repetitions=2)
    store.begin_campaign(new, [[]], [(0, 0, "r0")])


@pytest.mark.usefixtures("checked_here")
def test_what_a_campaign_was_run_with_is_launched_again(visitor: FlaskClient, store: Store) -> None:
    begin(store, repetitions="3")
    page = visitor.get("/launch?campaign=c1").text
    assert "repetitions=3</textarea>" in page
    assert "3 runs on the sim backend" in page


def test_a_running_campaign_tells_its_pace_and_time_left(visitor: FlaskClient, store: Store) -> None:
    begin(store)
    store.set_progress("c1", {"share": 0.5, "per_minute": 3.21, "left_s": 240.0, "cells": []})
    for path in ("/", "/campaigns/c1"):
        assert ">3.2 runs a minute, 4 min left<" in visitor.get(path).text
    assert '"pace": "3.2 runs a minute, 4 min left"' in visitor.get("/api/events?once").text
    store.set_progress("c1", {"cells": []})
    assert "left<" not in visitor.get("/").text


def test_a_campaign_that_nobody_is_at_can_be_resumed(
    visitor: FlaskClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(store)
    store.set_progress("c1", {"cells": []})
    assert visitor.post("/api/campaigns/c1/resume").status_code == 409
    monkeypatch.setattr(requests, "SILENT_AFTER_S", 0.0)
    assert visitor.post("/api/campaigns/c1/cancel").status_code == 409
    assert head_of(store, "c1").state == "incomplete"
    assert visitor.post("/api/campaigns/c1/resume").status_code == 202


@pytest.mark.usefixtures("checked_here")
def test_scripts_find_files_attention_and_take_requests_back(visitor: FlaskClient, store: Store) -> None:
    names: Any = visitor.get("/api/files").json
    assert "ton/ton-fig1.yaml" in names
    told: Any = visitor.get("/api/files/ton/ton-fig1.yaml").json
    assert visitor.post("/api/check", json=told).json["problems"] == []  # type: ignore[index]
    assert visitor.get("/api/files/../README.md").status_code == 404
    number = requests.ask_run(store, "a.yaml", TINY)
    assert visitor.post(f"/api/requests/{number}/withdraw").json["state"] == requests.WITHDRAWN  # type: ignore[index]
    assert visitor.post(f"/api/requests/{number}/withdraw").status_code == 409
    assert visitor.post("/api/requests/99/withdraw").status_code == 404
    assert visitor.get("/api/attention").json == {"invalid": [], "failed": [], "unfinished": []}
    for address in ("/requests/99999999999999999999", "/api/requests/99999999999999999999"):
        assert visitor.get(address).status_code == 404
    assert visitor.get("/campaigns?page=99999999999999999999").status_code == 200


def test_a_request_is_taken_once_and_may_be_withdrawn(store: Store) -> None:
    first, second = requests.ask_run(store, "a.yaml", TINY), requests.ask_run(store, "b.yaml", TINY)
    assert requests.withdraw(store, second)
    taken = requests.take(store, "me")
    assert taken is not None
    assert taken.id == first
    assert requests.take(store, "you") is None
    assert not requests.withdraw(store, first)


COMMAND = """\
name: commands
network: {topology: line, forward: {rate: 1 Mbit/s, delay: 5 ms}}
stack: cubic
workload:
  - {name: f, kind: command, from: left, to: right, command: {client: [touch, PROOF]}}
duration: 2 s
"""


@pytest.mark.usefixtures("checked_here")
def test_a_site_accepts_programs_only_if_it_was_started_so(results: Path, visitor: FlaskClient) -> None:
    headers = {"X-CSRF-Token": csrf(visitor)}
    refused = visitor.post("/api/requests", json={"text": COMMAND, "file": "c.yaml"}, headers=headers)
    assert refused.status_code == 422
    (problem,) = refused.get_json()["problems"]
    assert "this campaign runs programs (touch), which this site does not accept" in problem
    page = visitor.post(
        "/launch", data={"text": COMMAND, "file": "c.yaml", "do": "launch", "csrf": headers["X-CSRF-Token"]}
    )  # fmt: skip
    assert "this campaign runs programs (touch)" in html.unescape(page.text)
    allowed = create_app(results, allow_commands=True).test_client()
    headers = {"X-CSRF-Token": csrf(allowed)}
    accepted = allowed.post("/api/requests", json={"text": COMMAND, "file": "c.yaml"}, headers=headers)
    assert accepted.status_code == 202, accepted.text


def test_a_runner_runs_no_programs_unless_it_was_started_so(results: Path, store: Store, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    number = requests.ask_run(store, "c.yaml", COMMAND.replace("PROOF", str(proof)), [], force=False)
    backchannel("serve", "runner", "--once", "--results", str(results), status=1)
    row = request_of(store, number)
    assert row.state == requests.FAILED
    assert "this campaign runs programs (touch), and this runner runs none" in row.message
    assert not proof.exists()


def test_a_site_that_accepts_programs_needs_a_token(results: Path) -> None:
    done = backchannel("serve", "--allow-commands", "--port", "0", "--results", str(results), status=2)
    assert "--allow-commands lets visitors run any program, so the site needs a token" in done.stderr
