"""What leaves: tables as CSV, Parquet and JSON, xplot and Flent files, and bundles of campaigns (docs/exports.md)."""

from analysis.exports import crate, flent, tables, xplot

__all__ = ["crate", "flent", "tables", "xplot"]
