"""Flows of kind `command` in a campaign file: what they become, what their ids depend on, and mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.language import source
from experiments.language.campaign import Plan, expand, load
from experiments.language.problems import CampaignError

TEXT = """\
name: t
backend: virtual-kernel
network: {topology: line, forward: {rate: 1 Mbit/s, delay: 5 ms}}
stack: cubic
workload:
  - name: f
    kind: command
    from: left
    to: right
    command:
      client: [curl, "http://{server}:{port}/", 80]
      server: {run: [python3, serve.py], within: 5 s}
      files: [serve.py]
      metrics:
        speed: {pattern: 'speed=(\\d+)', unit: Mbit/s, of: client-errors}
duration: 5 s
"""


def campaign(folder: Path, text: str = TEXT, body: str = "print(1)\n") -> Plan:
    (folder / "serve.py").write_text(body)
    (folder / "c.yaml").write_text(text)
    return load(folder / "c.yaml")


def test_a_scenario_has_words_files_and_units(tmp_path: Path) -> None:
    plan = campaign(tmp_path)
    (flow,) = plan.runs[0].scenario.workload
    assert plan.programs == ("curl", "python3")
    assert flow.command is not None
    assert flow.as_json()["command"] == {
        "client_at": "to",
        "client": ["curl", "http://{server}:{port}/", "80"],
        "server": {"run": ["python3", "serve.py"], "ready": "tcp", "within_s": 5.0},
        "environment": {},
        "files": {"serve.py": "print(1)\n"},
        "metrics": {"speed": {"pattern": r"speed=(\d+)", "of": "client-errors", "unit": "rate", "scale": 1e6}},
        "output_bytes": 1 << 20,
    }


def test_programs_of_every_point_are_named(tmp_path: Path) -> None:
    client = "workload.f.command.client"
    plan = campaign(tmp_path, f"{TEXT}sweep: {{{client}: [[curl, x], [wget, x]]}}\n")
    assert plan.programs == ("curl", "python3", "wget")
    assert plan.in_lab(lambda _: None).programs == plan.programs  # type: ignore[arg-type, return-value]


def test_a_run_id_depends_on_words_and_on_the_content_of_files(tmp_path: Path) -> None:
    ids = [
        campaign(tmp_path).runs[0].id,
        campaign(tmp_path, body="print(2)\n").runs[0].id,
        campaign(tmp_path, TEXT.replace("{port}/", "{port}/x")).runs[0].id,
        campaign(tmp_path, TEXT.replace("unit: Mbit/s", "unit: kbit/s")).runs[0].id,
    ]
    assert len(set(ids)) == 4
    # Writing a default out changes nothing.
    assert campaign(tmp_path, TEXT.replace("within: 5 s", "within: 5 s, ready: tcp")).runs[0].id == ids[0]


def test_the_text_of_a_campaign_contains_the_files(tmp_path: Path) -> None:
    plan = campaign(tmp_path)
    assert expand(source.parse("c.yaml", plan.text)).runs[0].id == plan.runs[0].id
    with pytest.raises(CampaignError, match=r"serve.py is not attached"):
        expand(source.parse("c.yaml", TEXT))


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("backend: virtual-kernel", "backend: sim", 7, "workload command does not run on the sim backend"),
        ("stack: cubic", "stack: newreno", 7, "newreno carries workloads of TCP, not command"),
        ("stack: cubic", "stack: {name: cubic, mss: 1000 B}", 10, "has 'mss_bytes', an option of sockets"),
        ("kind: command", "kind: bulk", 6, "'command' needs 'kind: command'; this flow is of kind bulk"),
        ("to: right\n", "to: right\n    size: 1 MB\n", 6, "has no 'size': its programs open their own"),
        ("client: [curl", "client: curl #", 11, "'curl' is not a list of words"),
        ("client: [curl", f"client: {41 * 'x'} #", 11, f"'{40 * 'x'}' is not a list of words"),
        ("client: [curl", "client: [] #", 11, "at least 1 entry required, found 0"),
        ("[python3, serve.py]", "[python3]", 0, ""),
        ("within: 5 s", "within: 5 min", 12, "it must be at most 120"),
        ("within: 5 s", "ready: line", 12, "'ready: line' needs 'line'"),
        ("within: 5 s", "ready: http", 12, "'http' is not one of"),
        ("files: [serve.py]", "files: [serve.py, /etc/passwd]", 10, "'/etc/passwd' is not the name of a file"),
        ("files: [serve.py]", "files: [nothing.py]", 10, "nothing.py cannot be read: No such file"),
        (r"(\\d+)", r"\\d+", 15, "has 0 groups"),
        (r"(\\d+)", "(", 15, "is not a regular expression"),
        ("unit: Mbit/s", "unit: mph", 15, "unknown unit 'mph'; allowed: bit/s,"),
        ("pattern: 'speed=(\\\\d+)'", "pattern: '(1)', json: a.b", 15, "give one of them"),
        ("pattern: 'speed=(\\\\d+)'", "json: a..b", 15, "'a..b' is not a path"),
        ("      files:", "      file:", 13, "unknown field 'file'; did you mean 'files'?"),
    ],
)  # fmt: skip
def test_mistakes_have_lines_and_sentences(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    old, new = old.replace("\\\\", "\\"), new.replace("\\\\", "\\")
    assert old in TEXT
    if not message:
        campaign(tmp_path, TEXT.replace(old, new))
        return
    with pytest.raises(CampaignError) as caught:
        campaign(tmp_path, TEXT.replace(old, new))
    assert any(problem.line == line and message in problem.message for problem in caught.value.problems), caught.value
