"""A base station hides the losses of the air from a kernel's sender."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.virtual_kernel.kernels import Kernel
from testbed.virtual_kernel.machine import VirtualMachine
from tests.conftest import queue, typed
from tests.support.split_connections import both_ways, check_whole, over_base, splitting

#: A WaveLAN that loses packets, and the wire before it.
AIR = {
    "rate_bps": 2_000_000,
    "delay_s": 0.0005,
    "queue": queue(limit_packets=100),
    "errors": [{"name": "exponential", "options": {"mean_bytes": 65_536}}],
}
WIRE = {"rate_bps": 10_000_000, "delay_s": 0.001, "queue": queue(limit_packets=100)}


def test_snoop_hides_the_losses_of_the_air_from_a_kernels_sender(kernel: Kernel, tmp_path: Path) -> None:
    stack = {"name": "reno", "options": {"sack": False, "receive_buffer_bytes": 65_536}}
    scenario = over_base(
        stack, "wavelan", AIR, WIRE, {"name": "ll-tcp-aware", "options": {}},
        seed=3, duration_s=12.0, capture={"snaplen": 128, "at": []},
        workload=[{"name": "bulk", "kind": "bulk", "from": "server", "to": "mobile", "start_s": 0.0, "port": 5001}],
    )  # fmt: skip
    report = VirtualMachine(kernel).run(typed(scenario), tmp_path, lambda progress: None).as_json()
    events = report["driver"]["links"]["air"]["forward"]["events"]
    assert events["damaged"] > 10
    assert events["link_retransmit"] >= events["damaged"] - 3
    assert events["purged"] > events["link_retransmit"]
    flow = report["flows"]["bulk"]
    assert flow["receive"]["payload_ok"]
    # 12 s at close to 1.4 Mbit/s; without the base station's help it is half of that.
    assert flow["receive"]["bytes"] * 8 / 12 > 1_150_000


@pytest.mark.parametrize(
    "box", [pytest.param("split", marks=pytest.mark.slow("as with selective acks, and less of it")), "split-smart"]
)
def test_split_connections_on_a_lossy_wavelan_hide_the_losses(kernel: Kernel, tmp_path: Path, box: str) -> None:
    sizes = {"down": 800_000, "up": 100_000}
    made = splitting(AIR, WIRE, {"name": box, "options": {}}, duration_s=20.0, workload=both_ways(*sizes.values()))
    made["links"][1]["kind"] = "wavelan"
    report = VirtualMachine(kernel).run(typed(made), tmp_path, lambda progress: None).as_json()
    check_whole(report, sizes)
    events = report["driver"]["links"]["air"]["forward"]["events"]
    assert events["damaged"] > 5
    assert events["link_retransmit"] >= events["damaged"] - 5
    # The wired part loses nothing.
    assert report["flows"]["down"]["send"]["tcp_info"]["retransmitted_segments"] == 0
