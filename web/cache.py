"""What pages computed, kept until anybody writes to the store."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from flask import current_app, g

from analysis.store import Store, browse

T = TypeVar("T")
MOST = 64


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


def kept(key: Hashable, make: Callable[[], T]) -> T:
    """A result that holds until anybody writes to the store."""
    cache: Cache | None = current_app.extensions.get("cache")
    if cache is None:
        cache = current_app.extensions["cache"] = Cache(g.store)
    found: T = cache.get(key, make)
    return found
