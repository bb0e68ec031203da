"""Notes and tags of runs."""

from __future__ import annotations

from analysis.store import Store, notes
from tests.unit.analysis.store.conftest import begin, pending_run


def test_a_note_is_kept_replaced_and_removed_and_outlives_its_run(store: Store) -> None:
    begin(store)
    assert notes.of_run(store, "r00") is None
    notes.write(store, "r00", "waits for no reason", ["odd", "look"])
    first = notes.of_run(store, "r00")
    assert first is not None
    assert (first.text, list(first.tags)) == ("waits for no reason", ["odd", "look"])
    notes.write(store, "r10", "", ["good"])
    assert set(notes.of_campaign(store, "c1")) == {"r00", "r10"}
    assert notes.of_campaign(store, "other") == {}
    store.commit_run(pending_run(store, "r00", 1e6))
    assert notes.of_run(store, "r00") == first
    notes.write(store, "r00", "a timeout", [])
    second = notes.of_run(store, "r00")
    assert second is not None
    assert (second.text, list(second.tags)) == ("a timeout", [])
    notes.write(store, "r00", "", [])
    assert notes.of_run(store, "r00") is None
    assert set(notes.of_campaign(store, "c1")) == {"r10"}


def test_a_note_has_at_most_2000_characters_and_12_tags_of_40(store: Store) -> None:
    tags = notes.tags_of("a, b  c\na," + " ".join(f"t{number}" for number in range(20)) + "")
    assert tags == ["a", "b", "c", *(f"t{number}" for number in range(9))]
    assert notes.tags_of(41 * "x") == [40 * "x"]
    notes.write(store, "r00", 2001 * "x", tags)
    written = notes.of_run(store, "r00")
    assert written is not None
    assert written.text == 2000 * "x"
