"""Runs playbooks on a lab in namespaces and records their results."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from testbed import node_binary
from testbed.collection import link_collection

#: End systems, a router with an emulated queue before a real modem, a base station, a modem box and a radio box.
CAMPAIGN = """
name: everything
title: One of each
network:
  nodes:
    - {name: a, kind: host}
    - {name: r, kind: router}
    - {name: b, kind: base-station}
    - {name: m, kind: host}
  links:
    - {name: dial, ends: [a, r], forward: {rate: 28.8 kbit/s, delay: 10 ms}}
    - {name: line, ends: [r, b], forward: {rate: 1 Mbit/s, delay: 10 ms}}
    - {name: air, kind: wavelan, ends: [b, m], forward: {rate: 2 Mbit/s}}
workload:
  - {name: bulk, from: a, to: m}
duration: 3 s
"""
HOSTS: dict[str, Any] = {
    "plugin": "backchannel",
    "campaign": "everything.yaml",
    "connection": "namespace",
    "hosts": {"a": {}, "r": {}, "b": {}, "m": {"also": ["worker", "results-site"]}, "box1": {}, "box2": {}},
    "links": {"dial": {"real": "modem", "queue_at": "r"}, "line": {"box": "box1"}, "air": {"box": "box2"}},
    "vars": {
        "worker_scheduler": "tcp://127.0.0.1:8786",
        # A real worker installs these packages from the network.
        "worker_python": sys.executable,
        "results_site_python": sys.executable,
        # Only root may be able to read that Python's folder.
        "results_site_user": "root",
        "results_site_token": "of-the-lab-0123456789",
    },
}
#: Labs in namespaces have no network, so nginx must be installed on this machine.
NGINX = Path("/usr/sbin/nginx").exists()
if NGINX:
    HOSTS["vars"] |= {
        "results_site_names": ["results.lab"],
        "results_site_proxy_certificate": "/etc/ssl/lab.crt",
        "results_site_proxy_key": "/etc/ssl/lab.key",
    }


ANSIBLE = node_binary.ROOT / "ansible"


def collection_module(name: str) -> Any:
    """A Python module of the collection's `plugins`, such as `modules.network`, by Ansible's own loader."""
    _load_plugins()
    return importlib.import_module(f"ansible_collections.backchannel.testbed.plugins.{name}")


def _load_plugins() -> None:
    if "ansible_collections" not in sys.modules:
        from ansible.plugins.loader import init_plugin_loader

        init_plugin_loader([str(link_collection())])


def rendered(template: str, variables: dict[str, Any]) -> str:
    """A role's template with variables, which may refer to each other, as Ansible renders it."""
    _load_plugins()
    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar, trust_as_template

    def trusted(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: trusted(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [trusted(entry) for entry in value]
        return trust_as_template(value) if isinstance(value, str) else value

    return str(Templar(DataLoader(), trusted(variables)).template(trust_as_template(template)))


def write_yaml(path: Path, value: Any) -> Path:
    """Writes a value as YAML."""
    with path.open("w") as file:
        YAML().dump(value, file)
    return path


def recording(inventory: Path) -> dict[str, str]:
    """Environment variables that make Ansible record its results, for `recorded`."""
    return {
        "ANSIBLE_CALLBACK_PLUGINS": str(node_binary.ROOT / "tests/support/callbacks"),
        "ANSIBLE_CALLBACKS_ENABLED": "record,backchannel.testbed.summary",
        "BACKCHANNEL_RECORD": str(inventory.with_suffix(".record")),
    }


def in_lab(
    inventory: Path, script: str, timeout_s: float = 300, tree: Path = Path("/"), **more: str
) -> subprocess.CompletedProcess[str]:
    """Runs a shell script in the cell of a lab whose hosts have this file tree. The script can call `backchannel`."""
    shell = f'exec 2>&1\nbackchannel() {{ "{sys.executable}" -m experiments "$@"; }}\n{script}'
    words = ["testbed", "rehearse", "-i", str(inventory), "--tree", str(tree), "--", "bash", "-c", shell]
    return subprocess.run(
        [sys.executable, "-m", "experiments", *words],
        capture_output=True, text=True, timeout=timeout_s, check=False,
        env={
            **os.environ,
            **recording(inventory),
            **more,
        },
    )  # fmt: skip


def recorded(inventory: Path) -> list[dict[str, Any]]:
    """Recorded results, in order."""
    path = inventory.with_suffix(".record")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture(scope="session", autouse=True)
def collection() -> None:
    """Links the collection, as the launcher does."""
    link_collection()


@pytest.fixture(scope="session")
def lab_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inventory of a lab with every kind of host."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "everything.yaml").write_text(CAMPAIGN)
    return write_yaml(folder / "hosts.yml", HOSTS)
