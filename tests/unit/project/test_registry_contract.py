"""What Rust declares and Python repeats must agree: scenario, reports, telemetry, segment classes and event kinds.

The export is `backchannel-node registry`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import polars as pl
import pytest

import testbed.report
from analysis import counters, exchange_kinds
from analysis.captures import segments
from analysis.metrics import calls, video
from experiments.language import registry as registry_
from testbed import exchanges as joining, node_binary
from testbed.documents import Model
from testbed.load import source_rate_bps
from testbed.scenario import Flow
from tests import node_types

Json = dict[str, Any]

KINDS = {str: "string", bool: "boolean", int: "integer", float: "number"}
#: Fields that some writers of a report leave out: their defaults hold.
NOT_WRITTEN = {
    "FlowSideReport": {"lateness_s", "qlogs", "started_late_s"},
    "SendReport": {"lateness_s", "retransmitted", "fast_retransmits"},
    "ReceiveReport": {"lateness_s"},
}
POLARS = {"integer": pl.Int64, "number": pl.Float64, "string": pl.String, "boolean": pl.Boolean}


@cache
def registry() -> Json:
    result = node_binary.call("registry")
    assert isinstance(result, dict)
    return result


def definitions(schema: Json) -> dict[str, Json]:
    """The objects of a schema by name, with the schema itself."""
    parts = {**schema.get("$defs", {}), schema["title"]: schema}
    return {name: part for name, part in parts.items() if "properties" in part}


def kind(schema: Json, part: Json) -> Any:
    """The type of a property without nullability, in a form that both generators' schemas have in common."""
    if "$ref" in part:
        name = part["$ref"].rsplit("/", 1)[1]
        target = schema["$defs"][name]
        return ("object", name) if "properties" in target else kind(schema, target)
    if "oneOf" in part:
        return ("one of", tuple(sorted(choice["const"] for choice in part["oneOf"])))
    if "enum" in part:
        return ("one of", tuple(sorted(part["enum"])))
    if "anyOf" in part:
        kinds = {kind(schema, choice) for choice in part["anyOf"] if choice.get("type") != "null"}
        return "number" if kinds == {"integer", "number"} else kinds.pop() if len(kinds) == 1 else frozenset(kinds)
    types = part["type"] if isinstance(part["type"], list) else [part["type"]]
    (only,) = set(types) - {"null"}
    return ("array", kind(schema, part["items"])) if only == "array" else only


def nullable(part: Json) -> bool:
    """Whether a property may be null."""
    choices = part.get("anyOf", [part])
    return any("null" in (choice["type"] if isinstance(choice["type"], list) else [choice["type"]])
               for choice in choices if "type" in choice)  # fmt: skip


def python_kind(hint: Any) -> Any:
    """The same of a field of a type."""
    choices = [choice for choice in get_args(hint) if choice is not NoneType] if isinstance(hint, UnionType) else [hint]
    (only,) = choices
    if isinstance(only, type) and issubclass(only, Model):
        return ("object", only.__name__)
    origin = get_origin(only)
    if origin is Sequence:
        return ("array", *(KINDS[item] for item in get_args(only)))
    return "object" if origin is not None and issubclass(origin, Mapping) else KINDS[only]


def test_types_are_made_from_those_of_the_node() -> None:
    assert node_types.FILE.read_text() == node_types.source(), "python -m tests.node_types --update renews them"


@pytest.mark.parametrize(
    ("model", "report", "definition"),
    [
        ("DirectionReport", "emulation", "DirectionReport"),
        ("CaptureReport", "simulation", "CaptureReport"),
        ("SendReport", "simulation", "FlowSideReport"),
        ("ReceiveReport", "simulation", "FlowSideReport"),
        ("SendReport", "load-send", "LoadSendReport"),
        ("ReceiveReport", "load-receive", "LoadReceiveReport"),
    ],
)
def test_reports_are_read_by_the_names_and_types_that_programs_write(model: str, report: str, definition: str) -> None:
    rust = registry()["report"][report]
    hints = get_type_hints(getattr(testbed.report, model))
    written = definitions(rust)[definition]["properties"]
    for field in getattr(testbed.report, model).field_names():
        hint = hints[field]
        if field in NOT_WRITTEN.get(definition, ()):
            assert field not in written, f"{definition} has {model}.{field}"
            continue
        assert field in written, f"{model}.{field} is not in the report"
        assert NoneType in get_args(hint) or not nullable(written[field]), f"{model}.{field} may be null"
        expected, result = kind(rust, written[field]), python_kind(hint)
        # Python may accept more: the kernel's shapers report fractions where the emulator counts.
        assert result == expected or (result, expected) == ("number", "integer"), f"{model}.{field}"


def test_counters_are_read_by_the_names_that_the_simulator_writes() -> None:
    written = definitions(registry()["report"]["counters"])
    for read, definition in ((counters.LineBins, "DirectionCounters"), (counters.FlowBins, "FlowCounters")):
        names = {name: get_origin(hint) is list for name, hint in get_type_hints(read).items()}
        properties = written[definition]["properties"]
        assert names == {name: kind({}, part)[0] == "array" for name, part in properties.items()}


