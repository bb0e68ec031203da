"""Campaigns that name crates of the user's: a node with them is built, runs them, and is part of what a run is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from experiments.new_parts import CRATES
from testbed.node_binary import ROOT
from tests.conftest import backchannel
from web.app import create_app

#: Of every kind one, in one campaign.
TOGETHER = """
name: together
backend: sim
network:
  topology: line
  link: {{kind: own-link, from: ./own-link, interval: 10 ms}}
  middlebox: {{middlebox: own-middlebox, from: ./own-middlebox, hold: 5 ms}}
  forward: {{delay: 10 ms, queue: {{from: ./own-policy, name: own-policy, threshold: {threshold}, limit: 20 packets}}}}
  reverse: {{delay: 10 ms}}
stack: {{from: ./own-controller, name: modern, congestion: own-controller, increase: 2}}
workload:
  - name: down
    kind: {{kind: own-workload, from: ./own-workload}}
    from: left
    to: right
    options: {{interval: 2 s}}
duration: 5 s
sweep:
  axes:
    queue:
      own: {{duration: 5 s}}
      droptail: {{network.forward.queue: {{policy: droptail, limit: 20 packets}}}}
"""
PLAIN = """
name: plain
backend: sim
network:
  topology: line
  forward: {rate: 1 Mbit/s, delay: 10 ms, queue: QUEUE}
  reverse: {rate: 1 Mbit/s, delay: 10 ms}
stack: modern
workload:
  - {name: down, from: left, to: right}
duration: 2 s
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what `new` makes of each kind, and a campaign with all of them."""
    folder = tmp_path_factory.mktemp("own")
    for kind in CRATES:
        backchannel("new", kind, folder / f"own-{kind}", status=0)
    (folder / "together.yaml").write_text(TOGETHER.format(threshold="5 packets"))
    return folder


def ran(*words: str | Path, **environment: Any) -> str:
    # Objects of the crates are compiled once a revision, which takes minutes.
    done = backchannel(*words, timeout_s=1500, **environment, status=0)
    return done.stdout


def ids(campaign: Path, results: Path) -> dict[str, str]:
    """Ids of a campaign's runs by their queue."""
    ran("run", campaign, "--results", results)
    listed = json.loads(ran("runs", campaign.stem, "--results", results, "--json"))
    return {run["parameters"].get("queue", ""): run["run_id"] for run in listed}


def manifest(results: Path, run_id: str) -> dict[str, object]:
    (path,) = results.rglob(f"*{run_id}*/manifest.json")
    document: dict[str, object] = json.loads(path.read_text())
    return document


@pytest.fixture
def no_cargo(tmp_path: Path) -> Path:
    """A cargo that only leaves a mark."""
    program = tmp_path / "cargo"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/called\nexit 1\n")
    program.chmod(0o755)
    return program


def test_one_node_has_every_crate_that_a_campaign_names(folder: Path, tmp_path: Path) -> None:
    campaign, results = folder / "together.yaml", tmp_path / "results"
    objects = {path: path.stat().st_mtime_ns for path in (ROOT / "target/release/deps").glob("libbackchannel_*.rlib")}
    first = ids(campaign, results)
    # The checkout's objects served: none was compiled again, or beside them.
    assert objects == {path: path.stat().st_mtime_ns for path in objects}
    assert objects.keys() == set((ROOT / "target/release/deps").glob("libbackchannel_*.rlib"))
    crates = manifest(results, first["own"])["crates"]
    assert isinstance(crates, list)
    assert [(crate["name"], crate["version"]) for crate in crates] == [
        (f"own-{kind}", "0.1.0") for kind in sorted(CRATES)
    ]
    # The point without the policy does not depend on its sources.
    without = manifest(results, first["droptail"])["crates"]
    assert [crate for crate in crates if crate["name"] != "own-policy"] == without
    source = folder / "own-policy/src/lib.rs"
    text = source.read_text()
    try:
        source.write_text(text + "// Another state.\n")
        second = ids(campaign, tmp_path / "others")
    finally:
        source.write_text(text)
    assert second["own"] != first["own"]
    assert second["droptail"] == first["droptail"]


