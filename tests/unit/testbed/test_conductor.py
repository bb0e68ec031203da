"""The conductor on a third kind of network: a model of nodes and links in this process.

It shows that a kind of network can be added without a change to the conductor or to the other kinds.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agents.client import AgentClient
from agents.errors import AgentError, AgentUnreachable
from agents.messages import CaptureCounts, CaptureRequest, Health
from testbed import conductor as conductor_module
from testbed.addressing import make_plan
from testbed.clock import HostClocks, Reading, SharedClock
from testbed.conductor import Conductor
from testbed.errors import TestbedError
from testbed.network import Network
from testbed.report import DirectionReport, DriverReport, Phase, Progress
from testbed.scenario import LinkSpec, Scenario
from tests.conftest import two_hosts

HOUR_NS = 3_600_000_000_000


#: MTU of every interface.
SHORT_BYTES = 552


class ModelAgent:
    """An agent that does nothing, records what it is asked, and answers what a perfect network would."""

    def __init__(self, network: ModelNetwork, node: str) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.running: set[str] = set()
        self._network = network
        self._node = node

    def reset(self) -> None:
        self.calls.append(("reset", None))

    def health(self) -> Health:
        mtus = {end.name: SHORT_BYTES for end in self._network.plan.nodes[self._node].interfaces}
        return Health(1, "6.1.0", True, (), 0, (), "", {}, mtus)

    def settings(self, sysctls: dict[str, str]) -> dict[str, str]:
        return sysctls

    def start_captures(self, requests: Sequence[CaptureRequest], snaplen: int) -> None:
        self.calls.append(("captures", [request.interface for request in requests]))

    def stop_captures(self) -> list[CaptureCounts]:
        return [
            CaptureCounts(name, f"{name}.pcap", captured=7, received=7, dropped=0)
            for call, names in self.calls if call == "captures" for name in names
        ]  # fmt: skip

    def begin(self, at_monotonic_ns: int) -> None:
        self.calls.append(("begin", at_monotonic_ns))

    def start_traffic(self, name: str, program: str, options: dict[str, Any], ready_s: float | None = None) -> None:
        self.calls.append((program, {**options, "ready_s": ready_s}))
        self.running.add(name)

    def put_files(self, files: Mapping[str, str], folder: str) -> None:
        self.calls.append(("files", (folder, dict(files))))

    def network(self, _interfaces: object, batch: list[str], give: bool) -> None:
        self.calls.append(("network", (batch, give)))

    def running_traffic(self) -> set[str]:
        return self._network.still_running(self.running)

    def stop_traffic(self, name: str, read: Callable[[object], Any]) -> Any:
        self.running.discard(name)
        if name.endswith((".client", ".server")):
            return read({
                "ended": "itself", "exit_status": 0, "signal": None, "started_late_s": 0.0,
                "started_monotonic_ns": 5 * 10**9, "ended_monotonic_ns": 7 * 10**9, "output_bytes": 0,
                "error_bytes": 0, "left_behind": 0,
            })  # fmt: skip
        return read({"bytes": 1000, "payload_ok": True} if name.endswith("receive") else {"bytes": 1000})

    def wait_traffic(self, name: str, _timeout_s: float, read: Callable[[object], Any]) -> Any:
        return read({"sent": 1} if name.endswith("-send") else {"packets": self._network.probes(name, self._node)})

    def fetch(self, name: str, to: Path) -> None:
        to.write_text(f"{name} of {self._node}\n")


class ModelNetwork:
    """Satisfies testbed.network.Network without any of its implementations."""

    hosts: Mapping[str, str] | None = None
    real_links: Mapping[str, str] | None = None

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.plan = make_plan(scenario.nodes, scenario.links)
        self.folder = folder / "scratch"
        self.folder.mkdir()
        self.model_agents = {name: ModelAgent(self, name) for name in self.plan.nodes}
        self.links: Sequence[LinkSpec] = ()
        self.addresses: list[tuple[str, bool, bool]] = []
        self.on_check: Callable[[], None] = lambda: None
        self.still_running: Callable[[set[str]], set[str]] = lambda names: names
        #: How far the realtime clock of each node is ahead.
        self.ahead_ns = dict.fromkeys(self.plan.nodes, 0)
        self.lost = ""
        self.monotonic_ns: Callable[[], int] = time.monotonic_ns

    @property
    def agents(self) -> Mapping[str, AgentClient]:
        return self.model_agents  # type: ignore[return-value]

    def probes(self, _name: str, node: str) -> list[dict[str, int]]:
        """The arrivals of a train on the exact line of `links`, stamped by the clocks of its ends."""
        options = next(options for call, options in reversed(self.model_agents[node].calls) if call == "probe-receive")
        (link,) = self.links
        sender = next(end for end in link.ends if end != node)
        direction = link.forward if sender == link.ends[0] else link.reverse
        assert direction.rate_bps is not None
        probe = next(options for call, options in reversed(self.model_agents[sender].calls) if call == "probe-send")
        packet_s = probe["size"] * 8 / direction.rate_bps
        arrivals = []
        for seq in range(options["count"]):
            sent_s = 0.0 if seq < probe["burst"] else 100 + seq * probe["interval-s"]
            received_s = (seq if seq < probe["burst"] else 0) * packet_s + sent_s + packet_s + direction.delay_s
            arrivals.append({
                "seq": seq, "sent_ns": round(sent_s * 1e9) + self.ahead_ns[sender],
                "received_ns": round(received_s * 1e9) + self.ahead_ns[node],
            })  # fmt: skip
        return arrivals

    def reset(self) -> None:
        for agent in self.model_agents.values():
            agent.reset()

    def configure_links(self, links: Sequence[LinkSpec], seed: int) -> None:
        self.links = links

    def start_links(self, telemetry: Path | None = None, lead_s: float = 0.0) -> int:
        if telemetry is not None:
            telemetry.write_text("")
        return self.monotonic_ns()

    def stop_links(self) -> DriverReport:
        counters = DirectionReport(error_losses=0)
        return DriverReport(links={link.name: {"forward": counters, "reverse": counters} for link in self.links})

    def set_addresses(self, node: str, present: bool, with_ipv6: bool = False) -> None:
        self.addresses.append((node, present, with_ipv6))

    def check(self) -> None:
        self.on_check()

    def explain(self, error: Exception) -> TestbedError:
        return TestbedError(self.lost or str(error))

    def close(self) -> None:
        pass


class SetTime:
    """The conductor's time: it passes while the conductor sleeps, and on no machine else."""

    def __init__(self) -> None:
        self.now_ns = time.monotonic_ns()

    def monotonic_ns(self) -> int:
        return self.now_ns

    def monotonic(self) -> float:
        return self.now_ns / 1e9

    def sleep(self, duration_s: float) -> None:
        self.now_ns += round(duration_s * 1e9)


