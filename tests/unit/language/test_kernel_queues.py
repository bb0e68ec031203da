"""Queue policies and ECN of the kernel in campaign files: who has them, their options, and the messages where not."""

from __future__ import annotations

import os
from typing import Any, cast

import pytest

from experiments.language import registry, source
from experiments.language.campaign import expand
from experiments.language.problems import CampaignError
from testbed import kernel_links, kernel_tcp, node_binary
from testbed.addressing import Interface
from testbed.scenario import LinkSpec, Named, Scenario
from tests.messages import reported

TEXT = """\
name: t
backend: virtual-kernel
kernel: "7.3"
network:
  topology: line
  link: kernel
  forward:
    rate: 10 Mbit/s
    queue: {policy: dualpi2}
stack: cubic
workload:
  - {name: f, from: left, to: right}
duration: 5 s
"""


def scenario(queue: str = "dualpi2", stack: str = "cubic") -> Scenario:
    text = TEXT.replace("{policy: dualpi2}", queue).replace("stack: cubic", f"stack: {stack}")
    return expand(source.parse("c.yaml", text)).runs[0].scenario


def line(queue: str) -> str:
    """What tc would be asked for."""
    link = scenario(queue).links[0]
    return kernel_links.commands(link.forward, link.options, "near", "far")[0][-1].partition("handle 10: ")[2]


def test_options_reach_the_kernel_in_its_units() -> None:
    assert line("dualpi2") == "dualpi2"
    every = (
        "{policy: dualpi2, limit: 500 packets, memory_limit: 32 MiB, target: 20 ms, tupdate: 16 ms, alpha: 0.2, "
        "beta: 3, step_threshold: 800 us, step_least: 2 packets, coupling: 3, c_protection: 15 %, overload: overflow, "
        "drop_at: enqueue, classify: any-ect}"
    )
    assert line(every) == (
        "dualpi2 limit 500 memlimit 33554432 target 20000us tupdate 16000us alpha 0.2 beta 3 step_thresh 800us "
        "min_qlen_step 2 coupling_factor 3 classic_protection 15 overflow drop_enqueue any_ect"
    )
    assert line("{policy: dualpi2, step_queue: 5 packets, overload: drop, drop_at: dequeue, classify: l4s-ect}") == (
        "dualpi2 step_packets 5 drop_on_overload drop_dequeue l4s_ect"
    )
    every = (
        "{policy: fq_pie, limit: 500 packets, flows: 64, target: 20 ms, tupdate: 30 ms, alpha: 0.25, beta: 1.5, "
        "quantum: 300 B, memory_limit: 1 MiB, ecn: true, ecn_prob: 20 %, bytemode: true}"
    )
    assert line(every) == (
        "fq_pie limit 500 flows 64 target 20000us tupdate 30000us alpha 4 beta 24 quantum 300 memory_limit 1048576 "
        "ecn_prob 20 ecn bytemode"
    )


def test_fq_codel_and_pie_are_the_kernels_on_its_links() -> None:
    assert line("fq-codel") == "fq_codel ecn"
    assert line(
        "{policy: fq-codel, limit: 500 packets, flows: 64, quantum: 300 B, target: 20 ms, interval: 200 ms, "
        "ecn: false}"
    ) == "fq_codel limit 500 flows 64 quantum 300 target 20000us interval 200000us noecn"  # fmt: skip
    assert line("pie") == "pie"
    assert line(
        "{policy: pie, limit: 500 packets, target: 20 ms, tupdate: 30 ms, alpha: 0.25, beta: 1.5, ecn: true, "
        "max_burst: 150 ms}"
    ) == "pie limit 500 target 20000us tupdate 30000us alpha 4 beta 24 ecn"  # fmt: skip
    # What the kernel's do not have is refused, and everything else is passed on.
    fixed = {"fq-codel": {"max_packet_bytes", "buffer_bytes"}, "pie": {*kernel_links._PIE_FIXED, "buffer_bytes"}}
    passed = {"fq-codel": {*kernel_links._FQ_CODEL, "ecn"}, "pie": {*kernel_links._PIE, "ecn"}}
    for name, options in fixed.items():
        assert {param.name for param in registry.find("policy", name).params} == options | passed[name]
    for refused in ("{policy: fq-codel, max_packet: 1000 B}", "{policy: pie, max_burst: 100 ms}"):
        with pytest.raises(CampaignError, match="no other setting"):
            line(refused)
    for refused in ("{policy: fq-codel, buffer: 10 kB}", "{policy: pie, buffer: 10 kB}"):
        with pytest.raises(CampaignError, match="limit in packets"):
            line(refused)


