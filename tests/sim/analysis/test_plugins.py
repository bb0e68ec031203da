"""Packages outside the checkout that add metrics, figures and exports; and runs that are measured again."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import analysis
from analysis import versions
from analysis.errors import AnalysisError
from analysis.measuring import Changes, measure_again
from analysis.registry import Registry
from analysis.store.documents import Manifest
from testbed import node_binary, sources
from tests.sim.analysis.conftest import SHORT
from tests.support.called import called
from tests.support.rewriting import rewriting
from tests.support.starter import Starter
from tests.support.waiting import HANGS_S
from web.app import create_app

PACKAGE = """
import polars as pl

from analysis.exports.registry import export
from analysis.figures.model import Axis, Figure, Series
from analysis.figures.registry import figure
from analysis.figures.run import TIME
from analysis.metrics.registry import metric
from analysis.runs import Flow


@metric("bytes", "Bytes in the first second", Flow, "made up for a test", better="more", column="first second")
def first_second(flow):
    \"\"\"Bytes that the receiver got in the flow's first second.\"\"\"
    return float(flow.delivered_bytes(flow.begun_s, flow.begun_s + 1.0))


@figure("staircase", "bytes that arrived, of a flow", of=Flow, single=True)
def staircase(flow, asked):
    arrivals = flow.arrivals
    points = arrivals.select(x="t_s", y=pl.col("total").cast(pl.Float64))
    return Figure(TIME, Axis("arrived", "bytes"), (Series(flow.name, "steps", points),), "staircase")


@export("staircase", "bytes that arrived, of every flow", of="run", file="{name}-staircase.csv")
def staircase_(run, target):
    return pl.concat([flow.arrivals.with_columns(flow=pl.lit(flow.name)) for flow in run.data.flows])
"""
DISTRIBUTION = "Metadata-Version: 2.1\nName: outside-metrics\nVersion: 0.7\n"
ENTRY_POINTS = "".join(
    f"[backchannel.{group}]\nmine = outside_metrics\n" for group in ("metrics", "figures", "exports")
)


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package, as `pip install --target` leaves it."""
    folder = tmp_path_factory.mktemp("site-packages")
    (folder / "outside_metrics.py").write_text(PACKAGE)
    info = folder / "outside_metrics-0.7.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(DISTRIBUTION)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


def beside(package: Path) -> dict[str, str]:
    """The environment of a program where the package is installed."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(package), str(node_binary.ROOT)])}


class Commands:
    """Forks commands where a package is installed."""

    def __init__(self, package: Path, folder: Path) -> None:
        # What a link leads to changes without another start of Python.
        self._link = folder / "site-packages"
        self._link.symlink_to(package)
        self.starter = Starter(beside(self._link), folder / "log")

    def run(self, package: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
        self._link.unlink()
        self._link.symlink_to(package)
        return self.starter.run([*map(str, words)], beside(self._link), timeout_s=HANGS_S)

    def out(self, package: Path, *words: str | Path) -> str:
        """What a command that ends well prints on standard output."""
        done = self.run(package, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def commands(outside: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    commands = Commands(outside, tmp_path_factory.mktemp("commands"))
    yield commands
    commands.starter.close()


@pytest.fixture
def faulty(outside: Path, tmp_path: Path) -> Path:
    """The package with functions that fail."""
    folder = tmp_path / "faulty"
    shutil.copytree(outside, folder)
    (folder / "outside_metrics.py").write_text(FAULTY)
    return folder


#: Prints answers of the site as a JSON list.
SITE = """
import json, sys
from web.app import create_app

