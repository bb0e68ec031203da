"""Answers of commands for scripts are of the types that docs/json.md is made of."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pydantic import TypeAdapter

import analysis
from experiments import exits
from experiments.commands.documents import Failure
from tests.reference import commands, document_of, reader
from tests.support.called import called
from tests.support.campaign_texts import one_line
from tests.support.command_line import backchannel

CAMPAIGN = one_line("small", "sweep: {network.reverse.queue.policy: [droptail, acks-first]}\nrepetitions: 2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a campaign's file, its results, and one of its captures."""
    made = tmp_path_factory.mktemp("json")
    (made / "small.yaml").write_text(CAMPAIGN)
    backchannel("run", made / "small.yaml", "--results", made / "results", "--json", status=0)
    with analysis.open(made / "results") as store:
        shutil.copy(store.run(store["small"].run_ids[0]).captures[0], made)
    return made


#: In an order in which each has what it needs.
CALLS = (
    "list", "list metrics", "show droptail", "show dialup-28.8", "kernel list", "validate F/small.yaml",
    "plan F/small.yaml", "run F/small.yaml", "results", "results small", "runs", "runs --state missing",
    "compare small", "compare small small", "measure small", "verify", "export means small -o F/metrics.csv",
    "plot bars small -o F/bars.svg", "backup F/backup", "copy small F/copy", "import F/CAPTURE",
    "regressions F/results F/backup", "papers run asym-fig10 --plan", "papers score asym-fig10",
    "doubt F/small.yaml --plan", "new policy F/own-policy", "unpack F/small.yaml --into F/unpacked",
    "archive small", "undelete", "undelete small", "prune runs small --dry-run", "prune screened --dry-run",
    "prune caches --dry-run", "delete small --yes",
)  # fmt: skip
#: Commands that no call reaches: they take minutes, root, a kernel or a lab. Their own tests read their documents.
ELSEWHERE = {
    "search", "calibrate", "packetdrill", "check", "doctor", "report-card", "sensitivity", "restore", "ack-filter",
    "shell status", "shell set", "kernel build", "testbed import", "line",
}  # fmt: skip


def test_answers_are_of_their_types(folder: Path) -> None:
    (capture,) = folder.glob("*.pcap*")
    reached = set()
    for call in CALLS:
        words = [word.replace("F/", f"{folder}/").replace("CAPTURE", capture.name) for word in call.split()]
        name = next(name for name in (" ".join(words[:2]), words[0]) if name in commands())
        reached.add(name)
        if any("--results" in parameter.opts for parameter in commands()[name].params):
            words += ["--results", f"{folder}/results"]
        done = backchannel(*words, "--json")
        assert done.returncode == 0, (call, done.stderr)
        reader(document_of(commands()[name])).validate_json(done.stdout)
    with_document = {name for name, command in commands().items() if document_of(command) is not None}
    assert reached | ELSEWHERE == with_document
    assert not reached & ELSEWHERE


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["plan", "no-such.yaml"], exits.BAD_INPUT),
        (["plan", "quickstart", "--set", "stack=cubc"], exits.BAD_INPUT),
        (["plan", "quickstart", "--nonsense"], exits.BAD_INPUT),
        (["results", "--results", "no-such-folder"], exits.BAD_INPUT),
        (["no-such-command"], exits.BAD_INPUT),
        (["delete"], exits.BAD_INPUT),
    ],
)
def test_an_error_is_the_last_line_of_standard_error(words: list[str], status: int) -> None:
    plainly, _, _ = called(*words)
    of_json, out, err = called(*words, "--json")
    assert plainly == of_json == status
    assert out == ""
    error = TypeAdapter(Failure).validate_json(err.splitlines()[-1])["error"]
    assert error["status"] == status
    assert error["message"]


def test_an_invalid_file_is_an_answer_of_validate(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("name: wrong\nstack: cubc\n")
    status, out, err = called("validate", file, "--json")
    assert (status, err) == (exits.BAD_INPUT, "")
    (checked,) = json.loads(out)
    assert checked["runs"] is None
    assert {"line": 2, "field": "stack"}.items() <= next(
        problem for problem in checked["problems"] if problem["field"] == "stack"
    ).items()
