"""Rows of a store that a test changes, with right checksums."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from analysis.store import Store, checksums


@contextmanager
def rewriting(store: Store) -> Iterator[sa.Connection]:
    """A transaction, at whose end every row has the checksum of its values."""
    with store.writing() as connection:
        yield connection
        checksums.seal_all(connection)
