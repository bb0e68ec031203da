"""A session's record as a run of the store: flows that its captures show, metrics, verdict, and the changes made."""

from __future__ import annotations

import datetime
import ipaddress
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from analysis import parquet, versions
from analysis.store import PendingRun, Store
from analysis.store.documents import CpuShares, Documents, Manifest, SessionChange, SessionDescription
from experiments import collections_of_runs, found_datagrams, found_flows
from experiments.engine import execution
from experiments.language.backends import Backend
from experiments.language.identity import run_identity
from experiments.sessions import outside, replay
from experiments.sessions.changes import typed
from experiments.sessions.plan import SessionPlan
from testbed import fidelity, gateway_rules, node_binary
from testbed.audit import audited
from testbed.report import InterfaceReport, Report, sentences
from testbed.scenario import DIRECTIONS, Flow, Limits, LinkSpec, Scenario

#: Name and title of the collection of all sessions.
CAMPAIGN, TITLE = "shell", "Sessions: programs behind emulated links"
#: Length of a record without a single packet.
LEAST_S = 1e-3
#: Characters of a command in the list of sessions.
MOST_WORDS = 80


def commit_session(
    store: Store,
    plan: SessionPlan,
    report: Report,
    description: SessionDescription,
    folder: Path,
    started: float,
    cpu: Mapping[str, float],
) -> PendingRun:
    """Measures a session and stores it. Returns the stored run.

    Args:
        store: of the results.
        plan: what it ran on.
        report: of the record.
        description: the session itself.
        folder: its files (Store.staging_folder); it moves into the store.
        started: seconds since the epoch.
        cpu: shares of the machine's CPUs meanwhile.
    """
    nodes = _nodes(plan, report)

    def write_replay(scenario: Scenario, described: SessionDescription) -> None:
        (folder / "replay.yaml").write_text(replay.campaign_text(plan, scenario, described))

    scenario = recorded(plan.scenario, description, report)
    routes = outside.routes(plan) if description.internet else None
    report = audited(scenario, report, folder, routes)
    collection = Collection(CAMPAIGN, TITLE, ("network", f"{plan.label}: {_carried(description, started)}"))
    return commit_record(store, scenario, report, description, folder, started, cpu, nodes, collection, write_replay)


def _carried(description: SessionDescription, started: float) -> str:
    """What a session carried. Runs of one command are repetitions; what is done in a shell is unlike any other."""
    if description.command:
        words = shlex.join(description.command)
        return words if len(words) <= MOST_WORDS else f"{words[: MOST_WORDS - 1]}…"
    moment = datetime.datetime.fromtimestamp(started, datetime.UTC)
    return f"shell of {moment:%Y-%m-%d %H:%M:%S}"


@dataclass(frozen=True)
class Collection:
    """Where a run that nobody planned is listed."""

    name: str
    title: str
    #: Its point: a field and its value.
    parameter: tuple[str, str]


def commit_record(
    store: Store,
    scenario: Scenario,
    report: Report,
    description: SessionDescription,
    folder: Path,
    started: float,
    cpu: Mapping[str, float],
    nodes: Callable[[str], str | None],
    collection: Collection,
    write_more: Callable[[Scenario, SessionDescription], None] | None = None,
) -> PendingRun:
    """Measures a record whose flows are found in its captures, and stores it. Returns the stored run.

    Args:
        store: of the results.
        scenario: as it was recorded, without flows.
        report: audited.
        description: whose packets they were.
        folder: its files (Store.staging_folder); it moves into the store.
        started: seconds since the epoch.
        cpu: shares of the machine's CPUs meanwhile.
        nodes: the node of an address; None for one that belongs to none.
        collection: that lists it.
        write_more: writes further files to the folder.
    """
    problems = sentences(fidelity.problems(report, scenario.fidelity))
    labelled = [f"{path.stem}={path}" for path in sorted((folder / "captures").glob("*.pcap"))]
    node_binary.call("trace", "--datagrams", "--out", str(folder), *labelled)
    found_flows.assign_sender(folder)
    report, flows, left_out, packets_left_out = _flows(nodes, report, folder)
    scenario = Scenario.read({**scenario.as_json(), "workload": [flow.as_json() for flow in flows]})
    description = description.replace(flows_left_out=left_out, packets_left_out=packets_left_out)
    if write_more is not None:
        write_more(scenario, description)
    measured = execution.analyse(folder, scenario, report, trace=False)
    manifest = Manifest(**versions.versions().complete()).replace(
        started=started,
        took_s=description.lasted_s,
        attempt=1,
        report=report,
        unmeasured=tuple(measured.unmeasured),
        cpu=CpuShares(**cpu),
        limits=Limits(**scenario.fidelity.complete()),
        session=description,
    )
    documents = Documents(scenario.as_json(), manifest.as_json())
    documents.write(folder)
    run_id = run_identity(Backend.EMULATED, scenario.as_json())
    pending = PendingRun(run_id, Backend.EMULATED, documents, measured.rows, problems, 1, folder)
    store.commit_run(pending)
    collections_of_runs.enter(store, Backend.EMULATED, collection.name, collection.title, collection.parameter, run_id)
    return pending


