"""Exit statuses and what scripts read."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import analysis
from analysis.store import PendingRun, Store
from analysis.store.documents import Documents
from experiments.cli import application
from experiments.language.campaign import load
from experiments.language.registry import KINDS, of_kind
from testbed import node_binary
from tests.support.campaign_texts import one_line
from tests.support.command_line import backchannel

QUICKSTART = str(node_binary.ROOT / "experiments/quickstart.yaml")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--help"], 0), (["validate", QUICKSTART], 0), (["plan", QUICKSTART], 0), (["list"], 0),
        (["show", "droptail"], 0), (["show", "dropttail"], 2), (["list", "polices"], 2), (["plan"], 2),
        (["plan", QUICKSTART, "--nonsense"], 2), (["plan", QUICKSTART, "--set", "stack=cubc"], 2),
        (["plan", "no-such.yaml"], 2), (["plan", "."], 2), (["validate", QUICKSTART, "no-such.yaml"], 2),
        (["kernel", "build", "--source", ".", "--version", "6.12"], 2),
        (["line", "cable-500-10", "--client", "a", "--server", "b", "--results", "postgresql://u@none/lab"], 2),
        (["no-such-command"], 2), (["serve", "--host", "0.0.0.0"], 2), (["serve", "--token-file", "no-such-file"], 2),
    ],
)  # fmt: skip
def test_status(words: list[str], status: int) -> None:
    done = backchannel(*words)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert bool(done.stderr) == (status != 0)


def test_a_missing_node_binary_is_unavailable(tmp_path: Path) -> None:
    done = backchannel("list", BACKCHANNEL_NODE=str(tmp_path / "none"), status=3)
    assert "is not built" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"", b"a: [", b"\x00"])
def test_no_file_makes_a_traceback(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(content)
    done = backchannel("validate", str(file), status=2)
    assert done.stderr.startswith(str(file))
    assert "Traceback" not in done.stderr


def test_plan_as_json() -> None:
    document = json.loads(backchannel("plan", QUICKSTART, "--json", "--set", "stack=cubic").stdout)
    assert len(document["runs"]) == 12
    assert {run["scenario"]["nodes"][0]["stack"]["name"] for run in document["runs"]} == {"cubic"}


def test_plan_makes_no_results_folder_and_tells_what_is_done(tmp_path: Path) -> None:
    done = backchannel("plan", QUICKSTART, "--results", str(tmp_path / "none"))
    assert "has 0 of them; to be run: 12, 7 min one after another" in done.stdout
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("command", ["results", "papers score"])
def test_what_reads_results_makes_no_folder(command: str, tmp_path: Path) -> None:
    done = backchannel(*command.split(), "--results", str(tmp_path / "none"), status=2)
    assert f"no results in {tmp_path / 'none'}: run a campaign first" in done.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("file", "is a file"), ("x" * 300, "name too long"), ("r\udcff", "is not"), ("none://host/lab", "is not a store")],
)
def test_results_that_cannot_be_are_bad_input(name: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = name if "://" in name else str(tmp_path / name)
    for command in (["run", QUICKSTART, "--backend", "sim", "--set", "stack=reno-bsd"], ["results"]):
        done = backchannel(*command, "--results", place)
        assert (done.returncode, reason in done.stderr) == (2, True), done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_plan_knows_the_runs_that_the_store_has(tmp_path: Path) -> None:
    results = tmp_path / "results"
    first = load(Path(QUICKSTART)).runs[0]
    store = Store.open(results)
    store.commit_run(
        PendingRun(
            first.id, first.backend, Documents(first.document.document, {}), [], [], 1, store.staging_folder(first.id)
        )
    )
    store.note_failure(load(Path(QUICKSTART)).runs[1].id, 1, "it was not meant to be")
    store.close()
    done = backchannel("plan", QUICKSTART, "--results", str(results))
    assert "has 1 of them; to be run: 11, 6 min one after another" in done.stdout
    again = backchannel("plan", QUICKSTART, "--results", str(results), "--retry-failed")
    assert "has 1 of them; to be run: 1, 35 s one after another" in again.stdout


def test_plan_takes_what_run_takes() -> None:
    in_file_order = json.loads(backchannel("plan", QUICKSTART, "--json", "--order", "file").stdout)["runs"]
    by_place = sorted(in_file_order, key=lambda entry: (entry["repetition"], entry["point"]))
    assert by_place == sorted(in_file_order, key=lambda entry: entry["position"])
    simulated = backchannel("plan", QUICKSTART, "--backend", "sim", "--set", "stack=newreno")
    assert "runs on the sim backend" in simulated.stdout
    assert backchannel("plan", QUICKSTART, "--order", "sorted").returncode == 2


def test_everything_listed_can_be_shown() -> None:
    for entry in json.loads(backchannel("list", "policies", "--json").stdout):
        shown = backchannel("show", entry["name"]).stdout
        assert entry["summary"] in shown
        assert all(param["help"] in shown for param in entry["params"])


def test_list_leaves_the_options_to_show() -> None:
    listed = backchannel("list", "policies").stdout
    assert listed.splitlines()[1].split() == ["name", "summary", "source"]
    lines = backchannel("show", "acks-first").stdout.splitlines()
    options = [line.split()[0] for line in lines if line.startswith("  ") and " (" in line]
    assert "limit" in options
    assert options == sorted(options)
    assert "limit" not in listed.split("acks-first")[1].split("\n")[0]


def test_numbers_of_options_are_written_out() -> None:
    entries = [entry for kind in KINDS for entry in of_kind(kind)]
    told = [param.allowed() for entry in entries for param in entry.params]
    assert any("1000000 s" in text for text in told)
    assert not [text for text in told if re.search(r"\de\+\d", text)]


def test_help_groups_commands() -> None:
    text = backchannel("--help").stdout
    headings = re.findall(r"^(\w+):$", text, re.MULTILINE)
    assert headings == ["Options", "Run", "Results", "Captures", "Labs", "Papers"]
    assert not re.search(r"^  (score|reproduce|lab|runner|worker|scheduler|import-bundle) ", text, re.MULTILINE)


def commands(command: Any, *words: str) -> Iterator[tuple[str, ...]]:
    """Every command with its subcommands."""
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *words, name)


def test_usage_has_the_names_that_people_write(capsys: pytest.CaptureFixture[str]) -> None:
    for words in commands(application()):
        application().main([*words, "--help"], "backchannel", standalone_mode=False)
        told = capsys.readouterr().out
        assert not re.search(r"<(str|int|float|path|list\[|Path)", told), words
        assert "{" not in told.splitlines()[0], words


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("score", "papers score"), ("reproduce", "papers run"), ("runner", "serve runner"), ("import-bundle", "import"),
        ("scheduler", "dask scheduler"), ("worker", "dask worker"), ("lab", "testbed rehearse"),
    ],
)  # fmt: skip
def test_old_spellings_work_and_name_the_new_one(old: str, new: str) -> None:
    done = backchannel(old, "--help")
    assert done.stderr == f"backchannel: '{old}' is now '{new}'\n"
    assert done.stdout == backchannel(*new.split(), "--help").stdout


def test_options_before_a_subcommand_are_not_lost() -> None:
    done = backchannel("serve", "--port", "0", "runner", "--once")
    assert (done.returncode, done.stdout) == (2, "")
    assert "write them after 'runner'" in done.stderr


def test_a_message_says_what_to_write_and_has_at_most_ten_names() -> None:
    done = backchannel("shell", "curl", "x", status=2)
    assert "a command follows --, as in ./backchannel shell -- curl x" in done.stderr
    done = backchannel("show", "dropttail", status=2)
    assert "did you mean 'droptail'?" in done.stderr
    assert re.search(r"Allowed: (?:[^,]+, ){10}and \d+ more$", done.stderr.strip())
    done = backchannel("plan", "no-such-thing", status=2)
    assert "no campaign of that name comes with Backchannel" in done.stderr
    beside = str(QUICKSTART).removesuffix(".yaml")
    done = backchannel("plan", f"{beside}.yml", status=2)
    assert f"did you mean {beside}.yaml?" in done.stderr
    done = backchannel("new", "polcy", "x", status=2)
    assert "unknown kind 'polcy'; did you mean 'policy'?" in done.stderr


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom experiments import cli\n"
        "assert cli.application('--help').main(['--help'], 'backchannel', standalone_mode=False) == 0\n"
        "heavy = {'pydantic', 'ruamel.yaml', 'polars', 'sqlalchemy', 'flask', 'mininet'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_command_imports_no_other_command() -> None:
    code = (
        "import sys\nfrom experiments import cli\ncli.application('validate')\n"
        "loaded = {name for name in sys.modules if name.startswith('experiments.commands.')}\n"
        "print(*sorted(name.rpartition('.')[2] for name in loaded))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["answer", "inspect", "options", "shared"]


#: A command that leaves output in the buffer and goes on as the test says.
BUFFERED = """
import sys
from experiments import cli
from testbed.errors import TestbedError
def command(**_):
    sys.stdout.write("buffered")
    {}
