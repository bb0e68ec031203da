"""Remote calls: every request has an answer, and every answer its type."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import pytest

from agents import rpc
from agents.rpc import ChildProcess, Dispatcher, File, Server, SocketClient, Stream, method
from agents.typed_json import MistypedValue
from tests.support.serving import serving
from tests.support.waiting import HANGS_S, wait_until


class Refused(Exception):
    pass


class Unreadable(Refused, MistypedValue):
    """As testbed.documents.DocumentError."""


class Lost(Exception):
    pass


@dataclass(frozen=True)
class Item:
    name: str
    sizes: tuple[int, ...]
    rate_bps: float | None = None


class Store:
    """A protocol with all kinds of parameters and results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started, self.goes_on = threading.Event(), threading.Event()

    @method
    def put(self, item: Item, way: Literal["forward", "reverse"], times: Mapping[str, int], note: str = "") -> Item:
        return Item(f"{item.name} {way} {times} {note}", item.sizes, item.rate_bps)

    @method
    def names(self, of: list[Item]) -> list[str]:
        return [item.name for item in of]

    @method
    def refuse(self) -> None:
        raise Refused("there is no item 'x'")

    @method
    def read_document(self) -> None:
        raise Unreadable("expected an integer", ["report", "pid"])

    @method
    def fail(self) -> None:
        raise ZeroDivisionError("division by zero")

    @method
    def read(self, path: Path) -> str:
        return path.read_text()

    @method
    def file(self, name: str) -> File:
        return File(self.folder / name)

    @method
    def wait(self) -> str:
        self.started.set()
        assert self.goes_on.wait(HANGS_S)
        return "x" * 10_000_000

    @method
    def lie(self) -> int:
        return "seven"  # type: ignore[return-value]

    def hidden(self) -> None:
        raise AssertionError("this is no request")


@dataclass
class Served:
    path: Path
    store: Store

    def client(self) -> SocketClient:
        return SocketClient(self.path, Refused, Lost)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    store = Store(tmp_path)
    with serving(Server(tmp_path / "sock", Dispatcher("the store", Store, store, (Refused,)))):
        yield Served(tmp_path / "sock", store)


def ask(served: Served, line: bytes) -> bytes:
    """Everything that the server sends on a connection of its own, after the last of which it is closed."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(HANGS_S)
        connection.connect(str(served.path))
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_arguments_and_results_have_their_types_on_both_sides(served: Served, tmp_path: Path) -> None:
    with closing(served.client()) as client:
        item = client.call(HANGS_S, Store.put, Item("a", (1, 2), 0.5), "forward", times={"x": 3})
        assert item == Item("a forward {'x': 3} ", (1, 2), 0.5)
        nothing = MappingProxyType[str, int]({})
        assert client.call(HANGS_S, Store.put, Item("a", ()), "forward", times=nothing).name == "a forward {} "
        assert client.call(HANGS_S, Store.names, [Item("a", ()), item]) == ["a", "a forward {'x': 3} "]
        (tmp_path / "text").write_text("content")
        assert client.call(HANGS_S, Store.read, tmp_path / "text") == "content"
        client.request("file", {"name": "text"}, to=tmp_path / "copy")
        assert (tmp_path / "copy").read_text() == "content"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"{", "the request is invalid: not a JSON object with an 'op': {"),
        (b"\xff\xfe", "the request is invalid: not a JSON object with an 'op': \ufffd\ufffd"),
        (b"null", "the request is invalid: not a JSON object with an 'op': null"),
        (b'[["op", "names"]]', 'the request is invalid: not a JSON object with an \'op\': [["op", "names"]]'),
        (b'{"a": 1}', "the request is invalid: not a JSON object with an 'op': {\"a\": 1}"),
        (b"[" * 100_000, f"the request is invalid: not a JSON object with an 'op': {'[' * 80}"),
        (b'{"op": "x", "n": ' + b"1" * 100_000 + b"}",
         f"the request is invalid: not a JSON object with an 'op': {{\"op\": \"x\", \"n\": {'1' * 63}"),
        (b'{"op": "get"}', "the request is invalid: the store has no 'get', it may be of another version"),
        (b'{"op": "hidden"}', "the request is invalid: the store has no 'hidden', it may be of another version"),
        (b'{"op": "__init__"}', "the request is invalid: the store has no '__init__', it may be of another version"),
        (b'{"op": "names"}', "the request is invalid: of: missing"),
        (b'{"op": "names", "off": []}', "the request is invalid: off: unknown field; did you mean 'of'?"),
        (b'{"op": "names", "of": [{"name": "a", "sizes": [1, 2.5]}]}',
         "the request is invalid: of.0.sizes.1: expected an integer, found 2.5"),
        (b'{"op": "names", "of": [{"sizes": []}]}', "the request is invalid: of.0.name: missing"),
        (b'{"op": "names", "of": [{"name": "a", "sizes": [], "rate_bps": 1e999}]}',
         "the request is invalid: of.0.rate_bps: expected a number, found inf"),
        (b'{"op": "put", "item": {"name": "a", "sizes": []}, "way": "up", "times": {}}',
         "the request is invalid: way: expected forward or reverse, found 'up'"),
        (b'{"op": "refuse"}', "there is no item 'x'"),
        (b'{"op": "read_document"}', "report.pid: expected an integer"),
        (b'{"op": "read", "path": "/no/file"}', "No such file or directory: /no/file"),
        (b'{"op": "file", "name": "nothing"}', "No such file or directory: {folder}/nothing"),
        (b'{"op": "fail"}', "the store failed: ZeroDivisionError: division by zero"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_request_is_answered_by_a_sentence(
    served: Served, line: bytes, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, rest = ask(served, line + b'\n{"op": "names", "of": []}\n').split(b"\n")
    assert (rest, second) == (b"", b'{"ok": true, "result": []}'), "the next request was not answered"
    with pytest.raises(Refused) as rejected, closing(served.client()) as client:
        with_answer(client, first)
    assert str(rejected.value) == sentence.replace("{folder}", str(served.store.folder))
    assert ("Traceback" in capsys.readouterr().err) == ("ZeroDivisionError" in sentence), (
        "only a defect has a traceback"
    )


def with_answer(client: SocketClient, answer: bytes) -> Any:
    """What a client makes of an answer."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(answer + b"\n")
        try:
            return rpc.exchange(Stream(ours.fileno(), ours.fileno(), HANGS_S), {"op": "x"})
        except rpc.Rejected as error:
            raise client._rejected(str(error)) from None


