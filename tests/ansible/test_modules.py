"""Modules of the collection: their documentation, and that it declares their arguments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.ansible.conftest import ANSIBLE, collection_module

MODULES = sorted(path.stem for path in (ANSIBLE / "plugins/modules").glob("*.py"))
BIN = Path(sys.executable).parent
#: Keys of an option that documentation and argument specification share.
SHARED = ("type", "elements", "choices", "default", "required")


def specification(options: dict[str, Any], nested: str) -> dict[str, Any]:
    """What the options of a specification or documentation declare."""
    return {
        name: {key: option[key] for key in SHARED if key in option}
        | ({"options": specification(option[nested], nested)} if nested in option else {})
        for name, option in options.items()
    }


@pytest.mark.parametrize("name", MODULES)
def test_documentation_declares_the_arguments(name: str) -> None:
    module = collection_module(f"modules.{name}")
    documentation = YAML(typ="safe").load(module.DOCUMENTATION)
    assert documentation["module"] == name
    assert documentation["attributes"]["check_mode"]["support"] == "full"
    assert specification(documentation["options"], "suboptions") == specification(module.ARGUMENTS, "options")


def test_ansible_doc_shows_every_plugin() -> None:
    def shown(kind: str, *names: str) -> dict[str, Any]:
        done = subprocess.run(
            [BIN / "ansible-doc", "--type", kind, "--json", *(f"backchannel.testbed.{name}" for name in names)],
            capture_output=True, text=True, check=True, cwd=ANSIBLE,
            env={**os.environ, "ANSIBLE_CONFIG": "ansible.cfg"},
        )  # fmt: skip
        return dict(json.loads(done.stdout))

    for name, parts in shown("module", *MODULES).items():
        assert "error" not in parts, parts
        assert parts["doc"]["short_description"]
        assert parts["examples"].strip(), name
    assert shown("inventory", "lab").keys() == {"backchannel.testbed.lab"}
    assert shown("connection", "namespace").keys() == {"backchannel.testbed.namespace"}
