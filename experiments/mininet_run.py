"""Keeps what the emulated links of a Mininet script carry as a run with captures, metrics, timing verdict and page.

    from experiments.mininet_run import record

    net.start()
    with record(net, name="two hosts"):
        net.iperf()

docs/mininet-links.md has a whole script.
"""

from __future__ import annotations

import ipaddress
import json
import secrets
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mininet.node import Switch

from agents.capture import Capture
from agents.clocks import read_together
from agents.errors import AgentError
from analysis.store import PendingRun, Store
from analysis.store.documents import SessionDescription
from experiments.engine import machine
from experiments.sessions.record import Collection, commit_record, recorded
from testbed import addressing
from testbed.audit import audited
from testbed.errors import TestbedError
from testbed.mininet_links import EmulatedLink
from testbed.report import CaptureReport, InterfaceReport, Report
from testbed.scenario import Scenario

CAMPAIGN, TITLE = "mininet", "Mininet scripts with emulated links"
#: Time from the start of the links until the run's zero, in s.
LEAD_S = 0.02


class Recording:
    """A recording in progress; afterwards its run."""

    #: The run in the store; None until the recording has ended.
    run: PendingRun | None = None

    @property
    def problems(self) -> Sequence[str]:
        """Why the links did not keep their timing; empty if they did, and during the recording."""
        return () if self.run is None else self.run.problems


@contextmanager
def record(net: Any, name: str = "script", results: str = "results") -> Iterator[Recording]:
    """Records the emulated links of a network during a `with` block. Then it stores the run in the results.

    Packets that are in the links at the beginning are discarded. The verdict is printed on standard error.

    Args:
        net: a started Mininet network with links of class Line, ModemLink or EmulatedLink.
        name: of the script's network, under which runs are listed in the campaign `mininet`.
        results: folder of the results, as of `./backchannel serve --results`.

    Raises:
        TestbedError: there is no emulated link, a node's name is too long, or a capture failed.
    """
    lines = [link for link in net.links if isinstance(link, EmulatedLink)]
    scenario = _scenario(lines)
    store = Store.open(Path(results))
    folder = store.staging_folder(f"mininet-{time.time_ns()}")
    try:
        yield from _recorded(lines, scenario, store, folder, name, results)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        store.close()


def _recorded(
    lines: Sequence[EmulatedLink], scenario: Scenario, store: Store, folder: Path, name: str, results: str
) -> Iterator[Recording]:
    recording, started, cpu = Recording(), time.time(), machine.cpu_seconds()
    for part in ("captures", "telemetry"):
        (folder / part).mkdir()
    emulator = lines[0].emulator
    for line in lines:
        line.configure()
    captures = _Captures(lines, scenario.capture.snaplen, folder / "captures")
    try:
        zero_ns = emulator.start(folder / "telemetry" / "links.jsonl", LEAD_S)
        zero_epoch_ns = read_together().lead_ns + zero_ns
        yield recording
        lasted_s = max((time.monotonic_ns() - zero_ns) / 1e9, 0.0)
        interfaces = tuple(_interfaces(lines))
        report = Report(
            t0_epoch_ns=zero_epoch_ns,
            driver=emulator.stop(keep=True),
            captures=captures.stop(),
            interfaces=interfaces,
            duration_s=lasted_s,
        )
    except BaseException:
        captures.kill()
        raise
    description = SessionDescription(
        label=name,
        command=tuple(sys.argv),
        host=scenario.nodes[0].name,
        internet=False,
        exit_status=None,
        lasted_s=round(lasted_s, 6),
    )
    scenario = recorded(scenario, description, report)
    owners = {entry.address: entry.node for entry in interfaces if entry.address}
    report = audited(scenario, report, folder, nodes=_network(lines, interfaces, owners))
    recording.run = commit_record(
        store,
        scenario,
        report,
        description,
        folder,
        started,
        machine.cpu_shares(cpu, machine.cpu_seconds()),
        owners.get,
        Collection(CAMPAIGN, TITLE, ("script", name)),
    )
    _say(recording.run, results)


def _say(run: PendingRun, results: str) -> None:
    verdict = "kept their timing" if not run.problems else f"did not keep their timing: {run.problems[0]}"
    print(
        f"backchannel: the links {verdict}. The script's run is {run.run_id[:8]}: ./backchannel serve --results "
        f"{Path(results).absolute()} shows it.",
        file=sys.stderr,
    )


