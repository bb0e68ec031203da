"""Campaigns that nobody planned: runs collected under a name as they come (imports, sessions)."""

from __future__ import annotations

import hashlib

from analysis.store import Store
from analysis.store.rows import NewCampaign


def campaign_id(backend: str, name: str) -> str:
    """Id of a collection."""
    return hashlib.sha256(f"{backend} {name}".encode()).hexdigest()[:12]


def enter(store: Store, backend: str, name: str, title: str, parameter: tuple[str, str], run_id: str) -> None:
    """Adds a landed run to its collection: a point for each value of the parameter, a repetition for each run."""
    new = NewCampaign(
        id=campaign_id(backend, name),
        name=name,
        title=title,
        file="",
        text="",
        overrides={},
        backend=backend,
        seed=0,
        repetitions=1,
    )
    store.add_member(new, [parameter], run_id)
