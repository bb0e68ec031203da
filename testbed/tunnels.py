"""Tunnels to agents: a local socket for each host, forwarded by SSH or found in the host's namespace.

One SSH connection per host carries everything (OpenSSH's socket forwarding), so no host opens a port for agents. Host
keys are checked, ssh asks nothing interactively, and it dies with this process.
"""

from __future__ import annotations

import math
import re
import shlex
import subprocess
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from agents.rpc import listens
from testbed.errors import HostLost, TestbedError

#: The agents' socket, as the Ansible role `agent` sets it up.
AGENT_SOCKET = "/run/backchannel/agent.sock"
#: Longest time for the first answer of a host, and silence after which it counts as lost.
CONNECT_S, SILENCE_S = 10.0, 4.0
#: Put before ssh's message, which does not name this cause.
LOCKED = "the key is locked"
#: A part of ssh's message, and its cause and remedy for people.
MEANINGS = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its key is another than the one in {known} (if it was set up anew, take its line out and enter the new key)",
    ),
    (
        "Host key verification failed",
        "its key is not in {known} (enter it with 'ssh-keyscan -p {port} {address}', "
        "after comparing it with the one on the machine)",
    ),
    (
        LOCKED,
        "the key {key} has a passphrase, which ssh cannot ask for here (run 'ssh-add {key}' first; if that was "
        "done, {enter} for user {user})",
    ),
    ("Permission denied", "it refuses the key {key} for user {user} ({enter})"),
    (
        "Missing sudo password",
        "sudo asks for a password for user {user} (allow '{user} ALL=(ALL) NOPASSWD: ALL' in "
        "/etc/sudoers.d there, or add '-- --ask-become-pass')",
    ),
    ("No such identity", "the key {key} does not exist"),
    ("Could not resolve hostname", "the name {address} is unknown (correct its 'address' in the inventory)"),
    ("Connection refused", "nothing answers SSH at {address} port {port} (is sshd running, is the port right?)"),
    ("timed out", "it does not answer at {address} (is it on, is the network there?)"),
    ("No route to host", "it does not answer at {address} (is it on, is the network there?)"),
    ("not responding", "it does not answer at {address} any more (is it on, is the network there?)"),
    ("Network is unreachable", "this machine has no network towards {address}"),
)
#: Parts of ssh's message when a host is off, booting, or cut off. It may come back.
AWAY = ("Connection refused", "timed out", "No route to host", "not responding", "Network is unreachable")


class Tunnel(ABC):
    """A connection to one host's agent."""

    #: Local end.
    socket: Path

    @abstractmethod
    def failure(self) -> str | None:
        """Why the host cannot be reached any more; None while it can."""

    @abstractmethod
    def close(self) -> None:
        """Ends the connection."""


class NamespaceTunnel(Tunnel):
    """To a host that is a set of namespaces of this machine."""

    def __init__(self, name: str, pid: int) -> None:
        self._name = name
        self._root = Path(f"/proc/{pid}/root")
        self.socket = Path(f"{self._root}{AGENT_SOCKET}")

    def failure(self) -> str | None:
        """Set when its process has ended."""
        return None if self._root.exists() else f"host {self._name}: its namespaces are gone"

    def close(self) -> None:
        """Holds nothing."""