cli.application = lambda *_: command
cli.main()
"""


def ended(goes_on: str, stdout: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BUFFERED.format(goes_on)], stdout=stdout, stderr=subprocess.PIPE,
        text=True, check=False, start_new_session=True, env={**os.environ, "PYTHONUNBUFFERED": ""},
    )  # fmt: skip


@pytest.mark.parametrize(("goes_on", "status"), [("sys.exit(130)", 130), ("raise TestbedError('no')", 1), ("pass", 0)])
def test_a_command_whose_terminal_is_gone_keeps_its_status(goes_on: str, status: int) -> None:
    ours, theirs = pty.openpty()
    os.close(ours)
    done = ended(goes_on, theirs)
    os.close(theirs)
    assert done.returncode == status, done.stderr


def test_output_that_a_full_disk_does_not_take_is_a_failure() -> None:
    with Path("/dev/full").open("w") as full:
        done = ended("pass", full.fileno())
    assert done.returncode == 1
    assert done.stderr.startswith("backchannel: the command stopped: No space left on device")


def test_a_results_folder_may_have_the_name_of_a_pattern(tmp_path: Path) -> None:
    file, results = tmp_path / "c.yaml", str(tmp_path / "r[x]*")
    file.write_text(one_line("small", "", duration="1 s"))
    done = backchannel("run", str(file), "--results", results, status=0)
    assert f"--results '{results}'" in done.stdout
    with analysis.open(results) as store:
        assert store.segments().collect().height > 100
        (run_id,) = store.runs()["run_id"]
    assert backchannel("verify", "--results", results).returncode == 0
    backchannel("plot", "sequence", run_id, "--results", results, "--out", str(tmp_path / "o.svg"), status=0)
    (table,) = Path(results).glob(f"runs/*/{run_id}/segments.parquet")
    table.unlink()
    verified = backchannel("verify", "small", "--results", results, "--json", status=1)
    assert json.loads(verified.stdout)["damaged_runs"] == [run_id]
    drawn = backchannel("plot", "sequence", run_id, "--results", results, "--out", str(tmp_path / "p.svg"), status=1)
    assert f"run {run_id}: segments.parquet is missing" in drawn.stderr
    assert not (tmp_path / "p.svg").exists()


def test_a_file_name_that_is_no_text_and_a_terminal_without_a_character_end_nothing(tmp_path: Path) -> None:
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/sm\xe9.yaml"))
    file.write_text(one_line("small", "title: up → down", duration="1 s"))
    # Encodings are chosen when a process starts.
    done = subprocess.run(
        [sys.executable, "-m", "experiments", "run", file, "--results", tmp_path / "results"], capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"up ? down" in done.stdout
    with analysis.open(tmp_path / "results") as store:
        assert store["small"].row.file.endswith("/sm\ufffd.yaml")
