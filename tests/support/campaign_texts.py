"""Campaign files of the tests: the parts that several of them share."""

from __future__ import annotations

#: A download and an upload between the ends of an asymmetric path. Only the first's start differs between repetitions.
TWO_WAYS = """\
variation: none
workload:
  - {name: forward, from: server, to: client, start: [0 s, 0.2 s]}
  - {name: reverse, from: client, to: server, start: 2 s}
"""


def asymmetric_path(forward: str = "10 Mbit/s, delay: 5 ms", reverse: str = "28.8 kbit/s, delay: 50 ms") -> str:
    """A network with short drop-tail queues in both directions, by their rates and delays."""
    return (
        "network:\n  topology: asymmetric-path\n"
        f"  forward: {{rate: {forward}, queue: {{policy: droptail, limit: 30 packets}}}}\n"
        f"  reverse: {{rate: {reverse}, queue: {{policy: droptail, limit: 10 packets}}}}\n"
    )


def one_line(
    name: str,
    more: str,
    forward: str = "rate: 1 Mbit/s, delay: 10 ms",
    duration: str = "2 s",
    backend: str = "sim",
    stack: str = "newreno",
) -> str:
    """A transfer over a single line, by default a simulated one. `more` adds fields."""
    return (
        f"name: {name}\nbackend: {backend}\nnetwork: {{topology: line, forward: {{{forward}}}}}\nstack: {stack}\n"
        f"workload:\n  - {{name: bulk, from: left, to: right}}\nduration: {duration}\n{more}\n"
    )
