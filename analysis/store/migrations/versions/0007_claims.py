"""Which runner makes a run, where several share the store."""

import sqlalchemy as sa
from alembic import op

revision = "0007_claims"
down_revision = "0006_notes"


def upgrade() -> None:
    """Adds the table."""
    op.create_table(
        "claim",
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("seen", sa.Float, nullable=False),
    )