def test_a_line_that_is_too_long_ends_the_connection(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "LONGEST_BYTES", 100_000)
    with closing(served.client()) as client:
        with pytest.raises(Refused, match="^the request is invalid: a line of more than 100000 bytes is too long$"):
            client.call(HANGS_S, Store.names, [Item("a" * 5_000_000, ())])
        assert client.call(HANGS_S, Store.names, []) == []
        served.store.goes_on.set()
        with pytest.raises(Lost, match="^a line of more than 100000 bytes is too long$"):
            client.call(HANGS_S, Store.wait)


def test_a_client_that_goes_away_harms_nobody(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    before = threading.active_count()
    with socket.socket(socket.AF_UNIX) as gone:
        gone.connect(str(served.path))
        gone.sendall(b'{"op": "wait"}\n')
        assert served.store.started.wait(HANGS_S)
    served.store.goes_on.set()
    assert ask(served, b'{"op": "na') == b'{"ok": false, "error": "the request is invalid: the message was cut off"}\n'
    assert ask(served, b'{"op": "names", "of": []}\n') == b'{"ok": true, "result": []}\n'
    wait_until(lambda: threading.active_count() <= before, "the end of the connections")
    assert capsys.readouterr().err == ""


def test_a_server_that_is_silent_gone_or_of_another_version_is_reported(served: Served, tmp_path: Path) -> None:
    with closing(served.client()) as client:
        with pytest.raises(Lost, match="^timed out$"):
            client.call(0.05, Store.wait)
        served.store.goes_on.set()
        with pytest.raises(Lost, match="^gave an invalid answer to 'lie': expected an integer, found 'seven'$"):
            client.call(HANGS_S, Store.lie)
        with pytest.raises(Lost, match="^its answer has no file$"):
            client.request("lie", {}, to=tmp_path / "copy")
    with pytest.raises(Lost, match="No such file or directory"):
        SocketClient(tmp_path / "no.sock", Refused, Lost).call(HANGS_S, Store.refuse)


def test_only_the_holder_is_admitted(tmp_path: Path) -> None:
    def admit(op: str, token: str) -> None:
        if op != "refuse" and token != "s\udce9cret":
            raise Refused("held by another")

    server = Server(tmp_path / "sock", Dispatcher("the store", Store, Store(tmp_path), (Refused,), admit))
    with serving(server), closing(SocketClient(tmp_path / "sock", Refused, Lost)) as client:
        with pytest.raises(Refused, match="held by another"):
            client.call(HANGS_S, Store.names, [])
        with pytest.raises(Refused, match="there is no item"):
            client.call(HANGS_S, Store.refuse)
        client.token = "s\udce9cret"
        assert client.call(HANGS_S, Store.names, []) == []


CHILD = """
import sys
from agents.rpc import Dispatcher, method, standard_streams
class Counter:
    @method
    def count(self, to: int) -> int:
        for number in range(to):
            stream.send({"event": number})
        return to
    @method
    def stop(self) -> None:
        print("thread 'main' panicked at x.rs:1:2:\\nno link", file=sys.stderr)
        sys.exit(3)
    @method
    def babble(self) -> None:
        stream.write(b"no JSON\\n")
stream = standard_streams()
Dispatcher("the counter", Counter, Counter(), (KeyError,)).serve(stream)
"""


class Counter:
    def count(self, to: int) -> int:
        raise NotImplementedError


def child(log: Path, events: list[int]) -> ChildProcess:
    return ChildProcess("the counter", [sys.executable, "-c", CHILD], log, Refused, events.append)


def test_a_child_sends_events_before_its_answer_and_ends_with_its_input(tmp_path: Path) -> None:
    events: list[int] = []
    counter = child(tmp_path / "log", events)
    assert counter.call(HANGS_S, Counter.count, 3) == 3
    assert events == [0, 1, 2]
    with pytest.raises(Refused, match="^the request is invalid: to: expected an integer, found 'x'$"):
        counter.request("count", {"to": "x"})
    counter.close()
    assert not counter.is_running
    sink = counter._stream._sink
    # Another file has the number of the descriptor that was closed.
    with (tmp_path / "other").open("wb") as other:
        os.dup2(other.fileno(), sink)
    with pytest.raises(Refused, match="^the counter has ended: status 0$"):
        counter.request("count", {"to": 1})
    os.close(sink)
    assert (tmp_path / "other").read_bytes() == b""


@pytest.mark.parametrize(
    ("op", "sentence"),
    [("stop", r"has ended: no link \(x.rs:1:2\)"), ("babble", "was ended: its answer cannot be read: no JSON")],
)
def test_a_misbehaving_child_is_ended(tmp_path: Path, op: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if op == "babble":
        # It does not end by itself.
        monkeypatch.setattr(rpc, "END_S", 0.2)
    counter = child(tmp_path / "log", [])
    with pytest.raises(Refused, match=f"^the counter {sentence}$"):
        counter.request(op, {}, HANGS_S)
    assert not counter.is_running


def test_a_silent_child_is_ended(tmp_path: Path) -> None:
    sleeping = ChildProcess("the sleeper", ["sleep", "60"], tmp_path / "log", Refused)
    with pytest.raises(Refused, match=r"^the sleeper sent no answer to 'wake' for 0.05 s and was ended$"):
        sleeping.request("wake", {}, 0.05)
    assert not sleeping.is_running
    # One that takes nothing is silent too.
    sleeping = ChildProcess("the sleeper", ["sleep", "60"], tmp_path / "log", Refused)
    with pytest.raises(Refused, match="sent no answer"):
        sleeping.request("wake", {"with": "x" * 1_000_000}, 0.05)


class Watched(Server):
    """Notes what stands at its path just before and just after it listens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.there: list[bool] = []
        super().__init__(path, Dispatcher("the store", Store, Store(path.parent), ()))

    def server_activate(self) -> None:
        self.there.append(self.path.exists())
        super().server_activate()
        self.there.append(self.path.exists())


def test_the_socket_appears_when_it_takes_connections_for_its_owner_alone(tmp_path: Path) -> None:
    with Watched(tmp_path / "a.sock") as server:
        assert server.there == [False, False]
        assert [(path.name, oct(path.stat().st_mode & 0o777)) for path in tmp_path.iterdir()] == [("a.sock", "0o600")]


def test_a_socket_that_a_killed_server_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    Watched(path).server_close()
    old = path.stat().st_ino
    with Watched(path):
        assert path.stat().st_ino != old


def test_a_server_that_cannot_listen_leaves_nothing(tmp_path: Path) -> None:
    class Failing(Watched):
        def server_activate(self) -> None:
            raise OSError("no")

    with pytest.raises(OSError, match="no"):
        Failing(tmp_path / "a.sock")
    assert list(tmp_path.iterdir()) == []
