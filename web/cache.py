"""What pages computed: kept until anybody writes to the store; or for good, where only landed runs went into it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, TypeVar

from flask import current_app

from analysis.store import Store, browse

T = TypeVar("T")
MOST = 256
#: Of what holds for good.
MOST_LASTING = 8192


class Cache:
    """Results by key; all of them go when the store has changed."""

    def __init__(self, store: Store) -> None:
        self._pulse = browse.Pulse(store)
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._age = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What was made under a key, made now if it is not there."""
        with self._lock:
            if self._pulse.changed():
                self._kept.clear()
                self._age += 1
            age = self._age
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make()
        with self._lock:
            # What was read before somebody wrote is not kept.
            if age == self._age:
                self._kept[key] = made
                while len(self._kept) > MOST:
                    self._kept.popitem(last=False)
        return made


class Lasting:
    """Results by a key that names all that went into them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, keys: Iterable[Hashable]) -> dict[Hashable, Any]:
        """Those that are there."""
        with self._lock:
            found = {key: self._kept[key] for key in keys if key in self._kept}
            for key in found:
                self._kept.move_to_end(key)
            return found

    def keep(self, results: Mapping[Hashable, Any]) -> None:
        """More of them."""
        with self._lock:
            self._kept |= results
            while len(self._kept) > MOST_LASTING:
                self._kept.popitem(last=False)


def lasting(keys: Collection[Hashable], make: Callable[[list[Hashable]], Mapping[Hashable, T]]) -> dict[Hashable, T]:
    """Results of which each holds for good; `make` makes all those that are missing at once."""
    cache: Lasting = current_app.extensions["lasting"]
    found: dict[Hashable, T] = cache.find(keys)
    missing = [key for key in keys if key not in found]
    if missing:
        made = make(missing)
        cache.keep(made)
        found |= made
    return found


def kept(key: Hashable, make: Callable[[], T]) -> T:
    """A result that holds until anybody writes to the store."""
    cache: Cache = current_app.extensions["cache"]
    found: T = cache.get(key, make)
    return found