def test_every_option_is_passed_on() -> None:
    words = {
        "dualpi2": {*kernel_links._DUALPI2, "overload", "drop_at", "classify"},
        "fq_pie": {*kernel_links._FQ_PIE, "ecn", "bytemode"},
        "qdisc": {"kind"},
    }
    assert set(words) == set(kernel_links.QUEUES)
    for name, known in words.items():
        assert {param.name for param in registry.find("policy", name).params} == known


def test_the_page_has_every_option() -> None:
    page = node_binary.ROOT / "docs/policies.md"
    rows = "".join(
        f"| `{name}` | `{param.name}` | {param.unit} | {shown(param.default)} | {allowed(param)} | {param.help} |\n"
        for name in kernel_links.QUEUES
        for param in registry.find("policy", name).params
    )
    head = "| policy | option | unit | default | allowed | meaning |\n|---|---|---|---|---|---|\n"
    before, begin, rest = page.read_text().partition("tests/unit/language/test_kernel_queues.py -->\n")
    _, end, after = rest.partition("<!-- end of kernel options -->")
    written = f"{before}{begin}{head}{rows}{end}{after}"
    if os.environ.get("UPDATE_DOCS"):
        page.write_text(written)
    assert page.read_text() == written


def shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.10g}" if isinstance(value, float) else str(value).lower()


def allowed(param: registry.Param) -> str:
    if param.choices:
        return ", ".join(param.choices)
    if param.min is None:
        return ""
    return f"at least {param.min:.10g}" if param.max is None else f"{param.min:.10g} to {param.max:.10g}"


EMULATED = {"link: kernel": "link: point-to-point"}
ONLY_LINUX = "c.yaml:4: network: link 'line': dualpi2 is the kernel's own policy, which point-to-point does not have"
LINK, STACK, QUEUE = "c.yaml:4: network: link 'line': ", "c.yaml:10: stack", "c.yaml:9: network.forward.queue"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (EMULATED, ONLY_LINUX),
        ({"virtual-kernel": "sim", "cubic": "reno-ns", **EMULATED}, ONLY_LINUX),
        ({'"7.3"': '"6.12"'}, f"{LINK}Linux 6.12 has no dualpi2; 'kernel: \"7.3\"' has"),
        (
            {'"7.3"': '"6.1"', "dualpi2": "fq_pie", "cubic": "{name: cubic, ecn: accecn}"},
            f"{STACK}: Linux 6.1 has no Acc",
        ),
        (
            {"link: kernel": "link: {kind: kernel, shaper: cake}"},
            f"{LINK}cake is its own queue policy: leave 'queue' out",
        ),
        (
            {"dualpi2}": "dualpi2, step_threshold: 1 ms, step_queue: 3 packets}"},
            f"{LINK}dualpi2 has a 'step_threshold' or",
        ),
        ({"dualpi2}": "fq_pie, ecn_prob: 20 %}"}, f"{LINK}fq_pie's 'ecn_prob' needs 'ecn: true'"),
        ({"dualpi2}": "dualpi2, target: 5 s}"}, f"{QUEUE}.target: '5 s' is out of range: it must be at most 4"),
        ({"dualpi2}": "dualpi2, classify: ect1}"}, f"{QUEUE}.classify: unknown choice 'ect1'"),
        ({"cubic": "{name: cubic, ecn: acecn}"}, f"{STACK}.ecn: unknown choice 'acecn'; did you mean 'accecn'?"),
        (
            {"cubic": "{name: cubic, ecn: true, ecn_option: 1}"},
            f"{STACK}: 'ecn_option' needs Accurate ECN: set 'ecn' to",
        ),
        (
            {"cubic": "{name: cubic, ecn: accecn, ecn_option: 4}"},
            f"{STACK}.ecn_option: '4' is out of range: it must be",
        ),
    ],
)
def test_what_cannot_run_is_refused_in_one_sentence(changes: dict[str, str], sentence: str) -> None:
    text = TEXT
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (message,) = reported(text, [])
    assert message.startswith(sentence)


