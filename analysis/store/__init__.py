"""The results store: SQLite through SQLAlchemy, and a folder of artefacts named by run id."""

from analysis.store.store import Landing, Store, StoreError

__all__ = ["Landing", "Store", "StoreError"]
