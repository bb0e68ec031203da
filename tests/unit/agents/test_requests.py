"""Whatever a request holds, the agent answers it with a sentence and serves the next one."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import kernel
from agents.agent import Agent, Grants
from agents.client import TOKEN_HEADER
from agents.errors import AgentError
from agents.messages import OptionValue
from agents.service import Server

ROUTES = [
    ("POST", "settings"), ("POST", "captures"), ("DELETE", "captures"), ("POST", "traffic"), ("POST", "begin"),
    ("GET", "traffic"), ("DELETE", "traffic/x"), ("POST", "lock"), ("GET", "clock"), ("POST", "network"),
    ("POST", "neighbours"), ("POST", "links"), ("POST", "links/start"), ("DELETE", "links"), ("POST", "shaping"),
    ("GET", "shaping/eth7"), ("DELETE", "run"), ("GET", "files/../agent.sock"), ("GET", "nothing"), ("GET", "health"),
]  # fmt: skip
#: Fields that the routes read, so that hostile values get as far as they can.
FIELDS = [
    "sysctls", "offloads", "interfaces", "snaplen", "interface", "file", "rate_bps", "name", "program", "options",
    "at_monotonic_ns", "holder", "lease_s", "batch", "give", "spec", "seed", "macs", "lines", "address",
    "neighbours", "mac",
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
        with Server(folder / "agent.sock", Agent(folder / "run", "/bin/false", grants, folder / "held")) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            yield folder / "agent.sock"
            server.shutdown()
            thread.join()


def ask(path: Path, method: str, route: str, body: bytes, token: str = "") -> tuple[int, dict[str, Any]]:
    """A request on a connection of its own; status and answer."""
    connection = http.client.HTTPConnection("agent")
    with socket.socket(socket.AF_UNIX) as connection.sock:
        connection.sock.settimeout(30)
        connection.sock.connect(str(path))
        connection.request(method, f"/{route}", body, {TOKEN_HEADER: token})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def held(path: Path) -> str:
    """The token of a new lease."""
    status, answer = ask(path, "POST", "lock", b'{"holder": "test", "lease_s": 60}')
    assert status == 200, answer
    return str(answer["token"])


@given(route=st.sampled_from(ROUTES), body=BODIES)
def test_any_json_has_an_answer(agent: Path, route: tuple[str, str], body: dict[str, Any]) -> None:
    token = held(agent)
    status, answer = ask(agent, *route, json.dumps(body).encode(), token)
    assert status == 200 or answer["error"], (status, answer)
    # What the request left is taken back with the lease.
    assert ask(agent, "DELETE", "lock", b"", token)[0] in (200, 500)
    assert ask(agent, "GET", "health", b"")[1]["holder"] == ""


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": ' + b"1" * 100_000 + b"}",
        b"null",
        b'"x"',
        b"{",
        b"NaN",
        b'{"at_monotonic_ns": 1e999}',
        b'{"at_monotonic_ns": []}',
    ],
)
def test_any_bytes_have_an_answer(agent: Path, body: bytes) -> None:
    token = held(agent)
    status, answer = ask(agent, "POST", "begin", body, token)
    assert status == 400
    assert answer["error"]
    ask(agent, "DELETE", "lock", b"", token)


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
    ],
)
def test_routes_are_of_the_experiments_interfaces(line: str, is_allowed: bool) -> None:
    if is_allowed:
        assert kernel.checked_line(line, ["eth7"]) == line
    else:
        with pytest.raises(AgentError):
            kernel.checked_line(line, ["eth7"])
