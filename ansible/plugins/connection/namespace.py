"""Connection to namespaces of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess

from ansible.errors import AnsibleConnectionFailure, AnsibleFileNotFound

from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: namespace
short_description: Namespaces of this machine
description:
  - Enters the network, mount, UTS and PID namespaces of a process, or a named network namespace.
options:
  namespace:
    description: C(pid:1234), or the name of a network namespace (C(ip netns list)).
    default: inventory_hostname
    vars:
      - name: inventory_hostname
      - name: ansible_namespace
author: Backchannel (@backchannel)
"""


class Connection(ConnectionBase):
    """Runs commands and copies files with nsenter."""

    transport = "backchannel.testbed.namespace"
    has_pipelining = True

    def _connect(self):
        if not self._connected:
            where = self.get_option("namespace")
            kind, _, pid = where.partition(":")
            if kind == "pid" and pid.isdigit():
                self._enter = ["nsenter", "--target", pid, "--net", "--mount", "--uts", "--pid", "--"]
                exists = os.path.exists(f"/proc/{pid}/ns/net")
            else:
                self._enter = ["nsenter", f"--net=/run/netns/{where}", "--"]
                exists = os.path.exists(f"/run/netns/{where}")
            if shutil.which("nsenter") is None:
                raise AnsibleConnectionFailure("nsenter is missing on this machine: apt-get install util-linux")
            if os.geteuid() != 0:
                raise AnsibleConnectionFailure("entering namespaces needs root: run this with sudo")
            if not exists:
                raise AnsibleConnectionFailure(
                    f"namespace '{where}' does not exist; './backchannel testbed rehearse' makes those of a lab, "
                    "'ip netns add' creates named ones"
                )
            self._connected = True
        return self

    def exec_command(self, cmd, in_data=None, sudoable=True):
        """Runs a shell command in the namespaces."""
        self._connect()
        done = subprocess.run([*self._enter, "/bin/sh", "-c", cmd], input=in_data or b"", capture_output=True)
        return done.returncode, done.stdout, done.stderr

    def put_file(self, in_path, out_path):
        """Copies a file in."""
        self._connect()
        if not os.path.exists(in_path):
            raise AnsibleFileNotFound(f"{in_path} does not exist")
        with open(in_path, "rb") as source:
            self._copy(["/bin/sh", "-c", 'cat >"$0"', out_path], stdin=source)

    def fetch_file(self, in_path, out_path):
        """Copies a file out."""
        self._connect()
        with open(out_path, "wb") as target:
            self._copy(["cat", in_path], stdout=target)

    def close(self):
        """Keeps nothing open."""
        self._connected = False

    def _copy(self, words, **streams):
        done = subprocess.run([*self._enter, *words], stderr=subprocess.PIPE, **streams)
        if done.returncode != 0:
            raise AnsibleConnectionFailure(f"copying failed: {done.stderr.decode(errors='replace').strip()}")
