"""Whether a store is what was stored: the database, and every file of its runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from analysis.store import RowDamaged, Store, StoreError, damage


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
    findings = [*damaged_rows(store)]
    files = size = 0
    for done, run_id in enumerate(run_ids):
        try:
            row = store.run(run_id)
            if row is None:
                continue
            files += len(row.files)
            size += sum(file.bytes for file in row.files)
            findings += [Finding(run_id, reason) for reason in damage.differing(store.folder_of_run(run_id), row.files)]
        except StoreError as error:
            findings.append(Finding(run_id, error.reason if isinstance(error, RowDamaged) else str(error)))
        progress(done + 1)
    return Verified(len(run_ids), files, size, list(dict.fromkeys(findings)))


def damaged_rows(store: Store) -> Iterator[Finding]:
    """What is wrong with the database: its form, and the rows of campaigns and of their runs."""
    try:
        yield from (Finding("", f"the database: {said}") for said in store.integrity())
        campaign_ids = store.campaign_ids()
    except StoreError as error:
        yield Finding("", str(error))
        return
    for campaign_id in campaign_ids:
        try:
            store.campaign_head(campaign_id)
            store.values(campaign_id)
        except RowDamaged as error:
            yield Finding(error.run_id, error.reason)
        except StoreError as error:
            yield Finding("", f"campaign {campaign_id}: {error}")


def commands_to_repeat(store: Store, run_ids: Sequence[str], results: str) -> list[str]:
    """Commands that repeat damaged runs: one for each campaign file that asks for some.

    Args:
        store: that was verified.
        run_ids: of the damaged runs.
        results: name of the store, for `--results`.
    """
    commands: dict[tuple[str, ...], list[str]] = {}
    try:
        askers = store.askers(run_ids)
    except (StoreError, TypeError, ValueError):
        # The rows that would say so are damaged too.
        return []
    for run_id, (file, overrides) in askers.items():
        sets = [f"--set={field}={value}" for field, value in overrides.items()]
        command = ("./backchannel", "run", file, *sets, "--results", results, "--force")
        commands.setdefault(command, []).append(f"--only={run_id}")
    return sorted(shlex.join([*command, *of_runs]) for command, of_runs in commands.items())
