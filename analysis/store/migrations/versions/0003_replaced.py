"""Values of results whose place others have taken, so that two dates of one campaign can be compared."""

import sqlalchemy as sa
from alembic import op

revision = "0003_replaced"
down_revision = "0002_requests"


def upgrade() -> None:
    """Adds them."""
    op.create_table(
        "replaced",
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("landed", sa.Float, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("subject", sa.String, primary_key=True),
        sa.Column("until", sa.Float, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("value", sa.Float, nullable=False),
        sa.Column("unit", sa.String, nullable=False),
    )
