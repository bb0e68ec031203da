#!/usr/bin/python
"""A service of Backchannel, under systemd or start-stop-daemon."""

from __future__ import annotations

DOCUMENTATION = """
module: service
short_description: Long-running program with its account, folders and secrets
description:
  - Creates the account, folders and secrets of a service, and restarts it when one of them or O(watch) changes.
  - Uses a systemd unit. A host without systemd (a container or namespace) gets the same command by C(start-stop-daemon)
    and C(setpriv).
  - With O(state=absent) it stops the service and removes what it created.
options:
  name:
    type: str
    required: true
    description: Name of the service.
  description:
    type: str
    default: ""
    description: Description of the systemd unit; the name by default.
  state:
    choices: [started, absent]
    default: started
    type: str
    description: Whether the service runs.
  command:
    type: list
    elements: str
    default: []
    description: Program and arguments.
  user:
    type: str
    required: true
    description: System account of the service, created if it does not exist.
  capabilities:
    type: list
    elements: str
    default: []
    description:
      - Capabilities of the service, such as C(net_raw), without C(CAP_). It has no others.
      - An empty list leaves root all capabilities and gives other accounts none.
  environment:
    type: dict
    default: {}
    description: Environment variables.
  folders:
    type: dict
    default: {}
    description: Mode, such as C("0700"), of each folder that the account owns.
  secrets:
    type: dict
    default: {}
    description: Text of each file that only the account can read, by path. It does not appear in diffs.
  watch:
    type: list
    elements: str
    default: []
    description: Files and folders whose change restarts the service.
  ready:
    type: path
    description: Path that exists when the service is ready. Without it the service is ready after 1 s.
  remove:
    type: list
    elements: str
    default: []
    description: Further files and folders that O(state=absent) removes, such as data.
author: Backchannel (@backchannel)
extends_documentation_fragment: [backchannel.testbed.host]
"""

EXAMPLES = """
- name: Run an agent with raw sockets
  backchannel.testbed.service:
    name: backchannel-agent
    user: backchannel
    capabilities: [net_raw]
    command: [/usr/bin/python3, -m, agents.service]
    environment: {PYTHONPATH: /opt/backchannel/current}
    folders: {/run/backchannel: "0700"}
    ready: /run/backchannel/agent.sock
"""

RETURN = """# """

import contextlib
import hashlib
import json
import os
import signal
import time

from ansible_collections.backchannel.testbed.plugins.module_utils.accounts import (
    add_account,
    identity,
    leave_account,
    set_folder,
    set_secret,
)
from ansible_collections.backchannel.testbed.plugins.module_utils.host import (
    CONFIGURATION,
    HostError,
    read,
    refuse_if_held,
    remove_empty_configuration,
    remove_tree,
    run,
    run_module,
    set_file,
    write,
)

#: Python's imports take this long at most on a busy or emulated machine (two hosts in one emulated machine: over 60 s).
READY_S = 180.0
#: A service without `ready` must live this long.
ALIVE_S = 1.0
#: Time between SIGTERM and SIGKILL.
STOP_S = 10.0
ARGUMENTS = {
    "name": {"type": "str", "required": True},
    "description": {"type": "str", "default": ""},
    "state": {"type": "str", "choices": ["started", "absent"], "default": "started"},
    "command": {"type": "list", "elements": "str", "default": []},
    "user": {"type": "str", "required": True},
    "capabilities": {"type": "list", "elements": "str", "default": []},
    "environment": {"type": "dict", "default": {}},
    "folders": {"type": "dict", "default": {}},
    "secrets": {"type": "dict", "default": {}, "no_log": True},
    "watch": {"type": "list", "elements": "str", "default": []},
    "ready": {"type": "path"},
    "remove": {"type": "list", "elements": "str", "default": []},
}


def apply(parameters, changes):
    """Brings the service to the requested state."""
    refuse_if_held()
    service = Systemd(parameters) if os.path.isdir("/run/systemd/system") else Daemon(parameters)
    if parameters["state"] == "absent":
        remove(parameters, changes, service)
        return
    add_account(changes, parameters["user"], parameters["name"])
    for path, mode in sorted(parameters["folders"].items()):
        set_folder(changes, path, parameters["user"], int(str(mode), 8))
    for path, text in sorted(parameters["secrets"].items()):
        set_secret(changes, path, text, parameters["user"])
    watched = [*parameters["watch"], *sorted(parameters["secrets"])]
    changed = set_file(changes, service.path, service.text(fingerprint(watched)))
    running = service.running()
    if not changed and running:
        return
    name, ready = parameters["name"], parameters["ready"]
    if not running:
        changes.add(f"{name}: not running", f"{name}: running")
    if not changes.check_mode:
        service.stop()
        if ready and os.path.lexists(ready):
            os.unlink(ready)
        service.start()
        wait_until_ready(name, ready, service)


