"""The user's cache of builds: where it is, and others who use it at the same time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import build_cache, unused_builds
from testbed.errors import Unavailable


def test_a_user_whom_the_system_does_not_know_has_a_cache_in_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = build_cache.place("nodes")
    assert place == tmp_path / f"backchannel-{os.geteuid()}" / "cache" / "nodes"
    assert place.parent.parent.stat().st_mode & 0o777 == 0o700


def test_a_cache_that_cannot_be_written_is_named_with_the_variable_that_moves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    place = build_cache.place("kernels")
    with pytest.raises(Unavailable, match="Not a directory; name another place with XDG_CACHE_HOME"):
        build_cache.build_once(place / "a", "lock", "a build", 0, lambda scratch: None)


def test_files_that_vanish_meanwhile_do_not_end_a_look_for_unused_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("other", "target"):
        built = build_cache.place("nodes") / name / "object"
        built.parent.mkdir(parents=True)
        built.write_bytes(b"abc")
    real = Path.rglob

    def while_cargo_runs(self: Path, pattern: str) -> Iterator[Path]:
        yield from real(self, pattern)
        yield self / "removed-meanwhile"
        if self.name == "target":
            raise FileNotFoundError(2, "No such file or directory", str(self / "a-folder"))

    monkeypatch.setattr(Path, "rglob", while_cargo_runs)
    found = unused_builds.find(0.0, now=4e9)
    assert [(build.folder.name, build.bytes) for build in found] == [("other", 3)]
