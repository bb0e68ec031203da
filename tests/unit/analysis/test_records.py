"""Records of runs: where they are, and what they say when they are damaged."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest

from analysis.errors import AnalysisError
from analysis.records import PACKED, PLAIN, read_records, record_file

SCHEMA = {"t_ns": pl.Int64}


def test_records_are_read_packed_and_plain(tmp_path: Path) -> None:
    assert record_file(tmp_path, "links") is None
    (tmp_path / f"links{PLAIN}").write_text('{"t_ns":1}\n')
    plain = record_file(tmp_path, "links")
    assert plain is not None
    assert read_records(plain, SCHEMA)["t_ns"].to_list() == [1]
    # The packed file is whole when the plain one goes.
    (tmp_path / f"links{PACKED}").write_bytes(gzip.compress(b'{"t_ns":1}\n{"t_ns":2}\n'))
    packed = record_file(tmp_path, "links")
    assert packed is not None
    assert packed.name == f"links{PACKED}"
    assert read_records(packed, SCHEMA)["t_ns"].to_list() == [1, 2]


@pytest.mark.parametrize("cut", [4, 30])
def test_packed_records_that_are_cut_are_not_half_a_table(tmp_path: Path, cut: int) -> None:
    file = tmp_path / f"links{PACKED}"
    file.write_bytes(gzip.compress(b"".join(b'{"t_ns":%d}\n' % (number * 7919) for number in range(200)))[:-cut])
    with pytest.raises(AnalysisError, match="cannot be read"):
        read_records(file, SCHEMA)
