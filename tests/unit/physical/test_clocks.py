"""Clocks of hosts: measured, corrected, or reported as unusable."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from agents.messages import Clocks
from testbed import clock, pcap
from testbed.clock import Drift, HostClocks, Reading
from testbed.errors import TestbedError

HOUR_NS = 3_600_000_000_000
#: Where the controller's clock stands when a run begins.
EPOCH_NS = 1_700_000_000_000_000_000


class World:
    """A controller and a host with different clocks, and answers that take time."""

    def __init__(self, ahead_ns: int, delays_ns: list[tuple[int, int]]) -> None:
        self.now_ns = EPOCH_NS
        self._ahead_ns = ahead_ns
        self._delays_ns = delays_ns
        self._asked = 0

    def ask(self) -> Clocks:
        present, back = self._delays_ns[self._asked % len(self._delays_ns)]
        self._asked += 1
        self.now_ns += present
        clocks = Clocks(self.now_ns + self._ahead_ns, self.now_ns - EPOCH_NS + 7 * self._ahead_ns)
        self.now_ns += back
        return clocks

    def read(self) -> Reading:
        return clock.read(self.ask, lambda: self.now_ns, lambda: self.now_ns - EPOCH_NS)


delays = st.lists(st.tuples(st.integers(1_000, 50_000_000), st.integers(1_000, 50_000_000)), min_size=1, max_size=15)


@given(ahead_ns=st.integers(-HOUR_NS, HOUR_NS), delays_ns=delays)
def test_the_true_offset_lies_within_the_uncertainty(ahead_ns: int, delays_ns: list[tuple[int, int]]) -> None:
    reading = World(ahead_ns, delays_ns).read()
    assert abs(reading.realtime_ns - ahead_ns) <= reading.uncertainty_ns + 1
    assert abs(reading.monotonic_ns - 7 * ahead_ns) <= reading.uncertainty_ns + 1
    assert reading.uncertainty_ns == min((present + back) // 2 for present, back in delays_ns)


def test_a_clock_that_is_off_by_hours_is_rejected_with_the_remedy() -> None:
    with pytest.raises(TestbedError, match=r"host pc1: its clock is -7200.0 s off the controller's \(set it"):
        clock.check_offset("pc1", World(-2 * HOUR_NS, [(1000, 1000)]).read())
    clock.check_offset("pc1", World(3_000_000_000, [(1000, 1000)]).read())


def reading(offset_ns: int, at_ns: int, uncertainty_ns: int = 100_000) -> Reading:
    return Reading(offset_ns, 0, uncertainty_ns, at_ns)


def test_an_offset_between_two_readings_lies_on_the_line_through_them() -> None:
    drift = Drift(reading(1_000_000, EPOCH_NS), reading(3_000_000, EPOCH_NS + 10_000_000_000))
    assert drift.offset_ns(EPOCH_NS + 1_000_000) == 1_000_000
    assert drift.offset_ns(EPOCH_NS + 5_001_000_000) == 2_000_000
    assert drift.report().drift == pytest.approx(2e-4)
    assert drift.steady


@pytest.mark.parametrize(
    ("after", "word", "why"),
    [
        (reading(100_000, EPOCH_NS + 10_000_000_000), "corrected", "measured offsets"),
        (reading(100_000, EPOCH_NS + 10_000_000_000, 2_000_000), "unusable", "may be 2.0 ms"),
        (reading(HOUR_NS, EPOCH_NS + 10_000_000_000), "unusable", "was set during the run"),
    ],
)
def test_one_way_delays_are_corrected_or_marked_unusable(after: Reading, word: str, why: str) -> None:
    verdict = clock.one_way_delays({"pc1": Drift(reading(0, EPOCH_NS), after)})
    assert verdict["one_way_delays"] == word
    assert why in verdict["why"]


def capture(path: Path, stamps_ns: list[int], unit_ns: int = 1) -> Path:
    frames = (pcap.Record(at, bytes([n]) * (60 + n), 1500) for n, at in enumerate(stamps_ns))
    path.write_bytes(pcap.written(pcap.Header(pcap.ETHERNET, unit_ns, snaplen=128), frames))
    return path


def over_a_run(before: Reading, after: Reading) -> HostClocks:
    """The clocks of one host, read before and after a run."""
    readings = [before, after]
    clocks = HostClocks(lambda: {"pc1": readings.pop(0)}, {"a": "pc1"})
    clocks.start()
    clocks.stop()
    return clocks


@pytest.mark.parametrize("unit_ns", [1, 1000])
def test_a_corrected_capture_has_the_controllers_time_and_the_same_packets(tmp_path: Path, unit_ns: int) -> None:
    true = [EPOCH_NS + step * 250_000_000 for step in range(12)]
    ahead_ns = -2_345_678_000
    clocks = over_a_run(reading(ahead_ns, EPOCH_NS), reading(ahead_ns, EPOCH_NS + 3_000_000_000))
    path = capture(tmp_path / "host.pcap", [stamp + ahead_ns for stamp in true], unit_ns)
    clocks.correct("a", path)
    assert path.read_bytes() == capture(tmp_path / "true.pcap", true, unit_ns).read_bytes()


def test_a_file_that_is_not_a_capture_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "notes.pcap"
    path.write_text("not a capture, but longer than its header")
    with pytest.raises(TestbedError, match=r"notes\.pcap: not a pcap file"):
        over_a_run(reading(0, 0), reading(0, 1)).correct("a", path)
    assert path.read_text().startswith("not a capture")


def test_a_stamp_that_no_record_can_hold_is_told_and_changes_nothing(tmp_path: Path) -> None:
    # The clock was set by 70 years within the run, so a stamp from before lies far off the line through the readings.
    clocks = over_a_run(reading(0, EPOCH_NS), reading(70 * 365 * 24 * HOUR_NS, EPOCH_NS + 1_000_000_000))
    path = capture(tmp_path / "host.pcap", [EPOCH_NS, EPOCH_NS - 3_000_000_000])
    before = path.read_bytes()
    with pytest.raises(TestbedError, match=r"host\.pcap: the record at byte 100 .* was the clock set during the run"):
        clocks.correct("a", path)
    assert path.read_bytes() == before
