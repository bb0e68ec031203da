"""One action on many nodes or hosts at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import TypeVar

T = TypeVar("T")


def map_concurrently(pool: Executor, names: Iterable[str], action: Callable[[str], T]) -> dict[str, T]:
    """The action's result for each name. Raises the first failure after all actions have ended."""
    jobs = {name: pool.submit(action, name) for name in names}
    failure: BaseException | None = None
    results = {}
    for name, job in jobs.items():
        try:
            results[name] = job.result()
        except BaseException as error:  # noqa: BLE001 (raised below)
            failure = failure or error
    if failure is not None:
        raise failure
    return results
