"""The results store: SQLite or PostgreSQL through SQLAlchemy, and artefacts named by run id."""

from analysis.store.store import Landing, Store, StoreError, is_url

__all__ = ["Landing", "Store", "StoreError", "is_url"]
