"""Unit files of the module `service`. Labs in namespaces have no systemd."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.ansible.conftest import collection_module


@pytest.fixture
def unit() -> Callable[..., list[str]]:
    """Lines of the unit for an account and its capabilities."""
    systemd = collection_module("modules.service").Systemd

    def lines(user: str, *capabilities: str) -> list[str]:
        wanted = {
            "name": "example", "description": "", "command": ["/bin/true"], "user": user, "folders": {},
            "environment": {}, "capabilities": list(capabilities),
        }  # fmt: skip
        return list(systemd(wanted).text("0").splitlines())

    return lines


def test_root_keeps_its_capabilities_unless_some_are_listed(unit: Callable[..., list[str]]) -> None:
    assert not [line for line in unit("root") if "Capabilit" in line]
    assert "CapabilityBoundingSet=CAP_CHOWN CAP_SETUID" in unit("root", "chown", "setuid")


def test_another_account_has_exactly_the_listed_capabilities(unit: Callable[..., list[str]]) -> None:
    for line in ("AmbientCapabilities=", "CapabilityBoundingSet="):
        assert line in unit("backchannel-site")
        assert f"{line}CAP_NET_RAW" in unit("backchannel", "net_raw")


def test_a_service_restarts_without_a_limit(unit: Callable[..., list[str]]) -> None:
    lines = unit("root")
    assert "Restart=always" in lines
    assert lines.index("[Unit]") < lines.index("StartLimitIntervalSec=0") < lines.index("[Service]")
