"""Files of runs behind an fsspec URL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest

from analysis.store import artefacts
from analysis.store.artefacts import ArtefactError, RemoteArtefacts


@pytest.fixture
def place(tmp_path: Path) -> RemoteArtefacts:
    files = fsspec.filesystem("memory")
    if files.exists("/lab"):
        files.rm("/lab", recursive=True)
    return RemoteArtefacts("memory://lab", tmp_path / "cache")


def made(tmp_path: Path, text: str) -> Path:
    folder = tmp_path / "made"
    (folder / "captures").mkdir(parents=True)
    (folder / "captures/a.pcap").write_text(text)
    (folder / "manifest.json").write_text("{}")
    return folder


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_what_is_put_comes_back_and_the_folder_is_gone(place: RemoteArtefacts, tmp_path: Path) -> None:
    folder = made(tmp_path, "one")
    place.put("abcd", folder)
    assert not folder.exists()
    assert names(place.folder("abcd")) == {"captures/a.pcap", "manifest.json"}
    assert fsspec.filesystem("memory").cat("/lab/runs/ab/abcd/captures/a.pcap") == b"one"


def test_a_run_that_is_put_again_replaces_the_first_and_what_was_read_of_it(
    place: RemoteArtefacts, tmp_path: Path
) -> None:
    place.put("abcd", made(tmp_path, "one"))
    assert (place.folder("abcd") / "captures/a.pcap").read_text() == "one"
    again = made(tmp_path, "two")
    (again / "manifest.json").unlink()
    place.put("abcd", again)
    assert (place.folder("abcd") / "captures/a.pcap").read_text() == "two"
    assert names(place.folder("abcd")) == {"captures/a.pcap"}


def test_what_is_removed_or_was_never_there_is_no_folder(place: RemoteArtefacts, tmp_path: Path) -> None:
    place.put("abcd", made(tmp_path, "one"))
    place.folder("abcd")
    place.remove("abcd")
    place.remove("abcd")
    assert not place.folder("abcd").exists()
    assert not place.folder("other").exists()


@pytest.mark.parametrize("url", ["nonsense://x", "s4://bucket"])
def test_a_place_that_nobody_knows_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=f"cannot be kept at {url}"):
        RemoteArtefacts(url, tmp_path)


def test_a_place_that_takes_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    place = RemoteArtefacts(f"file://{tmp_path}/file", tmp_path / "cache")
    with pytest.raises(ArtefactError, match="cannot be put to file://"):
        place.put("abcd", made(tmp_path, "one"))


def test_what_a_failed_try_left_is_there_until_it_is_removed(place: RemoteArtefacts, tmp_path: Path) -> None:
    assert place.failed("abcd") is None
    place.put_failed("abcd", made(tmp_path, "one"))
    folder = made(tmp_path, "two")
    (folder / "manifest.json").unlink()
    place.put_failed("abcd", folder)
    assert not folder.exists()
    assert place.failed("abcd") == "memory://lab/failed/abcd"
    files = fsspec.filesystem("memory")
    assert files.find("/lab") == ["/lab/failed/abcd/captures/a.pcap"]
    assert files.cat("/lab/failed/abcd/captures/a.pcap") == b"two"
    place.remove_failed("abcd")
    place.remove_failed("abcd")
    assert place.failed("abcd") is None


def test_of_what_a_failed_try_left_the_small_files_are_kept_and_the_rest_is_named(
    place: RemoteArtefacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artefacts, "MOST_FAILED_BYTES", 1000)
    folder = made(tmp_path, "x" * 970)
    (folder / "reason.txt").write_text("try 1: it broke\n")
    (folder / "cell.log").write_text("y" * 20)
    place.put_failed("abcd", folder)
    files = fsspec.filesystem("memory")
    assert {Path(name).name for name in files.find("/lab")} == {"reason.txt", "cell.log", "manifest.json"}
    told = files.cat("/lab/failed/abcd/reason.txt").decode()
    assert told == "try 1: it broke\nnot kept: captures/a.pcap, 970 bytes\n"


def test_what_another_machine_landed_anew_is_brought_here_again(place: RemoteArtefacts, tmp_path: Path) -> None:
    place.put("abcd", made(tmp_path, "one"))
    assert (place.folder("abcd", "1.0") / "captures/a.pcap").read_text() == "one"
    RemoteArtefacts("memory://lab", tmp_path / "elsewhere").put("abcd", made(tmp_path, "two"))
    assert (place.folder("abcd", "2.0") / "captures/a.pcap").read_text() == "two"
    assert [path.name for path in (tmp_path / "cache/runs/ab/abcd").iterdir()] == ["2.0"]


def test_several_may_bring_the_same_run_here_at_once(place: RemoteArtefacts, tmp_path: Path) -> None:
    place.put("abcd", made(tmp_path, "one"))
    with ThreadPoolExecutor(8) as pool:
        result = list(pool.map(lambda _: names(place.folder("abcd", "1.0")), range(32)))
    assert all(entry == {"captures/a.pcap", "manifest.json"} for entry in result)