@pytest.fixture
def clock(network: ModelNetwork, monkeypatch: pytest.MonkeyPatch) -> SetTime:
    """Takes the place of the clock. On a busy machine a short run may be over before the first look at it."""
    clock = SetTime()
    network.monotonic_ns = clock.monotonic_ns
    monkeypatch.setattr(conductor_module, "time", clock)
    return clock


def scenario(**changes: Any) -> Scenario:
    return Scenario.read(two_hosts(**{"duration_s": 0.2, **changes}))


@pytest.fixture
def network(tmp_path: Path) -> ModelNetwork:
    return ModelNetwork(scenario(), tmp_path)


@pytest.mark.usefixtures("clock")
def test_a_third_kind_of_network_runs_a_scenario(network: ModelNetwork, tmp_path: Path) -> None:
    described: Network = network
    progress: list[Progress] = []
    report = Conductor(described, SharedClock()).run(scenario(), tmp_path / "out", progress.append)
    assert report.flows["bulk"].receive.bytes == 1000
    assert report.duration_s == 0.2
    assert [capture.path for capture in report.captures] == ["a-eth0.pcap", "b-eth0.pcap"]
    assert set(report.driver.links) == {"line"}
    assert report.clocks is report.hosts is report.real_links is None
    assert {"clocks", "hosts", "real_links"}.isdisjoint(report.as_json())
    assert json.loads(json.dumps(report.as_json()))["interfaces"][0]["interface"] == "a-eth0"
    files = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert files == {
        "captures/a-eth0.pcap", "captures/b-eth0.pcap", "telemetry/bulk.jsonl", "telemetry/links.jsonl",
    }  # fmt: skip
    assert [entry.phase for entry in progress] == [Phase.PREPARING, Phase.RUNNING, Phase.COLLECTING]
    assert (progress[1].total_s, progress[1].passed_s) == (0.2, 0.0)


