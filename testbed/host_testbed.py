"""The physical backend for the engine: what testbed.cell.Cell is for the emulated backend."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable
from pathlib import Path

from testbed.clock import HostClocks
from testbed.conductor import Conductor, OnProgress, require_crates
from testbed.host_agents import HostAccess, HostAgents
from testbed.host_network import HostNetwork
from testbed.installation import Installation, installation
from testbed.leases import HostLease
from testbed.placement import Placement
from testbed.report import Measurement, Phase, Progress, Report
from testbed.scenario import Scenario


class HostTestbed:
    """Connects to hosts, calibrates and runs. Methods raise TestbedError.

    Args:
        place: finds hosts and links for a scenario in the lab.
        access: how hosts are reached.
        name: of the campaign, shown to others that want to use a host.
        on_progress: called when the phase changes and about once a second during a run.
        lease: of the hosts; None: they stay.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        place: Callable[[Scenario], Placement],
        access: HostAccess,
        name: str,
        on_progress: OnProgress | None = None,
        lease: HostLease | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._place = place
        self._lease = lease
        self._now = now
        self._access = access
        self._holder = f"{name}, of {_user()} on {os.uname().nodename}, process {os.getpid()}"
        self._on_progress = on_progress or (lambda progress: None)
        self._placement: Placement | None = None
        self._agents: HostAgents | None = None
        self._network: HostNetwork | None = None
        self._conductor: Conductor | None = None

    def build(self, scenario: Scenario) -> bool:
        """Connects to the hosts that a scenario needs. Returns False if they were connected already."""
        self._require_time(scenario)
        placement = self._place(scenario)
        if self._conductor is not None and placement == self._placement:
            self._require_crates(scenario)
            return False
        self.close()
        self._on_progress(Progress(Phase.CONNECTING))
        self._agents = HostAgents(placement, self._access, self._holder)
        clocks = HostClocks(self._agents.read_clocks, placement.host_of)
        self._network = HostNetwork(placement, self._agents, clocks)
        self._conductor = Conductor(self._network, clocks)
        self._placement = placement
        self._require_crates(scenario)
        return True

    def _require_crates(self, scenario: Scenario) -> None:
        """Also of the hosts that are link boxes, before anything is measured."""
        assert self._agents is not None
        require_crates(scenario, self._agents.clients)

    def calibrate(self, scenario: Scenario) -> list[Measurement]:
        """Measures the links as the scenario declares them."""
        assert self._conductor is not None
        return self._conductor.calibrate(scenario.links, scenario.seed, scenario.fidelity)

    def run(self, scenario: Scenario, out: Path) -> Report:
        """Runs a scenario; its files go to `out`."""
        assert self._conductor is not None
        self._require_time(scenario)
        report = self._conductor.run(scenario, out.resolve(), self._on_progress)
        return report.replace(installation=self.installation().as_json())

    def _require_time(self, scenario: Scenario) -> None:
        if self._lease is not None:
            self._lease.require(scenario.duration_s, self._now())

    def installation(self) -> Installation:
        """What plays the nodes and links of the scenario that it was built for."""
        assert self._placement is not None
        assert self._agents is not None
        return installation(self._placement, self._agents.healths)

    def keep_log(self, to: Path) -> None:
        """Writes the ssh processes' output to a file."""
        if self._agents is not None:
            to.write_text(self._agents.log())

    def close(self) -> None:
        """Releases the hosts."""
        conductor, self._conductor = self._conductor, None
        network, self._network = self._network, None
        agents, self._agents = self._agents, None
        for part in (conductor, network, agents):
            if part is not None:
                part.close()

    def kill(self) -> None:
        """Releases the hosts and cuts the connections, from any thread, so that requests fail."""
        agents = self._agents
        if agents is not None:
            agents.cut()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A user that the system does not know, as in a container.
        return f"user {os.getuid()}"
