"""A tunnel is open when its socket takes connections. The program ssh is stood in for by a script."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from testbed.errors import HostLost
from testbed.tunnels import SshOptions, SshTunnel

#: Makes the socket that -L names, and listens later, as ssh may.
SLOW = """#!/bin/sh
exec python3 -c '
import socket, sys, time
words = sys.argv[1:]
local = socket.socket(socket.AF_UNIX)
local.bind(words[words.index("-L") + 1].split(":")[0])
time.sleep(0.5)
local.listen()
time.sleep(60)
' "$@"
"""
#: Makes it and ends.
ENDING = """#!/bin/sh
python3 -c '
import socket, sys
words = sys.argv[1:]
socket.socket(socket.AF_UNIX).bind(words[words.index("-L") + 1].split(":")[0])
' "$@"
echo "ssh: connect to host 192.0.2.1 port 22: Connection timed out" >&2
exit 255
"""


def tunnel(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> SshTunnel:
    program = folder / "bin/ssh"
    program.parent.mkdir()
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return SshTunnel("pc1", "192.0.2.1", 22, SshOptions("lab", None, None), folder)


def test_a_tunnel_is_open_when_its_socket_takes_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opening = tunnel(tmp_path, SLOW, monkeypatch)
    try:
        opening.wait()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(opening.socket))
        assert opening.failure() is None
    finally:
        opening.close()


def test_an_ssh_that_ends_early_is_a_lost_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HostLost, match=r"host pc1: it does not answer at 192\.0\.2\.1 \(is it on"):
        tunnel(tmp_path, ENDING, monkeypatch).wait()
