"""Whether a results folder is sound: its database, and the files of every run in it."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

from tests.equality.__main__ import recorded_results


def damage(results: Path) -> list[str]:
    """What is wrong with a results folder, as sentences. A folder without a store has nothing wrong."""
    database = results / "results.sqlite"
    if not database.exists():
        return []
    store = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        result = [f"integrity: {row[0]}" for row in store.execute("PRAGMA integrity_check") if row[0] != "ok"]
        result += [f"foreign key: {row}" for row in store.execute("PRAGMA foreign_key_check")]
        if not store.execute("SELECT 1 FROM sqlite_master WHERE name = 'run'").fetchone():
            # Killed while the store was being created.
            return result
        files = store.execute("SELECT run_id, path, bytes, sha256 FROM file").fetchall()
        runs = {row[0] for row in store.execute("SELECT id FROM run")}
    finally:
        store.close()
    listed: dict[str, set[str]] = {run: set() for run in runs}
    for run, name, size, digest in files:
        listed[run].add(name)
        path = results / "runs" / run[:2] / run / name
        if not path.is_file():
            result.append(f"run {run}: {name} is missing")
        elif path.stat().st_size != size or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            result.append(f"run {run}: {name} differs from its row")
    for run, names in listed.items():
        folder = results / "runs" / run[:2] / run
        present = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        result += [f"run {run}: {name} has no row" for name in present - names]
        if not names:
            result.append(f"run {run} has no files")
    return result


def digest(results: Path) -> str:
    """Of all runs, their files and metrics; equal for equal results, whenever and in which order they were made."""
    result: dict[str, Any] = recorded_results(results / "results.sqlite")
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()
