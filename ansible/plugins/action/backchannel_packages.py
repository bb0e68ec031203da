"""Runs library/backchannel_packages.py on a host, the short way (backchannel_module.py)."""

from __future__ import annotations

from ansible.plugins.loader import action_loader

ActionModule = action_loader.get("backchannel_module", class_only=True)