def workload_options(name: str) -> dict[str, Json]:
    (entry,) = [entry for entry in registry()["workloads"] if entry["name"] == name]
    return {param["name"]: param for param in entry["params"]}


def test_calls_are_rated_with_the_defaults_and_codecs_that_loads_use() -> None:
    options = workload_options("call")
    assert options["frame_s"]["default"] == calls.DEFAULT_FRAME_S
    assert options["buffer_s"]["default"] == calls.DEFAULT_BUFFER_S
    assert sorted(options["codec"]["choices"]) == sorted(calls.CODECS)


def test_videos_are_measured_with_the_defaults_that_loads_use() -> None:
    defaults = {name: option["default"] for name, option in workload_options("video").items()}
    assert defaults["buffer_s"] == video.DEFAULT_BUFFER_S
    assert defaults["key_frame_every"] == video.DEFAULT_KEY_FRAME_EVERY
    assert defaults["frames_per_s"] == video.DEFAULT_FRAMES_PER_S
    flow = Flow.read({"name": "v", "kind": "video", "from": "a", "to": "b", "port": 1})
    headers = 40
    packets_per_s = defaults["rate_bps"] / 8 / (defaults["packet_bytes"] - headers) + defaults["frames_per_s"]
    assert source_rate_bps(flow) == pytest.approx(defaults["rate_bps"] + packets_per_s * 8 * headers)


@pytest.mark.parametrize(
    ("line", "declared"),
    [(joining.Exchange, "exchange"), (joining.SentLine, "exchange_sent"), (joining.ArrivalLine, "exchange_arrival")],
)
def test_lines_of_exchanges_have_the_declared_fields(line: type, declared: str) -> None:
    assert set(get_type_hints(line)) == set(registry()["telemetry"][declared]["properties"])


def test_packets_have_room_as_both_languages_check_it() -> None:
    limits = registry_.packet_limits()
    assert limits.datagram_headers == exchange_kinds.UDP_HEADERS
    assert limits.stack_least[6] - limits.stack_least[4] == 20
    # The range of the option is that of the version with the shorter header.
    (stack,) = [entry for entry in registry()["stacks"] if entry["name"] == "sack"]
    (packet,) = [param for param in stack["params"] if param["name"] == "packet_bytes"]
    assert packet["min"] == limits.stack_least[4]
    assert workload_options("probe")["packet_bytes"]["min"] == limits.numbered_least == limits.datagram_headers[6] + 8


def test_no_two_options_of_a_mechanism_have_the_same_name_without_their_units() -> None:
    for entry in registry_.entries():
        names = [param.short for param in entry.params]
        assert len(names) == len(set(names)), f"{entry.kind} {entry.name}: {sorted(names)}"


def test_segment_classes_have_the_same_bits() -> None:
    bits = {entry["name"]: entry["bit"] for entry in registry()["segment_classes"]}
    ours = {name: value for name, value in vars(segments).items() if name.isupper() and type(value) is int}
    assert "RETRANSMISSION" in ours
    assert {name: bits.get(name) for name in ours} == ours


def test_telemetry_is_read_by_the_columns_that_drivers_write() -> None:
    columns: dict[str, set[Any]] = {}
    for table, schema in registry()["telemetry"].items():
        for column, part in schema["properties"].items():
            result = kind(schema, part)
            name = POLARS["string" if isinstance(result, tuple) and result[0] == "one of" else result]
            # tcp_info counts segments in integers; Polars reads them as the floats of the research stack.
            exact = table != "kernel_flow" or column not in segments.FLOW_TELEMETRY
            columns.setdefault(column, set()).add(name if exact else segments.FLOW_TELEMETRY[column])
            assert ("unit" in part) == (name in (pl.Int64, pl.Float64)), f"{table}.{column}"
    for column, dtype in {**segments.LINK_TELEMETRY, **segments.FLOW_TELEMETRY}.items():
        assert columns.get(column) == {dtype}, column


def test_events_are_read_by_the_names_that_drivers_write() -> None:
    kinds = {entry["name"] for entries in registry()["event_kinds"].values() for entry in entries}
    looks_like_one = re.compile(r'"((?:dropped|marked|link|coarse|corruption)_[a-z_]+|purged|tossed)"')
    wrong: list[str] = []
    seen: set[str] = set()
    for folder in ("analysis", "web", "testbed"):
        for path in sorted((node_binary.ROOT / folder).rglob("*.py")):
            for word in looks_like_one.findall(path.read_text()):
                seen.add(word)
                is_event = word.startswith(("dropped_", "marked_", "purged", "tossed"))
                if is_event and word not in kinds and word not in segments.LINK_TELEMETRY:
                    wrong.append(f"{path}: {word}")
    assert not wrong
    assert {"dropped_full", "purged"} <= seen