def remove(parameters, changes, service):
    """Stops the service and removes its secrets, folders and account."""
    name = parameters["name"]
    if service.running() and changes.add(f"{name}: running", f"{name}: not running"):
        service.stop()
    set_file(changes, service.path, None)
    own = [*service.leftovers(), *sorted(parameters["secrets"]), *sorted(parameters["folders"])]
    for path in [*own, *parameters["remove"]]:
        remove_tree(changes, path)
    service.after_removal()
    leave_account(changes, parameters["user"], name)


def fingerprint(paths):
    """A hash that changes when one of the files does, or the target of a link."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(os.path.realpath(path).encode())
        members = sorted(os.listdir(path)) if os.path.isdir(path) and not os.path.islink(path) else [""]
        for member in members:
            file_path = os.path.join(path, member) if member else path
            if os.path.isfile(file_path):
                with open(file_path, "rb") as file:
                    digest.update(member.encode() + hashlib.sha256(file.read()).digest())
    return digest.hexdigest()[:16]


def wait_until_ready(name, ready, service):
    """Waits until the service is ready.

    Raises:
        HostError: it ended or is not ready in time; with the last line of its log.
    """
    start = time.monotonic()
    while True:
        alive, elapsed_s = service.running(), time.monotonic() - start
        if alive and (os.path.exists(ready) if ready else elapsed_s > ALIVE_S):
            return
        # start-stop-daemon writes the process id shortly after the start, so "not alive" is final only after ALIVE_S.
        if elapsed_s > (READY_S if alive else ALIVE_S):
            log = service.log()
            last = log[-1] if log else "its log is empty"
            if alive:
                raise HostError(
                    f"{name} runs, but {ready} is missing after {READY_S:.0f} s; last line of its log: {last}"
                )
            raise HostError(f"{name} did not start: {last}")
        time.sleep(0.02)


class Systemd:
    """A systemd unit."""

    def __init__(self, parameters):
        self._parameters = parameters
        self._unit = parameters["name"] + ".service"
        self.path = "/etc/systemd/system/" + self._unit

    def text(self, fingerprint_):
        """The unit file."""
        parameters = self._parameters
        lines = [
            f"# Written by Ansible. Fingerprint of the files that the service depends on: {fingerprint_}.",
            "[Unit]",
            "Description=" + (parameters["description"] or parameters["name"]),
            "After=network.target",
            # A worker's scheduler may be away for hours, so the number of restarts is unlimited.
            "StartLimitIntervalSec=0",
            "[Service]",
            "ExecStart=" + " ".join(quoted(word) for word in parameters["command"]),
            "User=" + parameters["user"],
            "Restart=always",
            "RestartSec=1",
            "NoNewPrivileges=yes",
            "UMask=0077",
        ]
        # An empty bounding set would disable root: the cells of a worker could not create namespaces.
        if parameters["capabilities"] or parameters["user"] != "root":
            granted = " ".join("CAP_" + name.upper() for name in parameters["capabilities"])
            lines += ["AmbientCapabilities=" + granted, "CapabilityBoundingSet=" + granted]
        lines += sandbox(parameters)
        runtime = [path[len("/run/") :] for path in parameters["folders"] if path.startswith("/run/")]
        lines += ["RuntimeDirectory=" + path for path in runtime]
        lines += ["RuntimeDirectoryMode=0700"] if runtime else []
        lines += [
            "Environment=" + quoted(f"{name}={value}") for name, value in sorted(parameters["environment"].items())
        ]
        return "\n".join([*lines, "[Install]", "WantedBy=multi-user.target"]) + "\n"

    def running(self):
        """Whether the unit is active."""
        return run(["systemctl", "is-active", self._unit], good=(0, 3, 4)).strip() == "active"

    def start(self):
        """Starts the unit now and at every boot."""
        run(["systemctl", "daemon-reload"])
        run(["systemctl", "enable", "--quiet", self._unit])
        run(["systemctl", "start", self._unit])

    def stop(self):
        """Stops the unit."""
        run(["systemctl", "stop", self._unit], good=(0, 5))

    def log(self):
        """The last 5 lines of its journal."""
        return run(["journalctl", "-u", self._unit, "-n", "5", "-o", "cat", "--no-pager"]).splitlines()

    def leftovers(self):
        """The link that `enable` created."""
        return ["/etc/systemd/system/multi-user.target.wants/" + self._unit]

    def after_removal(self):
        """Makes systemd forget the unit."""
        run(["systemctl", "daemon-reload"])


#: Restrictions of every service. Agents and workers need kernel settings, network namespaces and /dev/net/tun, so these
#: leave out what would hide them.
RESTRICTED = (
    "PrivateTmp=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelLogs=yes",
    "LockPersonality=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
)
#: Further restrictions of a service without capabilities.
UNPRIVILEGED = (
    "PrivateDevices=yes",
    "ProtectClock=yes",
    "ProtectKernelTunables=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "ProtectProc=invisible",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
    # Readers of foreign bytes confine themselves further, with calls that systemd's set lacks.
    "SystemCallFilter=@system-service landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp",
    "SystemCallErrorNumber=EPERM",
)
HOMES = ("/home/", "/root/", "/run/user/")


def sandbox(parameters):
    """Lines of a unit that restrict the service to what it uses."""
    used = [*parameters["folders"], *parameters["command"], *map(str, parameters["environment"].values())]
    lines = list(RESTRICTED)
    if not any(text.startswith(HOMES) for text in used):
        lines.append("ProtectHome=yes")
    if parameters["capabilities"] or parameters["user"] == "root":
        return [*lines, "ProtectSystem=full"]
    writable = [path for path in parameters["folders"] if not path.startswith("/run/")]
    return [*lines, *UNPRIVILEGED, "ProtectSystem=strict", *("ReadWritePaths=" + quoted(path) for path in writable)]


def quoted(word):
    """Quotes a word for a unit file."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


