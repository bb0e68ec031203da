"""What went wrong with which host, in one sentence each, after all that Ansible has to say."""

from __future__ import annotations

import sys
from pathlib import Path

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: backchannel
type: aggregate
short_description: One sentence for each host that is in trouble
description:
  - At the end of a playbook, says of every host that failed or cannot be reached why, and what to do about it.
  - Says so when nothing was changed anywhere.
author: Backchannel
"""

ROOT = Path(__file__).resolve().parents[3]


class CallbackModule(CallbackBase):
    """The first trouble of each host is told; what follows from it is Ansible's to tell."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "backchannel"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        self._troubles = {}

    def v2_runner_on_failed(self, result, ignore_errors=False):
        """A task failed; its module has said why."""
        if not ignore_errors:
            self._note(result, lambda said: said)

    def v2_runner_on_unreachable(self, result):
        """The connection plugin has repeated what ssh said."""
        self._note(result, lambda said: self._meaning(said, result.host.get_vars()))

    def v2_playbook_on_stats(self, stats):
        """The end of the playbook."""
        for host, said in self._troubles.items():
            self._display.display(f"backchannel: host {host}: {said}", stderr=True)
        if self._troubles and not any(stats.changed.values()):
            self._display.display("backchannel: nothing was changed on any host", stderr=True)

    def _note(self, result, told):
        said = str(result.result.get("msg") or "it failed without a word").strip()
        for ansibles in ("Task failed: ", "Module failed: ", "Action failed: "):
            said = said.removeprefix(ansibles)
        self._troubles.setdefault(result.host.get_name(), told(said))

    @staticmethod
    def _meaning(said, host):
        # At the end: this repository has a folder called ansible, which must not hide the package.
        if str(ROOT) not in sys.path:
            sys.path.append(str(ROOT))
        from testbed.tunnels import meaning

        known = host.get("ansible_ssh_common_args", "").partition("UserKnownHostsFile=")[2]
        facts = {
            "address": host.get("ansible_host", "its address"),
            "port": host.get("ansible_port", 22),
            "user": host.get("ansible_user", "that ssh chose"),
            "key": host.get("ansible_ssh_private_key_file", "that ssh chose"),
            "known": known or "known_hosts",
            "enter": "enter its public half there, by 'ssh-copy-id' or by hand",
        }
        return meaning(said, facts)