class _Captures:
    """A capture of every end of every line."""

    def __init__(self, lines: Sequence[EmulatedLink], snaplen: int, folder: Path) -> None:
        self._running: list[tuple[str, Capture]] = []
        try:
            for line in lines:
                rates = [way.rate_bps for _, way in line.spec.directions()]
                load_bps = None if None in rates else sum(rate or 0.0 for rate in rates)
                for end in (line.intf1, line.intf2):
                    # It ends with a script that is killed.
                    inside = ["setpriv", "--pdeathsig", "KILL", "nsenter", "--net", "--target", str(end.node.pid), "--"]
                    path = folder / f"{end.name}.pcap"
                    self._running.append((end.node.name, Capture(end.name, path, snaplen, load_bps, prefix=inside)))
        except AgentError as error:
            self.kill()
            raise TestbedError(str(error)) from None

    def stop(self) -> tuple[CaptureReport, ...]:
        """Ends them in order."""
        try:
            reports = tuple(CaptureReport(node=node, **asdict(capture.stop())) for node, capture in self._running)
        except AgentError as error:
            self.kill()
            raise TestbedError(str(error)) from None
        for _, capture in self._running:
            capture.path.with_suffix(".tcpdump.log").unlink(missing_ok=True)
        return reports

    def kill(self) -> None:
        """Ends them at once."""
        for _, capture in self._running:
            capture.kill()


def _scenario(lines: Sequence[EmulatedLink]) -> Scenario:
    """The lines and the nodes at their ends, without flows.

    Raises:
        TestbedError: there is no line, or they form no network that a run can have.
    """
    if not lines:
        raise TestbedError("there is nothing to record: this network has no emulated link; create it with link=Line")
    nodes = _nodes(lines)
    for name in nodes:
        if len(name) > addressing.MAX_NODE_NAME:
            raise TestbedError(
                f"node '{name}' cannot be recorded: names have at most {addressing.MAX_NODE_NAME} characters"
            )
    scenario = Scenario.read(
        {
            "version": 1,
            "seed": secrets.randbits(40),
            "duration_s": 1.0,
            "workload": [],
            "nodes": [{"name": name, "kind": "router" if _forwards(node) else "host"} for name, node in nodes.items()],
            "links": [line.spec.replace(ends=(line.intf1.node.name, line.intf2.node.name)).as_json() for line in lines],
        }
    )
    addressing.make_plan(scenario.nodes, scenario.links)
    return scenario


def _nodes(lines: Sequence[EmulatedLink]) -> dict[str, Any]:
    return {node.name: node for line in lines for node in (line.intf1.node, line.intf2.node)}


def _forwards(node: Any) -> bool:
    return isinstance(node, Switch) or _output(node, "cat", "/proc/sys/net/ipv4/ip_forward").strip() == "1"


def _output(node: Any, *words: str) -> str:
    """Of a program in a node. `node.cmd` would mix it with messages of the node's shell."""
    output, _ = node.popen(list(words)).communicate()
    return str(output.decode())


def _interfaces(lines: Sequence[EmulatedLink]) -> Iterator[InterfaceReport]:
    """Both ends of every line with the addresses that the script gave them; one without has none."""
    for line in lines:
        for number, end in enumerate((line.intf1, line.intf2)):
            yield InterfaceReport(
                node=end.node.name, interface=end.name, link=line.spec.name, end=number, address=_address(end)
            )


def _address(end: Any) -> str:
    """As the kernel has it: scripts also use `ip` and `ifconfig`."""
    if isinstance(end.node, Switch):
        return ""
    entries = json.loads(_output(end.node, "ip", "-json", "-4", "address", "show", "dev", end.name) or "[]")
    addresses = [entry["local"] for link in entries for entry in link.get("addr_info", [])]
    return addresses[0] if addresses else ""


def _network(
    lines: Sequence[EmulatedLink], interfaces: Sequence[InterfaceReport], owners: dict[str, str]
) -> dict[str, Any]:
    """Interfaces and routes of each node for the audit, which needs to know what leaves by an interface."""
    return {
        name: {
            "interfaces": [
                # A port of a switch has no address; this one is nobody's.
                {"name": end.interface, "link": end.link, "end": end.end, "address": end.address or "0.0.0.0"}
                for end in interfaces
                if end.node == name
            ],
            "routes": _ways(name, lines, owners) if isinstance(node, Switch) else _routes(node),
        }
        for name, node in _nodes(lines).items()
    }


def _routes(node: Any) -> list[dict[str, str]]:
    """A node's own, and its default route."""
    routes = []
    for route in json.loads(_output(node, "ip", "-json", "-4", "route", "show") or "[]"):
        subnet = addressing.DEFAULT_ROUTE if route["dst"] == "default" else str(ipaddress.ip_network(route["dst"]))
        via = route.get("gateway", "0.0.0.0")
        routes.append({"subnet": subnet, "via": via, "interface": route.get("dev", "")})
    return routes


def _ways(start: str, lines: Sequence[EmulatedLink], owners: dict[str, str]) -> list[dict[str, str]]:
    """By which of its ports a switch reaches each address: the one on the way with the fewest links."""
    ports: dict[str, str] = {}
    queue = deque([(start, "")])
    seen = {start}
    while queue:
        node, port = queue.popleft()
        for line in lines:
            for own, peer in ((line.intf1, line.intf2), (line.intf2, line.intf1)):
                if own.node.name == node and peer.node.name not in seen:
                    seen.add(peer.node.name)
                    ports[peer.node.name] = port or own.name
                    queue.append((peer.node.name, ports[peer.node.name]))
    return [
        {"subnet": f"{address}/32", "via": "0.0.0.0", "interface": ports[node]}
        for address, node in owners.items()
        if node in ports
    ]
