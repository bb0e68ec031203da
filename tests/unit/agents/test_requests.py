"""Whatever a request holds, the agent answers it with a sentence and serves the next one."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given, strategies as st

from agents import kernel
from agents.agent import Agent, Grants
from agents.errors import AgentError
from agents.messages import OptionValue
from agents.service import serve
from tests.support.serving import serving

REQUESTS = [*(name for name, each in vars(Agent).items() if hasattr(each, "is_request")), "nothing"]
#: Fields that requests have, so that hostile values get as far as they can.
FIELDS = [
    "sysctls", "interfaces", "snaplen", "interface", "file", "rate_bps", "name", "program", "options",
    "at_monotonic_ns", "holder", "lease_s", "batch", "give", "spec", "seed", "macs", "lines", "address",
    "neighbours", "mac", "requests", "timeout_s", "ready_s", "files", "folder",
]  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["eth7", "send", "tcpdump", "10.1.0.1/24", "../x", "line", 10**400, 1e400]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
BODIES = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6)


def _refuse(*_words: object, **_options: object) -> NoReturn:
    raise FileNotFoundError(2, "No such file or directory", "no program runs in this test")


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of an agent that starts no program and changes no setting of this machine."""
    folder = tmp_path_factory.mktemp("agent")
    (folder / "agent.d").mkdir()
    (folder / "run").mkdir()
    (folder / "agent.d/a.json").write_text(json.dumps({"interfaces": ["eth7"], "links": {"line": ["eth7"]}}))
    checked = kernel.sysctl_path

    def harmless(name: str) -> Path:
        checked(name)
        return folder / "sysctl"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "sysctl_path", harmless)
        patch.setattr(subprocess, "Popen", _refuse)
        patch.setattr(subprocess, "run", _refuse)
        grants = Grants(folder / "agent.d")
        with serving(serve(folder / "agent.sock", Agent(folder / "run", "/bin/false", grants, folder / "held"))):
            yield folder / "agent.sock"


def ask(path: Path, line: bytes) -> dict[str, Any]:
    """The answer to a line on a connection of its own."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(path))
        connection.sendall(line + b"\n")
        with connection.makefile("rb") as stream:
            return dict(json.loads(stream.readline()))


def held(path: Path) -> str:
    """The token of a new lease."""
    return str(ask(path, b'{"op": "lock", "holder": "test", "lease_s": 60}')["result"])


@given(op=st.sampled_from(REQUESTS), body=BODIES)
def test_any_json_has_an_answer(agent: Path, op: str, body: dict[str, Any]) -> None:
    token = held(agent)
    answer = ask(agent, json.dumps({**body, "op": op, "token": token}).encode())
    assert answer["ok"] is True or answer["error"], answer
    # What the request left is taken back with the lease.
    ask(agent, json.dumps({"op": "unlock", "token": token}).encode())
    assert ask(agent, b'{"op": "health"}')["result"]["holder"] == ""


def test_an_agent_runs_programs_of_campaigns_only_where_it_is_allowed(tmp_path: Path) -> None:
    options: dict[str, OptionValue] = {
        "words": '["true"]',
        "environment": "{}",
        "cwd": "f",
        "output": "o",
        "errors": "e",
        "limit-bytes": 1,
    }
    agent = Agent(tmp_path, "/no/binary", Grants(None), tmp_path / "held")
    not_allowed = r"its administrator has not allowed it \(agent_allow_commands"
    with pytest.raises(AgentError, match=not_allowed):
        agent.start_traffic("f", "program", options)
    with pytest.raises(AgentError, match=not_allowed):
        agent.put_files({"x": "y"}, "f")
    assert not (tmp_path / "f").exists()


def test_files_of_a_campaign_stay_in_the_agents_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    agent = Agent(folder, "/no/binary", Grants(None), tmp_path / "held", allow_commands=True)
    agent.put_files({"a/run.sh": "#!/bin/sh\n", "data": "x"}, "f.client")
    assert (folder / "f.client/a/run.sh").stat().st_mode & 0o777 == 0o700
    assert (folder / "f.client/data").stat().st_mode & 0o777 == 0o600
    for name in ("../../escaped", "../../../etc/escaped"):
        with pytest.raises(AgentError, match="lies outside"):
            agent.put_files({name: "x"}, "f.client")


@pytest.mark.parametrize(
    ("line", "is_allowed"),
    [
        ("route replace 10.1.0.0/24 via 10.2.0.1 dev eth7 congctl cubic", True),
        ("route replace 10.1.0.0/24 dev eth7 proto kernel scope link src 10.1.0.1 congctl bbr", True),
        ("route replace 10.1.0.0/24 via 10.2.0.1 dev eth7 src 10.1.0.1", True),
        ("route replace 10.1.0.0/24 via 10.2.0.1 dev eth0 congctl cubic", False),
        ("route replace 10.1.0.0/24 via 10.2.0.1 dev eth7 mtu 100", False),
        ("route replace 10.1.0.0/24 dev eth7 proto kernel scope global", False),
        ("route replace 10.3.0.0/16 via 10.1.0.2 dev eth7", True),
        ("route replace default via 10.1.0.2 dev eth7 table 7", False),
        ("neighbour replace 10.1.0.2 lladdr 02:bc:00:01:00:01 dev eth7 nud permanent", True),
        ("neighbour replace 10.1.0.2 lladdr 02:bc:00:01:00:01 dev lo nud permanent", False),
        ("address add 10.9.9.9/8 dev eth7", False),
        ("link set eth7 down", False),
        ("", False),
    ],
)
def test_neighbours_and_routes_are_of_the_experiments_interfaces(line: str, is_allowed: bool) -> None:
    if is_allowed:
        assert kernel.checked_line(line, ["eth7"]) == line
    else:
        with pytest.raises(AgentError, match="neither a neighbour nor a route"):
            kernel.checked_line(line, ["eth7"])
