"""Files of runs behind an fsspec URL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

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
    assert fsspec.filesystem("memory").cat("/lab/runs/ab/abcd/version-0/captures/a.pcap") == b"one"


def test_a_run_put_again_replaces_the_first_and_what_was_read_of_it(place: RemoteArtefacts, tmp_path: Path) -> None:
    place.put("abcd", made(tmp_path, "one"))
    assert (place.folder("abcd") / "captures/a.pcap").read_text() == "one"
    again = made(tmp_path, "two")
    (again / "manifest.json").unlink()
    place.put("abcd", again)
    assert (place.folder("abcd") / "captures/a.pcap").read_text() == "two"
    assert names(place.folder("abcd")) == {"captures/a.pcap"}


def test_files_are_announced_with_size(place: RemoteArtefacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit of an upload or download grows with the file."""
    calls: list[int | str] = []
    monkeypatch.setattr(artefacts.IoDeadline, "renew", lambda self, size=0: calls.append(size))
    monkeypatch.setattr(artefacts.IoDeadline, "left_s", lambda self: 60.0)
    for name in ("put_file", "get_file"):
        transfer = getattr(place._files, name)

        def recorded(source: str, to: str, transfer: Callable[..., None] = transfer) -> None:
            calls.append(Path(source).name)
            transfer(source, to)

        monkeypatch.setattr(place._files, name, recorded)
    sizes = {"captures/a.pcap": 1000, "manifest.json": 2}
    place.put("abcd", made(tmp_path, "x" * 1000))
    assert names(place.folder("abcd", sizes=lambda: sizes)) == set(sizes)
    for name, size in sizes.items():
        announced = [before for before, call in pairwise(calls) if call == Path(name).name]
        assert announced == [size, size]


def test_what_was_never_there_is_no_folder(place: RemoteArtefacts) -> None:
    assert not place.folder("other").exists()


@pytest.mark.parametrize("url", ["nonsense://x", "s4://bucket"])
def test_a_place_that_nobody_knows_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=f"cannot be stored at {url}"):
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
    (folder / "reason.txt").write_text("attempt 1: it broke\n")
    (folder / "cell.log").write_text("y" * 20)
    place.put_failed("abcd", folder)
    files = fsspec.filesystem("memory")
    assert {Path(name).name for name in files.find("/lab")} == {"reason.txt", "cell.log", "manifest.json"}
    told = files.cat("/lab/failed/abcd/reason.txt").decode()
    assert told == "attempt 1: it broke\nnot kept: captures/a.pcap, 970 bytes\n"


def test_what_another_machine_landed_anew_is_brought_here_again(place: RemoteArtefacts, tmp_path: Path) -> None:
    place.put("abcd", made(tmp_path, "one"), "1.0")
    assert (place.folder("abcd", "1.0") / "captures/a.pcap").read_text() == "one"
    RemoteArtefacts("memory://lab", tmp_path / "elsewhere").put("abcd", made(tmp_path, "two"), "2.0")
    assert (place.folder("abcd", "2.0") / "captures/a.pcap").read_text() == "two"
    assert [path.name for path in (tmp_path / "cache/runs/ab/abcd").iterdir()] == ["2.0"]


def test_several_may_bring_the_same_run_here_at_once(place: RemoteArtefacts, tmp_path: Path) -> None:
    place.put("abcd", made(tmp_path, "one"), "1.0")
    with ThreadPoolExecutor(8) as pool:
        result = list(pool.map(lambda _: names(place.folder("abcd", "1.0")), range(32)))
    assert all(entry == {"captures/a.pcap", "manifest.json"} for entry in result)


def test_a_version_counts_before_the_others_are_discarded(place: RemoteArtefacts, tmp_path: Path) -> None:
    assert place.put("abcd", made(tmp_path, "one"), "1.0") == []
    stale = place.put("abcd", made(tmp_path, "two"), "2.0")
    assert (place.folder("abcd", "1.0") / "captures/a.pcap").read_text() == "one"
    place.discard("abcd", stale)
    files = fsspec.filesystem("memory")
    assert {path.split("/")[5] for path in files.find("/lab")} == {"version-2.0"}
    assert (place.folder("abcd", "2.0") / "captures/a.pcap").read_text() == "two"


def test_files_of_a_release_before_versions_are_read_and_discarded(place: RemoteArtefacts, tmp_path: Path) -> None:
    files = fsspec.filesystem("memory")
    # One comes before the folder of a version, one after it.
    for name in ("captures/a.pcap", "workload.json"):
        files.pipe_file(f"/lab/runs/ab/abcd/{name}", b"old")
    # Another version was put there, but does not count.
    stale = place.put("abcd", made(tmp_path, "two"), "2.0")
    folder = place.folder("abcd", "1.0", lambda: {"captures/a.pcap": 3, "workload.json": 3})
    assert (folder / "captures/a.pcap").read_text() == "old"
    assert names(folder) == {"captures/a.pcap", "workload.json"}
    place.discard("abcd", stale)
    assert files.find("/lab") == [f"/lab/runs/ab/abcd/version-2.0/{name}" for name in sorted(SIZES)]


