"""Notes and tags that people give to runs."""

import sqlalchemy as sa
from alembic import op

revision = "0006_notes"
down_revision = "0005_thrown"


def upgrade() -> None:
    """Adds the table."""
    op.create_table(
        "note",
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("text", sa.String, nullable=False),
        sa.Column("tags", sa.JSON, nullable=False),
        sa.Column("changed", sa.Float, nullable=False),
    )
