"""Tables of the store. A change here needs a migration in `migrations/versions`; a test holds both together.

Values are in SI units (bit/s, s, bytes); times are seconds since the UNIX epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    TypeDecorator,
    UniqueConstraint,
)

metadata = MetaData()


class Pairs(TypeDecorator[tuple[tuple[str, str], ...]]):
    """Pairs of texts, stored as JSON lists and read as tuples."""

    impl = JSON
    cache_ok = True

    def process_result_value(
        self, value: Sequence[Sequence[str]] | None, dialect: Any
    ) -> tuple[tuple[str, str], ...] | None:
        """Tuples in place of JSON's lists."""
        return None if value is None else tuple((first, second) for first, second in value)


campaign = Table(
    "campaign",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("title", String, nullable=False),
    #: The file's text and the overrides of the command line: what a person would run again.
    Column("file", String, nullable=False),
    Column("text", String, nullable=False),
    Column("overrides", JSON, nullable=False),
    Column("backend", String, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("repetitions", Integer, nullable=False),
    #: running, complete, incomplete.
    Column("state", String, nullable=False),
    Column("started", Float, nullable=False),
    Column("finished", Float),
    #: A ProgressRow (rows.py).
    Column("progress", JSON, nullable=False),
)

point = Table(
    "point",
    metadata,
    Column("campaign_id", ForeignKey("campaign.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    #: Field to value as the file writes it, in the order of the sweep: [[field, value], ...].
    Column("parameters", Pairs, nullable=False),
)

#: A run belongs to every campaign that asks for it.
membership = Table(
    "membership",
    metadata,
    Column("campaign_id", ForeignKey("campaign.id", ondelete="CASCADE"), primary_key=True),
    Column("point", Integer, primary_key=True),
    Column("repetition", Integer, primary_key=True),
    Column("run_id", String, nullable=False),
    Index("membership_run", "run_id"),
)

run = Table(
    "run",
    metadata,
    Column("id", String, primary_key=True),
    Column("backend", String, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("duration_s", Float, nullable=False),
    #: valid or invalid.
    Column("state", String, nullable=False),
    Column("problems", JSON, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("landed", Float, nullable=False),
    Column("scenario", JSON, nullable=False),
    #: What reproduces it: versions, kernel, commit, settings, calibration, fidelity report.
    Column("manifest", JSON, nullable=False),
    # Counting a campaign's valid runs reads these alone, not the rows with their long scenarios.
    Index("run_state", "id", "state"),
    Index("run_landed", "landed"),
)

#: Every try of a run that did not become its valid result.
attempt = Table(
    "attempt",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", String, nullable=False),
    Column("number", Integer, nullable=False),
    Column("at", Float, nullable=False),
    #: invalid or failed.
    Column("outcome", String, nullable=False),
    Column("problems", JSON, nullable=False),
    #: Aggregate throughput in bit/s; NULL where nothing was measured.
    Column("throughput_bps", Float),
    Index("attempt_run", "run_id"),
)

metric = Table(
    "metric",
    metadata,
    Column("run_id", ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String, primary_key=True),
    #: A flow's name; empty for the whole run.
    Column("subject", String, primary_key=True),
    Column("value", Float, nullable=False),
    Column("unit", String, nullable=False),
)

#: Runs that a runner is about to make or makes (claims.py).
claim = Table(
    "claim",
    metadata,
    Column("run_id", String, primary_key=True),
    #: Token of the runner's open store.
    Column("owner", String, nullable=False),
    #: When the runner renewed it last.
    Column("seen", Float, nullable=False),
)

#: Metrics of a valid result whose place another has taken (`--force`): what a campaign said at an earlier date.
replaced = Table(
    "replaced",
    metadata,
    Column("run_id", String, primary_key=True),
    Column("landed", Float, primary_key=True),
    Column("name", String, primary_key=True),
    Column("subject", String, primary_key=True),
    #: When the other one landed.
    Column("until", Float, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("value", Float, nullable=False),
    Column("unit", String, nullable=False),
)

file = Table(
    "file",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey("run.id", ondelete="CASCADE"), nullable=False),
    #: Below the run's folder.
    Column("path", String, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("sha256", String, nullable=False),
    UniqueConstraint("run_id", "path"),
)

#: What a person asked for on the site; a runner (`./backchannel runner`) takes it up.
request = Table(
    "request",
    metadata,
    Column("id", Integer, primary_key=True),
    #: run, or cancel: that the campaign under way stops.
    Column("kind", String, nullable=False),
    #: Of a run: the campaign file's name and text, the overrides as `--set` takes them, and whether to run all again.
    Column("file", String, nullable=False),
    Column("text", String, nullable=False),
    Column("overrides", JSON, nullable=False),
    Column("force", Integer, nullable=False),
    #: Known once it was taken up; of a cancel, from the beginning.
    Column("campaign_id", String),
    #: waiting, running, done, failed, withdrawn.
    Column("state", String, nullable=False),
    #: Why it failed, in words; how a run ended.
    Column("message", String, nullable=False),
    Column("asked", Float, nullable=False),
    Column("taken", Float),
    Column("finished", Float),
    #: The runner that took it.
    Column("runner", String),
    Index("request_state", "state"),
    Index("request_campaign", "campaign_id"),
)

#: What people wrote about runs. No foreign key: a run that is repeated keeps its note.
note = Table(
    "note",
    metadata,
    Column("run_id", String, primary_key=True),
    Column("text", String, nullable=False),
    #: Words.
    Column("tags", JSON, nullable=False),
    Column("changed", Float, nullable=False),
)

#: Runners that are there, by host and process.
runner = Table(
    "runner",
    metadata,
    Column("id", String, primary_key=True),
    Column("started", Float, nullable=False),
    #: Written every few seconds; one that is older has gone without a word.
    Column("seen", Float, nullable=False),
    #: Why it cannot run emulated campaigns; empty: it can.
    Column("lacks", JSON, nullable=False),
)
