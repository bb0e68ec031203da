"""The agent: one process on each node that applies a run, on a UNIX socket.

    python -m agents.service --socket PATH --folder PATH --node-binary PATH

It uses the standard library only, so a bare host needs nothing but Python. It opens no network port; the socket has
mode 0600. It starts nothing but tcpdump, ethtool, ip, tc and the node binary, and touches no file outside its folder.
With --allow-commands it also runs the programs of campaigns (`kind: command`), which can do whatever its account can.

It speaks `agents.rpc`; its requests are the marked methods of `agents.agent.Agent`. While a node is locked, a request
without the holder's token is rejected with the holder's name. A lease ends when no request renews it, and everything
that was started ends with it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from agents.agent import Agent, Grants
from agents.errors import AgentError
from agents.rpc import Dispatcher, Server

#: Requests of anybody who can open the socket, also while the node is locked.
FREE = ("health", "clock", "lock")


def serve(path: Path, agent: Agent) -> Server:
    """The server of an agent; it serves with `serve_forever`."""

    def admit(op: str, token: str) -> None:
        agent.lease.check(token, needed=op not in FREE)

    # ValueError: the standard library checks the addresses that a request holds.
    return Server(path, Dispatcher("the agent", Agent, agent, (AgentError, ValueError), admit))


@contextmanager
def opened(words: Sequence[str] | None = None) -> Iterator[Server]:
    """The server that a command line describes; it serves with `serve_forever`.

    Args:
        words: the command line; None: this process's.

    Raises:
        AgentError: the grants are not valid.
    """
    parser = argparse.ArgumentParser(prog="agents.service", description="The Backchannel agent of one node.")
    add = parser.add_argument
    add("--socket", type=Path, required=True, help="UNIX socket to serve on; created with mode 0600")
    add("--folder", type=Path, required=True, help="folder for captures and reports; the agent uses no other")
    add("--node-binary", required=True, help="path of the program backchannel-node")
    add(
        "--grants",
        type=Path,
        help="folder of JSON files with the interfaces and links that the agent may use; without it, every interface "
        "and no link",
    )
    add("--virtual-time", action="store_true", help="the node's clock jumps from event to event")
    add("--allow-commands", action="store_true", help="run the programs of campaigns, with the rights of this account")
    add("--settings", type=Path, help="folder of JSON files with the settings of links and radios, for the ids of runs")
    arguments = parser.parse_args(words)
    os.umask(0o077)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    grants = Grants(arguments.grants)
    lock_file = arguments.socket.parent / f"{arguments.socket.stem}.held"
    agent = Agent(
        arguments.folder.resolve(),
        arguments.node_binary,
        grants,
        lock_file,
        arguments.virtual_time,
        arguments.allow_commands,
        arguments.settings,
    )
    try:
        with serve(arguments.socket, agent) as server:
            yield server
    finally:
        agent.lease.release()


def main(words: Sequence[str] | None = None) -> int:
    """Serves until SIGTERM; `words` replace the command line."""
    # Its children must not outlive it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with opened(words) as server:
            server.serve_forever()
    except AgentError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
