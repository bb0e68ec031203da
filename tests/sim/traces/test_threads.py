"""Threads that encode the tables of a capture change no byte of them."""

from __future__ import annotations

import re
import resource
import subprocess
from pathlib import Path

import pytest

from benchmarks.traces import make_capture
from testbed import node_binary


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lossy transfers whose segments fill several row groups, cut off within the last record."""
    path = make_capture(tmp_path_factory.mktemp("threads"), millions=0.4)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 7)
    return path


def tables(out: Path, jobs: int, *words: str) -> dict[str, bytes]:
    """Every file that the reader writes."""
    node_binary.call("trace", "--out", str(out), "--jobs", str(jobs), *words)
    return {path.name: path.read_bytes() for path in out.iterdir()}


def test_any_number_of_threads_writes_the_same_bytes(tmp_path: Path, capture: Path) -> None:
    alone = tables(tmp_path / "1", 1, f"one={capture}")
    assert len(alone["segments.parquet"]) > 1_000_000
    assert b"cut off within a record" in alone["summary.json"]
    for jobs in (2, 3, 8):
        assert tables(tmp_path / str(jobs), jobs, f"one={capture}") == alone
    brief = tables(tmp_path / "brief", 2, "--no-segments", f"one={capture}")
    assert brief == {name: alone[name] for name in ("connections.parquet", "summary.json")}


def test_threads_that_are_left_over_encode_the_tables_of_several_files(tmp_path: Path, capture: Path) -> None:
    two = (f"one={capture}", f"two={capture}")
    assert tables(tmp_path / "5", 5, *two) == tables(tmp_path / "2", 2, *two)


def test_a_table_that_outgrows_the_disk_is_told_by_any_number_of_threads(tmp_path: Path, capture: Path) -> None:
    for jobs in ("1", "2"):
        # A limit of a file's size stands for a full disk. Python ignores the signal of it, and so does the child.
        done = subprocess.run(
            [node_binary.path(), "trace", "--out", tmp_path, "--jobs", jobs, f"one={capture}"],
            capture_output=True, text=True, restore_signals=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000)),
        )  # fmt: skip
        assert done.returncode == 1
        assert re.search("cannot write a table: .*File too large", done.stderr), done.stderr