@dataclass(frozen=True)
class Jump:
    """A host through which all others are reached."""

    host: str
    user: str = ""
    port: int = 22

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads "[USER@]HOST[:PORT]".

        Raises:
            ValueError: it is something else.
        """
        found = re.fullmatch(
            r"(?:([A-Za-z0-9_.-]+)@)?([A-Za-z0-9][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:]+\])(?::(\d{1,5}))?", text
        )
        port = int(found[3] or 22) if found else 0
        if found is None or not 1 <= port <= 65535:
            raise ValueError(
                f"'{text}' is not a host to jump over; write [USER@]HOST[:PORT], such as 'ann@192.0.2.1' (several in a "
                "row go into ~/.ssh/config)"
            )
        return cls(found[2].strip("[]"), found[1] or "", port)


@dataclass(frozen=True)
class SshOptions:
    """How to reach hosts."""

    user: str
    key: Path | None
    known_hosts: Path | None
    connect_s: float = CONNECT_S
    silence_s: float = SILENCE_S
    jump: Jump | None = None
    #: Private key for `jump`; None: `key`.
    jump_key: Path | None = None


def jump_command(options: SshOptions) -> str | None:
    """The value of ssh's ProxyCommand that goes over `options.jump`; None without one.

    ssh's own ProxyJump would ignore the lab's key and host keys at the host in between.
    """
    jump = options.jump
    if jump is None:
        return None
    words = ["ssh", "-W", "[%h]:%p", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"]
    words += ["-o", f"ConnectTimeout={math.ceil(options.connect_s)}"]
    words += _known_hosts(options) + _identity(options.jump_key or options.key)
    return shlex.join([*words, "-p", str(jump.port), f"{jump.user}@{jump.host}" if jump.user else jump.host])


def login_words(options: SshOptions) -> list[str]:
    """Options of ssh for keys and the host in between."""
    words = _known_hosts(options) + _identity(options.key)
    jump = jump_command(options)
    return words if jump is None else [*words, "-o", f"ProxyCommand={jump}"]


def known_hosts_option(file: Path) -> str:
    """Ssh's option for the file with hosts' public keys. ssh takes several, divided by blanks."""
    text = str(file)
    return f'UserKnownHostsFile="{text}"' if any(map(str.isspace, text)) else f"UserKnownHostsFile={text}"


def _known_hosts(options: SshOptions) -> list[str]:
    if options.known_hosts is None:
        return []
    return ["-o", known_hosts_option(options.known_hosts), "-o", "GlobalKnownHostsFile=/dev/null"]


def _identity(key: Path | None) -> list[str]:
    return [] if key is None else ["-i", str(key), "-o", "IdentitiesOnly=yes"]


def ssh_command(options: SshOptions, address: str, port: int, control: Path, socket: Path) -> list[str]:
    """The command of one connection: no terminal, no command, one forwarded socket."""
    words = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "ssh",
        "-N",
        "-T",
        "-M",
        "-S",
        str(control),
        "-o",
        "BatchMode=yes",
        "-o",
        "StrictHostKeyChecking=yes",
        "-o",
        "ExitOnForwardFailure=yes",
        "-o",
        "StreamLocalBindUnlink=yes",
        "-o",
        "StreamLocalBindMask=0177",
        "-o",
        "ControlPersist=no",
        "-o",
        f"ConnectTimeout={math.ceil(options.connect_s)}",
        "-o",
        "ServerAliveInterval=1",
        "-o",
        f"ServerAliveCountMax={max(1, math.ceil(options.silence_s) - 1)}",
    ]
    return [
        *words,
        *login_words(options),
        "-p",
        str(port),
        "-L",
        f"{socket}:{AGENT_SOCKET}",
        f"{options.user}@{address}",
    ]


class SshTunnel(Tunnel):
    """One SSH connection to one host. To open several at once, make all and then `wait` for each.

    Args:
        name: of the host, for messages.
        folder: for the socket and the log; a short path.
    """

    def __init__(self, name: str, address: str, port: int, options: SshOptions, folder: Path) -> None:
        self.name = name
        self._login = replace(Login.of(options, address, port), enter="'./backchannel testbed site' enters it")
        self._jump = Login.of_jump(options)
        self.socket = folder / f"{name}.sock"
        self._log = folder / f"{name}.ssh.log"
        self._connect_s = options.connect_s
        words = ssh_command(options, address, port, folder / f"{name}.ctl", self.socket)
        with self._log.open("wb") as log:
            # In a new session, because Ctrl-C is for the runner.
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self) -> None:
        """Waits until the socket takes connections.

        Raises:
            HostLost: the host does not answer.
            TestbedError: it refuses the connection; with the remedy.
        """
        deadline = time.monotonic() + 2 * self._connect_s
        # ssh makes the file some time before it listens.
        while not listens(self.socket):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                output = self._output()
                kind = HostLost if not output.strip() or any(sign in output for sign in AWAY) else TestbedError
                raise kind(f"host {self.name}: {meaning(output, self._login, self._jump)}")
            time.sleep(0.01)

    def failure(self) -> str | None:
        """From ssh's last message."""
        if self._process.poll() is None:
            return None
        return f"host {self.name} was lost: {meaning(self._output(), self._login, self._jump)}"

    def close(self) -> None:
        """Ends the connection."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait()

    def _output(self) -> str:
        return self._log.read_text(errors="replace")


def has_passphrase(key: Path) -> bool:
    """Whether a private key is encrypted. ssh does not say so when it may not ask: it leaves the key out."""
    words = ["ssh-keygen", "-y", "-P", "", "-f", str(key)]
    if not key.is_file():
        return False
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        return False
    return done.returncode != 0 and "passphrase" in done.stderr


#: In place of a user or key that nobody named.
CHOSEN_BY_SSH = "that ssh chose"


@dataclass(frozen=True)
class Login:
    """A login that failed, as MEANINGS words it."""

    address: str
    port: int
    user: str = CHOSEN_BY_SSH
    #: File of the private key.
    key: str = CHOSEN_BY_SSH
    #: File of the hosts' public keys.
    known: str = "known_hosts"
    #: Remedy for a key that the host does not accept.
    enter: str = "enter its public half there"

    @classmethod
    def of(cls, options: SshOptions, address: str, port: int) -> Login:
        """The login by these options."""
        key, known = str(options.key or CHOSEN_BY_SSH), str(options.known_hosts or "known_hosts")
        return cls(address, port, options.user, key, known)

    @classmethod
    def of_jump(cls, options: SshOptions) -> Login | None:
        """The login at the host in between; None without one."""
        jump = options.jump
        if jump is None:
            return None
        login = replace(options, user=jump.user or CHOSEN_BY_SSH, key=options.jump_key or options.key)
        return cls.of(login, jump.host, jump.port)


def meaning(output: str, login: Login, jump: Login | None = None) -> str:
    """Cause and remedy of an ssh failure, from its output. `jump` is the login at the host in between."""
    if jump is not None and jump.address in output:
        return f"at the host in between (proxy_jump), {meaning(output, jump)}"
    if "Permission denied" in output and has_passphrase(Path(login.key)):
        output = f"{LOCKED}\n{output}"
    for sign, text in MEANINGS:
        if sign in output:
            return text.format(**vars(login))
    lines = output.strip().splitlines()
    return lines[-1] if lines else f"the connection to {login.address} ended without a message"
