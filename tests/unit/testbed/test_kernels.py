"""Kernels in virtual time: what identifies one, and what is said when one is missing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from testbed import build_cache
from testbed.errors import TestbedError, Unavailable
from testbed.report import Phase, Progress
from testbed.scenario import Scenario
from testbed.virtual_kernel import kernels
from testbed.virtual_kernel.machine import VirtualMachine
from tests.conftest import two_hosts


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_a_kernel_that_is_not_built_is_said_with_the_command_that_builds_it() -> None:
    assert kernels.built() == []
    with pytest.raises(Unavailable, match="backchannel kernel build --version 6.12'"):
        kernels.named(kernels.name("6.12"))


def test_a_kernel_of_another_version_of_the_software_is_refused() -> None:
    with pytest.raises(TestbedError, match="no kernel 'linux-6.12-000000000000'"):
        kernels.named("linux-6.12-000000000000")


def test_a_kernels_name_follows_its_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kernels.name("6.12")
    other = tmp_path / "kernel.config"
    other.write_text(kernels.CONFIG.read_text().replace("CONFIG_NET_SCH_CAKE=y", "# CONFIG_NET_SCH_CAKE is not set"))
    monkeypatch.setattr(kernels, "CONFIG", other)
    assert kernels.name("6.12") != before


def test_a_kernels_name_follows_the_library_that_is_loaded_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = kernels.name("6.12")
    first, second = kernels.PRELOADED
    other = tmp_path / second.name
    other.write_text(second.read_text() + "\n")
    monkeypatch.setattr(kernels, "PRELOADED", (first, other))
    assert kernels.name("6.12") != before


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (["Failed to initialize management console", "userspace - ptrace set fp regs failed, errno = 14",
          "Kernel panic - not syncing: Attempted to kill init!", "[<60104d70>] ? 0x60104d70"],
         "userspace - ptrace set fp regs failed, errno = 14"),
        (["no memory for this"], "no memory for this"),
        ([], "it said nothing"),
    ],
)  # fmt: skip
def test_why_a_machine_did_not_boot_is_told_and_kept(said: list[str], reason: str, tmp_path: Path) -> None:
    kernel = pretended(tmp_path, *(f"echo '{line}'" for line in said), "exit 134")
    with pytest.raises(TestbedError, match=f"^the virtual kernel ended before its run: {re.escape(reason)}$"):
        VirtualMachine(kernel).run(Scenario.model_validate(two_hosts()), tmp_path / "out", lambda progress: None)
    assert (tmp_path / "out" / "kernel.log").read_text().splitlines() == said


def pretended(folder: Path, *lines: str) -> kernels.Kernel:
    """A shell script in the place of a kernel."""
    kernel = kernels.Kernel("6.12", folder / "kernel")
    kernel.folder.mkdir()
    kernel.binary.write_text("\n".join(("#!/bin/sh", *lines)))
    kernel.binary.chmod(0o755)
    build_cache.logged(["gcc", "-shared", "-fPIC", "-o", str(kernel.preloaded), *map(str, kernels.PRELOADED)],
                       folder / "log")  # fmt: skip
    return kernel


def test_progress_is_heard_while_a_machine_runs(tmp_path: Path) -> None:
    line = json.dumps(Progress(Phase.RUNNING, 1.5, 3.0).as_json())
    kernel = pretended(tmp_path, "printf 'Linux version '", "echo 6.12", f"echo '{line}'", "sleep 60", "echo end")
    machine, heard = VirtualMachine(kernel), list[Progress]()

    def on_progress(progress: Progress) -> None:
        heard.append(progress)
        machine.kill()

    with pytest.raises(TestbedError, match="Linux version 6.12$"):
        machine.run(Scenario.model_validate(two_hosts()), tmp_path / "out", on_progress)
    assert heard == [Progress(Phase.RUNNING, 1.5, 3.0)]
    assert (tmp_path / "out" / "kernel.log").read_text() == "Linux version 6.12\n"


def test_a_machine_that_is_silent_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.virtual_kernel.machine.SILENT_S", 1.0)
    kernel = pretended(tmp_path, "printf begin", "sleep 60", "echo end")
    with pytest.raises(TestbedError, match="begin$"):
        VirtualMachine(kernel).run(Scenario.model_validate(two_hosts()), tmp_path / "out", lambda progress: None)
    assert (tmp_path / "out" / "kernel.log").read_text() == "begin"


def test_what_one_version_needs_is_in_its_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [kernels.name(version) for version in kernels.VERSIONS]
    monkeypatch.setattr(kernels, "MORE_CONFIG", {"6.1": ()})
    after = [kernels.name(version) for version in kernels.VERSIONS]
    assert (after[0] == before[0], after[1] == before[1]) == (True, False)


def test_an_option_that_a_version_of_linux_does_not_have_is_named() -> None:
    wanted = ["# A comment", "CONFIG_NET=y", "CONFIG_NET_SCH_DUALPI2=y", "# CONFIG_IPV6 is not set"]
    assert kernels.lacking_options(wanted, ["CONFIG_NET=y", "# CONFIG_NET_SCH_DUALPI2 is not set"]) == [
        "CONFIG_NET_SCH_DUALPI2"
    ]


def test_missing_build_programs_are_named_by_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "testbed.virtual_kernel.kernels.shutil.which", lambda program: None if program in ("flex", "xz") else program
    )
    with pytest.raises(Unavailable, match="apt-get install flex xz-utils$"):
        kernels.build("6.12", lambda line: None)


def test_there_is_no_other_version() -> None:
    with pytest.raises(TestbedError, match="no Linux 5.4 to build; there are: 6.12"):
        kernels.build("5.4", lambda line: None)
