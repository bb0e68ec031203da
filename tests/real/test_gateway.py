"""`./backchannel gateway` on a machine of namespaces: the phone's way, refusals, and the machine's state afterwards."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.sessions import control
from experiments.sessions.state import SessionControl
from tests.support.gateway_world import LAN, MACHINE, SERVER, SERVER_V6, UPLINK, World
from tests.support.only_run import only_run
from tests.support.waiting import wait_until
from web.app import create_app

pytestmark = [pytest.mark.slow("gateways in real time"), pytest.mark.emulated]

#: A line with a delay that a ping shows, and a rate at which a download takes a second.
LINE = ["--profile", "adsl", "--name-server", SERVER]
PAGE_BYTES = 400_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


@pytest.fixture
def world_v6(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, with_ipv6=True) as made:
        yield made


def has_ipv6(world: World) -> bool:
    """Whether the phone has an address and a router by advertisement."""
    shown = world.run("phone", "sh", "-c", "ip -6 address show dev eth0 scope global; ip -6 route").stdout
    return "inet6 2001:db8:c0a8:4d:" in shown and "tentative" not in shown and "default via fe80:" in shown


def ping(world: World, server: str) -> None:
    """The phone pings over the line."""
    done = world.run("phone", "ping", "-c", "3", "-i", "0.3", server)
    assert "3 received" in done.stdout, done.stdout + done.stderr
    # The profile's delay of 5 ms, both ways.
    assert float(done.stdout.split("rtt")[1].split("=")[1].split("/")[0]) >= 10


def get_page(world: World, folder: Path, server: str) -> None:
    """The phone gets a page of a server."""
    (folder / "page").write_bytes(bytes(PAGE_BYTES))
    bind, host = ("::", f"[{server}]") if ":" in server else ("0.0.0.0", server)
    world.start("internet", "python3", "-m", "http.server", "8000", "--bind", bind, "--directory", str(folder))
    got = world.run("phone", "curl", "--silent", "--max-time", "30", "--retry", "9", "--retry-connrefused",
                    "--retry-delay", "1", f"http://{host}:8000/page")  # fmt: skip
    assert (got.returncode, len(got.stdout)) == (0, PAGE_BYTES), got.stderr


def restored(world: World, before: list[str]) -> None:
    """Compares the machine's state; the kernel removes interfaces of a namespace that has ended a little later."""
    try:
        wait_until(lambda: world.state() == before, "the machine's former state")
    except AssertionError:
        assert world.state() == before


def test_a_phone_reaches_the_internet_by_the_line_and_the_machine_is_as_before(world: World, tmp_path: Path) -> None:
    before = world.state()
    with world.gateway(*LINE) as gateway:
        gateway.open()
        assert world.lease() == SERVER
        ping(world, SERVER)
        name = gateway.session()
        assert control.ask(name, SessionControl.status).links["line"]["forward"].delivered_packets >= 3
        changed = control.ask(name, SessionControl.change, None, ["forward.rate=2 Mbit/s"])
        assert [change.fields for change in changed] == [{"rate": "2 Mbit/s"}]
        get_page(world, tmp_path, SERVER)
        gateway.signal(signal.SIGTERM, "experiments")
        status, shown = gateway.wait()
    assert status == 0, shown
    restored(world, before)
    run, _ = only_run(tmp_path / "results")
    assert create_app(tmp_path / "results").test_client().get(f"/runs/{run.id}").status_code == 200
    session = run.documents.manifest.session
    assert session is not None
    assert (session.interface, session.internet, len(session.changes)) == (LAN, True, 1)
    flows = [(flow.kind, flow.from_, flow.to) for flow in run.documents.scenario.workload]
    assert flows == [("bulk", "left", "right"), ("probe", "right", "left")]
    report = run.documents.manifest.report
    assert report is not None
    assert report.audit is not None
    audit = report.audit["line"]["forward"]
    assert audit.left_packets > PAGE_BYTES / 1500
    assert not [text for text in run.problems if "entered" in text], run.problems


