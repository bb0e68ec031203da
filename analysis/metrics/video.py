"""What a viewer sees of a video (workload `video`): frames in time, their delay, and a frozen picture.

A frame is complete when all of its packets have arrived, and in time if that is before it is shown: the length of the
jitter buffer after the transit of the fastest complete frame. It can be decoded if it and all frames before it, back to
the last key frame, are in time. Until then the last picture stays. Nothing is retransmitted, and no key frame is
requested.
"""

from __future__ import annotations

import polars as pl

from analysis.exchanges import in_time, play_out_s
from analysis.metrics.latency import quantile
from analysis.metrics.registry import metric
from analysis.runs import Flow, once_a_flow

DEFAULT_BUFFER_S, DEFAULT_KEY_FRAME_EVERY, DEFAULT_FRAMES_PER_S = 0.1, 60, 30.0


@once_a_flow
def frames(flow: Flow) -> pl.DataFrame | None:
    """The frames in order: `frame`, `sent_s` of the first packet, `transit_s` to the last arrival, `in_time`, `shown`.

    `transit_s` is null for frames that are incomplete. Frames after the last complete one may have been under way at
    the end, and are left out. None for other workloads, or without a complete frame.
    """
    if flow.spec.kind != "video":
        return None
    complete = pl.col("arrived_s").null_count() == 0
    of_frames = flow.exchanges.group_by("frame").agg(
        pl.col("sent_s").min(),
        pl.when(complete).then(pl.col("arrived_s").max() - pl.col("sent_s").min()).alias("transit_s"),
    )
    came = of_frames.drop_nulls("transit_s")
    if came.is_empty():
        return None
    of_frames = of_frames.filter(pl.col("frame") <= came["frame"].max()).sort("frame")
    options = flow.spec.options
    shown_after_s = play_out_s(came["transit_s"], float(options.get("buffer_s", DEFAULT_BUFFER_S)))
    every = round(float(options.get("key_frame_every", DEFAULT_KEY_FRAME_EVERY)))
    return (
        of_frames.with_columns(in_time(shown_after_s).alias("in_time"))
        # A key frame needs none of the frames before it.
        .with_columns(pl.col("in_time").cum_min().over(pl.col("frame") // every).alias("shown"))
    )


@metric("fraction", "Video frames in time", Flow, "complete before they are shown", better="more")
def video_frames_in_time(flow: Flow) -> float | None:
    """Share of the frames of which every packet arrived before the jitter buffer shows the frame."""
    found = frames(flow)
    return None if found is None else float(found["in_time"].mean())  # type: ignore[arg-type]


@metric(
    "fraction",
    "Video frozen",
    Flow,
    "frames that could not be shown: stall ratio",
    better="less",
    column="video frozen",
)
def video_frozen(flow: Flow) -> float | None:
    """Share of the time in which the picture stood still: frames late, incomplete, or after such a frame up to the
    next key frame.
    """
    found = frames(flow)
    return None if found is None else 1.0 - float(found["shown"].mean())  # type: ignore[arg-type]


@metric("number", "Video stalls a minute", Flow, "series of frames that could not be shown", detail=True, better="less")
def video_stalls(flow: Flow) -> float | None:
    """How often the picture stopped, in 1/min of the video."""
    found = frames(flow)
    if found is None:
        return None
    stalls = int((~found["shown"] & found["shown"].shift(1, fill_value=True)).sum())
    frames_per_s = float(flow.spec.options.get("frames_per_s", DEFAULT_FRAMES_PER_S))
    return stalls / (found.height / frames_per_s / 60.0)


@metric("time", "Video frame delay, median", Flow, "first packet sent to last one received", better="less")
def video_frame_delay_p50(flow: Flow) -> float | None:
    """Median time from sending the first packet of a complete frame to the arrival of its last one, in s."""
    return _delay(flow, 0.5)


@metric("time", "Video frame delay, 95th percentile", Flow, "as video_frame_delay_p50", better="less")
def video_frame_delay_p95(flow: Flow) -> float | None:
    """95th percentile of the same times, in s."""
    return _delay(flow, 0.95)


@metric("time", "Video frame delay, 99th percentile", Flow, "as video_frame_delay_p50", detail=True, better="less")
def video_frame_delay_p99(flow: Flow) -> float | None:
    """99th percentile of the same times, in s."""
    return _delay(flow, 0.99)


def _delay(flow: Flow, share: float) -> float | None:
    found = frames(flow)
    return None if found is None else quantile(found["transit_s"].drop_nulls(), share)