class Daemon:
    """A program that start-stop-daemon runs, with a file for its process id."""

    def __init__(self, parameters):
        self._parameters = parameters
        self._name = parameters["name"]
        self.path = f"{CONFIGURATION}/services/{self._name}.json"
        self._pid_file = f"/run/{self._name}.pid"
        self._log = f"/var/log/{self._name}.log"

    def text(self, fingerprint_):
        """The parameters that the program was started with."""
        kept = {key: self._parameters[key] for key in ("command", "user", "capabilities", "environment")}
        return json.dumps({**kept, "fingerprint": fingerprint_}, indent=1, sort_keys=True) + "\n"

    def _pid(self):
        text = (read(self._pid_file) or "").strip()
        return int(text) if text.isdigit() else None

    def running(self):
        """Whether the process exists and is the service, not a later process with the same id."""
        pid = self._pid()
        if pid is None:
            return False
        # setpriv and env have the marker in their arguments, the program has it in its environment. nginx overwrites
        # both with its title, which contains its command.
        marker = f"BACKCHANNEL_SERVICE={self._name}\0"
        command = " ".join(self._parameters["command"])
        texts = [read(f"/proc/{pid}/{name}") or "" for name in ("cmdline", "environ")]
        return any(marker in text or (command and command in text.replace("\0", " ")) for text in texts)

    def start(self):
        """Starts the program in the background with exactly its capabilities."""
        parameters = self._parameters
        uid, gid = identity(parameters["user"])
        words = ["/usr/bin/setpriv", "--reuid", str(uid), "--regid", str(gid), "--clear-groups", "--no-new-privs"]
        if parameters["capabilities"]:
            granted = "-all," + ",".join("+" + name for name in parameters["capabilities"])
            words += ["--inh-caps", granted, "--ambient-caps", granted, "--bounding-set", granted]
        words += ["/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", f"BACKCHANNEL_SERVICE={self._name}"]
        words += [f"{name}={value}" for name, value in sorted(parameters["environment"].items())]
        write(self._log, "")
        run(
            ["start-stop-daemon", "--start", "--background", "--make-pidfile", "--pidfile", self._pid_file]
            + ["--output", self._log, "--startas", words[0], "--", *words[1:], *parameters["command"]]
        )

    def stop(self):
        """Stops the program, by SIGKILL after 10 s."""
        pid = self._pid()
        if pid is not None and self.running():
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + STOP_S
            # A dying process has no marker any more, but its account cannot be removed until it is gone.
            while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline + STOP_S:
                if time.monotonic() > deadline:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.02)
        write(self._pid_file, None)

    def log(self):
        """The last 5 lines of its log."""
        return (read(self._log) or "").strip().splitlines()[-5:]

    def leftovers(self):
        """Its other files."""
        return [self._pid_file, self._log]

    def after_removal(self):
        """Removes empty configuration folders."""
        remove_empty_configuration()


def main():
    """Entry point."""
    run_module(ARGUMENTS, apply)


if __name__ == "__main__":
    main()
