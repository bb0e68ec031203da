"""A campaign's programs on Linux in virtual time: the same bytes twice, and the network's time alone."""

from __future__ import annotations

import hashlib
from pathlib import Path

from analysis.outputs import program_report
from experiments.engine.execution import analyse
from experiments.language.campaign import load
from testbed import commands, node_binary
from testbed.scenario import Scenario
from testbed.virtual_kernel.kernels import Kernel
from testbed.virtual_kernel.machine import VirtualMachine

EXAMPLE = node_binary.ROOT / "experiments/programs/curl-nginx.yaml"


def made(kernel: Kernel, scenario: Scenario, out: Path) -> dict[str, str]:
    """Runs the example; the digest of each capture and of the client's output, and its metrics."""
    report = VirtualMachine(kernel).run(scenario, out, lambda progress: None)
    assert not list(commands.problems(scenario, report, out))
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (out / "captures").iterdir()}
    digests["output"] = hashlib.sha256((out / "programs/file.client.out").read_bytes()).hexdigest()
    values = analyse(out, scenario, report).values
    ran = program_report(out, scenario.flow("file"))
    assert ran is not None
    assert (ran.client.ended, ran.client.exit_status) == ("itself", 0)
    # 1 MB in segments of 1448 bytes of 1500 at 10 Mbit/s, three round trips of 40 ms, slow start and its losses.
    ideal_s = 1_000_000 / 1448 * 1500 * 8 / 10e6 + 0.12
    assert ideal_s < values["output.last_byte", "file"] < 1.6 * ideal_s
    assert abs(values["completion_time", "file"] - values["output.last_byte", "file"]) < 0.3
    assert values["output.connected", "file"] < 0.05
    return digests


def test_a_download_by_curl_is_the_same_twice(kernel: Kernel, tmp_path: Path) -> None:
    scenario = load(EXAMPLE, ["backend=virtual-kernel"]).runs[0].scenario
    assert made(kernel, scenario, tmp_path / "one") == made(kernel, scenario, tmp_path / "two")
