"""Placement of a topology in a lab, and its errors."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from experiments import inventory
from experiments.language import campaign
from experiments.language.problems import CampaignError
from testbed import placement
from testbed.link_boxes import merged, queue_only
from testbed.placement import LinkPlacement, Placement
from testbed.report import DriverReport
from testbed.scenario import LinkSpec
from testbed.tunnels import Login, SshOptions, has_passphrase, meaning, ssh_command
from tests.support.command_line import backchannel
from tests.support.labs import LINKS, changed, lab, refusal


def placed(path: Path) -> Placement:
    result = inventory.read(path)
    assert result.campaign is not None
    scenario = campaign.load(result.campaign).runs[0].scenario
    (found,) = inventory.placements(result, scenario.nodes, scenario.links).values()
    return found


def test_each_node_has_the_host_that_plays_it(tmp_path: Path) -> None:
    result = placed(lab(tmp_path))
    assert result.host_of == {"server": "pc0", "router1": "pc1", "router2": "pc2", "client": "pc3"}
    assert result.boxes() == ["box"]
    groups = placement.groups(result)
    assert groups["endpoints"] == ["pc0", "pc3"]
    assert groups["routers"] == ["pc1", "pc2"]
    assert groups["link_boxes"] == ["box"]


def test_no_host_loses_its_own_default_route(tmp_path: Path) -> None:
    result = placed(lab(tmp_path))
    scenario = campaign.load(tmp_path / "small.yaml").runs[0].scenario
    variables = placement.host_vars(result, scenario.links, "pc0")
    routes = [(route["subnet"], route["via"]) for route in variables["backchannel_routes"]]
    assert routes == [(f"10.{network}.0.0/16", "10.1.0.2") for network in (1, 2, 3)]


def test_a_hosts_interface_names_are_used_everywhere(tmp_path: Path) -> None:
    path = changed(lab(tmp_path), lambda file: file["hosts"]["pc1"].update(interfaces={"bottleneck": "enp3s0"}))
    result = placed(path)
    node = result.plan.nodes["router1"]
    assert [end.name for end in node.interfaces] == ["router1-eth0", "enp3s0"]
    assert [dev for _, _, dev in node.neighbours] == ["router1-eth0", "enp3s0"]
    assert result.plan.links["bottleneck"][0].name == "enp3s0"


def test_a_real_modem_keeps_its_address_behind_an_emulated_queue(tmp_path: Path) -> None:
    links: dict[str, Any] = {link: {"box": "box"} for link in LINKS}
    links["bottleneck"] = {"real": "modem", "queue_at": "router2"}
    result = placed(lab(tmp_path, links=links))
    scenario = campaign.load(tmp_path / "small.yaml").runs[0].scenario
    variables = placement.host_vars(result, scenario.links, "pc2")
    assert variables["backchannel_queues"] == [
        {"link": "bottleneck", "tap": "bq-router2-eth0", "interface": "router2-eth0"}
    ]
    near = variables["backchannel_interfaces"][0]
    assert (near["name"], near["mac"], near["queue"]) == ("bq-router2-eth0", None, True)
    assert {variable["interface"] for variable in variables["backchannel_neighbours"]} == {"router2-eth1"}
    spec = next(link for link in scenario.links if link.name == "bottleneck")
    alone = queue_only(spec, result.links["bottleneck"]).as_json()
    # router2 is the link's second end: its queue is the reverse direction's.
    assert alone["forward"] == {"rate_bps": 128_000, "queue": spec.reverse.queue.as_json()}
    assert "rate_bps" not in alone["reverse"]


def test_another_address_range_where_the_lab_uses_the_first(tmp_path: Path) -> None:
    def elsewhere(file: Any) -> None:
        for number, host in enumerate(file["hosts"].values()):
            host["address"] = f"10.2.0.{10 + number}"

    path = changed(lab(tmp_path), elsewhere)
    with pytest.raises(CampaignError, match=r"host pc0 is reached at 10\.2\.0\.10, which overlaps .*198\.18\.0\.0/15"):
        placed(path)
    result = placed(changed(path, lambda file: file.update(addresses="198.18.0.0/15")))
    assert result.plan.nodes["client"].address == "198.18.2.2"
    assert [route.subnet for route in result.plan.nodes["client"].routes] == ["198.18.0.0/15"]
    assert all(route.via.startswith("198.18.") for node in result.plan.nodes.values() for route in node.routes)


def host(**fields: object) -> Any:
    return lambda file: file["hosts"]["pc1"].update(fields)


def link(**fields: object) -> Any:
    return lambda file: file["links"]["bottleneck"].update(fields)


def variables(**fields: object) -> Any:
    return lambda file: file["vars"].update(fields)


MISTAKES = {
    "no host": (lambda file: file["hosts"].pop("pc2"), "no host plays node 'router2'; add 'plays: router2'"),
    "two hosts": (host(plays="server"), "hosts pc0 and pc1 both play 'server'"),
    "no node": (host(plays="gateway"), "host pc1 plays 'gateway', which is not a node; the topology's nodes: server"),
    "one machine twice": (host(address="192.168.50.10"), "hosts: 2 hosts have the address '192.168.50.10'"),
    "a link nowhere": (lambda file: file["links"].pop("bottleneck"), "link 'bottleneck' is nowhere: give it a 'box'"),
    "a link of no topology": (lambda file: file["links"].update(uplink={"box": "box"}), "unknown link 'uplink'; the"),
    "a box that is not a host": (link(box="fox"), "its box 'fox' is not a host; hosts: pc0"),
    "a box that plays": (link(box="pc1"), "host pc1 plays a node and cannot be its link box as well"),
    "one interface for two": (link(interfaces=["l0e0", "l9e9"]), "host box: interface 'l0e0' is used by 2 links"),
    "too few interfaces": (link(interfaces=["eth1"]), "link 'bottleneck' has 2 ends, but box box has 1 for it"),
    "an unknown field": (host(adress="192.168.50.1"), "unknown field 'adress'; did you mean 'address'?"),
    "no such variable": (variables(common_clocks="none"), "unknown variable of role common 'common_clocks'; did you"),
    "a variable of another type": (
        variables(common_packages="tcpdump"),
        "vars.common_packages: 'tcpdump' is not a list",
    ),
    "a variable that cannot be": (variables(common_clock="sundial"), "'sundial' is not one of chrony, none"),
    "no such range": (lambda file: file.update(addresses="192.0.2.0/24"), "allowed: 10.0.0.0/8, 198.18.0.0/15"),
    "no interface name": (host(interfaces={"bottleneck": "eth 1"}), "'eth 1' is not a valid name"),
    "a port of letters": (host(port="many"), "hosts.pc1.port"),
    "port 0": (host(port=0), "hosts.pc1.port"),
    "another role": (host(also=["printer"]), "'printer' is not one of"),
    "a list of interfaces": (host(interfaces=["eth0"]), "hosts.pc1.interfaces"),
    "several roles": (host(plays=["a"]), "hosts.pc1.plays"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_error_is_one_sentence_with_the_host(tmp_path: Path, mistake: str) -> None:
    change, message = MISTAKES[mistake]
    path = changed(lab(tmp_path), change)
    sentence = refusal(placed, path)
    assert message in sentence
    assert str(path) in sentence


#: Of every type of an argument spec: what is one, and what is none though it may look like one.
VALUES: dict[str, tuple[list[Any], list[Any]]] = {
    "str": (["text", "", 7, 1.5], [True, ["text"], {"a": 1}, None]),
    "path": (["/opt", "relative"], [7, False, ["/opt"], None]),
    "int": ([0, 512], ["512", 1.5, True, [1], None]),
    "bool": ([True, False], ["yes", "true", 1, 0, None, [True]]),
    "list": ([[]], ["a, b", {"a": 1}, 3, None]),
    "dict": ([{}, {"a": 1}], ["a: 1", ["a"], 3, True, None]),
}


def options() -> list[tuple[str, dict[str, Any]]]:
    return [(name, spec) for role in inventory.role_options().values() for name, spec in role.items()]


def test_every_type_of_the_argument_specs_is_tested() -> None:
    assert {spec["type"] for _, spec in options()} <= set(VALUES) == set(inventory.TYPES)
    assert {"bool", "int", "list", "dict", "str", "path"} == {spec["type"] for _, spec in options()}


@pytest.mark.parametrize(("name", "spec"), options(), ids=[name for name, _ in options()])
def test_a_variable_has_the_type_of_its_roles_argument_spec(name: str, spec: dict[str, Any]) -> None:
    good, bad = VALUES[spec["type"]]
    for value in spec.get("choices", good):
        assert inventory.wrong_variable(name, value) is None
    if "default" in spec:
        assert inventory.wrong_variable(name, spec["default"]) is None
    for value in bad:
        words = inventory.TYPES[spec["type"]][0]
        assert inventory.wrong_variable(name, value) == f"'{value}' is not {words}: {spec['description']}"
    assert inventory.wrong_variable(name, "{{ what_ansible_works_out }}") is None
    if spec["type"] == "list":
        wrong = {"str": True, "dict": "text"}[spec["elements"]]
        assert str(inventory.wrong_variable(name, [wrong])).startswith(f"'{wrong}' in it is not ")


@pytest.mark.parametrize(
    ("name", "current"), [("router_sysctls", "interfaces_sysctls"), ("endpoint_interfaces", "interfaces_addresses")]
)
def test_a_variable_of_a_former_role_names_its_successor(name: str, current: str) -> None:
    assert f"write '{current}'" in str(inventory.wrong_variable(name, []))


def test_slow_hosts_have_longer_timeouts(tmp_path: Path) -> None:
    path = changed(lab(tmp_path), lambda file: file["ssh"].update(connect_timeout="2 min", silence="20 s"))
    ssh = inventory.read(path).file.ssh
    assert (ssh.connect_timeout, ssh.silence) == (120.0, 20.0)
    options = SshOptions("backchannel", None, None, ssh.connect_timeout, ssh.silence)
    words = ssh_command(options, "192.0.2.1", 22, Path("/c"), Path("/s"))
    assert "ConnectTimeout=120" in words
    assert "ServerAliveCountMax=19" in words
    with pytest.raises(CampaignError, match=r"ssh\.silence: .* must be at most 20"):
        inventory.read(changed(path, lambda file: file["ssh"].update(silence="1 min")))


#: As a person sees it: a campaign file whose network is none.
NO_NETWORKS = {
    "two parts": ("[{name: a}, {name: b}, {name: c}, {name: d}]", "add a link between their parts of the network"),
    "no link": ("[{name: a}, {name: b}, {name: d}]", "node 'd' has no link: name it among the 'ends' of one"),
}


@pytest.mark.parametrize("trouble", NO_NETWORKS)
@pytest.mark.parametrize("command", [["run", "{campaign}"], ["testbed", "site", "-i", "{hosts}"]])
def test_an_impossible_network_is_rejected_at_once(tmp_path: Path, trouble: str, command: list[str]) -> None:
    nodes, message = NO_NETWORKS[trouble]
    second = "    - {name: two, ends: [c, d], forward: {rate: 1 Mbit/s}}\n" if "name: c" in nodes else ""
    text = f"""