def test_addresses_change_only_when_the_stack_changes(network: ModelNetwork, tmp_path: Path) -> None:
    conductor = Conductor(network, SharedClock())
    research = two_hosts(duration_s=0.1)
    research["nodes"][1]["stack"] = {"name": "newreno", "options": {}}
    for number, made in enumerate((two_hosts(duration_s=0.1), research, research, two_hosts(duration_s=0.1))):
        conductor.run(Scenario.read(made), tmp_path / str(number), lambda progress: None)
    assert network.addresses == [("b", False, False), ("b", True, False)]


def test_kernels_have_addresses_of_ipv6_only_while_a_scenario_uses_it(network: ModelNetwork, tmp_path: Path) -> None:
    conductor = Conductor(network, SharedClock())
    over_ipv6 = two_hosts(duration_s=0.1)
    over_ipv6["workload"][0]["ip"] = 6
    for number, made in enumerate((over_ipv6, over_ipv6, two_hosts(duration_s=0.1))):
        conductor.run(Scenario.read(made), tmp_path / str(number), lambda progress: None)
    assert network.addresses == [("a", True, True), ("b", True, True), ("a", True, False), ("b", True, False)]


def test_every_node_gets_the_zero_on_its_own_clock(network: ModelNetwork, tmp_path: Path) -> None:
    readings = {"pc0": Reading(0, HOUR_NS, 1000, 1), "pc1": Reading(0, -HOUR_NS, 1000, 1)}
    clocks = HostClocks(lambda: readings, {"a": "pc0", "b": "pc1"})
    made = two_hosts(duration_s=0.1)
    made["nodes"][1]["stack"] = {"name": "newreno", "options": {}}
    made["capture"] = {"snaplen": 128, "at": ["none"]}
    before_ns = time.monotonic_ns()
    Conductor(network, clocks).run(Scenario.read(made), tmp_path / "out", lambda progress: None)
    calls = dict(network.model_agents["a"].calls) | dict(network.model_agents["b"].calls)
    assert 0 <= calls["load-send"]["run-begins-ns"] - before_ns - HOUR_NS < 5e9
    assert 0 <= calls["begin"] - before_ns + HOUR_NS < 5e9


@pytest.mark.usefixtures("clock")
def test_programs_get_files_and_controller_before_server_and_client(network: ModelNetwork, tmp_path: Path) -> None:
    made = two_hosts(duration_s=5.0)
    made["capture"] = {"snaplen": 128, "at": ["none"]}
    made["workload"] = [{
        "name": "f", "kind": "command", "from": "a", "to": "b", "port": 5001, "command": {
            "client_at": "to", "client": ["get", "{server}:{port}"], "files": {"x": "y"}, "output_bytes": 9,
            "server": {"run": ["serve"], "ready": "tcp", "within_s": 2.0},
        },
    }]  # fmt: skip
    # The client has ended, so the run does not last its 5 s.
    network.still_running = lambda names: names - {"f.client"}
    report = Conductor(network, SharedClock()).run(Scenario.read(made), tmp_path / "out", lambda _: None)
    server, client = (network.model_agents[name].calls for name in ("a", "b"))
    assert [call for call, _ in server] == ["reset", "files", "network", "program"]
    assert [call for call, _ in client] == ["reset", "files", "network", "program"]
    assert client[1][1] == ("f.client", {"x": "y"})
    assert client[2][1] == (
        ["route replace 10.1.0.0/24 dev b-eth0 proto kernel scope link src 10.1.0.2 congctl reno"],
        True,
    )
    (served, got) = (calls[3][1] for calls in (server, client))
    assert json.loads(got["words"]) == ["get", "10.1.0.1:5001"]
    assert (served["ready"], served["port"], served["within-s"]) == ("tcp", 5001, 2.0)
    assert served["ready_s"] > 2.0
    assert got["stop-at-ns"] - got["start-at-ns"] == 5 * 10**9
    assert report.duration_s is not None
    assert report.duration_s < 4
    kept = json.loads((tmp_path / "out/programs/f.json").read_text())
    assert kept["ended_s"] - kept["started_s"] == pytest.approx(2.0)
    names = {path.name for path in (tmp_path / "out/programs").iterdir()}
    assert names == {"f.json", "f.client.out", "f.client.err", "f.server.out", "f.server.err"}


