"""Drives the flows of a run through the agents of their nodes: transfers by our load programs, and the campaign's own
programs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from agents.client import AgentClient
from agents.messages import InterfaceAddress
from testbed import addressing, commands, exchanges, flows, kernel_tcp
from testbed.clock import Clock
from testbed.network import Network
from testbed.report import CommandReport, FlowReport, ProgramReport, ReceiveReport, SendReport
from testbed.scenario import Flow, Scenario

#: Time of a server that does not serve in time to say so and end, in s.
SERVER_ENDS_S = 5.0


@dataclass(frozen=True)
class _Driver:
    """What both classes have. Methods raise AgentError or TestbedError."""

    scenario: Scenario
    network: Network
    clock: Clock
    flow: Flow

    def _agent(self, node: str) -> AgentClient:
        return self.network.agents[node]

    def _zero_ns(self, zero_ns: int, node: str) -> int:
        """The run's zero on a node's own clock."""
        return zero_ns + self.clock.monotonic_offset_ns(node)

    def _start(self, program: flows.Program, ready_s: float | None = None) -> None:
        """Starts a program; one that listens does so afterwards. `ready_s`: its own limit of time for that."""
        patience_s = None if ready_s is None else ready_s + SERVER_ENDS_S
        self._agent(program.node).start_traffic(program.name, program.program, program.options, patience_s)


class Transfer(_Driver):
    """A flow of the load programs."""

    @property
    def announced_at(self) -> str:
        """The node whose receiver waits for the run's zero."""
        return self.flow.to

    @property
    def ends(self) -> bool:
        """Whether it has a size."""
        return bool(self.flow.bytes)

    def prepare(self) -> None:
        """Starts the receiver."""
        self._start(flows.receiver(self.scenario, self.network.plan, self.flow))

    def start(self, zero_ns: int) -> None:
        """Starts the sender. `zero_ns` is the run's zero on the controller's CLOCK_MONOTONIC."""
        at_ns = self._zero_ns(zero_ns, self.flow.from_)
        self._start(flows.sender(self.scenario, self.network.plan, self.flow, at_ns))

    def runs(self) -> bool:
        """Whether the receiver runs."""
        return flows.receiver_name(self.flow) in self._agent(self.flow.to).running_traffic()

    def stop(self, zero_ns: int) -> FlowReport:
        """Ends the sender and then the receiver."""
        return FlowReport(
            send=self._agent(self.flow.from_).stop_traffic(flows.sender_name(self.flow), SendReport.read),
            receive=self._agent(self.flow.to).stop_traffic(flows.receiver_name(self.flow), ReceiveReport.read),
        )

    def collect(self, out: Path, report: FlowReport) -> None:
        """Copies the telemetry, and joins what both programs recorded."""
        name = f"{self.flow.name}.jsonl"
        self._agent(self.flow.from_).fetch(name, out / "telemetry" / name)
        for node, end in ((self.flow.from_, report.send), (self.flow.to, report.receive)):
            for qlog in end.qlogs:
                (out / "qlog").mkdir(exist_ok=True)
                self._agent(node).fetch(qlog, out / "qlog" / qlog)
        if not flows.has_records(self.flow):
            return
        to = out / exchanges.FOLDER
        to.mkdir(exist_ok=True)
        sent, arrived = to / flows.sent_file(self.flow), to / flows.arrived_file(self.flow)
        self._agent(self.flow.from_).fetch(sent.name, sent)
        self._agent(self.flow.to).fetch(arrived.name, arrived)
        exchanges.join(sent, arrived, self.scenario.duration_s, to / name)
        sent.unlink()
        arrived.unlink()


class Command(_Driver):
    """A flow of the campaign's programs (testbed.commands)."""

    #: No program waits for the run's zero.
    announced_at = ""

    @property
    def ends(self) -> bool:
        """Whether the client has to end by itself."""
        return commands.ends_by_itself(self.flow)

    def prepare(self) -> None:
        """Prepares the hosts, and starts the server."""
        plan, spec = self.network.plan, commands.spec_of(self.flow)
        for role, node in commands.roles(self.flow):
            agent = self._agent(node)
            agent.put_files(spec.files, commands.program_name(self.flow, role))
            # Programs that choose no congestion controller have that of the host's stack.
            ends = [InterfaceAddress(end.name, f"{end.address}/{end.prefix}") for end in plan.nodes[node].interfaces]
            stack = flows.stack_of(self.scenario, node)
            controller = kernel_tcp.congestion_control(stack.name, stack.options)
            agent.network(ends, addressing.controller_routes(plan.nodes[node], controller, self.flow.ip), give=True)
        server = commands.server(self.scenario, plan, self.flow)
        if server is not None:
            self._start(*server)

    def start(self, zero_ns: int) -> None:
        """Starts the client."""
        at_ns = self._zero_ns(zero_ns, commands.hosts(self.flow)[0])
        self._start(commands.client(self.scenario, self.network.plan, self.flow, at_ns))

    def runs(self) -> bool:
        """Whether the client runs."""
        running = self._agent(commands.hosts(self.flow)[0]).running_traffic()
        return commands.program_name(self.flow, "client") in running

    def stop(self, zero_ns: int) -> FlowReport:
        """Ends the client, if it still runs, and then its server."""
        programs = {
            role: self._agent(node).stop_traffic(commands.program_name(self.flow, role), ProgramReport.read)
            for role, node in commands.roles(self.flow)
        }
        client, at_ns = programs["client"], self._zero_ns(zero_ns, commands.hosts(self.flow)[0])
        started = client.started_monotonic_ns
        report = CommandReport(
            client=client,
            server=programs.get("server"),
            started_s=None if started is None else (started - at_ns) / 1e9,
            ended_s=(client.ended_monotonic_ns - at_ns) / 1e9,
        )
        return FlowReport(send=SendReport(started_late_s=client.started_late_s), command=report)

    def collect(self, out: Path, report: FlowReport) -> None:
        """Copies the programs' outputs, and writes what is known of the programs beside them."""
        assert report.command is not None
        to = out / commands.FOLDER
        to.mkdir(exist_ok=True)
        (to / f"{self.flow.name}.json").write_text(json.dumps(report.command.as_json(), indent=1) + "\n")
        for role, node in commands.roles(self.flow):
            for ending in (commands.OUTPUT, commands.ERRORS):
                name = commands.output_file(self.flow.name, role, ending)
                self._agent(node).fetch(name, to / name)


FlowDriver = Transfer | Command


def of(scenario: Scenario, network: Network, clock: Clock) -> dict[str, FlowDriver]:
    """The flows of a run by name."""
    return {
        flow.name: (Transfer if flow.command is None else Command)(scenario, network, clock, flow)
        for flow in scenario.workload
    }
