"""Which runs of a batch are this runner's to make, where several runners share a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from analysis.store import Store
from analysis.store.claims import Claims

#: Runs that are claimed at once, per job that the machines hold: other runners find work until shortly before the end.
CLAIMED_PER_JOB = 2


class Claiming:
    """The claims of a batch.

    Args:
        store: of the batch.
        exempt: runs that every runner makes: `--force` asks each of them for a new result.
    """

    def __init__(self, store: Store, exempt: Iterable[str]) -> None:
        self._store = store
        self._claims = Claims(store)
        self._exempt = frozenset(exempt)
        #: Claimed and not ended.
        self._mine: set[str] = set()
        self._ended: set[str] = set()

    def is_mine(self, run_id: str, following: Iterable[str], jobs: int) -> bool:
        """Whether this runner makes a run; else another one makes it or has made it.

        Args:
            run_id: the next run.
            following: those after it, which are claimed together with it.
            jobs: number of jobs that the machines hold.
        """
        if run_id in self._mine or run_id in self._exempt:
            return True
        wanted = [run_id, *(other for other in islice(following, CLAIMED_PER_JOB * jobs) if other not in self._exempt)]
        claimed = self._claims.take(wanted)
        # A run lands before its claim is released, so that a claim and no result mean that nobody has made it.
        made = self._store.valid_runs(list(claimed))
        self._ended |= made
        self._mine |= claimed - made
        return run_id in self._mine

    def ended(self, run_id: str) -> None:
        """A run has ended, with or without a result."""
        if run_id in self._mine:
            self._mine.discard(run_id)
            self._ended.add(run_id)

    def renew(self) -> None:
        """Keeps the claims on what has not ended."""
        ended, self._ended = self._ended, set()
        self._claims.renew(ended)

    def settled(self, elsewhere: Sequence[str]) -> tuple[set[str], set[str]]:
        """Of runs that were not this runner's: those that have a result now, and those that are free again."""
        # In this order: a run that lands in between is held, and seen the next time.
        held = self._claims.held(elsewhere)
        made = self._store.valid_runs(elsewhere)
        return made, set(elsewhere) - held - made

    def release(self) -> None:
        """Gives up all claims."""
        self._claims.release()
