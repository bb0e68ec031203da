#!/usr/bin/python
"""A service of Backchannel's: under systemd where the host has it, by start-stop-daemon where it has not."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time

from ansible.module_utils.backchannel import (
    CONFIGURATION,
    Trouble,
    account,
    away,
    identity,
    keep_file,
    keep_folder,
    keep_secret,
    leave_account,
    read,
    refuse_if_held,
    run,
    tidy,
    write,
)

DOCUMENTATION = """
module: backchannel_service
short_description: A long-running program of Backchannel's, with its account and folders
description:
  - Makes the account, files and folders that the service needs; starts it anew when anything it depends on changed.
  - A host without systemd (a container, a namespace) gets the same command through start-stop-daemon and setpriv.
options:
  name:
    type: str
    required: true
    description: Of the service.
  description:
    type: str
    default: ""
    description: For people.
  state:
    choices: [started, absent]
    default: started
    type: str
    description: Whether it runs.
  command:
    type: list
    elements: str
    default: []
    description: Program and arguments.
  user:
    type: str
    required: true
    description: System account that it runs as; made if there is none.
  capabilities:
    type: list
    elements: str
    default: []
    description:
      - What it may do beyond its account, such as C(net_raw); and nothing else, where some are named or the account is
        not root's. Root without any keeps all of them.
  environment:
    type: dict
    default: {}
    description: Variables.
  folders:
    type: dict
    default: {}
    description: Folders of the account, and their modes (such as C("0700")).
  files:
    type: dict
    default: {}
    description: Small files, by path; owned by root, readable by all.
  secrets:
    type: dict
    default: {}
    description: Small files that only the account can read, by path.
  watch:
    type: list
    elements: str
    default: []
    description: Files and folders; when they change, the service is started anew.
  ready:
    type: path
    description: Something that exists once the service is ready.
  remove:
    type: list
    elements: str
    default: []
    description: What else goes with O(state=absent), such as data.
author: Backchannel
"""

#: A machine that is busy, or emulated, takes a while over Python's imports.
READY_S = 60.0
#: What has nothing to show for itself must live this long.
ALIVE_S = 1.0


def converge(wanted, report):
    """Brings the service to what is wanted."""
    refuse_if_held()
    service = Systemd(wanted) if os.path.isdir("/run/systemd/system") else Daemon(wanted)
    if wanted["state"] == "absent":
        return remove(wanted, report, service)
    account(report, wanted["user"], wanted["name"])
    for path, mode in sorted(wanted["folders"].items()):
        keep_folder(report, path, wanted["user"], int(str(mode), 8))
    for path, text in sorted(wanted["files"].items()):
        keep_file(report, path, text)
    for path, text in sorted(wanted["secrets"].items()):
        keep_secret(report, path, text, wanted["user"])
    watched = [*wanted["watch"], *sorted(wanted["files"]), *sorted(wanted["secrets"])]
    changed = keep_file(report, service.path, service.text(fingerprint(watched)))
    running = service.running()
    if changed or not running:
        if not running:
            report.note("%s: not running" % wanted["name"], "%s: running" % wanted["name"])
        if not report.check:
            service.stop()
            if wanted["ready"] and os.path.lexists(wanted["ready"]):
                os.unlink(wanted["ready"])
            service.start()
            wait_until_ready(wanted, service)
    return report.as_result()


def remove(wanted, report, service):
    """Ends the service; its files, folders and account go."""
    if service.running() and report.note("%s: running" % wanted["name"], "%s: not running" % wanted["name"]):
        service.stop()
    for path in [service.path, *service.leavings(), *sorted(wanted["files"]), *sorted(wanted["secrets"])]:
        keep_file(report, path, None) if path == service.path else away(report, path)
    for path in [*sorted(wanted["folders"]), *wanted["remove"]]:
        away(report, path)
    service.forgotten()
    leave_account(report, wanted["user"], wanted["name"])
    return report.as_result()


def fingerprint(paths):
    """Changes when one of these files does, or what a link among them points at."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(os.path.realpath(path).encode())
        members = sorted(os.listdir(path)) if os.path.isdir(path) and not os.path.islink(path) else [""]
        for member in members:
            whole = os.path.join(path, member) if member else path
            if os.path.isfile(whole):
                with open(whole, "rb") as file:
                    digest.update(member.encode() + hashlib.sha256(file.read()).digest())
    return digest.hexdigest()[:16]


def wait_until_ready(wanted, service):
    """Until it is, or has died.

    Raises:
        Trouble: with the last line that it said.
    """
    began = time.monotonic()
    deadline = began + READY_S
    while True:
        alive = service.running()
        ready = os.path.exists(wanted["ready"]) if wanted["ready"] else time.monotonic() > began + ALIVE_S
        if alive and ready:
            return
        # A daemon writes down its process number a moment after it was started.
        if time.monotonic() > (deadline if alive else began + ALIVE_S):
            said = service.said()
            if alive:
                raise Trouble(
                    "%s runs, but is not ready after %.0f s: %s is missing; its last words: %s"
                    % (wanted["name"], READY_S, wanted["ready"], said[-1] if said else "none")
                )
            raise Trouble("%s did not start: %s" % (wanted["name"], said[-1] if said else "it said nothing"))
        time.sleep(0.02)


