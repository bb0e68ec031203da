"""Campaigns that nobody planned: runs collected under a name as they come (imports, sessions)."""

from __future__ import annotations

import fcntl
import hashlib

from analysis.store import Store
from analysis.store.rows import NewCampaign


def campaign_id(backend: str, name: str) -> str:
    """Id of a collection."""
    return hashlib.sha256(f"{backend} {name}".encode()).hexdigest()[:12]


def enter(store: Store, backend: str, name: str, title: str, parameter: tuple[str, str], run_id: str) -> None:
    """Adds a landed run to its collection: a point for each value of the parameter, a repetition for each run."""
    collection = campaign_id(backend, name)
    with (store.folder / "import.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = store.campaign(collection)
        points = [] if known is None else [list(point.parameters) for point in known.points]
        members = (
            []
            if known is None
            else [(point.number, m.repetition, m.run_id) for point in known.points for m in point.members]
        )
        wanted = [parameter]
        if wanted not in points:
            points.append(wanted)
        number = points.index(wanted)
        if all((at, of) != (number, run_id) for at, _, of in members):
            members.append((number, sum(at == number for at, _, _ in members), run_id))
        new = NewCampaign(
            id=collection, name=name, title=title, file="", text="", overrides={}, backend=backend, seed=0,
            repetitions=max(repetition for _, repetition, _ in members) + 1,
        )  # fmt: skip
        store.begin_campaign(new, points, members)
        store.end_campaign(collection, complete=True)
