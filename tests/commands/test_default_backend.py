"""Which backend `run` takes when nothing names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.commands.shared import load_runnable_plan
from testbed import node_binary
from testbed.virtual_kernel import kernels
from tests.campaign_texts import one_line

QUICKSTART = node_binary.ROOT / "experiments/quickstart.yaml"


@pytest.fixture(autouse=True)
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A built kernel, as far as the cache shows, and a user without root."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    binary = tmp_path / "backchannel/kernels" / kernels.name("6.12") / "linux"
    binary.parent.mkdir(parents=True)
    binary.touch()
    return binary


def test_without_root_real_tcp_runs_in_virtual_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert load_runnable_plan(QUICKSTART, (), None).backend == "virtual-kernel"
    assert "real interfaces need root; the campaign runs on Linux 6.12 in virtual time" in capsys.readouterr().err


@pytest.mark.parametrize(("overrides", "backend"), [((), "emulated"), (("backend=emulated",), None)])
def test_a_named_backend_stays(overrides: tuple[str, ...], backend: str | None) -> None:
    assert load_runnable_plan(QUICKSTART, overrides, backend).backend == "emulated"


def test_a_backend_in_the_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "named.yaml"
    file.write_text("backend: emulated\n" + QUICKSTART.read_text())
    assert load_runnable_plan(file, (), None).backend == "emulated"


def test_with_root_or_without_a_kernel_real_packets_are_asked_for(
    kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as root:
        root.setattr("os.geteuid", lambda: 0)
        assert load_runnable_plan(QUICKSTART, (), None).backend == "emulated"
    kernel.unlink()
    assert load_runnable_plan(QUICKSTART, (), None).backend == "emulated"


def test_a_simulation_stays_one(tmp_path: Path) -> None:
    file = tmp_path / "sim.yaml"
    file.write_text(one_line("simulated", "repetitions: 2", "rate: 10 Mbit/s, delay: 10 ms", "10 s"))
    assert load_runnable_plan(file, (), None).backend == "sim"
