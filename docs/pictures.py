"""Pictures of what each link, error model, policy and middlebox does, drawn from runs of the simulator.

    .venv/bin/python docs/pictures.py [NAME...]     writes docs/images/mechanisms/NAME.svg

A picture is a ladder: a level line for each node, time to the right, and an arrow for each packet from its capture at
one end of a link to its capture at the other. Crosses, circles and triangles are what the link's telemetry tells of.
Below stands the length of the queue.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("BACKCHANNEL_ROOT", str(ROOT))

from experiments.engine.execution import Worker  # noqa: E402
from experiments.language.campaign import load  # noqa: E402
from testbed import pcap  # noqa: E402

OUT = ROOT / "docs" / "images" / "mechanisms"
DATA, ACK, MADE = "#1f5fbf", "#c2571a", "#2f8f4e"
#: Telemetry event to marker, fill and word.
EVENTS = {
    "dropped_full": ("x", "#b00020", "dropped, full"),
    "dropped_early": ("X", "#b00020", "dropped early"),
    "purged": ("o", "none", "purged"),
    "marked": ("^", "#8a2be2", "marked"),
    "marked_dupack": ("^", "#8a2be2", "dupack marked"),
    "lost": ("x", "#000000", "lost"),
    "damaged": ("*", "#000000", "damaged"),
    "reordered": ("D", "#888888", "held back"),
    "duplicated": ("P", "#888888", "doubled"),
    "made": ("s", MADE, "made by the box"),
    "link_retransmit": ("s", MADE, "sent again by the link"),
    "tossed": ("x", "#b00020", "tossed"),
}


@dataclass(frozen=True)
class Picture:
    """A run and the part of it that is shown."""

    title: str
    network: str
    #: From, in ms; how many ms.
    window: tuple[float, float]
    #: Capture files, top to bottom: node-interface, and the node's label.
    nodes: tuple[tuple[str, str], ...] = (("router1-eth1", "router 1"), ("router2-eth0", "router 2"))
    workload: str = "  - {name: down, from: server, to: client}\n  - {name: up, from: client, to: server}\n"
    stack: str = "{name: reno-ns, timestamps: false, ack_every: 1, packet: 1000 B}"
    #: The direction whose events and queue are shown.
    shown: tuple[str, str] = ("bottleneck", "reverse")
    duration_s: float = 6.0
    extra_files: dict[str, str] = field(default_factory=dict)
    #: An event of the shown direction that the window is moved to.
    focus: str | None = None


def slow(queue: str, rate: str = "128 kbit/s", more: str = "", forward: str = "2 Mbit/s") -> str:
    """The asymmetric path with a queue before its slow line."""
    return (
        f"  topology: asymmetric-path\n  forward: {{rate: {forward}, delay: 5 ms}}\n"
        f"  reverse: {{rate: {rate}, delay: 20 ms, queue: {queue}{more}}}\n"
    )


def errors(model: str) -> str:
    """A line with an error model."""
    return (
        "  topology: line\n  forward: {rate: 2 Mbit/s, delay: 10 ms, errors: [" + model + "]}\n"
        "  reverse: {rate: 2 Mbit/s, delay: 10 ms}\n"
    )


LINE = {
    "nodes": (("left-eth0", "left"), ("right-eth0", "right")),
    "workload": "  - {name: bulk, from: left, to: right}\n",
    "shown": ("line", "forward"),
}
AIR_NODES = (
    ("server-eth0", "server"),
    ("base-eth0", "base, wire"),
    ("base-eth1", "base, air"),
    ("mobile-eth0", "mobile"),
)


def air(box: str, stack: str = "", model: str = "{model: recorded, trace: trace.txt}") -> dict[str, Any]:
    """A lossy WaveLAN with a box at the base station; the trace loses one packet in forty, or three together."""
    return {
        "network": f"  topology: wireless\n  link: wavelan\n{box}"
        f"  forward: {{rate: 2 Mbit/s, delay: 2 ms, errors: [{model}]}}\n  reverse: {{rate: 2 Mbit/s, delay: 2 ms}}\n"
        "  access: {rate: 10 Mbit/s, delay: 8 ms}\n",
        "nodes": AIR_NODES,
        "workload": "  - {name: bulk, from: server, to: mobile}\n",
        "shown": ("air", "forward"),
        "stack": stack or SMALL,
        "extra_files": {"trace.txt": "0" * 30 + "1" + "0" * 400},
        "duration_s": 2.0,
    }


SMALL = "{name: reno-ns, timestamps: false, ack_every: 1, packet: 1000 B, receive_buffer: 12 kB}"
SMART = SMALL.replace("}", ", sack: true, sack_sender: ignored}")

PICTURES: dict[str, Picture] = {
    # Links.
    "point-to-point": Picture(
        "serialisation, propagation; packets wait for the line",
        "  topology: line\n  forward: {rate: 1 Mbit/s, delay: 20 ms}\n",
        (60, 160),
        **LINE,
    ),
    "mahimahi": Picture(
        "opportunities come in bunches of four, 20 ms apart",
        "  topology: line\n  link: mahimahi\n  forward: {trace: t.txt, delay: 10 ms}\n"
        "  reverse: {trace: t.txt, delay: 10 ms}\n",
        (300, 160),
        extra_files={"t.txt": "20\n20\n20\n20\n"},
        **LINE,
    ),
    "wavelan": Picture(
        "one medium for both directions: data and acks take turns",
        "  topology: line\n  link: wavelan\n  forward: {rate: 2 Mbit/s, delay: 0.5 ms}\n",
        (200, 60),
        **LINE,
    ),
    "ricochet": Picture(
        "who has the air keeps it: acks gather while data last, and go together",
        "  topology: packet-radio\n  link: ricochet\n"
        "  forward: {rate: 100 kbit/s, delay: 10 ms, queue: {policy: droptail, limit: 10 packets}}\n",
        (3000, 2000),
        nodes=(("gateway-eth1", "gateway"), ("mobile-eth0", "mobile")),
        workload="  - {name: bulk, from: server, to: mobile}\n",
        shown=("air", "forward"),
    ),
    # Error models.
    "uniform": Picture(
        "each packet alike", errors("{model: uniform, probability: 0.05}"), (300, 160), focus="lost", **LINE
    ),
    "exponential": Picture(
        "errors by the byte damage the checksum; the packet crosses",
        errors("{model: exponential, mean: 16384 B}"),
        (300, 160),
        focus="damaged",
        **LINE,
    ),
    "gilbert-elliott": Picture(
        "losses come together", errors("{model: gilbert-elliott, p: 0.03, r: 0.4}"), (300, 200), focus="lost", **LINE
    ),
    "recorded": Picture(
        "a trace: the 30th packet and the 31st",
        errors("{model: recorded, trace: trace.txt}"),
        (100, 120),
        focus="lost",
        extra_files={"trace.txt": "0" * 29 + "11" + "0" * 500},
        **LINE,
    ),
    "reorder": Picture(
        "one is held back, others overtake it",
        errors("{model: reorder, probability: 0.05, delay: 15 ms}"),
        (100, 120),
        focus="reordered",
        **LINE,
    ),
    "duplicate": Picture(
        "some come out twice", errors("{model: duplicate, probability: 0.1}"), (100, 120), focus="duplicated", **LINE
    ),
    # Policies.
    "droptail": Picture(
        "the queue is full: what comes is dropped, data or ack",
        slow("{policy: droptail, limit: 6 packets}"),
        (500, 500),
        focus="dropped_full",
    ),
    "drop-from-front": Picture(
        "the queue is full: its oldest packet makes room",
        slow("{policy: drop-from-front, limit: 6 packets}"),
        (500, 500),
        focus="dropped_full",
    ),
    "red": Picture(
        "the average is above the threshold: packets are marked or dropped early",
        slow("{policy: red, limit: 10 packets, weight: 0.1, action: drop}"),
        (500, 600),
        focus="dropped_early",
    ),
    "ack-filtering": Picture(
        "a newer ack purges the older ones that wait",
        slow("{policy: ack-filtering, limit: 10 packets}"),
        (500, 400),
        focus="purged",
    ),
    "acks-first": Picture(
        "acks go before the data that waited longer", slow("{policy: acks-first, limit: 10 packets}"), (1500, 500)
    ),
    "ack-filtering-acks-first": Picture(
        "one ack at most waits, and it goes first",
        slow("{policy: ack-filtering-acks-first, limit: 10 packets}"),
        (500, 300),
        focus="purged",
    ),
    "cbq-5050": Picture(
        "acks and data each have half of the line", slow("{policy: cbq-5050, limit: 10 packets}"), (1500, 300)
    ),
    "fq-drr": Picture("flows take turns, by bytes", slow("{policy: fq-drr, limit: 12 packets}"), (2600, 400)),
    "aq": Picture(
        "acks and data share the line by equations 7 and 8",
        slow("{policy: aq, limit: 20 packets, data: 1000 B}"),
        (1500, 500),
    ),
    "acq": Picture(
        "weights that follow a gradient, every T", slow("{policy: acq, limit: 10 packets, period: 1 s}"), (2300, 300)
    ),
    "codel": Picture(
        "waits above 5 ms for 100 ms: one is dropped, then more often",
        slow("{policy: codel, limit: 100 packets}", rate="512 kbit/s"),
        (500, 500),
        focus="dropped_early",
    ),
    # Middleboxes.
    "ll": Picture(
        "LL: the base station sends again what the air lost; duplicate acks reach the server",
        window=(180, 160),
        **air("  middlebox: ll\n"),
    ),
    "ll-smart": Picture(
        "LL-SMART: the first ack with a hole tells", window=(180, 160), **air("  middlebox: ll-smart\n", SMART)
    ),
    "ll-tcp-aware": Picture(
        "LL-TCP-AWARE (snoop): the server never sees the later duplicate acks",
        window=(180, 160),
        **air("  middlebox: ll-tcp-aware\n"),
    ),
    "ll-smart-tcp-aware": Picture(
        "both: told by the first hole, and the server is spared",
        window=(180, 160),
        **air("  middlebox: ll-smart-tcp-aware\n", SMART),
    ),
    "loss-notification": Picture(
        "ELN: duplicate acks for what the air lost are marked; the sender keeps its window",
        window=(180, 160),
        **air("  middlebox: loss-notification\n", "{name: eln, packet: 1000 B, ack_every: 1, receive_buffer: 12 kB}"),
    ),
    "split": Picture(
        "SPLIT: the base station acknowledges for the mobile, and has its own losses",
        window=(220, 90),
        **air("  middlebox: split\n"),
    ),
    "split-smart": Picture(
        "SPLIT-SMART: the wireless part recovers at once", window=(220, 90), **air("  middlebox: split-smart\n")
    ),
    "ack-reconstruction": Picture(
        "few acks come over the slow line; evenly spaced ones go on to the sender",
        slow("{policy: ack-filtering, limit: 10 packets}", rate="28.8 kbit/s") + "  middlebox: ack-reconstruction\n",
        (3000, 120),
        nodes=(
            ("server-eth0", "server"),
            ("router1-eth0", "router 1, wire"),
            ("router1-eth1", "router 1, line"),
            ("router2-eth0", "router 2"),
        ),
        workload="  - {name: down, from: server, to: client}\n",
    ),
}


@dataclass(frozen=True)
class Seen:
    """A packet in a capture."""

    at_ms: float
    key: tuple[bytes, int, int, int]
    is_data: bool


def capture(path: Path) -> Iterator[Seen]:
    """TCP packets over IPv4 in a capture of Ethernet or raw IP."""
    raw = path.read_bytes()
    link_header = 14 if pcap.header(raw).link_type == pcap.ETHERNET else 0
    for frame in pcap.records(raw):
        ip = frame.data[link_header:]
        if len(ip) < 40 or ip[0] >> 4 != 4 or ip[9] != 6:
            continue
        header = (ip[0] & 15) * 4
        total, identification = struct.unpack_from(">HH", ip, 2)
        sequence, acknowledged = struct.unpack_from(">II", ip, header + 4)
        payload = total - header - (ip[header + 12] >> 4) * 4
        flow = ip[12:20] + ip[header : header + 4]
        yield Seen(frame.time_ns / 1e6, (flow, identification, sequence, acknowledged), payload > 0)


def matched(upper: list[Seen], lower: list[Seen]) -> Iterator[tuple[Seen | None, Seen | None, bool]]:
    """(departure, arrival, downwards) of each packet; one is None where the packet was seen at one end alone."""
    # Who sends is who sees it first; what is seen at one end alone goes the way of its flow.
    ends: tuple[dict[Any, list[Seen]], dict[Any, list[Seen]]] = (defaultdict(list), defaultdict(list))
    for side, packets in zip(ends, (upper, lower), strict=True):
        for one in packets:
            side[one.key].append(one)
    down = {key[0] for key in ends[0].keys() & ends[1].keys() if ends[0][key][0].at_ms <= ends[1][key][0].at_ms}
    for key in ends[0].keys() | ends[1].keys():
        goes_down = key[0] in down
        near, far = (ends[0][key], ends[1][key]) if goes_down else (ends[1][key], ends[0][key])
        for number in range(max(len(near), len(far))):
            yield (near[number] if number < len(near) else None, far[number] if number < len(far) else None, goes_down)


def run(name: str, picture: Picture, folder: Path) -> None:
    """Runs a picture's scenario."""
    for file, text in picture.extra_files.items():
        (folder / file).write_text(text)
    file = folder / "picture.yaml"
    file.write_text(
        f"name: {name}\nbackend: sim\nnetwork:\n{picture.network}stack: {picture.stack}\nworkload:\n{picture.workload}"
        f"duration: {picture.duration_s} s\nseed: 3\n"
    )
    worker = Worker("pictures", lambda _: None)
    worker.run(load(file, []).runs[0], 1, folder)


