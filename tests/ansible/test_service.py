"""What the module backchannel_service writes for systemd, which no lab in namespaces has."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from testbed import node_binary

ANSIBLE = node_binary.ROOT / "ansible"


@pytest.fixture
def unit(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Lines of the unit for an account and what it may do; the module is loaded as hosts load it."""
    name = "ansible.module_utils.backchannel"
    shared = ModuleType(name)
    shared.__dict__.update(runpy.run_path(str(ANSIBLE / "module_utils/backchannel.py")))
    monkeypatch.setitem(sys.modules, name, shared)
    systemd: Any = runpy.run_path(str(ANSIBLE / "library/backchannel_service.py"))["Systemd"]

    def lines(user: str, *capabilities: str) -> list[str]:
        wanted = {
            "name": "tried", "description": "", "command": ["/bin/true"], "user": user, "folders": {},
            "environment": {}, "capabilities": list(capabilities),
        }  # fmt: skip
        return list(systemd(wanted).text("0").splitlines())

    return lines


def test_root_keeps_what_it_may_do_unless_capabilities_are_named(unit: Callable[..., list[str]]) -> None:
    assert not [line for line in unit("root") if "Capabilit" in line]
    assert "CapabilityBoundingSet=CAP_CHOWN CAP_SETUID" in unit("root", "chown", "setuid")


def test_another_account_may_do_what_is_named_and_nothing_else(unit: Callable[..., list[str]]) -> None:
    for line in ("AmbientCapabilities=", "CapabilityBoundingSet="):
        assert line in unit("backchannel-site")
        assert f"{line}CAP_NET_RAW" in unit("backchannel", "net_raw")


def test_a_service_that_ends_comes_back_however_often(unit: Callable[..., list[str]]) -> None:
    lines = unit("root")
    assert "Restart=always" in lines
    assert lines.index("[Unit]") < lines.index("StartLimitIntervalSec=0") < lines.index("[Service]")
