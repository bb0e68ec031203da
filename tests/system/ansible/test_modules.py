"""Modules of the collection: their documentation, and that it declares their arguments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ruamel.yaml import YAML

from experiments import inventory
from tests import tables
from tests.support.ansible_lab import ANSIBLE, collection_module

MODULES = sorted(path.stem for path in (ANSIBLE / "plugins/modules").glob("*.py"))
BIN = Path(sys.executable).parent
#: Keys of an option that documentation and argument specification share.
SHARED = ("type", "elements", "choices", "default", "required")


def specification(options: dict[str, Any], nested: str) -> dict[str, Any]:
    """Declared properties of the options of a specification or documentation."""
    return {
        name: {key: option[key] for key in SHARED if key in option}
        | ({"options": specification(option[nested], nested)} if nested in option else {})
        for name, option in options.items()
    }


def documented(kind: str, *names: str) -> dict[str, Any]:
    """Output of ansible-doc, by full name of the plugin."""
    done = subprocess.run(
        [BIN / "ansible-doc", "--type", kind, "--json", *(f"backchannel.testbed.{name}" for name in names)],
        capture_output=True, text=True, check=True, cwd=ANSIBLE,
        env={**os.environ, "ANSIBLE_CONFIG": "ansible.cfg"},
    )  # fmt: skip
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def modules() -> dict[str, Any]:
    return documented("module", *MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_documentation_declares_the_arguments(modules: dict[str, Any], name: str) -> None:
    module = modules[f"backchannel.testbed.{name}"]
    assert "error" not in module, module
    assert module["doc"]["short_description"]
    assert module["examples"].strip()
    assert module["doc"]["attributes"]["check_mode"]["support"] == "full"
    declared = specification(collection_module(f"modules.{name}").ARGUMENTS, "options")
    assert specification(module["doc"]["options"], "suboptions") == declared


@pytest.mark.parametrize("role", sorted(path.name for path in tables.ROLES.iterdir()))
def test_defaults_of_a_role_are_those_of_its_argument_specification(role: str) -> None:
    text = (tables.ROLES / role / "defaults/main.yml").read_text()
    assert tables.role_defaults(role) == text, "python -m tests.tables --update renews them"
    values = YAML(typ="safe").load(text)
    options = inventory.role_options()[role]
    assert values == {name: option["default"] for name, option in options.items() if "default" in option}


def test_ansible_doc_shows_the_other_plugins() -> None:
    assert documented("inventory", "lab").keys() == {"backchannel.testbed.lab"}
    assert documented("connection", "namespace").keys() == {"backchannel.testbed.namespace"}


RELEASES = [
    ('ID=debian\nVERSION_ID="12"\n', True),
    ('ID=debian\nPRETTY_NAME="Debian GNU/Linux forky/sid"\n', True),
    ('ID=ubuntu\nVERSION_ID="24.04"\n', True),
    ('ID=debian\nVERSION_ID="11"\nPRETTY_NAME="Debian GNU/Linux 11 (bullseye)"\n', False),
    ('ID=ubuntu\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n', False),
    ('ID="fedora"\nVERSION_ID=42\nPRETTY_NAME="Fedora Linux 42"\n', False),
    ("", False),
]


@pytest.mark.parametrize(("text", "good"), RELEASES)
def test_a_system_that_the_roles_do_not_know_is_named(text: str, good: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    fitness = collection_module("modules.fitness")
    monkeypatch.setattr(fitness, "read", lambda path: text)
    problems = fitness.system({"system": True})
    assert (problems == []) is good
    if not good:
        name = text.partition('PRETTY_NAME="')[2].rstrip('"\n') or "unknown"
        assert problems == [f"the system is {name}; the roles need Debian 12 or Ubuntu 24.04, or later"]
    assert fitness.system({"system": False}) == []


def test_another_architecture_than_the_node_binarys_is_named(tmp_path: Path) -> None:
    fitness, action = collection_module("modules.fitness"), collection_module("action.fitness")
    assert action.machine_of(Path(sys.executable).resolve()) == os.uname().machine
    (tmp_path / "script").write_text("#!/bin/sh\n")
    assert action.machine_of(tmp_path / "script") is None
    assert fitness.machine({"machine": os.uname().machine}) == fitness.machine({"machine": None}) == []
    (problem,) = fitness.machine({"machine": "s390x"})
    assert f"architecture is {os.uname().machine}, and the node binary's s390x" in problem


def test_another_mtu_is_named_but_not_that_of_a_line_without_header(monkeypatch: pytest.MonkeyPatch) -> None:
    fitness = collection_module("modules.fitness")
    links = {"eth1": ("ether", 9000), "eth2": ("ether", 1500), "ppp0": ("ppp", 576)}
    known = {name: {"link_type": kind, "mtu": mtu} for name, (kind, mtu) in links.items()}
    monkeypatch.setattr(fitness, "KernelState", lambda: SimpleNamespace(links=known))
    (problem,) = fitness.mtu({"mtu": 1500, "take": [*links, "missing"]})
    assert problem.startswith(
        "interface eth1 has an MTU of 9000 bytes instead of 1500; run 'ip link set eth1 mtu 1500'"
    )
    assert fitness.mtu({"mtu": 0, "take": ["eth1"]}) == []


def test_diagnostics_are_complete_beside_a_campaign_and_nobody_elses_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = collection_module("modules.diagnostics")
    monkeypatch.setattr(module, "COMMANDS", {})
    folder, archive = tmp_path / "run", tmp_path / "collected.tar.gz"
    (folder / "captures").mkdir(parents=True)
    for name in ("a.log", "captures/b.pcap", "captures/c.pcap"):
        (folder / name).write_text(name)
    archive.touch(0o644)
    (tmp_path / "prepared").hardlink_to(archive)
    real = tarfile.TarFile.gettarinfo

    def beside_a_campaign(self: tarfile.TarFile, name: str, *others: Any) -> tarfile.TarInfo:
        if name.endswith("b.pcap"):
            Path(name).unlink()
        return real(self, name, *others)

    monkeypatch.setattr(tarfile.TarFile, "gettarinfo", beside_a_campaign)
    changes = SimpleNamespace(check_mode=False)
    found = module.apply({"path": str(archive), "folders": [str(folder), str(tmp_path / "none")]}, changes)
    top = str(folder).lstrip("/")
    assert found["members"] == [top, f"{top}/a.log", f"{top}/captures", f"{top}/captures/c.pcap"]
    with tarfile.open(archive) as opened:
        assert opened.getnames() == found["members"]
        content = opened.extractfile(f"{top}/captures/c.pcap")
        assert content is not None
        assert content.read() == b"captures/c.pcap"
    assert archive.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "prepared").stat().st_size == 0