name: small
network:
  nodes: {nodes}
  links:
    - {{name: one, ends: [a, b], forward: {{rate: 1 Mbit/s}}}}
{second}workload: [{{name: bulk, from: a, to: b}}]
duration: 1 s
"""
    hosts = lab(tmp_path, campaign=text)
    words = [word.format(campaign=tmp_path / "small.yaml", hosts=hosts) for word in command]
    before = sorted(tmp_path.iterdir())
    (line,) = backchannel(*words, status=2).stderr.splitlines()
    assert line.startswith(f"{tmp_path / 'small.yaml'}:3: network: ")
    assert message in line
    assert sorted(tmp_path.iterdir()) == before


def test_the_ssh_command() -> None:
    options = SshOptions("backchannel", Path("/k"), Path("/known"))
    words = ssh_command(options, "192.0.2.1", 2200, Path("/c"), Path("/s"))
    assert words[:4] == ["setpriv", "--pdeathsig", "KILL", "ssh"]
    assert words[-5:] == ["-p", "2200", "-L", "/s:/run/backchannel/agent.sock", "backchannel@192.0.2.1"]
    assert "StrictHostKeyChecking=yes" in words
    assert "BatchMode=yes" in words
    assert "UserKnownHostsFile=/known" in words
    # ssh takes several files, divided by blanks.
    blanks = SshOptions("backchannel", Path("/my key"), Path("/my lab/known"))
    words = ssh_command(blanks, "192.0.2.1", 2200, Path("/c"), Path("/s"))
    assert {'UserKnownHostsFile="/my lab/known"', "/my key"} <= set(words)


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("ssh: connect to host 192.0.2.1 port 22: Connection refused", "nothing answers SSH at 192.0.2.1 port 22"),
        ("ssh: connect to host 192.0.2.1 port 22: Connection timed out", "does not answer at 192.0.2.1 (is it on"),
        ("Host key verification failed.", "its key is not in /known (enter it with 'ssh-keyscan -p 22 192.0.2.1'"),
        ("backchannel@192.0.2.1: Permission denied (publickey).", "refuses the key /k for user backchannel (do)"),
        ("Timeout, server 192.0.2.1 not responding.", "does not answer at 192.0.2.1 any more"),
        (
            "Missing sudo password",
            "allow 'backchannel ALL=(ALL) NOPASSWD: ALL' in /etc/sudoers.d there, or add '-- --ask",
        ),
        ("ssh: something else.", "ssh: something else."),
    ],
)
def test_an_ssh_failure_becomes_a_sentence_with_a_remedy(message: str, sentence: str) -> None:
    assert sentence in meaning(message, Login("192.0.2.1", 22, "backchannel", "/k", "/known", "do"))


def test_reports_of_several_boxes_become_one() -> None:
    one = {"count": 1, "total_s": 0.1, "longest_s": 0.1, "queued_s": 0.1}
    two = {"count": 2, "total_s": 0.3, "longest_s": 0.2, "queued_s": 0.0}
    reports = [
        {"links": {"a": {}}, "realtime": True, "stalls": one},
        {"links": {"b": {}}, "realtime": False, "stalls": two},
    ]
    expected = {"links": {"a": {}, "b": {}}, "realtime": False, "stalls": two | {"count": 3}}
    assert merged([DriverReport.read(report) for report in reports]).as_json() == expected
    assert merged([]).as_json() == {"links": {}, "realtime": True}


def test_a_queue_at_the_near_end_is_the_forward_direction() -> None:
    direction = {"rate_bps": 9600, "delay_s": 0.1, "queue": {"name": "red", "options": {}}}
    spec = {
        "name": "x", "kind": "point-to-point", "ends": ["a", "b"], "forward": direction,
        "reverse": {**direction, "rate_bps": 1},
    }  # fmt: skip
    alone = queue_only(LinkSpec.read(spec), LinkPlacement("x", real="modem", queue_at="a"))
    assert alone.as_json()["forward"] == {"rate_bps": 9600, "queue": direction["queue"]}


@pytest.mark.parametrize("passphrase", ["", "secret"])
def test_a_key_with_a_passphrase_is_named_as_the_cause(tmp_path: Path, passphrase: str) -> None:
    key = tmp_path / "key"
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(key)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    assert has_passphrase(key) == bool(passphrase)
    login = Login("x", 22, "lab", str(key), "y", "enter it")
    words_of_ssh = meaning("lab@x: Permission denied (publickey).", login)
    assert f"run 'ssh-add {key}' first" in words_of_ssh if passphrase else "it refuses the key" in words_of_ssh
    assert not has_passphrase(tmp_path / "none")