def draw(name: str, picture: Picture, folder: Path, out: Path) -> None:
    """Draws it."""
    captures = [list(capture(folder / "captures" / f"{interface}.pcap")) for interface, _ in picture.nodes]
    base = min(one.at_ms for packets in captures for one in packets)
    origin = base - base % 1000
    told = [json.loads(line) for line in (folder / "telemetry" / "links.jsonl").read_text().splitlines()]
    told = [one for one in told if one["link"] == picture.shown[0]]
    window = _window(picture, told)
    rows = len(picture.nodes)
    start, length = window
    queue = [one for one in told if one["direction"] == picture.shown[1] and "packets" in one]
    shown = (start, start + length)
    happened = [one for one in told if one.get("event") in EVENTS and shown[0] <= one["t_ns"] / 1e6 <= shown[1]]
    if rows == 2:
        # What a box does, it does to either direction; what a queue does stands beside its own.
        happened = [one for one in happened if one["direction"] == picture.shown[1]]
    figure, (ladder, below) = plt.subplots(
        2, 1, sharex=True, figsize=(9, 1.2 + 0.95 * rows), height_ratios=[1.2 * rows, 1], layout="constrained"
    )
    for level in range(rows - 1):
        for near, far, down in matched(captures[level], captures[level + 1]):
            _arrow(ladder, near, far, -level if down else -level - 1, down, origin, window)
    for level, (_, label) in enumerate(picture.nodes):
        ladder.axhline(-level, color="#555555", linewidth=1)
        ladder.text(start - 0.01 * length, -level, label, ha="right", va="center", fontsize=8)
    names = []
    for one in happened:
        kind = str(one["event"])
        marker, fill, word = EVENTS[kind]
        colour = ACK if one.get("pure_ack") else DATA
        hollow = fill == "none"
        ladder.scatter(
            one["t_ns"] / 1e6,
            -(rows - 1) - 0.28,
            marker=marker,
            s=26,
            linewidths=1,
            color=None if hollow else fill,
            facecolors="none" if hollow else None,
            edgecolors=colour if hollow else None,
            label=None if word in names else word,
        )
        names.append(word)
    for colour, word in ((DATA, "data"), (ACK, "ack")):
        ladder.plot([], [], color=colour, label=word)
    ladder.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    ladder.set_ylim(-(rows - 1) - 0.45, 0.25)
    ladder.set_yticks([])
    ladder.set_title(f"{name}: {picture.title}", fontsize=9, loc="left")
    for side in ("top", "right", "left", "bottom"):
        ladder.spines[side].set_visible(False)
    times = [one["t_ns"] / 1e6 for one in queue] + [start + length]
    lengths = [one["packets"] for one in queue] + [queue[-1]["packets"] if queue else 0]
    below.step(times, lengths, where="post", color="#333333", linewidth=1)
    below.set_ylabel("packets\nwaiting", fontsize=7)
    below.set_xlabel(f"ms   (queue and marks: {picture.shown[0]}, {picture.shown[1]})", fontsize=8)
    below.tick_params(labelsize=7)
    inside = [value for at, value in zip(times, lengths, strict=True) if start <= at <= start + length]
    below.set_ylim(0, max([*inside, 1]) * 1.15)
    below.set_xlim(start, start + length)
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / f"{name}.svg", metadata={"Date": None, "Creator": None}, facecolor="white")
    plt.close(figure)


