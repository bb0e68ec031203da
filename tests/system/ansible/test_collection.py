"""The collection, built and installed as Galaxy does, in a folder without the checkout."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from testbed import node_binary
from tests.support.ansible_lab import HOSTS, in_lab, write_yaml
from tests.support.waiting import HANGS_S

BIN = Path(sys.executable).parent
#: A playbook of somebody else, with two roles of the collection and none of its plugins for labs.
PLAYBOOK = """
- name: A router of one's own
  hosts: mine
  gather_facts: false
  roles:
    - role: backchannel.testbed.interfaces
      vars: {interfaces_kind: router, interfaces_addresses: [{name: b-eth0, address: 10.9.0.1/24}]}
    - role: backchannel.testbed.capture
"""
WHOLE = """
- name: The whole testbed
  ansible.builtin.import_playbook: backchannel.testbed.site
"""


def q(path: Path) -> str:
    """For a shell: a checkout may be in a folder with a space."""
    return shlex.quote(str(path))


def galaxy(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "ansible-galaxy", "collection", *words], capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
    )  # fmt: skip


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search path for collections with the installed archive."""
    folder = tmp_path_factory.mktemp("galaxy")
    built = galaxy("build", node_binary.ROOT / "ansible", "--output-path", folder)
    assert built.returncode == 0, built.stderr
    (archive,) = folder.glob("backchannel-testbed-*.tar.gz")
    done = galaxy("install", archive, "--collections-path", folder / "collections", "--offline")
    assert done.returncode == 0, done.stderr
    return folder / "collections"


def test_the_archive_has_every_role_and_plugin_and_nothing_of_a_lab(installed: Path) -> None:
    (archive,) = installed.parent.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.split("/")[0] for name in packed.getnames()}
        files = json.loads(packed.extractfile("FILES.json").read())["files"]  # type: ignore[union-attr]
    assert names <= {
        "FILES.json", "MANIFEST.json", "README.md", "CHANGELOG.md", "LICENSE", "ansible.cfg", "meta", "playbooks",
        "plugins", "roles", ".ansible-lint",
    }  # fmt: skip
    roles = {path.name for path in (node_binary.ROOT / "ansible/roles").iterdir()}
    assert {Path(entry["name"]).name for entry in files if Path(entry["name"]).parent.name == "roles"} == roles
    assert (installed / "ansible_collections/backchannel/testbed/plugins/plugin_utils/checkout.py").is_file()


@pytest.mark.emulated
@pytest.mark.shares_cpu
def test_a_playbook_elsewhere_uses_it(installed: Path, lab_files: Path, tmp_path: Path) -> None:
    """With plain inventories and no checkout: roles. With BACKCHANNEL_ROOT: labs too."""
    (tmp_path / "mine.yml").write_text(PLAYBOOK)
    (tmp_path / "whole.yml").write_text(WHOLE)
    host = {"ansible_connection": "backchannel.testbed.namespace", "ansible_namespace": "PID"}
    write_yaml(tmp_path / "plain.yml", {"mine": {"hosts": {"b": host}}})
    write_yaml(
        tmp_path / "lab.yml",
        {**HOSTS, "plugin": "backchannel.testbed.lab", "campaign": str(lab_files.with_name("everything.yaml"))},
    )
    script = f"""
    cd {q(tmp_path)}
    touch ansible.cfg
    unset BACKCHANNEL_ROOT ANSIBLE_CONFIG ANSIBLE_CALLBACKS_ENABLED ANSIBLE_CALLBACK_PLUGINS PYTHONPATH
    export ANSIBLE_COLLECTIONS_PATH={q(installed)} ANSIBLE_PYTHON_INTERPRETER=/usr/bin/python3
    export ANSIBLE_INVENTORY_ENABLED=backchannel.testbed.lab,yaml ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED=true
    pid=$(python3 -c "import json, os; print(json.load(open(os.environ['BACKCHANNEL_LAB']))['b'])")
    sed -i "s/PID/pid:$pid/" plain.yml
    play() {{ {q(BIN)}/ansible-playbook "$@"; echo "status $?"; }}
    echo "== plain"; play -i plain.yml mine.yml
    echo "== addresses"; nsenter --target "$pid" --net ip -o address show dev b-eth0
    echo "== again"; play -i plain.yml mine.yml
    echo "== rootless"; env -u BACKCHANNEL_NODE {q(BIN)}/ansible-inventory -i lab.yml --list
    export BACKCHANNEL_ROOT={q(node_binary.ROOT)}
    echo "== rooted"; {q(BIN)}/ansible-inventory -i lab.yml --graph
    echo "== site"; play -i lab.yml whole.yml --limit a --check --tags nodes
    """
    done = in_lab(lab_files, script, timeout_s=HANGS_S)
    parts = {name: text for name, _, text in (part.partition("\n") for part in done.stdout.split("== ")[1:])}
    assert "status 0" in parts["plain"], parts["plain"]
    assert "10.9.0.1/24" in parts["addresses"]
    assert "changed=0" in parts["again"]
    assert "status 0" in parts["again"]
    assert "needs a checkout of Backchannel, and this collection is installed without one" in parts["rootless"]
    assert "set BACKCHANNEL_ROOT" in parts["rootless"]
    assert "@link_boxes" in parts["rooted"], parts["rooted"]
    assert "status 0" in parts["site"], parts["site"]
    # The roles of a play have the tag too, and the checks run with every tag.
    assert "Set the interfaces of the host's part" in parts["site"]
    assert "Check holder, system, kernel" in parts["site"]
