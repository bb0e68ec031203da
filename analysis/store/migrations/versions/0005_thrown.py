"""Throughput of attempts that were thrown away, so that they can be compared with the kept ones."""

import sqlalchemy as sa
from alembic import op

revision = "0005_thrown"
down_revision = "0004_names"


def upgrade() -> None:
    """Adds the column; earlier attempts have none."""
    op.add_column("attempt", sa.Column("throughput_bps", sa.Float))
