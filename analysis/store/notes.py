"""Notes and tags that people give to runs on the site. A note stays when its run's result is replaced."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Sequence

import sqlalchemy as sa

from analysis.store.rows import NoteRow
from analysis.store.schema import membership, note, run
from analysis.store.store import Store

#: Limits of a note.
MOST_CHARACTERS, MOST_TAGS, TAG_CHARACTERS = 2000, 12, 40


def tags_of(text: str) -> list[str]:
    """The tags that a person wrote, separated by spaces or commas, each once; longer ones are cut."""
    words = (word[:TAG_CHARACTERS] for word in re.split(r"[\s,]+", text) if word)
    return list(dict.fromkeys(words))[:MOST_TAGS]


def write(store: Store, run_id: str, text: str, tags: Sequence[str]) -> None:
    """Replaces the note of a run; without text and tags, the run has none."""
    values = {"run_id": run_id, "text": text[:MOST_CHARACTERS], "tags": list(tags), "changed": time.time()}
    with store.writing() as connection:
        connection.execute(sa.delete(note).where(note.c.run_id == run_id))
        if text or tags:
            connection.execute(sa.insert(note).values(values))


def of_run(store: Store, run_id: str) -> NoteRow | None:
    """The note of a run."""
    rows = store.read(sa.select(note).where(note.c.run_id == run_id), NoteRow)
    return rows[0] if rows else None


def with_words(store: Store, words: Sequence[str], limit: int) -> list[NoteRow]:
    """Notes of runs in the store whose text or tags have all words, in lower case; the latest first."""
    text = sa.func.lower(note.c.text + " " + sa.cast(note.c.tags, sa.Text))
    query = sa.select(note).join(run, run.c.id == note.c.run_id)
    for word in words:
        query = query.where(text.contains(word, autoescape=True))
    return store.read(query.order_by(note.c.changed.desc()).limit(limit), NoteRow)


def of_campaign(store: Store, campaign_id: str) -> dict[str, NoteRow]:
    """The notes of a campaign's runs, by run."""
    mine = sa.select(membership.c.run_id).where(membership.c.campaign_id == campaign_id)
    return {row.run_id: row for row in store.read(sa.select(note).where(note.c.run_id.in_(mine)), NoteRow)}


def copy(source: Store, target: Store, campaign_id: str) -> None:
    """Gives runs of a campaign in `target` the notes that they have in `source`; a note that is there stays."""
    there = of_campaign(target, campaign_id)
    missing = [
        dataclasses.asdict(row) for run_id, row in of_campaign(source, campaign_id).items() if run_id not in there
    ]
    if missing:
        with target.writing() as connection:
            connection.execute(sa.insert(note), missing)
