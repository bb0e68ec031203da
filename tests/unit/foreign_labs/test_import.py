"""Inventories of labs that other systems lend, from small files in their formats."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from experiments import inventory
from experiments.foreign_labs import asking, chameleon, enoslib, importing
from experiments.foreign_labs.files import MAX_BYTES, xml_of
from experiments.foreign_labs.lent import LeasedLab, LentHost, Nic, hardware_address, host_name, instant, lent_lab
from experiments.foreign_labs.matching import Matched, matched, named
from experiments.language.problems import CampaignError
from testbed.errors import TestbedError
from testbed.scenario import LinkSpec, Node
from testbed.tunnels import Jump, SshOptions
from tests.support.called import called

FILES = Path(__file__).parent / "files"
CAMPAIGN = """
name: pair
network:
  nodes: [{name: left, kind: host}, {name: right, kind: host}]
  links: [{name: line, ends: [left, right], forward: {rate: 1 Mbit/s}}]
workload: [{name: bulk, from: left, to: right}]
duration: 4 s
"""
#: While the leases of the files last.
NOW_S = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
SOURCES = {
    "cloudlab": ["manifest.xml"],
    "fabric": ["slice.json", "interfaces.json", "nodes.json"],
    "chameleon": ["servers.json", "lease.json"],
    "enoslib": ["roles.yaml"],
}
#: What `ip -json address` answers where a description has no names.
ANSWERS = {
    "cloudlab": {
        "left": [Nic("", "enp1s0", "02:00:00:00:01:01")],
        "right": [Nic("", "enp2s0", "02:00:00:00:02:01")],
        "middle": [Nic("", "enp3s0", "02:00:00:00:03:01"), Nic("", "enp3s1", "02:00:00:00:03:02")],
    },
    "chameleon": {
        "left": [Nic("", "eno1", None, "192.0.2.5"), Nic("", "eno2", None, "10.30.0.5")],
        "right": [Nic("", "eno2", None, "10.30.0.6")],
    },
}


def import_(
    folder: Path, monkeypatch: pytest.MonkeyPatch, system: str, files: list[Path] | None = None, now_s: float = NOW_S,
    **more: Any,
) -> tuple[inventory.Inventory, list[str]]:  # fmt: skip
    """Imports one of the samples into a folder."""
    (folder / "pair.yaml").write_text(CAMPAIGN)
    answers = ANSWERS.get(system, {})
    monkeypatch.setattr(
        importing, "with_names", lambda hosts, _: [named(host, answers.get(host.name, [])) for host in hosts]
    )
    paths = tuple(files or [FILES / name for name in SOURCES[system]])
    request = importing.LabImportRequest(
        system, paths, folder / "pair.yaml", folder / "hosts.yml", {}, {}, ask=system in ANSWERS, **more
    )
    lines = importing.import_lab(request, now_s)
    return inventory.read(folder / "hosts.yml"), lines


EXPECTED: dict[str, Any] = {
    "cloudlab": (
        {"left": ("pc1.example.test", 22, "enp1s0"), "right": ("pc2.example.test", 2200, "enp2s0"),
         "middle": ("pc3.example.test", 22, None)},
        ("middle", ["enp3s0", "enp3s1"], None), "ann",
    ),
    "fabric": (
        {"left": ("2001:db8::11", 22, "enp7s0"), "right": ("2001:db8::12", 22, "enp8s0")},
        (None, [], "wire"), "debian",
    ),
    "chameleon": (
        {"left": ("198.51.100.11", 22, "eno2"), "right": ("198.51.100.12", 22, "eno2")}, (None, [], "wire"), "cc",
    ),
    "enoslib": (
        {"left": ("node-1.example.test", 22, "eno2"), "right": ("node-2.example.test", 22, "eno2")},
        (None, [], "wire"), "root",
    ),
}  # fmt: skip


@pytest.mark.parametrize("system", SOURCES)
def test_an_inventory_has_hosts_links_and_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    found, lines = import_(tmp_path, monkeypatch, system)
    hosts, link, user = EXPECTED[system]
    assert {
        name: (host.address, host.port, host.interfaces.get("line")) for name, host in found.file.hosts.items()
    } == hosts
    line = found.file.links["line"]
    assert (line.box, line.interfaces, line.real) == link
    assert found.file.ssh.user == user
    ends = None if system == "enoslib" else datetime(2026, 3, 1, 18, tzinfo=UTC)
    assert found.file.lease_ends == ends
    assert ("the lease of the hosts ends in 6 h 0 min (2026-03-01 18:00:00 UTC)" in lines) == (ends is not None)
    assert found.campaign is not None
    assert found.campaign.resolve() == (tmp_path / "pair.yaml").resolve()


def test_a_key_of_the_file_and_options_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = import_(
        tmp_path, monkeypatch, "enoslib", proxy_jump="ann@bastion.test", lease_ends="2026-03-02T00:00:00Z"
    )
    assert found.resolved(found.file.ssh.key) == Path("/home/ann/.ssh/id_ed25519")
    assert found.file.ssh.proxy_jump == "ann@bastion.test"
    assert found.file.lease_ends == datetime(2026, 3, 2, tzinfo=UTC)
    (tmp_path / "hosts.yml").unlink()
    found, _ = import_(tmp_path, monkeypatch, "enoslib", key=tmp_path / "other", user="eve")
    assert (found.resolved(found.file.ssh.key), found.file.ssh.user) == (tmp_path / "other", "eve")


def test_a_lab_in_the_experiments_range_gets_the_other_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roles = tmp_path / "roles.yaml"
    roles.write_text((FILES / "roles.yaml").read_text().replace("node-1.example.test", "10.2.0.1"))
    found, _ = import_(tmp_path, monkeypatch, "enoslib", [roles])
    assert found.file.addresses == "198.18.0.0/15"


def replaced(folder: Path, name: str, old: str, new: str, count: int = -1) -> Path:
    text = (FILES / name).read_text()
    assert old in text
    path = folder / name
    path.write_text(text.replace(old, new, count))
    return path


#: File, what is replaced in it, and the sentence with its line.
MISTAKES = {
    "a request": ("manifest.xml", 'type="manifest"', 'type="request"', "xml:2: is not a manifest"),
    "no login": (
        "manifest.xml", '<login authentication="ssh-keys" hostname="pc3.example.test" port="22" username="ann"/>',
        "", "xml:17: middle: has no <login>, so nobody can reach it; is the experiment ready?",
    ),
    "a port in words": ("manifest.xml", 'port="2200"', 'port="ssh"', "xml:14: right.port: 'ssh' is not a port"),
    "one interface on two links": (
        "manifest.xml", '<interface_ref client_id="middle:if1"/>', '<interface_ref client_id="middle:if0"/>',
        "xml:29: middle:if0: belongs to two links, lan0 and lan1",
    ),
    "broken XML": ("manifest.xml", "</rspec>", "", "xml:32: is not XML: no element found"),
    "no name": ("manifest.xml", 'client_id="middle" ', "", "xml:17: <node> has no attribute 'client_id'"),
    "a lease in words": ("manifest.xml", "2026-03-01T18:00:00Z", "soon", "xml:2: expires: 'soon' is not a time"),
    "an interface of nobody": (
        "interfaces.json", '"Node": "left"', '"Node": "gone"',
        "json:2: 0: its node 'gone' is unknown; nodes are left, right",
    ),
    "a list of something": ("nodes.json", "management_ip", "ip", "json:2: 0: is not one of the expected files"),
    "no address yet": (
        "nodes.json", '"management_ip": "2001:db8::11"', '"management_ip": ""',
        "json:2: 0: the field 'management_ip' is missing",
    ),
    "a server that is built": ("servers.json", "ACTIVE", "BUILD", "server left is BUILD; wait until it is ACTIVE"),
    "no address": ("servers.json", "10.30.0.5", "ten", "json:2: 0.Networks.wire: 'ten' is not an address"),
    "no lease": ("lease.json", "end_date", "end", "json:1: the field 'end_date' is missing"),
    "no prefix": ("roles.yaml", "10.40.0.1/24", "10.40.0.300", "yaml:9: left.0.net_devices.2.addresses.0: '10.40"),
    "no list": ("roles.yaml", "left:\n", "walltime: 3\nleft:\n", "yaml:1: walltime: expected a list"),
    "no host": ("roles.yaml", "- address: node-1.example.test\n    alias", "- alias", "the field 'address' is missing"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_error_is_a_sentence_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    name, old, new, message = MISTAKES[mistake]
    system = next(system for system, names in SOURCES.items() if name in names)
    broken = replaced(tmp_path, name, old, new, 1)
    paths = [broken if other == name else FILES / other for other in SOURCES[system]]
    with pytest.raises(CampaignError) as error:
        import_(tmp_path, monkeypatch, system, paths)
    assert message in str(error.value)
    assert str(error.value).startswith(str(broken))
    assert len(str(error.value).splitlines()) == 1
    assert not (tmp_path / "hosts.yml").exists()
    assert not list(tmp_path.glob(".hosts.yml*"))


def test_a_billion_laughs_are_refused_before_they_begin(tmp_path: Path) -> None:
    levels = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    path = tmp_path / "laughs.xml"
    path.write_text(
        f'<?xml version="1.0"?><!DOCTYPE rspec [<!ENTITY l0 "lol">{levels}]><rspec type="manifest">&l9;</rspec>'
    )
    began = time.process_time()
    with pytest.raises(CampaignError, match=r"laughs\.xml:1: declares a document type, which no manifest needs"):
        xml_of(path)
    # Expanded, they would be 3 GB.
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<a>" * 100 + b"</a>" * 100, "more than 40 in each other"),
        (b"<a>" + b"<b/>" * 60_000 + b"</a>", "has more than 50000 elements"),
        (b"x" * (MAX_BYTES + 1), "is too large for a description of a lab"),
        (b"\xff\xfe<a/>", "is not UTF-8 text"),
        (b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "declares a document type"),
    ],
)
def test_a_foreign_file_is_read_within_bounds(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "manifest.xml"
    path.write_bytes(content)
    with pytest.raises(CampaignError, match=message):
        xml_of(path)
    with pytest.raises(CampaignError, match=r"missing\.xml: cannot be read: No such file"):
        xml_of(tmp_path / "missing.xml")


def lab(*hosts: tuple[str, list[str]]) -> LeasedLab:
    """Hosts by name and networks; interfaces are called after their networks."""
    nics = {name: tuple(Nic(network, f"to-{network}") for network in networks) for name, networks in hosts}
    return LeasedLab(tuple(LentHost(name, f"{name}.test", of_host) for name, of_host in nics.items()))


#: Two hosts on one network.
JOINED = lab(("a", ["n1"]), ("b", ["n1"]))


def match(lent: LeasedLab, nodes: str = "a b", links: str = "line:a-b", **more: Any) -> Matched:
    specs = []
    for text in links.split():
        name, _, ends = text.partition(":")
        way = {"rate_bps": 1_000_000, "queue": {"name": "droptail", "options": {}}}
        document = {"name": name, "kind": "point-to-point", "ends": ends.split("-"), "forward": way, "reverse": way}
        specs.append(LinkSpec.read(document))
    people = [Node.read({"name": name, "kind": "host"}) for name in nodes.split()]
    return matched(lent, people, specs, more.get("plays", {}), more.get("carried", {}))


def test_a_network_between_the_ends_is_a_wire_and_a_host_between_them_a_box() -> None:
    assert match(JOINED)["links"] == {"line": {"real": "wire"}}
    boxed = match(lab(("a", ["n1"]), ("b", ["n2"]), ("m", ["n1", "n2"])))
    assert boxed["links"] == {"line": {"box": "m", "interfaces": ["to-n1", "to-n2"]}}
    assert boxed["hosts"]["a"] == {"plays": "a", "address": "a.test", "interfaces": {"line": "to-n1"}}
    assert "plays" not in boxed["hosts"]["m"]
    # A network with a third host is neither.
    with pytest.raises(TestbedError, match="nothing carries link 'line'"):
        match(lab(("a", ["n1"]), ("b", ["n1"]), ("m", ["n1"])))


def test_hosts_with_other_names_and_networks_that_are_chosen() -> None:
    two = lab(("x", ["n1", "n2"]), ("b", ["n1", "n2"]))
    found = match(two, plays={"x": "a"}, carried={"line": ["n2"]})
    assert found["hosts"]["x"] == {"plays": "a", "address": "x.test", "interfaces": {"line": "to-n2"}}


MISFITS: dict[str, tuple[Callable[[], object], str]] = {
    "nobody plays it": (
        lambda: match(lab(("x", ["n1"]), ("b", ["n1"]))),
        "no host plays node 'a': none has its name (hosts: x, b); add '--plays HOST=a'",
    ),
    "an unknown host": (lambda: match(JOINED, plays={"aa": "a"}), "--plays: unknown host 'aa'; did you mean 'a'?"),
    "an unknown node": (lambda: match(JOINED, plays={"a": "c"}), "--plays: unknown node 'c'; allowed: a, b"),
    "two players": (
        lambda: match(lab(("x", ["n1"]), ("y", ["n1"]), ("b", ["n1"])), plays={"x": "a", "y": "a"}),
        "--plays: hosts x and y both play 'a'; one must not",
    ),
    "no interface": (
        lambda: match(lab(("a", []), ("b", ["n1"]))), "host a, which plays 'a', has no interface for the experiment",
    ),
    "nothing between": (
        lambda: match(lab(("a", ["n1"]), ("b", ["n2"]))),
        "nothing carries link 'line': no network joins a and b alone, and no other host has a network to each of them; "
        "networks are n1 (a); n2 (b)",
    ),
    "two networks": (
        lambda: match(lab(("a", ["n1", "n2"]), ("b", ["n1", "n2"]))),
        "link 'line' could be carried by several: network n1; network n2; choose one, such as '--link line=n1'",
    ),
    "an unknown link": (lambda: match(JOINED, carried={"lime": ["n1"]}), "--link: unknown link 'lime'"),
    "an unknown network": (lambda: match(JOINED, carried={"line": ["n9"]}), "--link line: unknown network 'n9'"),
    "two interfaces on one network": (
        lambda: match(lab(("a", ["n1", "n1"]), ("b", ["n1"]))),
        "host a has 2 interfaces on network n1; link 'line' needs one",
    ),
    "an interface for two links": (
        lambda: match(JOINED, links="one:a-b two:a-b"),
        "host a: interface to-n1 carries both link 'one' and link 'two'; choose other networks with '--link'",
    ),
    "no name": (
        lambda: match(LeasedLab((
            LentHost("a", "a", (Nic("n1", None, "02:00:00:00:00:01"),)), LentHost("b", "b", (Nic("n1", "e"),)),
        ))),
        "host a: the description does not name the interface on network n1 (02:00:00:00:00:01); add '--ask'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("misfit", MISFITS)
def test_what_does_not_fit_is_one_sentence_with_the_remedy(misfit: str) -> None:
    attempt, message = MISFITS[misfit]
    with pytest.raises(TestbedError) as error:
        attempt()
    assert message in str(error.value)


def test_no_inventory_is_overwritten_and_no_ended_lease_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TestbedError, match=r"the lease of the hosts has ended \(2026-03-01 18:00:00 UTC\); extend it"):
        import_(tmp_path, monkeypatch, "fabric", now_s=NOW_S + 7 * 3600)
    import_(tmp_path, monkeypatch, "fabric")
    before = (tmp_path / "hosts.yml").read_text()
    with pytest.raises(CampaignError, match="exists; remove it, or name another file with --inventory"):
        import_(tmp_path, monkeypatch, "fabric")
    assert (tmp_path / "hosts.yml").read_text() == before


def test_an_inventory_that_would_be_invalid_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = replaced(tmp_path, "manifest.xml", 'port="2200"', 'port="70000"')
    with pytest.raises(CampaignError, match=r"^\S*/hosts\.yml: hosts\.right\.port: "):
        import_(tmp_path, monkeypatch, "cloudlab", [port])
    # In the range of the experiment's addresses, which the placement rejects.
    there = replaced(tmp_path, "roles.yaml", "node-1.example.test", "198.18.0.1")
    there.write_text(there.read_text().replace("node-2.example.test", "10.2.0.2"))
    with pytest.raises(CampaignError, match=r"^\S*/hosts\.yml: .*198\.18\."):
        import_(tmp_path, monkeypatch, "enoslib", [there])
    assert not list(tmp_path.glob("*hosts.yml*"))
    with pytest.raises(CampaignError, match=r"^.*/roles\.yaml: is one file too many: enoslib has the roles"):
        import_(tmp_path, monkeypatch, "enoslib", [FILES / "roles.yaml"] * 2)
    with pytest.raises(CampaignError, match=r"^--proxy-jump: 'a,b' is not a host to jump over"):
        import_(tmp_path, monkeypatch, "enoslib", proxy_jump="a,b")


def test_a_relative_key_is_named_from_the_inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    found, _ = import_(tmp_path, monkeypatch, "enoslib", key=Path("key"))
    key = found.resolved(found.file.ssh.key)
    assert key is not None
    assert key.resolve() == tmp_path.resolve() / "work" / "key"


def test_hosts_are_asked_over_the_inventorys_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pair.yaml").write_text(CAMPAIGN)
    asked: list[SshOptions] = []

    def ask(hosts: list[LentHost], options: SshOptions) -> list[LentHost]:
        asked.append(options)
        return [named(host, ANSWERS["chameleon"][host.name]) for host in hosts]

    monkeypatch.setattr(importing, "with_names", ask)
    files = tuple(FILES / name for name in SOURCES["chameleon"])
    request = importing.LabImportRequest(
        "chameleon", files, Path("pair.yaml"), Path("hosts.yml"), {}, {}, ask=True, key=Path("key"),
        known_hosts=tmp_path / "known", proxy_jump="ann@bastion.test:2200", proxy_key=Path("~/other"),
    )  # fmt: skip
    importing.import_lab(request, NOW_S)
    expected = SshOptions(
        "cc", tmp_path / "key", tmp_path / "known", jump=Jump("bastion.test", "ann", 2200),
        jump_key=Path.home() / "other",
    )  # fmt: skip
    assert asked == [expected]
    assert inventory.read(tmp_path / "hosts.yml").ssh_options() == replace(expected, user="backchannel")


def test_hosts_of_roles_and_servers_have_the_interfaces_of_the_experiment(tmp_path: Path) -> None:
    text = (FILES / "roles.yaml").read_text().replace("node-1.example.test", "172.16.0.1")
    both = "both:\n" + "".join(f"  - {{address: {address}}}\n" for address in ("172.16.0.1", "node-2.example.test"))
    (tmp_path / "roles.yaml").write_text(text + both)
    left, right = enoslib.read([tmp_path / "roles.yaml"]).hosts
    assert left.nics == (Nic("10.40.0.0/24", "eno2", None, "10.40.0.1"),)
    assert (left.name, right.name) == ("left", "right")
    servers = [{"Name": "a", "Status": "ACTIVE", "Networks": {
        "wire": ["10.30.0.5", "fd00::5"], "shared": ["192.0.2.5", "198.51.100.1"],
    }}]  # fmt: skip
    # With tabs, and with lines before the list.
    (tmp_path / "servers.json").write_text("\n\n" + json.dumps(servers, indent="\t"))
    (tmp_path / "lease.json").write_text("\t" + (FILES / "lease.json").read_text())
    found = chameleon.read([tmp_path / "servers.json", tmp_path / "lease.json"])
    assert found.ends == datetime(2026, 3, 1, 18, tzinfo=UTC)
    (host,) = found.hosts
    assert (host.address, host.nics) == ("198.51.100.1", (Nic("wire", None, None, "10.30.0.5"),))


def test_a_lab_has_hosts_with_names_and_addresses_of_their_own() -> None:
    for hosts, message in (
        ([], "lab: lists no host"),
        ([LentHost("a", "x", ()), LentHost("a", "y", ())], r"lab: a: two hosts have the same names \(a\)"),
        (
            [LentHost("a", "x", ()), LentHost("b", "x", ())],
            r"lab: b: two hosts have the same addresses \(\('x', 22\)\)",
        ),
    ):
        with pytest.raises(CampaignError, match=message):
            lent_lab("lab", hosts)
    assert lent_lab("lab", [LentHost("a", "x", ()), LentHost("b", "x", (), port=23)]).ends is None


def test_hosts_with_several_logins_need_a_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = replaced(tmp_path, "nodes.json", '"debian"', '"ubuntu"', 1)
    files = [FILES / "slice.json", FILES / "interfaces.json", path]
    with pytest.raises(TestbedError, match=r"several values of 'user' \(debian, ubuntu\).*choose it with --user"):
        import_(tmp_path, monkeypatch, "fabric", files)


def test_names_addresses_and_times() -> None:
    names = {"Left": "left", "node_1.test": "node-1-test", "7up": "host-7up", "-x-": "x"}
    assert {text: host_name(text) for text in names} == names
    assert hardware_address("0200.0000.01FF") == hardware_address("02:00:00:00:01:ff") == "02:00:00:00:01:ff"
    assert hardware_address("02:00") is None
    utc = datetime(2026, 3, 1, 18, tzinfo=UTC)
    for text in ("2026-03-01T18:00:00.000000", "2026-03-01 18:00:00 +0000", "2026-03-01T18:00:00Z"):
        assert instant(text) == utc
    assert instant("2026-03-01T18:00:00+01:00") == utc - timedelta(hours=1)


def test_a_host_answers_with_its_interfaces() -> None:
    text = json.dumps([
        {"ifname": "lo", "address": "00:00:00:00:00:00", "addr_info": [{"family": "inet", "local": "127.0.0.1"}]},
        {"ifname": "eth1", "address": "02:00:00:00:00:01", "addr_info": [{"family": "inet6", "local": "fe80::1"}]},
    ])  # fmt: skip
    assert asking.answers(text)[1] == Nic("", "eth1", "02:00:00:00:00:01", None)
    for wrong in ("", "{}x", "[1]", '[{"address": "x"}]'):
        with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
            asking.answers(wrong)


def test_the_command_writes_an_inventory_and_says_what_is_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pair.yaml").write_text(CAMPAIGN)
    monkeypatch.chdir(tmp_path)
    words = ["testbed", "import", "--from", "enoslib", "--campaign", "pair.yaml", str(FILES / "roles.yaml")]
    status, out, _ = called(*words)
    assert (status, out.splitlines()) == (
        0, ["hosts.yml: 2 hosts, 0 of them link boxes", "next: ./backchannel testbed site --inventory hosts.yml"],
    )  # fmt: skip
    assert called(*words, "--plays", "left") == (2, "", "--plays: 'left' must be HOST=NODE, once for each\n")
