"""Rows that carry results have checksums, computed here for those that are there."""

import sqlalchemy as sa
from alembic import op

from analysis.store import checksums

revision = "0010_checksums"
down_revision = "0009_aside"

COLUMNS = {
    "campaign": ("checksum",),
    "run": ("documents_sum", "metrics_sum", "files_sum", "checksum"),
    "metric": ("checksum",),
    "replaced": ("checksum",),
}


def upgrade() -> None:
    """Adds the columns, and computes them."""
    for table, names in COLUMNS.items():
        for name in names:
            op.add_column(table, sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    checksums.seal_all(op.get_bind())
