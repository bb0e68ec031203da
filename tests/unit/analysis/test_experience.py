"""What applications experience: latency, jitter, loss, completion times and calls, of records written by hand."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis import exchange_kinds
from analysis.exchanges import play_out_s
from analysis.metrics import METRICS, calls, latency, transfers, video
from analysis.runs import Flow, Unmeasured
from experiments.language import registry
from testbed.exchanges import FOLDER
from testbed.scenario import Flow as FlowSpec

#: Packets or transfers: sent, arrived, returned, in s.
Rows = Sequence[tuple[float, float | None, float | None]]


class Recorded(Flow):
    """A flow of which only the records are there."""


Recorded.__abstractmethods__ = frozenset()


def flow(folder: Path, kind: str, rows: Rows, **fields: Any) -> Flow:
    """A flow with these exchanges: sent, arrived, returned, in s. `sizes`: their bytes. `frames`: of a video."""
    sizes = fields.pop("sizes", [100] * len(rows))
    of_frames = fields.pop("frames", None)
    lines = [
        {
            "seq": seq, "bytes": size, **({} if of_frames is None else {"frame": of_frames[seq]}),
            **{f"{name}_ns": None if at is None else round(at * 1e9)
               for name, at in zip(("sent", "arrived", "returned"), row, strict=True)},
        }
        for seq, (row, size) in enumerate(zip(rows, sizes, strict=True))
    ]  # fmt: skip
    (folder / FOLDER).mkdir(exist_ok=True)
    (folder / FOLDER / "x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return bare(folder, kind, **fields)


def bare(folder: Path, kind: str, warm_up_s: float = 0.0, **options: Any) -> Flow:
    spec = FlowSpec.read({"name": "x", "kind": kind, "from": "a", "to": "b", "port": 1, "options": options})
    made = object.__new__(Recorded)  # type: ignore[type-abstract]
    Flow.__init__(made, SimpleNamespace(window_s=(warm_up_s, 10.0), folder=folder), spec)  # type: ignore[arg-type]
    return made


def test_every_workload_is_of_one_sort() -> None:
    kinds = {entry.name for entry in registry.of_kind("workload")}
    recorded = exchange_kinds.datagrams() | exchange_kinds.answered() | exchange_kinds.transfers()
    assert kinds - recorded == {"bulk", "command", "established", "on-off"}
    assert recorded - kinds == {exchange_kinds.FOUND_DATAGRAMS}
    assert not exchange_kinds.transfers() & (exchange_kinds.datagrams() | exchange_kinds.answered())


def test_latency_is_of_the_probes_that_returned(tmp_path: Path) -> None:
    rows: list[tuple[float, float | None, float | None]] = [(at, at + 0.01, at + 0.01 * (at + 2)) for at in range(4)]
    probe = flow(tmp_path, "probe", [*rows, (4, 4.01, None), (5, 5.02, 5.03), (6, None, None)])
    # Round trips of 20, 30, 40, 50 and 30 ms.
    assert latency.latency_p50(probe) == pytest.approx(0.03)
    assert latency.latency_p95(probe) == pytest.approx(0.048)
    assert latency.delay_forward(probe) == pytest.approx(0.01)
    assert latency.delay_reverse(probe) == pytest.approx(0.02)
    # One of the six that were sent before the last one that returned. The seventh may be under way.
    assert latency.packet_loss(probe) == pytest.approx(1 / 6)


def test_the_warm_up_does_not_count(tmp_path: Path) -> None:
    probe = flow(tmp_path, "probe", [(0, 0.1, 0.9), (2, 2.1, 2.2)], warm_up_s=1.0)
    assert latency.latency_p99(probe) == pytest.approx(0.2)


def test_responsiveness_leaves_the_slowest_twentieth_out(tmp_path: Path) -> None:
    rows = [(at, at + 0.05, at + 0.1) for at in range(19)]
    assert latency.responsiveness(flow(tmp_path, "probe", [*rows, (19, 19.5, 21.0)])) == pytest.approx(600)


def test_jitter_is_of_neighbours_only(tmp_path: Path) -> None:
    # Delays of 10, 14, lost, 30 and 29 ms: differences of 4 and 1 ms between neighbours.
    voice = flow(
        tmp_path, "cbr", [(0, 0.01, None), (1, 1.014, None), (2, None, None), (3, 3.03, None), (4, 4.029, None)]
    )
    assert latency.jitter(voice) == pytest.approx(0.0025)
    assert latency.latency_p50(voice) is None
    assert latency.delay_reverse(voice) is None


def test_the_interarrival_jitter_is_a_running_mean_in_order_of_arrival(tmp_path: Path) -> None:
    # Transit times in order of arrival: 10, 42 and 26 ms. One packet is lost.
    voice = flow(tmp_path, "call", [(0, 0.01, None), (0.02, 0.062, None), (0.04, None, None), (0.06, 0.086, None)])
    assert latency.interarrival_jitter(voice) == pytest.approx(0.002 + (0.016 - 0.002) / 16)
    overtaken = flow(tmp_path, "cbr", [(0, 0.1, None), (0.01, 0.02, None)])
    assert latency.interarrival_jitter(overtaken) == pytest.approx(0.09 / 16)
    assert latency.interarrival_jitter(flow(tmp_path, "cbr", [(0, 0.1, None)])) is None


def test_completion_times_by_size(tmp_path: Path) -> None:
    rows = [(0, 1.0, None), (1, 3.0, None), (2, 6.0, None), (3, None, None)]
    web = flow(tmp_path, "web", rows, sizes=[10_000, 10_001, 200_000, 5])
    assert transfers.flow_completion_p50(web) == pytest.approx(2.0)
    assert transfers.flow_completion_small(web) == pytest.approx(1.0)
    assert transfers.flow_completion_medium(web) == pytest.approx(2.0)
    assert transfers.flow_completion_large(web) == pytest.approx(4.0)
    assert transfers.transfers_unfinished(web) == pytest.approx(0.25)


def test_a_run_without_records_says_so(tmp_path: Path) -> None:
    with pytest.raises(Unmeasured, match=r"capture\.telemetry"):
        latency.latency_p50(bare(tmp_path, "probe"))
    assert latency.latency_p50(bare(tmp_path, "bulk")) is None


@pytest.mark.parametrize(
    ("delay_s", "lost", "codec", "r"),
    [
        # G.107's default rating; G.711 with 1 % loss: 95/(1 + 25.1); G.729A alone.
        (0.0, 0.0, "g711", 93.2),
        (0.1, 0.01, "g711", 93.2 - 95 / 26.1),
        (0.05, 0.0, "g729", 82.2),
        # Idd of 200 ms: X = 1.
        (0.2, 0.0, "g711", 93.2 - 25 * (2 ** (1 / 6) - 3 * (1 + 3**-6) ** (1 / 6) + 2)),
    ],
)
def test_the_e_model(delay_s: float, lost: float, codec: str, r: float) -> None:
    assert calls.rating(calls.CODECS[codec], delay_s, lost) == pytest.approx(r)


def test_long_delay_impairs_as_g107_says() -> None:
    # G.107, figure B.2 and G.114: 400 ms without echo costs some 25 points.
    assert 20 < calls.delay_impairment(0.4) < 30
    assert calls.mean_opinion_score(93.2) == pytest.approx(4.41, abs=0.01)
    assert (calls.mean_opinion_score(0), calls.mean_opinion_score(100)) == (1.0, 4.5)


def test_a_late_frame_is_lost(tmp_path: Path) -> None:
    rows = [(0.0, 0.03, None), (0.02, 0.06, None), (0.04, 0.131, None), (0.06, None, None), (0.08, 0.11, None)]
    call = flow(tmp_path, "call", rows, buffer_s=0.06)
    # The fastest frame takes 30 ms: the third one, 91 ms under way, comes 1 ms late, and the fourth never.
    assert calls.call_frames_lost(call) == pytest.approx(0.4)
    assert calls.call_delay(call) == pytest.approx(0.02 + 0.03 + 0.06)
    rating = calls.call_rating(call)
    assert rating is not None
    assert rating == pytest.approx(93.2 - calls.delay_impairment(0.11) - 95 * 40 / (40 + 25.1))


#: Arrivals of the packets of eight frames, 100 ms apart, a key frame every fifth. The buffer is 50 ms.
FRAMES: dict[int, list[float | None]] = {
    0: [0.02, 0.04],
    1: [0.13],
    # The last packet is 81 ms under way: the fastest frame takes 30 ms, so it comes 1 ms late.
    2: [0.23, 0.281],
    # It needs frame 2.
    3: [0.33],
    4: [None, 0.43],
    # A key frame needs none of the others.
    5: [0.52, 0.55],
    6: [0.63],
    7: [0.73, None],
}


def video_flow(folder: Path, frames: dict[int, list[float | None]], **fields: Any) -> Flow:
    rows = [(frame * 0.1, at, None) for frame, arrivals in frames.items() for at in arrivals]
    of_frames = [frame for frame, arrivals in frames.items() for _ in arrivals]
    options: dict[str, Any] = {"frames_per_s": 10, "key_frame_every": 5, "buffer_s": 0.05}
    return flow(folder, "video", rows, frames=of_frames, **options, **fields)


def test_a_picture_stays_until_the_next_key_frame(tmp_path: Path) -> None:
    made = video_flow(tmp_path, FRAMES)
    found = video.frames(made)
    assert found is not None
    # The eighth may be under way.
    assert found["in_time"].to_list() == [True, True, False, True, False, True, True]
    assert found["shown"].to_list() == [True, True, False, False, False, True, True]
    assert video.video_frames_in_time(made) == pytest.approx(5 / 7)
    assert video.video_frozen(made) == pytest.approx(3 / 7)
    # Once in 0.7 s.
    assert video.video_stalls(made) == pytest.approx(60 / 0.7)


def test_the_delay_of_a_frame_is_that_of_its_last_packet(tmp_path: Path) -> None:
    made = video_flow(tmp_path, FRAMES)
    # 40, 30, 81, 30, 50 and 30 ms.
    assert video.video_frame_delay_p50(made) == pytest.approx(0.035)
    assert video.video_frame_delay_p95(made) == pytest.approx(0.050 + 0.75 * 0.031)
    assert video.video_frame_delay_p99(made) == pytest.approx(0.050 + 0.95 * 0.031)


def test_a_video_without_a_whole_frame_has_no_quality(tmp_path: Path) -> None:
    made = video_flow(tmp_path, {0: [0.01, None], 1: [None]})
    assert video.video_frames_in_time(made) is video.video_frozen(made) is video.video_stalls(made) is None
    assert video.video_frame_delay_p50(made) is None
    assert video.video_frozen(flow(tmp_path, "call", [(0, 0.1, None)])) is None


def test_the_metrics_of_a_flow_put_its_packets_together_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []

    def counting(*words: Any) -> Any:
        counted.append("")
        return play_out_s(*words)

    for module in (video, calls):
        monkeypatch.setattr(module, "play_out_s", counting)
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    made, other = video_flow(folders[0], FRAMES), video_flow(folders[1], {0: [0.01]})
    of_frames = [entry.function for name, entry in METRICS.items() if name.startswith("video_")]
    assert len(of_frames) == 6
    assert None not in [function(made) for function in of_frames]
    assert len(counted) == 1
    assert video.video_frames_in_time(other) == 1
    assert len(counted) == 2
    call = flow(folders[2], "call", [(0, 0.05, None), (0.02, 0.07, None)])
    assert None not in [entry.function(call) for name, entry in METRICS.items() if name.startswith("call_")]
    assert len(counted) == 3
    # What is kept does not outlive its flow.
    result = weakref.ref(video.frames(made))
    del made
    gc.collect()
    assert result() is None
