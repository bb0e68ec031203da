"""Congestion controls and disciplines of Linux by name: what a campaign may ask of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from experiments.language import source
from experiments.language.campaign import Plan, expand
from experiments.language.problems import CampaignError
from testbed import build_cache, kernel_links, kernel_tcp
from testbed.scenario import DirectionSpec, Named

TEXT = """
name: linux
backend: virtual-kernel
kernel: mine
network:
  topology: asymmetric-path
  link: kernel
  forward: {rate: 1 Mbit/s, delay: 10 ms, queue: QUEUE}
  reverse: {rate: 1 Mbit/s, delay: 10 ms}
stack: STACK
workload:
  - {name: down, from: server, to: client}
duration: 2 s
"""
GOOD = {"QUEUE": "{policy: qdisc, kind: queue}", "STACK": "{name: kernel, congestion: own}"}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of the user's with a congestion control `own` and a discipline `queue`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = build_cache.place("kernels") / "linux-mine-0123456789ab"
    folder.mkdir(parents=True)
    for name, text in (("linux", ""), ("lacks", "prague\n"), ("added", "congestion own\nqdisc queue\n")):
        (folder / name).write_text(text)
    (folder.parent / "named-mine").symlink_to(folder.name)


def plan(fields: Mapping[str, str], kernel: str = "mine") -> Plan:
    text = TEXT.replace("kernel: mine", f"kernel: {kernel}")
    for name, value in fields.items():
        text = text.replace(name, value)
    return expand(source.parse("linux.yaml", text))


@pytest.mark.usefixtures("mine")
def test_what_the_users_kernel_has_can_be_named() -> None:
    scenario = plan(GOOD).runs[0].scenario
    stack = scenario.node("server").stack
    assert stack is not None
    assert kernel_tcp.socket_options(stack, {})["congestion"] == "own"
    assert kernel_tcp.socket_options(stack, {"name": "kernel", "congestion": "cubic"})["congestion"] == "cubic"
    assert kernel_tcp.socket_options(stack, {"name": "reno"})["congestion"] == "reno"
    assert scenario.kernel == "linux-mine-0123456789ab"
    sender, _ = kernel_links.commands(scenario.link("bottleneck").forward, {}, "near", "far")
    assert sender[-1] == "qdisc add dev near parent 1:1 handle 10: queue"


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("fields", "kernel", "words"),
    [
        ({"STACK": "{name: kernel, congestion: other}"}, "mine", "has no congestion control 'other': './backchannel"),
        ({"STACK": "{name: kernel, congestion: prague}"}, "mine", "has no congestion control 'prague'"),
        ({}, '"7.3"', "the kernel '7.3' has no congestion control 'own'"),
        ({"QUEUE": "{policy: qdisc, kind: other}"}, "mine", "has no queueing discipline 'other'"),
        ({"STACK": "kernel"}, "mine", "kernel needs 'congestion'"),
        ({"STACK": "{name: kernel, congestion: two words}"}, "mine", "is not a name for Linux"),
    ],
)
def test_what_a_kernel_lacks_is_refused(fields: Mapping[str, str], kernel: str, words: str) -> None:
    with pytest.raises(CampaignError) as error:
        plan({**GOOD, **fields}, kernel)
    assert words in str(error.value)


def test_a_qdisc_needs_a_link_of_the_kernel() -> None:
    queue = Named(name="qdisc", options={"kind": "queue"})
    assert kernel_links.QUEUES[-1] == queue.name
    sender, _ = kernel_links.commands(DirectionSpec(queue=queue), {}, "near", "far")
    assert sender[0].endswith(" queue")
