"""Whether a store is what was stored: the database, and every file of its runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis.store import Store, StoreError, damage


@dataclass(frozen=True)
class Finding:
    """Something that is not what was stored."""

    #: Empty: the database itself.
    run_id: str
    #: What is wrong, for people.
    reason: str

    def __str__(self) -> str:
        return f"run {self.run_id}: {self.reason}" if self.run_id else self.reason


@dataclass(frozen=True)
class Verified:
    """What was looked at, and what was found."""

    runs: int
    files: int
    bytes: int
    findings: Sequence[Finding]

    @property
    def damaged_runs(self) -> list[str]:
        """Ids of the runs that are not what was stored."""
        return list(dict.fromkeys(finding.run_id for finding in self.findings if finding.run_id))


def verify(store: Store, run_ids: Sequence[str], progress: Callable[[int], None] = lambda done: None) -> Verified:
    """Looks at the database and reads every file of these runs.

    Args:
        store: that is looked at.
        run_ids: of the runs; the database is looked at as a whole.
        progress: called with the number of runs so far.
    """
    findings = [Finding("", f"the database: {said}") for said in store.integrity()]
    files = size = 0
    for done, run_id in enumerate(run_ids):
        try:
            row = store.run(run_id)
            if row is None:
                continue
            files += len(row.files)
            size += sum(file.bytes for file in row.files)
            findings += [Finding(run_id, reason) for reason in damage.differing(store.folder_of_run(run_id), row.files)]
        except (StoreError, ValueError, TypeError) as error:
            findings.append(Finding(run_id, f"its row cannot be read: {error}"))
        progress(done + 1)
    return Verified(len(run_ids), files, size, findings)
