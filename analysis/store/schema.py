"""Tables of the store, made from the rows of rows.py, which describe their columns.

A change there needs a migration in `migrations/versions`; a test holds both together.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.schema import SchemaItem

from analysis.store import rows

metadata = MetaData()
#: Columns of other types hold JSON.
_TYPES: dict[Any, Any] = {str: String, int: Integer, float: Float}


class Pairs(TypeDecorator[tuple[tuple[str, str], ...]]):
    """Pairs of texts, stored as JSON lists and read as tuples."""

    impl = JSON
    cache_ok = True

    def process_result_value(
        self, value: Sequence[Sequence[str]] | None, dialect: Any
    ) -> tuple[tuple[str, str], ...] | None:
        """Tuples in place of JSON's lists."""
        return None if value is None else tuple((first, second) for first, second in value)


def _table(
    name: str, row: type, keys: Sequence[str], *items: SchemaItem, without: Collection[str] = (), **types: Any
) -> Table:
    """A table with a column for each field of a row.

    Args:
        name: of the table.
        row: a dataclass. A field that may be None is a column that may be NULL.
        keys: columns of the primary key, in its order.
        items: indices, constraints, and columns that the row does not have.
        without: fields that are not columns.
        types: of columns that are not those of _TYPES, or foreign keys.
    """
    columns = [
        Column(field, types.get(field) or _type(hint), nullable=isinstance(hint, UnionType))
        for field, hint in get_type_hints(row).items()
        if field not in without
    ]
    return Table(name, metadata, *columns, *items, PrimaryKeyConstraint(*keys))


def _type(hint: Any) -> Any:
    parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return _TYPES.get(next(part for part in parts if part is not NoneType), JSON)


def _of(table: str) -> ForeignKey:
    return ForeignKey(f"{table}.id", ondelete="CASCADE")


def _sum(name: str = "checksum") -> Column[int]:
    """A checksum (checksums.py), or a sum of checksums."""
    # Rows that were there before the column had 0, and so have tables that a migration changed.
    return Column(name, BigInteger, nullable=False, server_default="0")


campaign = _table(
    "campaign", rows.CampaignRow, ["id"], _sum(), without=("runs", "valid", "invalid", "points"), seed=BigInteger
)
point = _table(
    "point",
    rows.PointRow,
    ["campaign_id", "number"],
    Column("campaign_id", _of("campaign")),
    without=["members"],
    parameters=Pairs,
)
#: A run belongs to every campaign that asks for it.
membership = _table(
    "membership",
    rows.MemberRow,
    ["campaign_id", "point", "repetition"],
    Column("campaign_id", _of("campaign")),
    Index("membership_run", "run_id"),
    without=("state", "problems", "landed"),
)
run = _table(
    "run",
    rows.RunRow,
    ["id"],
    Column("scenario", JSON, nullable=False),
    #: What reproduces it: versions, kernel, commit, settings, calibration, fidelity report.
    Column("manifest", JSON, nullable=False),
    # Counting valid runs reads these alone, not the rows with their long scenarios.
    Index("run_state", "id", "state"),
    Index("run_landed", "landed"),
    _sum("documents_sum"),
    _sum("metrics_sum"),
    _sum("files_sum"),
    _sum(),
    without=("documents", "metrics", "files", "attempts", "campaigns"),
    seed=BigInteger,
)
#: Campaigns that are archived or deleted (removal.py).
aside = _table("aside", rows.AsideRow, ["campaign_id"], campaign_id=_of("campaign"))
attempt = _table("attempt", rows.AttemptRow, ["id"], Index("attempt_run", "run_id"))
metric = _table("metric", rows.MetricRow, ["run_id", "name", "subject"], _sum(), run_id=_of("run"))
#: Runs that a runner is about to make or makes (claims.py).
claim = _table("claim", rows.ClaimRow, ["run_id"])
#: Metrics of a valid result whose place another has taken (`--force`): what a campaign said at an earlier date.
replaced = _table(
    "replaced",
    rows.LandedValueRow,
    ["run_id", "landed", "name", "subject"],
    #: When the other one landed.
    Column("until", Float, nullable=False),
    _sum(),
    without=("point", "repetition"),
    seed=BigInteger,
)
file = _table("file", rows.FileRow, ["id"], UniqueConstraint("run_id", "path"), run_id=_of("run"), bytes=BigInteger)
#: What a person asked for on the site; a runner (`./backchannel serve runner`) takes it up.
request = _table(
    "request", rows.RequestRow, ["id"], Index("request_state", "state"), Index("request_campaign", "campaign_id")
)
#: What people wrote about runs. No foreign key: a run that is repeated keeps its note.
note = _table("note", rows.NoteRow, ["run_id"])
#: Runners that are there, by host and process.
runner = _table("runner", rows.RunnerRow, ["id"])
#: Runs of searches. No foreign key: most of them are in no campaign.
screened = _table("screened", rows.ScreenedRow, ["run_id"], _sum())
