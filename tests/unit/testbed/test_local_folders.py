"""Scratch folders of killed processes, and folders that another user has prepared."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.store import Store, StoreError
from testbed.errors import TestbedError
from testbed.local_folders import (
    ENDING,
    PREFIX,
    ScratchFolder,
    private_folder,
    runtime_folder,
    shared_parent_folder,
    sweep,
)
from tests.conftest import backchannel

HOLDS = """
import sys
from pathlib import Path
from testbed.local_folders import ScratchFolder
folder = ScratchFolder(Path(sys.argv[1]))
(folder.path / "log").write_text("x")
print(folder.path, flush=True)
sys.stdin.read()
"""


def test_a_scratch_folder_lives_as_long_as_its_process(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        assert sweep(tmp_path) == 0
        assert (folder / "log").exists()
    finally:
        owner.kill()
        owner.communicate()
    assert folder.exists(), "killed processes leave it"
    assert sweep(tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_closed_folder_is_gone_also_after_a_rename(tmp_path: Path) -> None:
    with ScratchFolder(tmp_path) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert sweep(tmp_path) == 0, "this process owns it"
    with ScratchFolder(tmp_path) as folder:
        folder.rename(tmp_path / "kept")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    with pytest.raises(TestbedError, match="no folder can be created in .*absent"):
        ScratchFolder(tmp_path / "absent")


def test_sweeping_removes_neither_links_nor_folders_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    link, file, theirs = (f"{PREFIX}{number:08}{ENDING}" for number in range(3))
    (tmp_path / link).symlink_to(tmp_path / "other")
    (tmp_path / file).touch()
    (tmp_path / theirs).mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert sweep(tmp_path) == 0
    monkeypatch.undo()
    assert sweep(tmp_path) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [link, file, "other"]


def test_sweeping_removes_no_folder_that_a_user_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["backchannel.git", "backchannel.original", "backchannel.2026-11-30.tmp", "backchannel"]
    for name in names:
        (tmp_path / name).mkdir()
    assert sweep(tmp_path) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_every_command_removes_abandoned_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / f"{PREFIX}aban_one{ENDING}").mkdir()
    backchannel("list", status=0)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = private_folder(tmp_path / "a" / "b")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert private_folder(folder) == folder
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(TestbedError, match=f"belongs to user {os.getuid()}, not to user {os.getuid() + 1}"):
        private_folder(folder)


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    for mode in (0o770, 0o707, 0o755):
        tmp_path.chmod(mode)
        with pytest.raises(TestbedError, match=rf"open to other users \(mode {mode:o}\).*chmod 700"):
            private_folder(tmp_path)


def test_a_link_or_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    private_folder(tmp_path / "own")
    (tmp_path / "link").symlink_to(tmp_path / "own")
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        with pytest.raises(TestbedError, match=f"{name} is not a folder"):
            private_folder(tmp_path / name)
    with pytest.raises(TestbedError, match="cannot be used: Not a directory"):
        private_folder(tmp_path / "file" / "below")


def test_locks_are_where_only_this_user_can_write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: str(path) == str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert runtime_folder() == tmp_path / "backchannel"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr("testbed.local_folders.tempfile.gettempdir", lambda: str(tmp_path))
    assert runtime_folder() == tmp_path / f"backchannel-{os.geteuid()}"


def test_a_store_refuses_a_prepared_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BACKCHANNEL_LOCAL", raising=False)
    monkeypatch.setattr("testbed.local_folders.tempfile.gettempdir", lambda: str(tmp_path))
    (tmp_path / f"backchannel-{os.geteuid()}").mkdir(mode=0o755)
    with pytest.raises(StoreError, match="is open to other users"):
        Store.open("postgresql://nobody@127.0.0.1:9/none", str(tmp_path / "artefacts"))


def test_a_machine_without_a_temporary_directory_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("tempfile.gettempdir", full)
    with pytest.raises(TestbedError, match="no folder can be created in .*: No usable temporary directory"):
        ScratchFolder()
    with pytest.raises(TestbedError, match="no folder for temporary files: No usable temporary directory"):
        shared_parent_folder()
    assert sweep() == 0
