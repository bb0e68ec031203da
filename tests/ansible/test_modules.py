"""Modules of the collection: their documentation, and that it declares their arguments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ansible.conftest import ANSIBLE, collection_module

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


def test_ansible_doc_shows_the_other_plugins() -> None:
    assert documented("inventory", "lab").keys() == {"backchannel.testbed.lab"}
    assert documented("connection", "namespace").keys() == {"backchannel.testbed.namespace"}
