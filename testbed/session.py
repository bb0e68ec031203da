"""An open run: links that carry the packets of people's own programs until someone ends it.

A session belongs to the cell's side (testbed.cellmain). It has no flows of its own, records what `Conductor.open`
started, and its links can be changed while they run.
"""

from __future__ import annotations

import socket
from pathlib import Path

from testbed import addressing
from testbed.conductor import Conductor
from testbed.kernel_tcp import congestion_control, is_kernel_stack
from testbed.local_network import LocalNetwork
from testbed.report import Report, SessionHost, SessionStatus
from testbed.scenario import Change, Direction, Scenario

#: Time from the start of the links until the session's zero, in s: nothing but programs has to be started.
LEAD_S = 0.02
#: Name server of a session without a gateway: none answers, so that a lookup fails at once.
NO_DNS = "# this network has no name server\nnameserver 127.0.0.1\noptions attempts:1 timeout:1\n"


class Session:
    """A session on a network of its own. Methods raise TestbedError or AgentError.

    Args:
        network: where it runs.
        conductor: of that network.
        scenario: without flows.
        out: folder for the files of the record.
        name_server: address of the name server that hosts use; None: there is none.
    """

    def __init__(
        self, network: LocalNetwork, conductor: Conductor, scenario: Scenario, out: Path, name_server: str | None
    ) -> None:
        self._network = network
        self._conductor = conductor
        self._scenario = scenario
        self._out = out
        self._is_recorded = True
        # Empties the nodes' folders, so it comes first.
        self._opened = conductor.open(scenario, out, LEAD_S)
        self._name_hosts(scenario, name_server)
        self._choose_controllers(scenario)

    def hosts(self) -> dict[str, SessionHost]:
        """Every node."""
        found = {}
        for name, node in self._network.plan.nodes.items():
            pid = self._network.node_pid(name)
            inode = Path(f"/proc/{pid}/ns/net").stat().st_ino
            found[name] = SessionHost(address=node.address, pid=pid, net_inode=inode)
        return found

    def status(self) -> SessionStatus:
        """Its links as they are now."""
        recorded = None
        if self._is_recorded:
            files = [self._network.folder / "links.jsonl", *self._network.folder.glob("*/captures/*.pcap")]
            recorded = sum(file.stat().st_size for file in files if file.exists())
        return SessionStatus(
            passed_s=max(self._opened.passed_s, 0.0), recorded_bytes=recorded, links=self._network.emulator.status()
        )

    def change(self, link: str, direction: Direction, change: Change) -> float:
        """Changes a direction of a link now. Returns when, in s since the session's zero."""
        return self._network.emulator.change(link, direction, change)

    def end_record(self) -> Report:
        """Ends the record, once. The links go on."""
        ended_s = self._opened.passed_s
        driver = self._network.emulator.stop(keep=True)
        self._is_recorded = False
        report = self._conductor.collect(self._scenario, self._out, self._opened, driver)
        return report.replace(duration_s=max(ended_s, 0.0))

    def _name_hosts(self, scenario: Scenario, name_server: str | None) -> None:
        """Gives every node the names of all."""
        folder = self._network.folder
        hosts = ["127.0.0.1 localhost", f"127.0.1.1 {socket.gethostname()}"]
        hosts += [f"{node.address} {name}" for name, node in self._network.plan.nodes.items()]
        (folder / "hosts").write_text("\n".join(hosts) + "\n")
        (folder / "resolv.conf").write_text(NO_DNS if name_server is None else f"nameserver {name_server}\n")
        for node in scenario.nodes:
            for name in ("hosts", "resolv.conf"):
                # Where it is a link, the file that it leads to is covered.
                target = Path("/etc", name).resolve()
                if target.exists():
                    self._network.run_on(node.name, ["mount", "--bind", str(folder / name), str(target)])

    def _choose_controllers(self, scenario: Scenario) -> None:
        """Sets the congestion controller of connections whose program does not choose one."""
        for node in scenario.nodes:
            if node.stack is not None and is_kernel_stack(node.stack.name):
                control = congestion_control(node.stack.name, node.stack.options)
                lines = addressing.controller_routes(self._network.plan.nodes[node.name], control)
                self._network.run_on(node.name, ["ip", "-batch", "-"], "\n".join(lines) + "\n")
