"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Creates them."""
    op.create_table(
        "campaign",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("title", sa.String, nullable=False),
        sa.Column("file", sa.String, nullable=False),
        sa.Column("text", sa.String, nullable=False),
        sa.Column("overrides", sa.JSON, nullable=False),
        sa.Column("backend", sa.String, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("repetitions", sa.Integer, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("started", sa.Float, nullable=False),
        sa.Column("finished", sa.Float),
        sa.Column("progress", sa.JSON, nullable=False),
    )
    op.create_table(
        "point",
        sa.Column("campaign_id", sa.String, sa.ForeignKey("campaign.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("parameters", sa.JSON, nullable=False),
    )
    op.create_table(
        "membership",
        sa.Column("campaign_id", sa.String, sa.ForeignKey("campaign.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("point", sa.Integer, primary_key=True),
        sa.Column("repetition", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.String, nullable=False),
    )
    op.create_index("membership_run", "membership", ["run_id"])
    op.create_table(
        "run",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("backend", sa.String, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("duration_s", sa.Float, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("problems", sa.JSON, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("landed", sa.Float, nullable=False),
        sa.Column("scenario", sa.JSON, nullable=False),
        sa.Column("manifest", sa.JSON, nullable=False),
    )
    op.create_table(
        "attempt",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.String, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("outcome", sa.String, nullable=False),
        sa.Column("problems", sa.JSON, nullable=False),
    )
    op.create_index("attempt_run", "attempt", ["run_id"])
    op.create_table(
        "metric",
        sa.Column("run_id", sa.String, sa.ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("subject", sa.String, primary_key=True),
        sa.Column("value", sa.Float, nullable=False),
        sa.Column("unit", sa.String, nullable=False),
    )
    op.create_table(
        "file",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.String, sa.ForeignKey("run.id", ondelete="CASCADE"), nullable=False),
        sa.Column("path", sa.String, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.String, nullable=False),
        sa.UniqueConstraint("run_id", "path"),
    )
