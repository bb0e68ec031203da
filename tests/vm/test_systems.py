"""The whole testbed on the file trees of other systems: every release that the roles support, with its own Python.

Slow, so by name only: ./backchannel test --vm. Makes each tree once, with mmdebstrap, from the registries of packages.
"""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from testbed import build_cache
from tests.support.ansible_lab import in_lab, write_yaml
from tests.support.labs import output_of
from tests.unit.physical.test_sets import CAMPAIGN

pytestmark = [pytest.mark.emulated, pytest.mark.vm]

#: Of the role `common`; hosts of a rehearsal have no network.
PACKAGES = "python3,iproute2,ethtool,tcpdump,iputils-ping,util-linux,mount,procps"
SYSTEMS = ("bookworm", "trixie", "noble")
#: Free space for one tree.
ROOM_BYTES = 2 << 30
STORY = """
cd "$LAB"
backchannel testbed site -i hosts.yml; echo "site $?"
backchannel testbed site -i hosts.yml | grep -c 'changed=0'; echo "again $?"
backchannel testbed check -i hosts.yml; echo "check $?"
backchannel run pair.yaml --backend physical -i hosts.yml --results results --attempts 9 --limit 1; echo "run $?"
pid=$(python3 -c "import json; print(json.load(open('$BACKCHANNEL_LAB'))['left'])")
nsenter --target "$pid" --mount --pid sh -c '. /etc/os-release; echo "system $VERSION_CODENAME"; python3 --version'
backchannel testbed teardown -i hosts.yml; echo "teardown $?"
"""


def tree(suite: str) -> Path:
    """A system's file tree, from the cache or made now."""
    folder = build_cache.place("trees") / suite

    def make(new: Path) -> None:
        words = ["mmdebstrap", "--quiet", "--variant=apt", f"--include={PACKAGES}", suite, str(new / build_cache.BUILT)]
        question = "is there a network, and, for Ubuntu, the package ubuntu-keyring?"
        build_cache.logged(words, folder.parent / "log", question)

    build_cache.build_once(folder, "lock", f"unpacking {suite}", ROOM_BYTES, make)
    return folder


@pytest.mark.parametrize("suite", SYSTEMS)
def test_the_testbed_on_another_system(tmp_path: Path, suite: str) -> None:
    (tmp_path / "pair.yaml").write_text(CAMPAIGN)
    path = write_yaml(tmp_path / "hosts.yml", {
        "plugin": "backchannel", "campaign": "pair.yaml", "connection": "namespace",
        "hosts": {"left": {}, "right": {}, "box": {}}, "links": {"line": {"box": "box"}},
    })  # fmt: skip
    done = in_lab(path, STORY, timeout_s=900, tree=tree(suite), LAB=str(tmp_path))
    lines = done.stdout.splitlines()
    assert {"site 0", "again 0", "check 0", "run 0", "teardown 0", f"system {suite}"} <= set(lines), output_of(done)
    (manifest,) = [json.loads(path.read_text()) for path in tmp_path.glob("results/**/manifest.json")]
    assert manifest["report"]["installation"]["hosts"]["left"]["kernel"] == platform.release()