site = create_app(sys.argv[1]).test_client()
print(json.dumps([site.get(address).text for address in sys.argv[2:]]))
"""


def answers(package: Path, results: Path, *addresses: str) -> list[str]:
    """What a site shows where the package is installed."""
    words = [sys.executable, "-c", SITE, str(results), *addresses]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=beside(package))
    return list(json.loads(done.stdout))


def test_a_package_adds_metrics_and_exports(commands: Commands, outside: Path, results: Path, tmp_path: Path) -> None:
    stored = tmp_path / "results"
    shutil.copytree(results, stored)
    with analysis.open(stored) as s:
        run = s.run(s["small"].runs()["run_id"][0])
        flow = run.data.flow("forward")
        expected = float(flow.delivered_bytes(flow.begun_s, flow.begun_s + 1.0))

    def backchannel(*words: str | Path) -> str:
        return commands.out(outside, *words)

    for word, name in (("metrics", "first_second"), ("figures", "staircase"), ("exports", "staircase")):
        listed = {entry["name"]: entry["source"] for entry in json.loads(backchannel("list", word, "--json"))}
        assert listed[name] == "outside-metrics 0.7"
        assert list(listed.values()).count("outside-metrics 0.7") == 1
    # The help breaks lines at hyphens, too.
    assert "rtt-cdf,staircase." in "".join(backchannel("plot", "--help").split())

    told = json.loads(backchannel("measure", "small", "--plugins", "--results", stored, "--json"))
    assert (told["runs"], told["new"], told["changed"], told["gone"]) == (4, 8, 0, 0)
    # In a table of any width.
    assert "first second" in backchannel("results", "small", "--metric", "first_second", "--results", stored)
    with analysis.open(stored) as s:
        after = s.run(run.id)
        assert after.metrics.filter(metric="first_second", subject="forward")["value"].to_list() == [expected]
        manifest = after.row.documents.manifest
        (plugin,) = manifest.plugins
        assert (plugin.name, plugin.version, len(plugin.sha256)) == ("outside-metrics", "0.7", 64)
        assert manifest.measured_again[-1].metrics == ("first_second",)

    drawn, table = tmp_path / "staircase.svg", tmp_path / "staircase.csv"
    backchannel("plot", "staircase", run.id, "--of", "forward", "--results", stored, "-o", drawn)
    assert "staircase" in drawn.read_text()
    backchannel("export", "staircase", run.id, "--results", stored, "-o", table)
    assert pl.read_csv(table)["flow"].unique().sort().to_list() == ["forward", "reverse"]

    at = f"/api/runs/{run.id}/staircase?flow=forward"
    addresses = (f"/runs/{run.id}", at, "/api/openapi.json", "/api/metrics", "/docs")
    page, figure, openapi, metrics, docs = answers(outside, stored, *addresses)
    assert at in page
    assert "Bytes in the first second" in page
    (series,) = json.loads(figure)["series"]
    assert series["y"][-1] == run.data.flow("forward").arrivals["total"][-1]
    (kinds,) = (
        parameter["schema"]["enum"]
        for parameter in json.loads(openapi)["paths"]["/api/runs/{run_id}/{kind}"]["get"]["parameters"]
        if parameter["name"] == "kind"
    )
    assert "staircase" in kinds
    assert "first_second" in {entry["name"] for entry in json.loads(metrics)}
    assert "Bytes in the first second" in docs


def test_a_run_states_the_packages_that_measured_it(commands: Commands, outside: Path, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SHORT)
    words = ("run", tmp_path / "small.yaml", "--set", "repetitions=1", "--results", tmp_path / "results", "--json")
    commands.out(outside, *words)
    with analysis.open(tmp_path / "results") as s:
        run = s.run(s.runs()["run_id"][0])
        assert [plugin.name for plugin in run.row.documents.manifest.plugins] == ["outside-metrics"]
        assert "first_second" in run.metrics["metric"]
        assert s.store.valid_runs([run.id]) == {run.id}
    # Here, without the package, its values stay, and tables leave them out.
    status, out, err = called("results", "small", "--results", tmp_path / "results")
    assert (status, err, "first second" in out) == (0, "", False)
    assert "Bytes in" not in create_app(tmp_path / "results").test_client().get(f"/runs/{run.id}").text


def test_a_package_that_cannot_be_loaded_is_named(commands: Commands, outside: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(outside, broken)
    (broken / "outside_metrics.py").write_text("import nothing_like_it\n")
    done = commands.run(broken, "list", "metrics")
    assert done.returncode != 0
    assert "backchannel: the package outside-metrics 0.7, which adds metrics, cannot be loaded" in done.stderr
    assert "Traceback" not in done.stderr


#: Functions that fail, each in its own way, and one that works.
FAULTY = """
import polars as pl

from analysis.exports.registry import export
from analysis.figures.registry import campaign_figure, figure
from analysis.metrics.registry import metric
from analysis.runs import Flow


def declared(function):
    return metric("number", function.__name__, Flow, "made up for a test", better=None)(function)


@declared
def fine(flow):
    return 1.0


@declared
def raises(flow):
    return flow.begun_s + flow.ended_s


@declared
def nan(flow):
    return float("nan")


@declared
def text(flow):
    return "3"


@figure("raising", "fails", of=Flow, single=True)
def raising(flow, asked):
    return {}["nothing"]


@campaign_figure("raising-campaign", "fails")
def raising_campaign(campaign, asked):
    raise RuntimeError("no such thing")


@export("raising", "fails", of="run", file="{name}.csv")
def raising_export(run, target):
    return 1 // 0


@export("silent", "writes and returns nothing", of="run", file="{name}.txt")
def silent(run, target):
    target.path.write_text("written")
