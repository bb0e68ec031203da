"""A lab over SSH: each host is a set of namespaces with sshd, address, keys and file tree."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from experiments.language.problems import CampaignError
from tests.support.ansible_lab import write_yaml
from tests.support.campaign_texts import asymmetric_path

CAMPAIGN = f"""
name: small
title: A small campaign
{asymmetric_path(reverse="128 kbit/s, delay: 20 ms")}workload:
  - {{name: forward, from: server, to: client, start: [0 s, 0.2 s]}}
duration: 4 s
sweep:
  network.reverse.queue.policy: [droptail, acks-first]
"""
#: For scripts in a lab: `inside HOST COMMAND...`, with underscores for the hyphens of the host's name.
INSIDE = """
eval "$(python3 -c "import json
for name, pid in json.load(open('$BACKCHANNEL_LAB')).items(): print(f'pid_{name.replace(chr(45), chr(95))}={pid}')")"
inside() { pid=pid_$1; shift; nsenter --target "${!pid}" --net --mount --uts --ipc --pid -- "$@"; }
"""
NODES = ("server", "router1", "router2", "client")
LINKS = ("server-access", "bottleneck", "client-access")


def lab(
    folder: Path,
    campaign: str = CAMPAIGN,
    links: dict[str, Any] | None = None,
    ssh: dict[str, Any] | None = None,
    **more: Any,
) -> Path:
    """The inventory of a lab with a machine for each node and one link box."""
    (folder / "small.yaml").write_text(campaign)
    hosts: dict[str, Any] = {
        f"pc{number}": {"plays": node, "address": f"192.168.50.{10 + number}"} for number, node in enumerate(NODES)
    }
    hosts["box"] = {"address": "192.168.50.20"}
    return write_yaml(
        folder / "hosts.yml",
        {
            "plugin": "backchannel",
            "campaign": "small.yaml",
            "connection": "ssh",
            "ssh": {"key": "key", "known_hosts": "known_hosts", **(ssh or {})},
            "hosts": hosts,
            "links": links or {link: {"box": "box"} for link in LINKS},
            # Namespaces share the clock of their machine.
            "vars": {"common_clock": "none"},
            **more,
        },
    )


def changed(path: Path, change: Any) -> Path:
    """An inventory after a change to its document."""
    document = YAML().load(path.read_text())
    change(document)
    return write_yaml(path, document)


def refusal(read: Callable[[Path], object], path: Path) -> str:
    """The message of one line with which an inventory is rejected."""
    with pytest.raises(CampaignError) as error:
        read(path)
    sentence = str(error.value)
    assert len(sentence.splitlines()) == 1
    return sentence


@pytest.fixture(scope="session")
def sshd(emulation: None) -> None:
    """Fails where there is no sshd."""
    if not (shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") and shutil.which("ssh")):
        pytest.fail("there is no sshd: ./backchannel test installs it")


@pytest.fixture(scope="session")
def faketime() -> None:
    """Fails where nothing can give a host in namespaces a clock of its own."""
    if not any(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")):
        pytest.fail("no host can have a clock of its own without libfaketime: ./backchannel test installs it")


def output_of(done: subprocess.CompletedProcess[str]) -> str:
    """The end of a program's output, for a failed assertion."""
    return done.stdout[-4000:] + done.stderr[-4000:]