def test_probes_compare_by_the_realtime_clocks_of_their_hosts(network: ModelNetwork) -> None:
    """Probes carry CLOCK_REALTIME. CLOCK_MONOTONIC differs by the time at which a host was switched on."""
    ahead_ns = {"a": 2_000_000_000, "b": -3_000_000_000}
    network.ahead_ns = ahead_ns
    readings = {node: Reading(offset, 5 * HOUR_NS, 1000, 1) for node, offset in ahead_ns.items()}
    clocks = HostClocks(lambda: readings, {"a": "a", "b": "b"})
    made = scenario(rate_bps=1_000_000, delay_s=0.02)
    measured = Conductor(network, clocks).calibrate(made.links, 1)
    assert [(entry.direction, entry.problems) for entry in measured] == [("forward", ()), ("reverse", ())]
    assert measured[0].measured_delay_s == pytest.approx(0.02, abs=1e-6)
    # Packets fit the interfaces.
    agent: Any = network.agents["a"]
    assert {options["size"] for call, options in agent.calls if call == "probe-send"} == {SHORT_BYTES}
    assert Conductor(network, SharedClock()).calibrate(made.links, 1)[0].problems


def test_a_real_link_is_measured_and_never_rejected(network: ModelNetwork) -> None:
    network.real_links = {"line": "modem"}
    network.ahead_ns["b"] = 30_000_000
    measured = Conductor(network, SharedClock()).calibrate(scenario(rate_bps=1_000_000).links, 1)
    assert [(entry.real, entry.problems) for entry in measured] == [("modem", ())] * 2


def test_a_failure_is_reported_with_its_cause_and_leaves_files(network: ModelNetwork, tmp_path: Path) -> None:
    def lost(*_: object) -> Any:
        raise AgentUnreachable("b: its agent does not answer")

    network.lost = "host pc1 was lost"
    network.model_agents["b"].stop_traffic = lost  # type: ignore[method-assign, assignment]
    (network.folder / "emulator.log").write_text("why\n")
    with pytest.raises(TestbedError, match="^host pc1 was lost$"):
        Conductor(network, SharedClock()).run(scenario(), tmp_path / "out", lambda progress: None)
    assert (tmp_path / "out/left/emulator.log").read_text() == "why\n"
    network.model_agents["b"].wait_traffic = lost  # type: ignore[method-assign, assignment]
    with pytest.raises(TestbedError, match="^host pc1 was lost$"):
        Conductor(network, SharedClock()).calibrate(scenario().links, 1)


def test_a_run_ends_as_soon_as_its_network_cannot_finish_it(network: ModelNetwork, tmp_path: Path) -> None:
    cut = threading.Event()

    def check() -> None:
        if cut.is_set():
            raise AgentError("the connections to the hosts were cut")

    network.on_check = check
    phases: list[Phase] = []

    def on_progress(progress: Progress) -> None:
        phases.append(progress.phase)
        if progress.phase is Phase.RUNNING:
            cut.set()

    with pytest.raises(TestbedError, match="were cut"):
        Conductor(network, SharedClock()).run(scenario(duration_s=60.0), tmp_path / "out", on_progress)
    assert phases.count(Phase.RUNNING) == 1


def test_a_run_whose_flows_all_have_a_size_ends_with_the_last_transfer(
    network: ModelNetwork, tmp_path: Path, clock: SetTime
) -> None:
    answers = [{"bulk-receive"}, set[str]()]
    network.still_running = lambda names: answers.pop(0)
    made = two_hosts(duration_s=60.0)
    made["workload"][0]["bytes"] = 1000
    report = Conductor(network, SharedClock()).run(Scenario.read(made), tmp_path / "out", lambda progress: None)
    assert report.duration_s is not None
    assert report.duration_s < 30
    assert not answers
