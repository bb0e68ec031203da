"""What became of an import: JSON for scripts, lines for people."""

from __future__ import annotations

from typing import Any

from analysis.store.documents import ImportedFile
from analysis.store.rows import RunRow
from experiments import found_datagrams
from experiments.importing import Imported
from testbed import units
from testbed.units import number_of


def document(imported: Imported, run: RunRow) -> dict[str, Any]:
    """An import for scripts, in SI units."""
    return {
        "run": imported.run_id,
        "campaign": imported.campaign_id,
        "known": imported.known,
        **imported.description.as_json(),
        "flows": [flow.as_json() for flow in imported.flows],
        "metrics": [{key: getattr(row, key) for key in ("name", "subject", "value", "unit")} for row in run.metrics],
    }


def lines(imported: Imported, run: RunRow) -> list[str]:
    """An import for people."""
    description = imported.description
    texts = [f"run {imported.run_id}{', which was here already' if imported.known else ''}: {description.label}"]
    for file in description.files:
        by = "" if file.read_by == "backchannel" else f", read by {file.read_by}"
        packets = f"{number_of(file.packets, 'packet')}, {file.packets - file.not_tcp} of TCP"
        texts.append(
            f"  {file.label}: {file.format}{by}, {number_of(file.packets, 'event') if description.logs else packets}, "
            f"{number_of(file.connections_total, 'connection')}"
        )
        texts += [f"    {line}" for line in _damages(file)]
        if len(description.files) > 1:
            texts.append(f"    clock: {file.clock}")
    if description.logs:
        texts.append("  every value is as reported by the endpoint that wrote the log")
    values = {(row.subject, row.name): row for row in run.metrics}
    for flow in imported.flows[:LINES]:
        facts = [
            units.show(values[flow.name, name].value, values[flow.name, name].unit) + f" {word}"
            for name, word in (OF_LOGS if description.logs else FACTS.get(flow.kind, FACTS["bulk"]))
            if (flow.name, name) in values
        ]
        texts.append(f"  {flow.name}: {', '.join(facts)}")
    more = len(imported.flows) - LINES
    if more > 0:
        texts.append(f"  and {number_of(more, 'more flow')}")
    if description.flows_left_out:
        texts.append(f"  only in the tables: {number_of(description.flows_left_out, 'smaller flow')}")
    if description.packets_left_out:
        left_out = number_of(description.packets_left_out, "packet")
        texts.append(f"  left out: {left_out} of UDP and pings beyond {found_datagrams.MOST_PACKETS}")
    return texts


#: Metrics that the terminal shows by the kind of a flow, with the word behind each.
FACTS = {
    "bulk": (("throughput", "throughput"), ("goodput", "goodput"), ("retransmissions", "retx")),
    "datagrams": (("throughput", "throughput"), ("delay_forward", "one way"), ("packet_loss", "lost")),
    "probe": (("latency_p50", "round trip"), ("latency_p95", "for 95 %"), ("packet_loss", "lost")),
}
OF_LOGS = (
    ("throughput", "throughput"),
    ("quic_packets_sent", "packets sent"),
    ("quic_packets_lost", "lost"),
    ("quic_smoothed_rtt", "smoothed round trip"),
)
#: Flows that the terminal shows.
LINES = 12


def _damages(file: ImportedFile) -> list[str]:
    """What could not be read of a file, in sentences."""
    texts = [
        f"byte {damage.offset}: {damage.reason}"
        + (f", {number_of(damage.bytes, 'byte')} skipped" if damage.bytes else "")
        for damage in file.damage[:5]
    ]
    if file.damages > 5:
        texts.append(f"and {number_of(file.damages - 5, 'more place')} that could not be read")
    texts += [
        f"{number_of(found.packets, 'packet')} of link type {found.link_type}, which is not known"
        for found in file.link_types
        if not found.known
    ]
    for count, noun, what in (
        (file.unreadable, "packet", "with headers that are cut off or contradict each other"),
        (file.unfinished_fragments, "packet", "of which fragments are missing"),
        (file.dropped_by_capture, "packet", "dropped by the capturing system"),
        (file.connections_given_up, "connection", "given up, too many at a time"),
    ):
        if count:
            texts.append(f"{number_of(count, noun)} {what}")
    return texts
