"""Quality of a call by the E-model, ITU-T G.107 (06/2015), section 7.

The model's defaults hold but for delay and loss, which are measured: R = 93.2 - Idd - Ie,eff. Echo is cancelled, so
that delay impairs conversation alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import polars as pl

from analysis.estimates import Bounds
from analysis.exchanges import in_time, play_out_s
from analysis.metrics.registry import metric
from analysis.runs import Flow, once_a_flow

#: Rating with the default values of all parameters (G.107, table 2), for a codec without impairment.
DEFAULT_RATING = 93.2


@dataclass(frozen=True)
class Codec:
    """Impairment of a codec (G.113, tables I.1 and I.4)."""

    #: Equipment impairment factor.
    ie: float
    #: Packet-loss robustness factor.
    bpl: float
    #: Lookahead of the coder, in s.
    ahead_s: float


#: G.711 with packet-loss concealment, and G.729A with voice activity detection.
CODECS = {"g711": Codec(0.0, 25.1, 0.0), "g729": Codec(11.0, 19.0, 0.005)}
DEFAULT_FRAME_S, DEFAULT_BUFFER_S = 0.02, 0.06


@dataclass(frozen=True)
class Playout:
    """A call as its jitter buffer plays it."""

    codec: Codec
    #: From mouth to ear.
    delay_s: float
    #: Share of the frames that were lost, or came too late to be played.
    lost: float


@once_a_flow
def playout(flow: Flow) -> Playout | None:
    """The call behind its jitter buffer; None for other workloads, or if nothing arrived.

    Every frame is played the buffer's length after the transit time of the fastest one. Frames that were under way at
    the end, after the last one that arrived, do not count.
    """
    if flow.spec.kind != "call":
        return None
    frames = flow.exchanges.with_columns(transit_s=pl.col("arrived_s") - pl.col("sent_s"))
    came = frames.filter(pl.col("transit_s").is_not_null())
    if came.is_empty():
        return None
    options = flow.spec.options
    codec = CODECS[str(options.get("codec", "g711"))]
    waits_s = play_out_s(came["transit_s"], float(options.get("buffer_s", DEFAULT_BUFFER_S)))
    sent = frames.filter(pl.col("sent_s") <= came["sent_s"].max()).height
    played_frames = came.filter(in_time(waits_s)).height
    frame_s = float(options.get("frame_s", DEFAULT_FRAME_S))
    return Playout(codec, frame_s + codec.ahead_s + waits_s, 1.0 - played_frames / sent)


def rating(codec: Codec, delay_s: float, lost: float) -> float:
    """The transmission rating factor R, at least 0."""
    percent = 100.0 * lost
    # Section 7.5, with BurstR = 1: losses are independent.
    effective = codec.ie + (95.0 - codec.ie) * percent / (percent + codec.bpl)
    return max(DEFAULT_RATING - delay_impairment(delay_s) - effective, 0.0)


def delay_impairment(delay_s: float) -> float:
    """Idd: what absolute delay does to a conversation without echo (7.4)."""
    if delay_s <= 0.1:
        return 0.0
    x = math.log2(delay_s / 0.1)
    return 25.0 * (math.pow(1 + x**6, 1 / 6) - 3 * math.pow(1 + (x / 3) ** 6, 1 / 6) + 2)


def mean_opinion_score(r: float) -> float:
    """Mean opinion score of a rating (annex B)."""
    if r <= 0:
        return 1.0
    if r >= 100:
        return 4.5
    return max(1 + 0.035 * r + r * (r - 60) * (100 - r) * 7e-6, 1.0)


@metric("number", "Call rating", Flow, "ITU-T G.107: R", better="more", bounds=Bounds(0.0, 100.0))
def call_rating(flow: Flow) -> float | None:
    """R of the E-model, from 0 to 93.2: above 80 most users are satisfied, below 60 nearly all are not."""
    call = playout(flow)
    return None if call is None else rating(call.codec, call.delay_s, call.lost)


@metric(
    "number",
    "Call quality",
    Flow,
    "ITU-T G.107, annex B: MOS",
    better="more",
    bounds=Bounds(1.0, 4.5),
    column="call quality",
)
def call_quality(flow: Flow) -> float | None:
    """Estimated mean opinion score, from 1 to 4.5."""
    found = call_rating(flow)
    return None if found is None else mean_opinion_score(found)


@metric("time", "Call delay", Flow, "ITU-T G.114: mouth to ear", detail=True, better="less")
def call_delay(flow: Flow) -> float | None:
    """From mouth to ear, in s: a frame's length, the coder's lookahead, the fastest frame's transit, and the buffer."""
    call = playout(flow)
    return None if call is None else call.delay_s


@metric("fraction", "Call frames lost", Flow, "lost, or too late for the jitter buffer", detail=True, better="less")
def call_frames_lost(flow: Flow) -> float | None:
    """Share of the frames that were lost, or arrived after they should have been played."""
    call = playout(flow)
    return None if call is None else call.lost
