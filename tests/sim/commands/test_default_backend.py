"""Which backend `run` takes when nothing names one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from analysis.store import Store
from analysis.store.rows import NewCampaign
from experiments.commands.shared import KEEP_BACKEND, load_plan, load_runnable_plan
from experiments.engine import machine
from testbed import node_binary
from testbed.virtual_kernel import kernels
from tests.support.campaign_texts import one_line

QUICKSTART = node_binary.ROOT / "experiments/quickstart.yaml"


@pytest.fixture(autouse=True)
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A built kernel, as far as the cache shows, and a user without root."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(KEEP_BACKEND, raising=False)
    monkeypatch.setattr("testbed.capability.has_rights", lambda: False)
    binary = tmp_path / "backchannel/kernels" / kernels.full_name(kernels.DEFAULT) / "linux"
    binary.parent.mkdir(parents=True)
    binary.touch()
    return binary


def chosen(file: Path, overrides: tuple[str, ...] = (), backend: str | None = None, results: str = "none") -> str:
    return load_runnable_plan(file, overrides, backend, results, None).backend


def test_without_root_real_tcp_runs_in_virtual_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert chosen(QUICKSTART) == "virtual-kernel"
    assert "you are not root; the campaign runs on Linux 7.3 in virtual time" in capsys.readouterr().err


@pytest.mark.parametrize(("overrides", "backend"), [((), "emulated"), (("backend=emulated",), None)])
def test_a_named_backend_stays(overrides: tuple[str, ...], backend: str | None) -> None:
    assert chosen(QUICKSTART, overrides, backend) == "emulated"


def test_a_backend_in_the_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "named.yaml"
    file.write_text("backend: emulated\n" + QUICKSTART.read_text())
    assert chosen(file) == "emulated"


def test_with_root_and_a_free_machine_packets_are_real(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.capability.has_rights", lambda: True)
    monkeypatch.setattr(machine, "taken_share", lambda period_s: 0.0)
    assert chosen(QUICKSTART) == "emulated"
    # Nor does a busy machine build a kernel by itself.
    monkeypatch.setattr(machine, "taken_share", lambda period_s: 1.0)
    kernel.unlink()
    assert chosen(QUICKSTART) == "emulated"


def test_without_root_a_kernel_that_is_not_built_yet_is_chosen(
    kernel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(kernel.parent)
    assert chosen(QUICKSTART, ('kernel="6.12"',)) == "virtual-kernel"
    assert "the campaign runs on Linux 6.12 in virtual time" in capsys.readouterr().err


def test_a_simulation_stays_one(tmp_path: Path) -> None:
    file = tmp_path / "sim.yaml"
    file.write_text(one_line("simulated", "repetitions: 2", "rate: 10 Mbit/s, delay: 10 ms", "10 s"))
    assert chosen(file) == "sim"


@pytest.mark.parametrize(("taken", "backend"), [(0.95, "virtual-kernel"), (0.85, "emulated")])
def test_where_the_cpus_are_taken_nothing_would_be_in_time(
    taken: float, backend: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("testbed.capability.has_rights", lambda: True)
    monkeypatch.setattr(machine, "taken_share", lambda period_s: taken)
    assert chosen(QUICKSTART) == backend
    said = "this machine is too busy to be in time (95% of its CPUs is taken); the campaign runs on Linux 7.3"
    assert (said in capsys.readouterr().err) == (backend == "virtual-kernel")


def test_a_script_can_keep_the_backend_whatever_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.capability.has_rights", lambda: True)
    monkeypatch.setattr(machine, "taken_share", lambda period_s: 1.0)
    monkeypatch.setenv(KEEP_BACKEND, "1")
    assert chosen(QUICKSTART) == "emulated"


@pytest.mark.parametrize("backend", ["virtual-kernel", "emulated"])
def test_a_campaign_goes_on_where_it_began(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("testbed.capability.has_rights", lambda: True)
    monkeypatch.setattr(machine, "taken_share", lambda period_s: 0.0 if backend == "virtual-kernel" else 1.0)
    store = Store.open(tmp_path / "results")
    plan = load_plan(QUICKSTART, (), backend)
    new = NewCampaign(
        id=plan.id, name=plan.name, title=plan.title, file=plan.file, text=plan.text, overrides=dict(plan.overrides),
        backend=plan.backend, seed=plan.seed, repetitions=plan.repetitions,
    )  # fmt: skip
    run = plan.runs[0]
    store.begin_campaign(new, [list(plan.points[0].parameters.items())], [(run.point, run.repetition, run.id)])
    store.close()
    assert chosen(QUICKSTART, results=str(tmp_path / "results")) == backend
    assert ("it began there" in capsys.readouterr().err) == (backend == "virtual-kernel")


def test_what_ordinary_programs_and_the_host_take_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([
        {"busy": 10.0, "niced": 5.0, "idle": 100.0, "steal": 1.0},
        {"busy": 11.2, "niced": 5.3, "idle": 100.1, "steal": 1.4},
    ])  # fmt: skip
    monkeypatch.setattr(machine, "cpu_seconds", lambda: next(readings))
    assert machine.taken_share(0.0) == pytest.approx(0.8)