def _window(picture: Picture, told: list[dict[str, Any]]) -> tuple[float, float]:
    start, length = picture.window
    times = [one["t_ns"] / 1e6 for one in told if one.get("event") == picture.focus
             and picture.focus and one["direction"] == picture.shown[1] and one["t_ns"] / 1e6 >= start]  # fmt: skip
    return (max(times[len(times) // 4] - 0.45 * length, 0.0) if times else start), length


def _arrow(
    axes: Any, near: Seen | None, far: Seen | None, level: float, down: bool, origin: float,
    window: tuple[float, float],
) -> None:  # fmt: skip
    start, length = window
    seen = near or far
    assert seen is not None
    colour = DATA if seen.is_data else ACK
    step = -1 if down else 1
    left = near.at_ms - origin if near else None
    right = far.at_ms - origin if far else None
    if left is None:
        assert right is not None
        # It was made in the node: a short green arrow into the far line.
        left, level, step, colour = right - 0.02 * length, level + 0.6 * step, 0.4 * step, MADE
    elif right is None:
        right, step = left + 0.02 * length, 0.35 * step
    if right < start or left > start + length:
        return
    drawn = axes.annotate(
        "", xy=(right, level + step), xytext=(left, level),
        arrowprops={"arrowstyle": "-|>" if near and far or not near else "-", "color": colour, "linewidth": 0.8,
                    "shrinkA": 0, "shrinkB": 0, "mutation_scale": 6},
    )  # fmt: skip
    drawn.arrow_patch.set_clip_box(axes.bbox)
    drawn.arrow_patch.set_clip_on(True)


def main() -> None:
    """Draws the pictures that are asked for, or all."""
    matplotlib.rcParams["svg.hashsalt"] = "backchannel"
    matplotlib.rcParams["svg.fonttype"] = "none"
    wanted = sys.argv[1:] or list(PICTURES)
    unknown = [name for name in wanted if name not in PICTURES]
    if unknown:
        raise SystemExit(f"there is no picture '{unknown[0]}'; there are: {', '.join(PICTURES)}")
    for name in wanted:
        with tempfile.TemporaryDirectory() as folder:
            try:
                run(name, PICTURES[name], Path(folder))
            except Exception as error:
                raise SystemExit(f"{name}: {error}") from error
            draw(name, PICTURES[name], Path(folder), OUT)
        print(f"docs/images/mechanisms/{name}.svg")


if __name__ == "__main__":
    main()