def recorded(scenario: Scenario, description: SessionDescription, report: Report) -> Scenario:
    """The scenario as it was: its length, and every change that the record contains."""
    duration_s = max(round(report.duration_s or 0.0, 6), LEAST_S)
    links = tuple(_with_changes(link, description.changes, duration_s) for link in scenario.links)
    return Scenario.read({**scenario.as_json(), "duration_s": duration_s, "links": [link.as_json() for link in links]})


def _with_changes(link: LinkSpec, changes: tuple[SessionChange, ...], duration_s: float) -> LinkSpec:
    document = link.as_json()
    for way in DIRECTIONS:
        applied = [
            typed(change.fields, change.at_s).as_json()
            for change in changes
            if (change.link, change.direction) == (link.name, way) and change.at_s < duration_s
        ]
        if applied:
            document[way] = {**document[way], "schedule": [*document[way].get("schedule", []), *applied]}
    return LinkSpec.read(document)


def _nodes(plan: SessionPlan, report: Report) -> Callable[[str], str | None]:
    """The node of an address: devices count as the host that forwards for them, other addresses as the gateway."""
    node_of = {end.address: end.node for end in report.interfaces}
    behind: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
    if plan.devices is not None:
        devices = ipaddress.IPv4Network(plan.devices)
        behind = [devices, ipaddress.IPv6Network(gateway_rules.network_v6(devices))]

    def node(address: str) -> str | None:
        parsed = ipaddress.ip_address(address)
        if address in node_of or parsed.is_loopback:
            return node_of.get(address)
        return plan.host if any(parsed in network for network in behind) else plan.gateway

    return node


def _flows(nodes: Callable[[str], str | None], report: Report, folder: Path) -> tuple[Report, list[Flow], int, int]:
    """Flows between nodes, one for each listening port of either, and probes; how many flows and packets are left out.

    The report names the nodes of further addresses.
    """
    connections = parquet.read(folder / "connections.parquet")
    packets, packets_left_out = found_datagrams.read(folder)
    addresses = {
        address
        for table, columns in ((connections, ("client", "server")), (packets, ("src", "dst")))
        for column in columns
        for address in table[column].unique()
    }
    node_of = {address: node for address in addresses if (node := nodes(address)) is not None}
    own_addresses = {end.address for end in report.interfaces}
    first = {end.node: end for end in reversed(report.interfaces)}
    more = tuple(
        InterfaceReport(node=node, interface=first[node].interface, link="", end=0, address=address)
        for address, node in sorted(node_of.items())
        if address not in own_addresses
    )

    def by_node(table: pl.DataFrame, *columns: str) -> pl.DataFrame:
        names = {name: pl.col(name).replace_strict(node_of, default=None, return_dtype=pl.String) for name in columns}
        return table.with_columns(**names)

    between = by_node(connections, "client", "server").filter(pl.col("client") != pl.col("server"))
    files = {file["label"]: file["file"] for file in json.loads((folder / "summary.json").read_text())["files"]}
    at: dict[str, list[int]] = {}
    for end in report.interfaces:
        if end.interface in files:
            at.setdefault(end.node, []).append(files[end.interface])
    flows, left_out = found_datagrams.workload(folder, between, by_node(packets, "src", "dst"), at, report.t0_epoch_ns)
    return report.replace(interfaces=(*report.interfaces, *more)), flows, left_out, packets_left_out
