"""What the emulated backend lacks on a machine, and what a run went without."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import capability

#: Of the first user namespace.
FIRST = "         0          0 4294967295\n"
INSIDE = "         0       1000          1\n"


@pytest.mark.parametrize(
    ("is_realtime", "locked_bytes", "uid_map", "subjects"),
    [
        (True, 4096, FIRST, []),
        (True, 4096, INSIDE, ["no root"]),
        # Root of a container whose users are mapped one by one.
        (True, 4096, INSIDE + "         1     100000      65536\n", ["no root"]),
        (False, 4096, FIRST, ["no real-time class"]),
        (True, 0, FIRST, ["no locked memory"]),
        (False, 0, INSIDE, ["no root", "no real-time class", "no locked memory"]),
    ],
)
def test_a_run_names_what_it_lacked(is_realtime: bool, locked_bytes: int, uid_map: str, subjects: list[str]) -> None:
    sentences = capability.lacked(is_realtime, locked_bytes, uid_map)
    assert [sentence.split(":")[0] for sentence in sentences] == subjects


@pytest.mark.parametrize(("name", "values"), capability.USER_NAMESPACES.items())
def test_a_setting_that_forbids_user_namespaces_is_named(name: str, values: tuple[str, str], tmp_path: Path) -> None:
    forbids, allows = values
    file = tmp_path / name.replace(".", "/")
    file.parent.mkdir()
    assert capability.forbidding(tmp_path) is None
    file.write_text(f"{allows}\n")
    assert capability.forbidding(tmp_path) is None
    file.write_text(f"{forbids}\n")
    assert f"{name} is {forbids} here ('sudo sysctl {name}={allows}'" in str(capability.forbidding(tmp_path))
