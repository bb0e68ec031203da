"""One action on many nodes or hosts at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any


def on_each(pool: Executor, names: Iterable[str], action: Callable[[str], Any]) -> dict[str, Any]:
    """What an action gives for each name. The first failure is raised when all have ended."""
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