class Systemd:
    """A unit."""

    def __init__(self, wanted):
        self._wanted = wanted
        self._unit = wanted["name"] + ".service"
        self.path = "/etc/systemd/system/" + self._unit

    def text(self, fingerprint_):
        """The unit's file."""
        wanted = self._wanted
        lines = [
            "# Written by Ansible; it depends on files with the fingerprint %s." % fingerprint_,
            "[Unit]",
            "Description=" + (wanted["description"] or wanted["name"]),
            "After=network.target",
            # What a service waits for may be away for hours; it is not given up after five tries.
            "StartLimitIntervalSec=0",
            "[Service]",
            "ExecStart=" + " ".join(quoted(word) for word in wanted["command"]),
            "User=" + wanted["user"],
            "Restart=always",
            "RestartSec=1",
            "NoNewPrivileges=yes",
            "UMask=0077",
        ]
        # An empty bounding set would take from root what makes it root: a worker's cells could have no namespaces.
        if wanted["capabilities"] or wanted["user"] != "root":
            granted = " ".join("CAP_" + one.upper() for one in wanted["capabilities"])
            lines += ["AmbientCapabilities=" + granted, "CapabilityBoundingSet=" + granted]
        if any(path.startswith("/run/") for path in wanted["folders"]):
            lines += [
                "RuntimeDirectory=" + path[len("/run/") :] for path in wanted["folders"] if path.startswith("/run/")
            ]
            lines += ["RuntimeDirectoryMode=0700"]
        lines += ["Environment=" + quoted("%s=%s" % item) for item in sorted(wanted["environment"].items())]
        return "\n".join([*lines, "[Install]", "WantedBy=multi-user.target"]) + "\n"

    def running(self):
        """Whether it is active."""
        return run(["systemctl", "is-active", self._unit], good=(0, 3, 4)).strip() == "active"

    def start(self):
        """Now, and at every boot."""
        run(["systemctl", "daemon-reload"])
        run(["systemctl", "enable", "--quiet", self._unit])
        run(["systemctl", "start", self._unit])

    def stop(self):
        """Now."""
        run(["systemctl", "stop", self._unit], good=(0, 5))

    def said(self):
        """Its last lines."""
        return run(["journalctl", "-u", self._unit, "-n", "5", "-o", "cat", "--no-pager"]).splitlines()

    def leavings(self):
        """What enabling left."""
        return ["/etc/systemd/system/multi-user.target.wants/" + self._unit]

    def forgotten(self):
        """Its file is gone."""
        run(["systemctl", "daemon-reload"])


def quoted(word):
    """For a unit's file."""
    return '"%s"' % word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


class Daemon:
    """start-stop-daemon with a file for the process id."""

    def __init__(self, wanted):
        self._wanted = wanted
        self.path = "%s/services/%s.json" % (CONFIGURATION, wanted["name"])
        self._pid_file = "/run/%s.pid" % wanted["name"]
        self._log = "/var/log/%s.log" % wanted["name"]

    def text(self, fingerprint_):
        """What it was started with."""
        wanted = self._wanted
        kept = {key: wanted[key] for key in ("command", "user", "capabilities", "environment")}
        return json.dumps({**kept, "fingerprint": fingerprint_}, indent=1, sort_keys=True) + "\n"

    def _pid(self):
        text = (read(self._pid_file) or "").strip()
        return int(text) if text.isdigit() else None

    def running(self):
        """Whether the process is there, and is the service and no other that got its number."""
        pid = self._pid()
        # On its way through setpriv and env the name is among the arguments, later in the environment. A program that
        # writes its title over both (nginx) still tells its command there.
        mark = "BACKCHANNEL_SERVICE=" + self._wanted["name"] + "\0"
        told = [read("/proc/%d/%s" % (pid, one)) or "" for one in ("cmdline", "environ")] if pid is not None else []
        command = " ".join(self._wanted["command"])
        return any(mark in one or (command and command in one.replace("\0", " ")) for one in told)

    def start(self):
        """In the background, with its capabilities and no others."""
        wanted = self._wanted
        uid, gid = identity(wanted["user"])
        granted = ",".join("+" + one for one in wanted["capabilities"])
        words = ["/usr/bin/setpriv", "--reuid", str(uid), "--regid", str(gid), "--clear-groups", "--no-new-privs"]
        if granted:
            words += [
                "--inh-caps",
                "-all," + granted,
                "--ambient-caps",
                "-all," + granted,
                "--bounding-set",
                "-all," + granted,
            ]
        words += ["/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "BACKCHANNEL_SERVICE=" + wanted["name"]]
        words += ["%s=%s" % item for item in sorted(wanted["environment"].items())]
        write(self._log, "")
        run(
            [
                "start-stop-daemon",
                "--start",
                "--background",
                "--make-pidfile",
                "--pidfile",
                self._pid_file,
                "--output",
                self._log,
                "--startas",
                words[0],
                "--",
                *words[1:],
                *wanted["command"],
            ]
        )

    def stop(self):
        """And what it started: it is told to end, and made to after a while."""
        pid = self._pid()
        if pid is not None and self.running():
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + 10.0
            while self.running():
                if time.monotonic() > deadline:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.02)
        write(self._pid_file, None)

    def said(self):
        """Its last lines."""
        return (read(self._log) or "").strip().splitlines()[-5:]

    def leavings(self):
        """Beside its definition."""
        return [self._pid_file, self._log]

    def forgotten(self):
        """Empty folders of ours."""
        tidy()
