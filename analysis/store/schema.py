"""Tables of the store. A change here needs a migration in `migrations/versions`; a test holds both together.

Values are in SI units (bit/s, s, bytes); times are seconds since the UNIX epoch.
"""

from __future__ import annotations

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
    UniqueConstraint,
)

metadata = MetaData()

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
    #: While it runs: {"pid", "updated", "cells": {cell: {"run", "phase"}}}.
    Column("progress", JSON, nullable=False),
)

point = Table(
    "point",
    metadata,
    Column("campaign_id", ForeignKey("campaign.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    #: Field to value as the file writes it, in the order of the sweep: [[field, value], ...].
    Column("parameters", JSON, nullable=False),
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