def test_lists_and_the_validator_know_the_options(folder: Path, tmp_path: Path) -> None:
    shown = json.loads(ran("show", "own-policy", "--json", "--from", folder / "own-policy"))
    assert shown[0]["crate"] == "own-policy"
    assert {param["name"] for param in shown[0]["params"]} == {"limit_packets", "threshold_packets"}
    controller = ran("show", "own-controller", "--from", folder / "own-controller")
    assert "increase (number, at least 0, at most 1000, default 1)" in controller
    wrong = folder / "wrong.yaml"
    wrong.write_text(TOGETHER.format(threshold="0 packets"))
    done = backchannel("validate", wrong, status=2)
    assert "wrong.yaml:8: network.forward.queue.threshold: '0 packets' is out of range" in done.stderr


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        ("{policy: own-polcy, from: ./own-policy}", "network.forward.queue.policy: unknown policy 'own-polcy'"),
        ("{policy: own-policy, from: ./nowhere}", "network.forward.queue.from: "),
        ("{policy: own-policy, from: own-policy}", "'own-policy' is not the folder of a crate"),
    ],
)
def test_a_wrong_name_is_reported_with_its_place(folder: Path, queue: str, words: str) -> None:
    campaign = folder / "names.yaml"
    campaign.write_text(PLAIN.replace("QUEUE", queue))
    done = backchannel("validate", campaign, status=2)
    assert words in done.stderr
    assert "names.yaml:6" in done.stderr


def test_runs_without_crates_keep_their_ids_beside_others(folder: Path, tmp_path: Path) -> None:
    """The options that a controller adds to stacks have defaults, which are not part of other runs."""
    plain, beside = folder / "plain.yaml", folder / "beside.yaml"
    plain.write_text(PLAIN.replace("QUEUE", "droptail"))
    controller = "{name: modern, congestion: own-controller, from: ./own-controller}"
    text = (
        PLAIN.replace("QUEUE", "droptail").replace("plain", "beside").replace("stack: modern", f"stack: {controller}")
    )
    beside.write_text(text + "sweep: {axes: {queue: {cubic: {stack.congestion: cubic}, own: {duration: 2 s}}}}\n")
    plain.write_text(plain.read_text().replace("stack: modern", "stack: {name: modern, congestion: cubic}"))
    assert ids(plain, tmp_path / "r")[""] == ids(beside, tmp_path / "r")["cubic"]


def test_a_crate_that_does_not_compile_is_reported_and_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    broken = folder / "broken"
    shutil.copytree(folder / "own-policy", broken)
    library = broken / "src/lib.rs"
    library.write_text(library.read_text().replace("self.queue.dequeue(now, events)", "self.queue.dequeue(now)"))
    campaign = folder / "broken.yaml"
    campaign.write_text(PLAIN.replace("QUEUE", "{policy: own-policy, from: ./broken}"))
    # Of its own, because other tests build at the same time.
    cache = tmp_path / "cache"
    done = backchannel("validate", campaign, timeout_s=1500, status=2, XDG_CACHE_HOME=str(cache))
    assert "own-policy does not compile:\nerror[E0061]" in done.stderr
    assert "own-policy/src/lib.rs" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in (cache / "backchannel/nodes").iterdir()) == ["build.log", "lock"]


def test_two_mechanisms_of_one_name_are_refused(folder: Path) -> None:
    twin = folder / "twin"
    shutil.copytree(folder / "own-policy", twin)
    manifest = twin / "Cargo.toml"
    manifest.write_text(manifest.read_text().replace('"own-policy"', '"twin"'))
    done = backchannel("list", "policies", "--from", folder / "own-policy", "--from", twin, timeout_s=1500, status=2)
    assert "a node with own-policy and twin does not start: duplicate queue policy 'own-policy'" in done.stderr


def test_code_of_a_bundle_is_built_only_if_that_is_asked_for(folder: Path, tmp_path: Path, no_cargo: Path) -> None:
    campaign, results, other = folder / "own-policy/campaign.yaml", tmp_path / "results", tmp_path / "other"
    ran("run", campaign, "--results", results, "--only", "repetition=1")
    bundle = tmp_path / "bundle.zip"
    ran("export", "bundle", "own-policy", "--results", results, "-o", bundle)
    # A cache without the node, and a compiler that would be noticed.
    fresh: Any = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "CARGO": str(no_cargo)}
    assert "2 runs, 2 new here" in ran("import", bundle, "--results", other, **fresh)
    assert "own-policy" in ran("results", "own-policy", "--results", other, **fresh)
    ran("export", "values", "own-policy", "--results", other, "-o", tmp_path / "table.csv", **fresh)
    shutil.unpack_archive(bundle, tmp_path / "unpacked")
    file = tmp_path / "unpacked/campaign.yaml"
    done = backchannel("run", file, "--results", other, **fresh, status=2)
    assert "came with this file" in done.stderr
    sources = tmp_path / "sources"
    ran("unpack", file, "--into", sources, **fresh)
    assert (sources / "own-policy/src/lib.rs").read_text() == (folder / "own-policy/src/lib.rs").read_text()
    assert not (tmp_path / "called").exists()
    # It is compiled with the flag, and the runs are those of the bundle.
    assert "own-policy does not compile" in backchannel("run", file, "--trust-code", "--results", other, **fresh).stderr
    assert (tmp_path / "called").exists()
    assert "0 runs made, 2 taken" in ran("run", file, "--trust-code", "--results", other, "--only", "repetition=1")


