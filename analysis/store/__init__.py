"""The results store: SQLite or PostgreSQL through SQLAlchemy, and artefacts named by run id."""

from analysis.store.database import StoreError
from analysis.store.store import Landing, Store, is_url

__all__ = ["Landing", "Store", "StoreError", "is_url"]
