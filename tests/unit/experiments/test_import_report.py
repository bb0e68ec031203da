"""What the terminal says of an import, where there is one of each thing and where there are several."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.store.documents import ImportDescription, ImportedFile
from experiments.import_report import LINES, lines
from experiments.importing import Imported


def file(count: int) -> ImportedFile:
    return ImportedFile.read(
        {
            **{"label": "a", "path": "a.pcap", "sha256": "", "format": "pcap", "read_by": "backchannel", "clock": ""},
            **{"packets": count, "not_tcp": 0, "connections_total": count, "connections_given_up": count},
            **{"unreadable": count, "unfinished_fragments": count, "dropped_by_capture": count, "damages": 5 + count},
            "link_types": [{"link_type": 7, "packets": count, "known": False}],
            "damage": [{"offset": 24, "bytes": count, "reason": "no packet"}],
        }
    )


def said(count: int) -> list[str]:
    description = ImportDescription(
        label="a", note="", files=(file(count),), flows_left_out=count, packets_left_out=count
    )
    flows: Any = [SimpleNamespace(name=f"f{number}", kind="bulk") for number in range(LINES + count)]
    run: Any = SimpleNamespace(metrics=[])
    return lines(Imported("1", "2", False, description, flows), run)[1:]


@pytest.mark.parametrize(("count", "s"), [(1, ""), (2, "s")])
def test_nouns_have_their_number(count: int, s: str) -> None:
    counted = rf"\b{count} (?:more |smaller )?(?:packet|connection|byte|place|flow)(s?)\b"
    assert re.findall(counted, "\n".join(said(count))) == [s] * 12