def test_a_hostile_bundle_is_read_shown_and_exported_without_building_it(folder: Path, tmp_path: Path) -> None:
    """Its build script would write a file, and so would its library."""
    hostile, results, other = tmp_path / "hostile", tmp_path / "results", tmp_path / "other"
    shutil.copytree(folder / "own-policy", hostile)
    campaign = hostile / "campaign.yaml"
    mark = tmp_path / "written"
    script = f'fn main() {{ std::fs::write({json.dumps(str(mark))}, "").unwrap(); }}\n'
    (hostile / "build.rs").write_text(script)
    ran("run", campaign, "--results", results, "--only", "repetition=1")
    assert mark.exists(), "whoever wrote it has run it"
    mark.unlink()
    bundle = tmp_path / "bundle.zip"
    ran("export", "bundle", "own-policy", "--results", results, "-o", bundle)
    # Another machine, whose cargo works.
    fresh: Any = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    ran("import", bundle, "--results", other, **fresh)
    shutil.unpack_archive(bundle, tmp_path / "unpacked")
    file = tmp_path / "unpacked/campaign.yaml"
    run_id = json.loads(ran("runs", "own-policy", "--results", other, "--json", **fresh))[0]["run_id"]
    for words in (
        ("results", "own-policy", "--results", other),
        ("runs", "own-policy", "--results", other),
        ("list", "policies"),
        ("compare", "own-policy", "--results", other, "--metric", "throughput"),
        ("export", "bundle", "own-policy", "--results", other, "-o", tmp_path / "again.zip"),
        ("unpack", file, "--into", tmp_path / "sources"),
    ):
        ran(*words, **fresh)
    for command in ("validate", "plan", "run"):
        done = backchannel(command, file, **fresh)
        assert (done.returncode, "came with this file" in done.stderr) == (2, True), command
    site = create_app(other).test_client()
    text = (tmp_path / "unpacked/campaign.yaml").read_text()
    pages = set(re.findall(r'href="(/campaigns/[0-9a-f]+)"', site.get("/campaigns").text))
    assert pages
    assert {site.get(page).status_code for page in pages} == {200}
    assert site.get(f"/runs/{run_id}").status_code == 200
    assert cast(
        Any, site.application.test_client().post("/api/check", json={"text": text, "file": "campaign.yaml"}).json
    )["problems"]
    assert (tmp_path / "sources/own-policy/build.rs").read_text() == script
    assert not mark.exists()
    assert not (tmp_path / "cache/backchannel/nodes/target").exists()


def test_new_writes_only_a_folder_of_its_own_with_a_good_name(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for words, message in (
        (("policy", "there"), "exists already"),
        (("policy", "red"), "Backchannel has a policy 'red'"),
        (("polcy", "mine"), "did you mean 'policy'? Allowed: policy, controller"),
        (("policy", "Mine"), "is not a name for a policy"),
        (("link", "match"), "is a word of the language"),
        (("metric", "json"), "is a word of the language"),
    ):
        done = backchannel("new", words[0], tmp_path / words[1])
        assert done.returncode == 2, words
        assert message in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize(
    "kind",
    [
        "metric",
        pytest.param("figure", marks=pytest.mark.slow(reason="as of a metric, with another template")),
        pytest.param("export", marks=pytest.mark.slow(reason="as of a metric, with another template")),
    ],
)
def test_a_new_package_passes_its_test_and_is_found(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / f"own-{kind}"
    ran("new", kind, folder)
    # As an editable installation leaves it, without the network.
    information = folder / f"own_{kind}-0.1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: own-{kind}\nVersion: 0.1.0\n")
    (information / "entry_points.txt").write_text(f"[backchannel.{kind}s]\nown-{kind} = own_{kind}\n")
    assert f'[project.entry-points."backchannel.{kind}s"]' in (folder / "pyproject.toml").read_text()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])}
    words = [sys.executable, "-m", "unittest", "discover", str(folder)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Ran 1 test" in done.stderr
    name = f"own_{kind}" if kind == "metric" else f"own-{kind}"
    listed = subprocess.run(
        [sys.executable, "-m", "experiments", "list", f"{kind}s", "--json"], env=environment, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert {entry["name"]: entry["source"] for entry in json.loads(listed.stdout)}[name] == f"own-{kind} 0.1.0"
