"""What commands do with what the user gives them, without a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import get_type_hints

import pytest

from analysis import versions
from analysis.errors import AnalysisError
from analysis.store import Store, StoreFailed
from experiments import exits, import_files, lab, new_parts
from experiments.commands import imports, prune
from experiments.commands.packetdrill import _kept_name
from experiments.line import Line
from testbed.errors import BadRequest
from testbed.node_binary import ROOT
from testbed.virtual_kernel.packetdrill import Verdict, Version
from tests.support.command_line import backchannel


@pytest.mark.parametrize(
    ("closed", "words", "status"), [(1, ["list", "backends"], 0), (0, ["list", "backends"], 0), (2, ["show", "x"], 2)]
)
def test_closed_standard_streams_are_the_null_device(closed: int, words: list[str], status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "experiments", *words], preexec_fn=lambda: os.close(closed), cwd=ROOT, check=False,
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stderr
    assert ("virtual-kernel" in done.stdout) == (closed == 0)


def test_a_checkout_on_a_machine_without_git_has_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert versions._git("rev-parse", "HEAD") is None


def test_an_inventory_that_is_not_used_is_named(tmp_path: Path) -> None:
    words = ("plan", "quickstart", "--backend", "sim", "--set", "stack=newreno", "--results", tmp_path / "none")
    done = backchannel(*words, "--inventory", tmp_path / "hosts.yml", status=0)
    assert done.stderr == (
        "backchannel: --inventory is not used: backend sim makes its runs without a lab (--backend physical)\n"
    )


def test_a_campaign_file_is_validated_and_not_checked() -> None:
    done = backchannel("check", ROOT / "experiments/tutorial.yaml", status=exits.BAD_INPUT)
    assert (
        f"tutorial.yaml is a file, but check takes the folder of a crate; './backchannel validate {ROOT}" in done.stderr
    )


@pytest.mark.parametrize(("number", "words"), [(13, "Permission denied"), (36, "File name too long")])
def test_a_place_that_is_not_the_users_is_no_traceback(number: int, words: str) -> None:
    explained = exits.of_error(OSError(number, words, "/root/file"))
    assert explained is not None
    assert explained[0].startswith(f"the command stopped: {words} (/root/file);")
    assert explained[1] == exits.FAILED


@pytest.mark.parametrize("name", ["a/b", "../up", "-n", "Ümlaut", ""])
def test_a_name_of_a_line_that_is_no_name_writes_no_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="is not a name for a campaign: use lower-case letters"):
        Line("cable-500-10", {}, name, tmp_path / "results").run(["true"], ["true"])
    assert not (tmp_path / "results").exists()


def test_commands_for_a_new_part_are_words_of_a_shell_where_its_folder_has_blanks(tmp_path: Path) -> None:
    folder = tmp_path / "my work" / "fast-share"
    folder.parent.mkdir()
    (install, test) = new_parts.make("metric", folder).commands
    assert install.endswith(f"pip install -e '{folder}'")
    assert test.endswith(f"discover '{folder}'")


def test_a_place_where_nothing_can_be_made_is_named() -> None:
    with pytest.raises(BadRequest, match="/proc/fast-share cannot be made: "):
        new_parts.make("metric", Path("/proc/fast-share"))


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("/tests/tcp/sack/one.pkt", "tcp-sack-one-ipv4.txt"),
        ("/tmp/one.pkt", "tmp-one-ipv4.txt"),
        ("/one.pkt", "one-ipv4.txt"),
    ],
)
def test_what_packetdrill_printed_is_kept_in_the_folder_that_was_named(script: str, name: str, tmp_path: Path) -> None:
    kept = _kept_name(Verdict(Path(script), Version.IPV4, True, "", ""))
    assert kept == name
    assert (tmp_path / kept).parent == tmp_path


def test_names_of_captures_become_names_of_files_and_no_options() -> None:
    names = ["-x.pcap", "--out.pcap", f"{'ä' * 120}.pcap", f"{'ä' * 120}.pcapng", "---.pcap", "a b.pcap"]
    labels = import_files.labels([Path(name) for name in names])
    assert [label for label in labels if label[:1] == "-"] == []
    assert labels[:2] == ["x", "out"]
    assert labels[2:4] == ["ä" * 100, f"{'ä' * 100}-2"]
    assert labels[4:] == ["capture", "a-b"]


def test_no_reader_of_captures_ends_before_the_limit_that_the_user_sets() -> None:
    # The type of its answer is not imported.
    hints = {"time_s": imports.import_.__annotations__["time_s"]}
    types = get_type_hints(SimpleNamespace(__annotations__=hints), vars(imports), include_extras=True)
    (option,) = types["time_s"].__metadata__
    assert option.max <= import_files.READER_S
    assert import_files.READER_S < 2**31 / 1000


def test_a_command_in_a_rehearsal_that_a_signal_ends_has_the_status_of_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsed = SimpleNamespace(environment=lambda: {}, close=lambda: None)
    monkeypatch.setattr(lab, "private_memory_folder", lambda: None)
    monkeypatch.setattr(lab, "build", lambda *_: rehearsed)
    for command, status in (("kill -TERM $$", 143), ("exit 7", 7)):
        words = ["lab", "namespaces", "hosts.yml", "campaign.yaml", "/", "--", "/bin/sh", "-c", command]
        monkeypatch.setattr(sys, "argv", words)
        assert lab.main() == status


def test_prune_says_why_the_database_keeps_its_size(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def full(_: object) -> None:
        raise StoreFailed("the results store failed: database or disk is full")

    monkeypatch.setattr("analysis.store.pruning.compact", full)
    with Store.open(tmp_path) as store:
        prune._compact(store)
    assert "keeps its size: the results store failed: database or disk is full; later" in capsys.readouterr().err
