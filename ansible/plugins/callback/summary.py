"""A summary of failed hosts after Ansible's own."""

from __future__ import annotations

import shlex

from ansible.errors import AnsibleError
from ansible_collections.backchannel.testbed.plugins.plugin_utils import checkout

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: summary
type: aggregate
short_description: One line for each failed host
description:
  - At the end of a playbook, prints for each failed or unreachable host the cause and the remedy.
  - Prints whether a failed playbook changed nothing on any host.
author: Backchannel (@backchannel)
"""

#: Ansible's message that testbed.tunnels explains.
SUDO = "Missing sudo password"


class CallbackModule(CallbackBase):
    """Keeps the first failure of each host. Later ones follow from it."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "backchannel.testbed.summary"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        self._failures = {}

    def v2_runner_on_failed(self, result, ignore_errors=False):
        """Keeps the module's message, or explains sudo's."""
        if not ignore_errors:
            host = result.host.get_vars()
            self._add(result, lambda message: self._explain(message, host) if SUDO in message else message)

    def v2_runner_on_unreachable(self, result):
        """Explains ssh's message."""
        self._add(result, lambda message: self._explain(message, result.host.get_vars()))

    def v2_playbook_on_stats(self, stats):
        """Prints the summary."""
        for host, message in self._failures.items():
            self._display.display(f"backchannel: host {host}: {message}", stderr=True)
        if self._failures and not any(stats.changed.values()):
            self._display.display("backchannel: nothing was changed on any host", stderr=True)

    def _add(self, result, explain):
        message = str(result.result.get("msg") or "failed without a message").strip()
        for prefix in ("Task failed: ", "Module failed: ", "Action failed: "):
            message = message.removeprefix(prefix)
        self._failures.setdefault(result.host.get_name(), explain(message))

    @staticmethod
    def _explain(message, host):
        try:
            checkout.importable()
        except AnsibleError:
            return message  # as Ansible words it
        from testbed.tunnels import CHOSEN_BY_SSH, Login, meaning

        options = shlex.split(host.get("ansible_ssh_common_args", ""))
        known = [word.partition("=")[2].strip('"') for word in options if word.startswith("UserKnownHostsFile=")]
        login = Login(
            address=host.get("ansible_host", "its address"),
            port=host.get("ansible_port", 22),
            user=host.get("ansible_user", CHOSEN_BY_SSH),
            key=host.get("ansible_ssh_private_key_file", CHOSEN_BY_SSH),
            known=known[0] if known else "known_hosts",
            enter="enter its public half there, by 'ssh-copy-id' or by hand",
        )
        return meaning(message, login)
