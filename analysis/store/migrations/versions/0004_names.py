"""One name for each metric: those of runs from counters become those of runs from captures.

Lines were called LINK:forward as well as LINK/forward. Where a run has a value under both names, the one from captures
stays.
"""

import re

import sqlalchemy as sa
from alembic import op

revision = "0004_names"
down_revision = "0003_replaced"

RENAMED = {
    "active_aggregate_throughput": "active_total_packet_throughput",
    "cwnd_coefficient_of_variation": "cwnd_variation",
    "rtt_stddev": "rtt_sd",
    "share_acks": "ack_fraction",
    "share_data": "data_fraction",
    "utilisation_acks": "ack_share",
    "utilisation_data": "data_share",
}
UNITS = {
    "ack_packet_size": "bytes",
    "cwnd_mean": "segments",
    "data_packet_size": "bytes",
    "longest_ack_drop_run": "count",
    "queue_mean": "packets",
}
#: Table and the columns that identify a result in it.
TABLES = {"metric": ("run_id",), "replaced": ("run_id", "landed")}


def upgrade() -> None:
    """Renames metrics and subjects in stored values."""
    for table, keys in TABLES.items():
        pairs = op.get_bind().execute(sa.text(f"SELECT DISTINCT name, subject FROM {table}")).all()
        for name, subject in pairs:
            today = (RENAMED.get(name, name), re.sub(r"^([\w-]+):(forward|reverse)$", r"\1/\2", subject))
            if today != (name, subject):
                _rename(table, keys, (name, subject), today)
        for name, unit in UNITS.items():
            update = sa.text(f"UPDATE {table} SET unit = :unit WHERE name = :name")
            op.get_bind().execute(update, {"unit": unit, "name": name})


def _rename(table: str, keys: tuple[str, ...], before: tuple[str, str], today: tuple[str, str]) -> None:
    words = {"name": before[0], "subject": before[1], "new_name": today[0], "new_subject": today[1]}
    same = " AND ".join(f"other.{key} = {table}.{key}" for key in keys)
    renamed_before = (
        f"SELECT 1 FROM {table} AS other WHERE {same} AND other.name = :new_name AND other.subject = :new_subject"
    )
    where = "name = :name AND subject = :subject"
    op.get_bind().execute(sa.text(f"DELETE FROM {table} WHERE {where} AND EXISTS ({renamed_before})"), words)
    op.get_bind().execute(sa.text(f"UPDATE {table} SET name = :new_name, subject = :new_subject WHERE {where}"), words)
