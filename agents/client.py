"""The controller's side of an agent (agents.agent)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from agents.agent import Agent
from agents.errors import AgentError, AgentUnreachable
from agents.messages import OptionValue
from agents.rpc import TIMEOUT_S, SocketClient, remote

R = TypeVar("R")


class AgentClient(SocketClient):
    """One agent behind a UNIX socket, which SSH forwards for a remote host. Threads may share a client.

    Every method raises AgentError with the agent's sentence, prefixed with the node's name; AgentUnreachable where
    there is no answer.
    """

    def __init__(self, node: str, path: Path) -> None:
        super().__init__(
            path,
            lambda sentence: AgentError(f"{node}: {sentence}"),
            lambda reason: AgentUnreachable(f"{node}: its agent does not answer ({reason})"),
        )
        self.node = node

    health = remote(Agent.health)
    crates = remote(Agent.crates)
    clock = remote(Agent.clock)
    settings = remote(Agent.settings)
    network = remote(Agent.network)
    neighbours = remote(Agent.neighbours)
    start_captures = remote(Agent.start_captures)
    stop_captures = remote(Agent.stop_captures)
    configure_link = remote(Agent.configure_link)
    start_links = remote(Agent.start_links)
    shape = remote(Agent.shape)
    sample_shaping = remote(Agent.sample_shaping)
    shaped = remote(Agent.shaped)
    begin = remote(Agent.begin)
    put_files = remote(Agent.put_files)
    running_traffic = remote(Agent.running_traffic)
    reset = remote(Agent.reset)

    def start_traffic(
        self, name: str, program: str, options: Mapping[str, OptionValue], ready_s: float | None = None
    ) -> None:
        """Starts a traffic program; a receiver listens afterwards, at the latest after `ready_s`."""
        self.call(TIMEOUT_S + (ready_s or 0.0), Agent.start_traffic, name, program, options, ready_s)

    def wait_traffic(self, name: str, timeout_s: float, read: Callable[[object], R]) -> R:
        """Report of a program that ends by itself within `timeout_s`; `read` types its JSON."""
        return read(self.call(timeout_s + 5, Agent.wait_traffic, name, timeout_s))

    def stop_traffic(self, name: str, read: Callable[[object], R]) -> R:
        """Stops a program; its report, whose JSON `read` types."""
        return read(self.call(TIMEOUT_S, Agent.stop_traffic, name))

    def stop_links(self, read: Callable[[object], R]) -> R:
        """Ends the links' timeline; the emulator's report, whose JSON `read` types."""
        return read(self.call(TIMEOUT_S, Agent.stop_links))

    def fetch(self, name: str, to: Path) -> None:
        """Copies a file of the agent's folder to `to`."""
        self.request("fetch", {"name": name}, to=to)

    def hold(self, holder: str, lease_s: float) -> None:
        """Locks the node for this controller, until `release` or until `lease_s` without a request."""
        self.token = self.call(TIMEOUT_S, Agent.lock, holder, lease_s)

    def release(self, timeout_s: float = TIMEOUT_S) -> None:
        """Ends everything on the node and unlocks it."""
        # The token stays, and is void: requests that other threads still make are rejected.
        self.call(timeout_s, Agent.unlock)
