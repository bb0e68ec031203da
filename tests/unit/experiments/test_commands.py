"""What commands do with what the user gives them, without a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import get_type_hints

import pytest

from analysis.errors import AnalysisError
from experiments import exits, import_files, lab, new_parts
from experiments.commands import imports
from experiments.commands.packetdrill import _kept_name
from experiments.commands.shared import ask_to_delete
from experiments.line import Line
from testbed.errors import BadRequest
from testbed.virtual_kernel.packetdrill import Verdict, Version


def test_without_standard_input_nobody_is_asked_and_nothing_deleted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SystemExit) as ended:
        ask_to_delete(yes=False)
    assert ended.value.code == exits.BAD_INPUT
    assert "nothing is deleted: add --yes" in capsys.readouterr().err


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