class Unreliable(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """An object store that fails, is silent, or cuts what it takes or gives."""

    protocol = "unreliable"
    store: dict[str, Any] = {}
    pseudo_dirs = [""]
    #: Calls by name that fail from now on, take for ever, or transfer one byte less.
    failing: set[str] = set()
    silent: set[str] = set()
    cutting: set[str] = set()
    released = threading.Event()

    @classmethod
    def _meet(cls, call: str) -> None:
        if call in cls.silent:
            cls.released.wait(60)
        if call in cls.failing:
            raise OSError(f"503 for {call}")

    def exists(self, path: str, **more: Any) -> bool:
        self._meet("exists")
        return bool(super().exists(path, **more))

    def size(self, path: str) -> int:
        return int(super().size(path)) + ("size" in self.cutting)

    def put_file(self, lpath: str, rpath: str, **more: Any) -> None:
        self._meet("put")
        super().pipe_file(rpath, Path(lpath).read_bytes()[: -1 if "put" in self.cutting else None])

    def get_file(self, rpath: str, lpath: str, **more: Any) -> None:
        self._meet("get")
        Path(lpath).write_bytes(super().cat_file(rpath)[: -1 if "get" in self.cutting else None])


@pytest.fixture
def unreliable(tmp_path: Path) -> Iterator[RemoteArtefacts]:
    fsspec.register_implementation("unreliable", Unreliable, clobber=True)
    Unreliable.store.clear()
    yield RemoteArtefacts("unreliable://lab", tmp_path / "cache")
    Unreliable.released.set()
    for faults in (Unreliable.failing, Unreliable.silent, Unreliable.cutting):
        faults.clear()
    Unreliable.released = threading.Event()


@contextmanager
def faulty(kind: str, call: str) -> Iterator[None]:
    """A place on which a call fails, is silent or cuts. Only a silent one is given up soon: others may be slow."""
    with pytest.MonkeyPatch.context() as patch:
        if kind == "silent":
            patch.setattr(artefacts, "ANSWER_S", 0.2)
        getattr(Unreliable, kind).add(call)
        yield
    getattr(Unreliable, kind).clear()


SIZES = {"captures/a.pcap": 3, "manifest.json": 2}


@pytest.mark.parametrize(
    ("kind", "call", "message"),
    [
        ("failing", "exists", "503 for exists"), ("failing", "put", "503 for put"),
        ("silent", "exists", "no answer within 0 s"), ("silent", "put", "no answer within 0 s"),
        ("cutting", "put", "a.pcap has 2 bytes there instead of 3"),
        ("cutting", "size", "a.pcap has 4 bytes there instead of 3"),
    ],
)  # fmt: skip
def test_a_place_that_does_not_take_a_run_is_named_and_the_run_can_be_put_again(
    unreliable: RemoteArtefacts, tmp_path: Path, kind: str, call: str, message: str
) -> None:
    folder = made(tmp_path, "one")
    with faulty(kind, call), pytest.raises(ArtefactError, match=f"cannot be put to unreliable://lab: .*{message}"):
        unreliable.put("abcd", folder)
    assert names(folder) == set(SIZES)
    unreliable.put("abcd", folder)
    assert names(unreliable.folder("abcd", "0", lambda: SIZES)) == set(SIZES)


def test_a_place_that_fails_at_a_second_landing_keeps_the_first(unreliable: RemoteArtefacts, tmp_path: Path) -> None:
    unreliable.put("abcd", made(tmp_path, "one"), "1.0")
    Unreliable.cutting.add("put")
    with pytest.raises(ArtefactError, match="cannot be put"):
        unreliable.put("abcd", made(tmp_path, "two"), "2.0")
    Unreliable.cutting.clear()
    assert (unreliable.folder("abcd", "1.0", lambda: SIZES) / "captures/a.pcap").read_text() == "one"


@pytest.mark.parametrize(
    ("kind", "call", "message"),
    [("failing", "get", "503 for get"), ("silent", "get", "no answer within"), ("cutting", "get", "there instead of")],
)
def test_a_place_that_does_not_give_a_run_leaves_no_part_of_it(
    unreliable: RemoteArtefacts, tmp_path: Path, kind: str, call: str, message: str
) -> None:
    unreliable.put("abcd", made(tmp_path, "one"))
    with faulty(kind, call), pytest.raises(ArtefactError, match=f"cannot be read from unreliable://lab: .*{message}"):
        unreliable.folder("abcd", "0", lambda: SIZES)
    assert names(unreliable.folder("abcd", "0", lambda: SIZES)) == set(SIZES)


def test_a_file_that_the_place_has_lost_is_named(unreliable: RemoteArtefacts, tmp_path: Path) -> None:
    unreliable.put("abcd", made(tmp_path, "one"))
    del Unreliable.store[next(path for path in Unreliable.store if path.endswith("manifest.json"))]
    with pytest.raises(ArtefactError, match=r"manifest.json has 0 bytes there instead of 2"):
        unreliable.folder("abcd", "0", lambda: SIZES)
