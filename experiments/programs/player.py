"""A player of segments over HTTP that chooses each bitrate by the length of its buffer.

BBA-0 (Huang et al., "A Buffer-Based Approach to Rate Adaptation", SIGCOMM 2014, section 3): below the reservoir the
lowest bitrate, above the cushion the highest, in between a linear map of the buffer to a bitrate. A bitrate changes
only when the map reaches the next one. Nothing is decoded: a segment is as many zeros as its bitrate has bytes.
"""

import argparse
import http.client
import json
import os
import time

RATES_BPS = (300_000, 750_000, 1_200_000, 1_850_000, 2_850_000, 4_300_000)
SEGMENT_S = 2.0
RESERVOIR_S, CUSHION_S, FULL_S = 4.0, 16.0, 24.0


def chosen(last: int, buffer_s: float) -> int:
    """Index of the next segment's bitrate (the paper's algorithm 1)."""
    lowest, highest = RATES_BPS[0], RATES_BPS[-1]
    if buffer_s <= RESERVOIR_S:
        return 0
    if buffer_s >= RESERVOIR_S + CUSHION_S:
        return len(RATES_BPS) - 1
    mapped = lowest + (highest - lowest) * (buffer_s - RESERVOIR_S) / CUSHION_S
    above, below = RATES_BPS[min(last + 1, len(RATES_BPS) - 1)], RATES_BPS[max(last - 1, 0)]
    if mapped >= above:
        return max(index for index, rate in enumerate(RATES_BPS) if rate <= mapped)
    if mapped <= below:
        return min(index for index, rate in enumerate(RATES_BPS) if rate >= mapped)
    return last


def play(segments: int) -> dict[str, float]:
    """Downloads and plays. What a viewer would have seen, in s and bit/s."""
    server = http.client.HTTPConnection(
        os.environ["BACKCHANNEL_SERVER"], int(os.environ["BACKCHANNEL_PORT"]), timeout=60
    )
    began = at = time.monotonic()
    startup_s, stalled_s, buffer_s, last, switches, rates = None, 0.0, 0.0, 0, 0, []
    for number in range(segments):
        rate = chosen(last, buffer_s)
        switches += number > 0 and rate != last
        last = rate
        rates.append(RATES_BPS[rate])
        server.request("GET", f"/bytes/{round(RATES_BPS[rate] * SEGMENT_S / 8)}/segment-{number}")
        server.getresponse().read()
        now = time.monotonic()
        if startup_s is None:
            startup_s = now - began
        else:
            stalled_s += max(now - at - buffer_s, 0.0)
            buffer_s = max(buffer_s - (now - at), 0.0)
        buffer_s += SEGMENT_S
        at = now
        if buffer_s > FULL_S:
            time.sleep(buffer_s - FULL_S)
    played_s = segments * SEGMENT_S
    return {
        "startup_s": startup_s or 0.0,
        "stalled_share": stalled_s / (played_s + stalled_s),
        "mean_bitrate_bps": sum(rates) / len(rates),
        "switches": switches,
    }


parser = argparse.ArgumentParser()
parser.add_argument("--segments", type=int, default=15)
print(json.dumps(play(parser.parse_args().segments)))
