"""The run of a store that a test made."""

from __future__ import annotations

from pathlib import Path

from analysis.store import Store
from analysis.store.rows import RunRow


def only_run(results: Path) -> tuple[RunRow, Path]:
    """The only run of a store, and its folder."""
    with Store.open(results) as store:
        (run_id,) = store.run_ids("")
        run = store.run(run_id)
        assert run is not None
        return run, store.run_folder(run_id)
