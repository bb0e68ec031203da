"""Screened runs, a row each."""

import sqlalchemy as sa
from alembic import op

revision = "0011_screened"
down_revision = "0010_checksums"


def upgrade() -> None:
    """Adds the table."""
    op.create_table(
        "screened",
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("metrics", sa.String, nullable=False),
        sa.Column("problems", sa.String, nullable=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
