"""Metrics have their names of 0.1.0 in stored values too."""

import sqlalchemy as sa
from alembic import op

revision = "0008_metric_names"
down_revision = "0007_claims"

RENAMED = {"commonest_gap_of_acks": "ack_gap_mode", "resent_per_loss": "retransmissions_per_loss"}


def upgrade() -> None:
    """Renames them. No run has a value under both names."""
    for table in ("metric", "replaced"):
        for before, today in RENAMED.items():
            update = sa.text(f"UPDATE {table} SET name = :today WHERE name = :before")
            op.get_bind().execute(update, {"today": today, "before": before})