"""


def failed(error: str, line: str) -> str:
    """The sentence about a faulty line of the package."""
    return (
        f"the package outside-metrics 0.7 failed: {error} "
        f"(outside_metrics.py, line {FAULTY.splitlines().index(line) + 1})"
    )


def test_functions_of_a_package_that_fail_are_named_and_take_nothing_with_them(
    commands: Commands, faulty: Path, tmp_path: Path
) -> None:
    stored = tmp_path / "results"
    (tmp_path / "small.yaml").write_text(SHORT)

    def backchannel(*words: str | Path) -> subprocess.CompletedProcess[str]:
        done = commands.run(faulty, *words, "--results", stored)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    raises = failed(
        "TypeError: unsupported operand type(s) for +: 'float' and 'method'", "    return flow.begun_s + flow.ended_s"
    )
    done = backchannel("run", tmp_path / "small.yaml", "--set", "repetitions=1")
    assert done.returncode == 0, done.stderr
    assert f"Without a value in 2 runs: raises: {raises}" in done.stdout
    assert "nan: the package outside-metrics 0.7 failed: ValueError: it returned nan" in done.stdout
    assert "text: the package outside-metrics 0.7 failed: TypeError: must be real number, not str" in done.stdout
    with analysis.open(stored) as s:
        run = s.run(s.runs()["run_id"][0])
        measured = set(run.metrics["metric"])
        assert "fine" in measured
        assert measured.isdisjoint({"raises", "nan", "text"})
    assert f"raises: {raises}" in backchannel("results", "small", "--metric", "raises").stderr
    again = backchannel("measure", "small", "--plugins").stdout
    assert f"Without a value in 2 runs: raises: {raises}" in again

    missing = failed("KeyError: 'nothing'", '    return {}["nothing"]')
    for words, sentence in (
        (("plot", "raising", run.id), missing),
        (
            ("plot", "raising-campaign", "small"),
            failed("RuntimeError: no such thing", '    raise RuntimeError("no such thing")'),
        ),
        (
            ("export", "raising", run.id),
            failed("ZeroDivisionError: integer division or modulo by zero", "    return 1 // 0"),
        ),
    ):
        done = backchannel(*words, "-o", tmp_path / "raising.svg")
        assert (done.returncode, done.stderr) == (2, f"backchannel: {sentence}\n")
    assert backchannel("export", "silent", run.id, "-o", tmp_path / "silent.txt").stdout.strip().endswith("silent.txt")

    drawn = f"/api/runs/{run.id}/raising?flow=forward"
    figure, page = answers(faulty, stored, drawn, f"/runs/{run.id}")
    assert json.loads(figure)["empty"] == f"T{missing[1:]}."
    assert drawn in page

    # Once it is corrected, a manifest does not state what is no longer so.
    corrected = FAULTY.replace("flow.begun_s + flow.ended_s", "flow.begun_s")
    (faulty / "outside_metrics.py").write_text(corrected)
    told = backchannel("measure", "small", "--metric", "raises").stdout
    assert "4 new values" in told
    assert "Without" not in told
    with analysis.open(stored) as s:
        stated = s.run(run.id).row.documents.manifest.unmeasured
    assert not [sentence for sentence in stated if "raises" in sentence.partition(": ")[0]]
    assert [sentence for sentence in stated if sentence.startswith("nan: ")]


def test_a_package_that_cannot_be_loaded_has_one_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    registry: Registry[Any] = Registry("metric", "backchannel.metrics", [])

    def load() -> None:
        registry.add(SimpleNamespace(name="fine", module="outside_metrics"))
        raise ModuleNotFoundError("No module named 'nothing_like_it'")

    point = SimpleNamespace(load=load, dist=None, value="outside_metrics", module="outside_metrics")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])
    for _ in range(2):
        with pytest.raises(AnalysisError, match="No module named 'nothing_like_it'; correct its module"):
            len(registry)


def test_a_cell_of_a_notebook_that_runs_again_replaces_what_it_declared() -> None:
    registry: Registry[Any] = Registry("metric", "backchannel.none", [])
    cells = [SimpleNamespace(name="mine", module="__main__", number=number) for number in (1, 2)]
    for cell in cells:
        registry.add(cell)
    assert registry["mine"] is cells[1]
    registry.add(SimpleNamespace(name="ours", module="analysis.metrics.flows"))
    with pytest.raises(ValueError, match="two metrics 'ours'"):
        registry.add(SimpleNamespace(name="ours", module="__main__"))


def test_two_entries_of_one_name_are_an_error() -> None:
    from analysis.metrics.registry import metric
    from analysis.runs import Flow

    with pytest.raises(ValueError, match="two metrics 'throughput'"):

        @metric("rate", "Another", Flow, "nowhere", better=None)
        def throughput(flow: Flow) -> float:
            return 0.0


def test_stored_runs_are_measured_again(results: Path, tmp_path: Path) -> None:
    stored = tmp_path / "results"
    shutil.copytree(results, stored)
    with analysis.open(stored) as s:
        values, first = s["small"].values(), s.run(s["small"].runs()["run_id"][0])
        late, bare = s["small"].runs()["run_id"][1:3]
        with rewriting(s.store) as connection:
            connection.exec_driver_sql("UPDATE metric SET value = 1.0 WHERE name = 'goodput'")
            connection.exec_driver_sql("DELETE FROM metric WHERE name = 'rtt_mean'")
            connection.exec_driver_sql(
                "UPDATE run SET state = 'invalid', problems = '[\"late\"]' WHERE id = ?", (late,)
            )
        folder = s.store.run_folder(bare)
        for name in ("segments.parquet", "counters.json"):
            (folder / name).unlink(missing_ok=True)
            with rewriting(s.store) as connection:
                connection.exec_driver_sql("DELETE FROM file WHERE run_id = ? AND path = ?", (bare, name))
    # Only what none of the runs has.
    status, out, err = called("measure", "small", "--new", "--results", stored)
    assert (status, "3 runs measured; 6 new values, 0 changed, 0 gone" in out) == (0, True), (out, err)
    assert "1 run without captures and counters: not measured." in out
    status, out, _ = called("measure", "small", "--metric", "goodput", "--results", stored)
    assert (status, "3 runs measured; 0 new values, 6 changed, 0 gone" in out) == (0, True), out
    with analysis.open(stored) as s:
        again = s.run(first.id)
        assert again.metrics.sort("metric", "subject").equals(first.metrics.sort("metric", "subject"))
        # An invalid run stays so, with its values, and is not a further attempt.
        assert (s.run(late).row.state, s.run(late).row.attempts) == ("invalid", [])
        here = pl.col("run_id").is_in([first.id])
        assert s["small"].values().filter(here).equals(values.filter(here))
        manifest = again.row.documents.manifest
        assert [entry.metrics for entry in manifest.measured_again] == [("rtt_mean",), ("goodput",)]
        assert {entry.sources_sha256 for entry in manifest.measured_again} == {sources.digest()}
        # The file says the same, and its checksum is the stored one.
        written = Manifest.read(json.loads((again.folder / "manifest.json").read_text()))
        assert written == manifest
        stated = {file.path: file.sha256 for file in again.row.files}
        assert stated["manifest.json"] == hashlib.sha256((again.folder / "manifest.json").read_bytes()).hexdigest()
        # What the metrics said before is known by its date.
        (goodput,) = {
            row.value
            for row in s.store.values_at(s["small"].row.id, first.row.landed + 0.001)
            if row.name == "goodput" and row.run_id == first.id
        }
        assert goodput == 1.0
    # What changes nothing leaves the run as it is, and does not make it the newest.
    status, out, _ = called("measure", "small", "--results", stored, "--json")
    assert (status, json.loads(out)["runs"], json.loads(out)["changed"]) == (0, 3, 0)
    with analysis.open(stored) as s:
        assert (s.run(first.id).row.landed, s.run(first.id).row.documents.manifest) == (again.row.landed, manifest)
        with rewriting(s.store) as connection:
            connection.exec_driver_sql("UPDATE metric SET value = 1.0 WHERE name = 'goodput'")
    assert called("measure", "small", "--results", stored)[0] == 0
    with analysis.open(stored) as s:
        (entry,) = s.run(first.id).row.documents.manifest.measured_again
        assert entry.metrics == ()


def test_a_run_that_was_made_anew_meanwhile_keeps_its_result(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "copy")
    with analysis.open(tmp_path / "copy") as s:
        with rewriting(s.store) as connection:
            connection.exec_driver_sql("UPDATE metric SET value = 1.0 WHERE name = 'goodput'")
        row = s.run(s.runs()["run_id"][0]).row
        with rewriting(s.store) as connection:
            connection.exec_driver_sql("UPDATE run SET landed = landed + 1 WHERE id = ?", (row.id,))
        changes = Changes()
        measure_again(s.store, row, ["goodput"], versions.versions(), changes)
        assert (changes.runs, changes.overtaken) == (0, 1)
        assert s.run(row.id).row.documents.manifest.measured_again == ()
        assert s.run(row.id).data.segments.height > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("large",), "unknown campaign 'large'"),
        (("small", "--metric", "goodputs"), "unknown metric 'goodputs'; did you mean 'goodput'?"),
        (("small", "--plugins"), "no package outside the checkout adds a metric"),
        (("small", "--plugins", "--metric", "goodput"), "--plugins and --metric exclude each other"),
    ],
)
def test_mistakes_of_measure_are_sentences(words: tuple[str, ...], said: str, results: Path) -> None:
    status, out, err = called("measure", *words, "--results", results)
    assert (status, out) == (2, "")
    assert said in err
