"""The results store: SQLite or PostgreSQL through SQLAlchemy, and artefacts named by run id."""

from analysis.store.commit import PendingRun as PendingRun
from analysis.store.database import (
    RowDamaged as RowDamaged,
    StoreDamaged as StoreDamaged,
    StoreError as StoreError,
    StoreFailed as StoreFailed,
    StorePlaceError as StorePlaceError,
)
from analysis.store.location import exists as exists, folder_of as folder_of, is_url as is_url, shown as shown
from analysis.store.store import Store as Store