def test_a_phone_gets_ipv6_by_advertisement_and_the_machine_is_as_before(world_v6: World, tmp_path: Path) -> None:
    before = world_v6.state()
    with world_v6.gateway(*LINE) as gateway:
        gateway.open()
        assert gateway.note() == "devices get addresses of 2001:db8:c0a8:4d::/64 by router advertisement too"
        wait_until(lambda: has_ipv6(world_v6), "the phone's address of IPv6")
        ping(world_v6, SERVER_V6)
        get_page(world_v6, tmp_path, SERVER_V6)
        gateway.signal(signal.SIGTERM, "experiments")
        status, shown = gateway.wait()
    assert status == 0, shown
    restored(world_v6, before)
    run, _ = only_run(tmp_path / "results")
    flows = {flow.name: (flow.from_, flow.to) for flow in run.documents.scenario.workload}
    assert flows == {"left-right:8000": ("left", "right"), "right-left:icmp6": ("right", "left")}
    report = run.documents.manifest.report
    assert report is not None
    assert report.audit is not None
    audit = report.audit["line"]["forward"]
    assert audit.left_packets > PAGE_BYTES / 1500
    assert audit.swallowed_packets + audit.invented_packets + audit.reordered_packets == 0


@pytest.mark.parametrize("killed", [("experiments",), ("testbed.gateway_daemon", "experiments")])
def test_a_killed_gateway_with_ipv6_is_restored(killed: tuple[str, ...], world_v6: World) -> None:
    before = world_v6.state()
    with world_v6.gateway(*LINE) as gateway:
        gateway.open()
        assert world_v6.state() != before
        gateway.signal(signal.SIGKILL, *killed)
        gateway.wait()
    if "testbed.gateway_daemon" in killed:
        with world_v6.gateway(*LINE) as gateway:
            gateway.open()
            gateway.signal(signal.SIGTERM, "experiments")
            assert gateway.wait()[0] == 0
    restored(world_v6, before)


def test_without_a_default_route_of_ipv6_the_gateway_says_so(world: World) -> None:
    with world.gateway(*LINE) as gateway:
        gateway.open()
        assert gateway.note() == "devices get no IPv6: this machine has no default route of IPv6"


def test_a_gateway_that_is_killed_leaves_nothing(world: World) -> None:
    before = world.state()
    with world.gateway(*LINE) as gateway:
        gateway.open()
        assert world.state() != before
        gateway.signal(signal.SIGKILL, "experiments")
        gateway.wait()
    restored(world, before)


def test_what_a_killed_daemon_left_is_restored_by_the_next_gateway(world: World) -> None:
    before = world.state()
    with world.gateway(*LINE) as gateway:
        gateway.open()
        gateway.signal(signal.SIGKILL, "testbed.gateway_daemon", "experiments")
        gateway.wait()
    # Forwarding, and the interface of the devices; the kernel has removed all else.
    left = [line for line in world.state() if line not in before]
    assert f"ipv4/conf/{UPLINK}/forwarding:1" in left
    with world.gateway(*LINE) as gateway:
        gateway.open()
        gateway.signal(signal.SIGTERM, "experiments")
        assert gateway.wait()[0] == 0
    restored(world, before)


def test_refusals_are_sentences_and_change_nothing(world: World) -> None:
    world.run("machine", "ip", "link", "set", LAN, "up")
    world.settle()
    before = world.state()
    ssh = f"{SERVER} 50000 {MACHINE} 22"
    cases = [
        ({"interface": "eth9"}, (), f"this machine has no interface 'eth9'; its interfaces: {LAN}, {UPLINK}"),
        ({"interface": UPLINK}, (), f"{UPLINK} carries the default route"),
        ({"interface": UPLINK, "SSH_CONNECTION": ssh}, (), f"{UPLINK} carries the SSH connection"),
        ({}, ("--subnet", "203.0.113.0/25"), "--subnet 203.0.113.0/25"),
        ({}, ("--profile", "adsll"), "unknown profile 'adsll'"),
        ({}, ("--name-server", "dns"), "--name-server dns is not an IPv4 address"),
    ]  # fmt: skip
    for keywords, more, sentence in cases:
        with world.gateway(*LINE, *more, **keywords) as gateway:
            first = gateway.first_note()
            status, shown = gateway.wait()
        assert sentence in first + shown
        assert status in (1, 2), first
        assert world.state() == before
    with world.gateway(*LINE) as first_one:
        first_one.open()
        world.settle()
        running = world.state()
        with world.gateway(*LINE) as second:
            assert f"this machine has a gateway already (on {LAN}, process " in second.first_note()
            assert second.wait()[0] == 1
        assert world.state() == running


def test_a_gateway_ends_with_its_interface(world: World) -> None:
    with world.gateway(*LINE) as gateway:
        gateway.open()
        world.run("machine", "ip", "link", "delete", LAN)
        status, shown = gateway.wait()
    assert status == 1
    assert f"the interface {LAN} is gone" in shown
    assert "The session is run" in shown
