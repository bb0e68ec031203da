"""The agents of a lab's hosts: connections to them, their locks and their clocks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from agents.client import AgentClient
from agents.errors import AgentError, AgentUnreachable
from agents.messages import Health
from agents.rpc import TIMEOUT_S
from testbed import clock
from testbed.concurrency import map_concurrently
from testbed.errors import HostLost, TestbedError
from testbed.local_folders import ScratchFolder
from testbed.placement import Placement
from testbed.tunnels import SILENCE_S, NamespaceTunnel, SshOptions, SshTunnel, Tunnel

#: A host unlocks itself after this long without a request.
LEASE_S = 30.0
RENEW_S = 5.0

T = TypeVar("T")


@dataclass(frozen=True)
class HostAccess:
    """How hosts are reached: over SSH, or in the namespaces of these processes."""

    ssh: SshOptions | None = None
    namespaces: Mapping[str, int] | None = None


class HostAgents:
    """The agents of all hosts of a placement, locked for one holder.

    Args:
        holder: shown to others that want to use a host.

    Raises:
        TestbedError: a host cannot be reached, has no agent, is locked by another holder, or its clock is not set; with
            the host's name and the remedy. No host is locked then.
    """

    def __init__(self, placement: Placement, access: HostAccess, holder: str) -> None:
        self._folder = ScratchFolder()
        self._silence_s = 0.0 if access.ssh is None else access.ssh.silence_s
        #: Longest wait for a host to release when the connections are being cut.
        self._release_s = self._silence_s or SILENCE_S
        self._tunnels: dict[str, Tunnel] = {}
        self.clients: dict[str, AgentClient] = {}
        #: Answers of the agents when they were connected.
        self.healths: dict[str, Health] = {}
        self._held: list[AgentClient] = []
        self._stop = threading.Event()
        self._releasing = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="hosts")
        names = list(dict.fromkeys(placement.members()))
        try:
            for name in names:
                self._tunnels[name] = self._open(placement, access, name)
            for tunnel in self._tunnels.values():
                if isinstance(tunnel, SshTunnel):
                    tunnel.wait()
            for name, tunnel in self._tunnels.items():
                self.clients[name] = AgentClient(name, tunnel.socket)
            self.map_concurrently(self._check_health)
            for client in self.clients.values():
                self._hold(client, holder)
            self._check_clocks()
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._renew, name="lease", daemon=True).start()

    def _open(self, placement: Placement, access: HostAccess, name: str) -> Tunnel:
        if access.ssh is not None:
            host = placement.hosts[name]
            return SshTunnel(name, host.address, host.port, access.ssh, self._folder.path)
        pids = access.namespaces or {}
        if name not in pids:
            raise TestbedError(
                f"host {name} is a namespace of a lab that does not run ('./backchannel testbed rehearse -i FILE -- "
                "COMMAND' runs it for as long as a command takes)"
            )
        return NamespaceTunnel(name, pids[name])

    def _check_health(self, name: str) -> None:
        try:
            self.healths[name] = self.clients[name].health()
        except AgentError as error:
            # After a reboot, until somebody has run 'site'.
            raise HostLost(
                f"host {name}: no agent answers there, run './backchannel testbed site --inventory FILE' ({error})"
            ) from None

    def _hold(self, client: AgentClient, holder: str) -> None:
        try:
            client.hold(holder, LEASE_S)
        except AgentError as error:
            raise TestbedError(f"host {error}") from None
        self._held.append(client)

    def _check_clocks(self) -> None:
        try:
            self.read_clocks()
        except AgentError as error:
            raise self.explain(error, prefix="host ") from None

    def map_concurrently(self, action: Callable[[str], T]) -> dict[str, T]:
        """An action on every host at once; raises the first failure after all have ended."""
        return map_concurrently(self._pool, self._tunnels, action)

    def read_clocks(self) -> dict[str, clock.Reading]:
        """Measures every host's clocks.

        Raises:
            TestbedError: a clock is not set.
        """
        readings = {}
        for name, client in self.clients.items():
            readings[name] = clock.read(client.clock)
            clock.check_offset(name, readings[name])
        return readings

    def lost(self) -> str | None:
        """Which host cannot be reached any more, and why; None while all can."""
        return next((failure for tunnel in self._tunnels.values() if (failure := tunnel.failure())), None)

    def check(self) -> None:
        """Raises TestbedError if a host was lost or the connections were cut."""
        if self._stop.is_set():
            raise TestbedError("the connections to the hosts were cut")
        lost = self.lost()
        if lost:
            raise HostLost(lost)

    def explain(self, error: Exception, prefix: str = "") -> TestbedError:
        """A failure's cause: a lost host, if there is one; the error itself otherwise.

        An agent that does not answer may be on a lost host, which SSH notices some seconds later.
        """
        if not self._stop.is_set():
            deadline = time.monotonic() + (self._silence_s + 2 if isinstance(error, AgentUnreachable) else 0)
            while True:
                lost = self.lost()
                if lost:
                    return HostLost(lost)
                if time.monotonic() > deadline:
                    break
                time.sleep(0.1)
        return TestbedError(f"{prefix}{error}")

    def log(self) -> str:
        """Everything that the ssh processes printed."""
        logs = sorted(self._folder.path.glob("*.ssh.log"))
        return "".join(f"{path.name.removesuffix('.ssh.log')}: {path.read_text(errors='replace')}\n" for path in logs)

    def close(self) -> None:
        """Ends what runs on the hosts and unlocks them; from any thread."""
        self._release()
        for client in self.clients.values():
            client.close()
        for tunnel in self._tunnels.values():
            tunnel.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._folder.close()

    def cut(self) -> None:
        """Unlocks the hosts that answer soon and cuts all connections, so that requests fail; from any thread."""
        self._release(self._release_s)
        for tunnel in self._tunnels.values():
            tunnel.close()

    def _release(self, timeout_s: float = TIMEOUT_S) -> None:
        self._stop.set()
        # A thread that closes the connections waits until another one has released the hosts.
        with self._releasing:
            held, self._held = self._held, []
            if not held:
                return
            # A new pool, because this object's may be full of requests that get no answer.
            with ThreadPoolExecutor(max_workers=len(held), thread_name_prefix="release") as pool:
                for client in held:
                    pool.submit(_release, client, timeout_s)

    def _renew(self) -> None:
        while not self._stop.wait(RENEW_S):
            for client in list(self._held):
                try:
                    client.clock()
                except AgentError:
                    continue  # The run itself reports a lost host.


def _release(client: AgentClient, timeout_s: float) -> None:
    try:
        client.release(timeout_s)
    except AgentError:
        pass  # A lost host cleans up by itself when its lease ends.
