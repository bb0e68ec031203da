"""Requests of the site, the runners that take them up, and indices for pages over many runs."""

import sqlalchemy as sa
from alembic import op

revision = "0002_requests"
down_revision = "0001"


def upgrade() -> None:
    """Adds them."""
    op.create_index("run_state", "run", ["id", "state"])
    op.create_index("run_landed", "run", ["landed"])
    op.create_table(
        "request",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("file", sa.String, nullable=False),
        sa.Column("text", sa.String, nullable=False),
        sa.Column("overrides", sa.JSON, nullable=False),
        sa.Column("force", sa.Integer, nullable=False),
        sa.Column("campaign_id", sa.String),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("message", sa.String, nullable=False),
        sa.Column("asked", sa.Float, nullable=False),
        sa.Column("taken", sa.Float),
        sa.Column("finished", sa.Float),
        sa.Column("runner", sa.String),
    )
    op.create_index("request_state", "request", ["state"])
    op.create_index("request_campaign", "request", ["campaign_id"])
    op.create_table(
        "runner",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("started", sa.Float, nullable=False),
        sa.Column("seen", sa.Float, nullable=False),
        sa.Column("lacks", sa.JSON, nullable=False),
    )
