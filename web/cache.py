"""Caches of what pages compute: until somebody writes to the store, or for good if only landed runs enter a result."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from concurrent.futures import Future
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from cachetools import LRUCache
from flask import current_app, g

from analysis.store import Store
from analysis.store.pulse import Pulse

P = ParamSpec("P")
T = TypeVar("T")
#: Results of each cache.
MOST_CACHED, MOST_PERMANENT = 256, 8192
#: Bytes of what is made from runs' tables, over all runs. Each result counts for LEAST_BYTES at least.
MOST_BYTES, LEAST_BYTES = 500_000_000, 10_000_000

_derived: LRUCache[Hashable, tuple[Any, int]] = LRUCache(MOST_BYTES, getsizeof=lambda entry: entry[1])
_making: dict[Hashable, Future[Any]] = {}
_lock = threading.Lock()


class StoreCache:
    """Results by key; all are dropped when the store has changed."""

    def __init__(self, store: Store) -> None:
        self._pulse = Pulse(store)
        self._results: LRUCache[Hashable, Any] = LRUCache(MOST_CACHED)
        self._generation = 0
        self._lock = threading.Lock()

    def generation(self) -> int:
        """Another number after each change of the store."""
        with self._lock:
            return self._now()

    def _now(self) -> int:
        if self._pulse.changed():
            self._results.clear()
            self._generation += 1
        return self._generation

    def get(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """The result of a key, computed if it is missing."""
        with self._lock:
            generation = g.get("generation", self._now())
            if key in self._results:
                return self._results[key]
        result = compute()
        with self._lock:
            # A result that was read before somebody wrote is not stored, nor one of a request that began before.
            if generation == self._generation:
                self._results[key] = result
        return result


class PermanentCache:
    """Results by a key that names everything they depend on."""

    def __init__(self) -> None:
        self._results: LRUCache[Hashable, Any] = LRUCache(MOST_PERMANENT)
        self._lock = threading.Lock()

    def find(self, keys: Iterable[Hashable]) -> dict[Hashable, Any]:
        """The results that are there."""
        with self._lock:
            return {key: self._results[key] for key in keys if key in self._results}

    def store(self, results: Mapping[Hashable, Any]) -> None:
        """Adds results."""
        with self._lock:
            self._results.update(results)


def of_one_moment(view: Callable[P, T]) -> Callable[P, T]:
    """What a view reads is of one moment, and members of a campaign are read once for all of it."""

    @wraps(view)
    def shown(*args: P.args, **options: P.kwargs) -> T:
        g.generation = current_app.extensions["store_cache"].generation()
        with g.store.moment():
            return view(*args, **options)

    return shown


def cached(key: Hashable, compute: Callable[[], T]) -> T:
    """A result that holds until somebody writes to the store."""
    cache: StoreCache = current_app.extensions["store_cache"]
    result: T = cache.get(key, compute)
    return result


def permanent(
    keys: Collection[Hashable], compute: Callable[[list[Hashable]], Mapping[Hashable, T]]
) -> dict[Hashable, T]:
    """Results that hold for good; `compute` makes all that are missing at once."""
    cache: PermanentCache = current_app.extensions["permanent_cache"]
    values: dict[Hashable, T] = cache.find(keys)
    missing = [key for key in keys if key not in values]
    if missing:
        made = compute(missing)
        cache.store(made)
        values |= made
    return values


def derived(folder: Path, key: tuple[Any, ...], make: Callable[[], T], size: Callable[[T], int]) -> T:
    """What was made from the tables of a run's folder, made if it is missing.

    A landed run never changes; a run that was repeated has tables with another time. A request for something that is
    being made waits for it.
    """
    tables = [folder / name for name in ("segments.parquet", "counters.json")]
    dated = (str(folder), *key, *(path.stat().st_mtime_ns for path in tables if path.exists()))
    with _lock:
        if dated in _derived:
            value: T = _derived[dated][0]
            return value
        theirs = _making.get(dated)
        if theirs is None:
            mine = _making[dated] = Future()
    if theirs is not None:
        waited: T = theirs.result()
        return waited
    try:
        made = make()
    except BaseException as error:
        with _lock:
            del _making[dated]
        mine.set_exception(error)
        raise
    with _lock:
        # A value larger than the whole cache is computed again each time.
        if (bytes_ := max(size(made), LEAST_BYTES)) <= MOST_BYTES:
            _derived[dated] = made, bytes_
        del _making[dated]
    mine.set_result(made)
    return made
