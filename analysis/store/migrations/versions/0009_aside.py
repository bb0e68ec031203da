"""Campaigns that are archived, or deleted and may still be restored."""

import sqlalchemy as sa
from alembic import op

revision = "0009_aside"
down_revision = "0008_metric_names"


def upgrade() -> None:
    """Adds the table."""
    op.create_table(
        "aside",
        sa.Column("campaign_id", sa.String, sa.ForeignKey("campaign.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("since", sa.Float, nullable=False),
    )
