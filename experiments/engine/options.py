"""Options of the engine: how to run campaigns, apart from what they contain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

#: Attempts of a run until it is valid. The governor allows one invalid run in four, so about one run in a thousand has
#: no valid attempt among five.
ATTEMPTS = 5


@dataclass(frozen=True)
class Options:
    """How to run."""

    #: A folder, or a PostgreSQL URL.
    results: Path | str
    #: Cells at the same time; None: as many as the governor allows.
    jobs: int | None = None
    #: Repeat runs that the store has a valid result of.
    force: bool = False
    #: Attempts of a run until it is valid.
    attempts: int = ATTEMPTS
    #: Conditions that select runs (experiments.engine.selection).
    only: Sequence[str] = ()
    #: Select only runs that were attempted and have no valid result.
    retry_failed: bool = False
    #: Maximum number of runs, of all campaigns of a batch together.
    limit: int | None = None
    #: Stop at the first run that has no valid result after its last attempt.
    fail_fast: bool = False
    #: Run the points in the order of the file.
    file_order: bool = False
    #: Address of a Dask scheduler; None: this process makes the runs.
    scheduler: str | None = None
    #: fsspec URL of the files beside a PostgreSQL store.
    artefacts: str | None = None
    #: Inventory of the lab, for the physical backend.
    inventory: Path | None = None