@pytest.mark.parametrize("name", sorted({*kernel_links.QUEUES} - {"qdisc"}))
def test_other_kernels_have_fq_pie_and_links_without_a_rate_have_a_queue(name: str) -> None:
    assert scenario(name).links[0].forward.queue.name == name
    text = TEXT.replace("dualpi2", "fq_pie").replace("7.3", "6.12").replace("    rate: 10 Mbit/s\n", "")
    link = expand(source.parse("c.yaml", text)).runs[0].scenario.links[0]
    assert kernel_links.commands(link.forward, link.options, "near", "far")[0] == [
        "qdisc add dev near root handle 1: stab overhead -14 linklayer ethernet fq_pie"
    ]


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {}),
        ({"ecn": False}, {"tcp_ecn": "0"}),
        ({"ecn": True}, {"tcp_ecn": "1"}),
        ({"ecn": "accept"}, {"tcp_ecn": "2"}),
        ({"ecn": "accecn"}, {"tcp_ecn": "3", "tcp_ecn_option": "2", "tcp_ecn_option_beacon": "3"}),
        ({"ecn": "accept-accecn-request-ecn", "ecn_option": 1},
         {"tcp_ecn": "4", "tcp_ecn_option": "1", "tcp_ecn_option_beacon": "3"}),
        ({"ecn": "accept-accecn", "ecn_option_beacon": 0},
         {"tcp_ecn": "5", "tcp_ecn_option": "2", "tcp_ecn_option_beacon": "0"}),
    ],
)  # fmt: skip
def test_ecn_has_the_modes_of_the_kernel(options: dict[str, Any], settings: dict[str, str]) -> None:
    stack = Named(name="cubic", options=options)
    assert kernel_tcp.sysctls(stack) == {f"net.ipv4.{name}": value for name, value in settings.items()}


def test_ids_of_runs_with_a_flag_for_ecn_are_those_of_before() -> None:
    """Defaults of options enter the ids, so that a new option must not have one."""
    before = {"sack", "timestamps", "window_scaling", "ecn", "slow_start_after_idle"}
    stack = registry.find("stack", "cubic")
    assert {param.name for param in stack.params if param.default is not None} == before
    assert scenario(stack="{name: cubic, ecn: true}").nodes[0].stack == Named(name="cubic", options={"ecn": True})


def test_the_links_of_hosts_may_be_the_kernel_s_and_only_links_that_queue_or_lose_are_sampled() -> None:
    network = "  access: {kind: kernel, delay: 1 ms}\n"
    text = TEXT.replace("topology: line", "topology: asymmetric-path").replace("stack: cubic", f"{network}stack: cubic")
    links = expand(source.parse("c.yaml", text.replace("from: left, to: right", "from: server, to: client"))).runs[0]
    by_name = {link.name: link for link in links.scenario.links}
    assert {link.kind for link in by_name.values()} == {"kernel"}

    def sampled(link: LinkSpec) -> set[str]:
        ends = [Interface(node, link.name, end, "eth0", "", 0, "") for end, node in enumerate(link.ends)]
        return set(kernel_links.KernelLink((ends[0], ends[1]), cast("Any", ())).samples(link))

    assert sampled(by_name["bottleneck"]) == {"router1", "router2"}
    assert sampled(by_name["server-access"]) == set()
    lossy = by_name["server-access"].forward.replace(errors=(Named(name="uniform", options={"probability": 0.1}),))
    assert sampled(by_name["server-access"].replace(forward=lossy)) == {"server", "router1"}
