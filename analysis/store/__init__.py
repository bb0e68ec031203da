"""The results store: SQLite or PostgreSQL through SQLAlchemy, and artefacts named by run id."""

from analysis.store.database import RowDamaged, StoreDamaged, StoreError, StoreFailed, StorePlaceError
from analysis.store.landing import Landing
from analysis.store.location import exists, folder_of, is_url, shown
from analysis.store.store import Store

__all__ = [
    "Landing",
    "Store",
    "RowDamaged",
    "StoreDamaged",
    "StoreError",
    "StoreFailed",
    "StorePlaceError",
    "exists",
    "folder_of",
    "is_url",
    "shown",
]
