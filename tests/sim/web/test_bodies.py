"""What a server accepts of a request before it knows what is in it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.site import served
from tests.support.waiting import HANGS_S
from web.app import MOST_FORM_BYTES, create_app
from web.bodies import Bodies
from web.import_queue import MOST_BODY

TOKEN = "a token of a test, long enough"
GIGABYTE = 1_000_000_000


@pytest.fixture
def address(tmp_path: Path) -> Iterator[tuple[str, int]]:
    with served(create_app(tmp_path, token=TOKEN)) as url:
        host, port = url.removeprefix("http://").split(":")
        yield host, int(port)


def answer(address: tuple[str, int], head: str, body: bytes = b"") -> bytes:
    """What the server says until it closes the connection or has nothing more to say."""
    with closing(socket.create_connection(address, timeout=HANGS_S)) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode("latin-1") + b"\r\n\r\n" + body)
        said = b""
        while b"\r\n\r\n" not in said and (part := connection.recv(65_536)):
            said += part
        return said


def status(said: bytes) -> int:
    return int(said.split()[1])


BEARER = f"\nAuthorization: Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("path", "length", "extra"),
    [
        ("/enter", GIGABYTE, ""), ("/enter", MOST_FORM_BYTES + 1, ""), ("/launch", GIGABYTE, BEARER),
        ("/api/imports", GIGABYTE, ""), ("/api/imports", GIGABYTE, "\nAuthorization: Bearer wrong"),
        ("/api/imports", MOST_BODY + 1, BEARER),
    ],
)  # fmt: skip
def test_a_long_body_is_refused(address: tuple[str, int], path: str, length: int, extra: str) -> None:
    head = f"POST {path} HTTP/1.1\nHost: {address[0]}\nContent-Length: {length}{extra}"
    assert status(answer(address, head)) == 413


def test_who_has_the_token_may_upload(address: tuple[str, int]) -> None:
    head = f"POST /api/imports HTTP/1.1\nHost: {address[0]}\nExpect: 100-continue\nContent-Length: {GIGABYTE}{BEARER}"
    assert status(answer(address, head)) == 100


def test_chunks_end_at_the_length_of_a_form(address: tuple[str, int]) -> None:
    chunk = b"%x\r\n%s\r\n" % (1 << 20, b"a" * (1 << 20))
    head = f"POST /api/imports HTTP/1.1\nHost: {address[0]}\nTransfer-Encoding: chunked{BEARER}"
    assert status(answer(address, head, 3 * chunk)) == 413


def test_a_body_with_two_lengths_ends_its_connection(address: tuple[str, int]) -> None:
    hidden = b"GET /api/health HTTP/1.1\r\nHost: x\r\n\r\n"
    head = f"POST /enter HTTP/1.1\nHost: {address[0]}\nTransfer-Encoding: chunked\nContent-Length: {5 + len(hidden)}"
    with closing(socket.create_connection(address, timeout=HANGS_S)) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n0\r\n\r\n" + hidden)
        said = b""
        while part := connection.recv(65_536):
            said += part
    assert said.count(b"HTTP/1.1 ") == 1


class Asked:
    """What a parser knows of a request when its headers are there."""

    def __init__(self, length: int, path: str = "/api/imports") -> None:
        self.content_length = length
        self.chunked = False
        self.path = path
        self.command = "POST"
        self.headers = {"HOST": "localhost"}


def test_bodies_that_arrive_together_have_a_bound(tmp_path: Path) -> None:
    bodies = Bodies(create_app(tmp_path), most_together=100_000_000)
    admits: Callable[[Asked], int] = bodies.admits
    first, second = Asked(60_000_000), Asked(40_000_000)
    assert [admits(first), admits(second), admits(Asked(3_000_000))] == [60_000_000, 40_000_000, MOST_FORM_BYTES]
    del first
    assert admits(Asked(60_000_000)) == 60_000_000


@pytest.mark.parametrize(
    ("request_line", "headers", "expected"),
    [
        ("POST /enter", "Origin: http://[", 400), ("GET /", f"Host: {'a' * 5000}", 400), ("GET /", "Host: ", 400),
        ("GET /", "Host: [", 400), ("GET /", "Host: localhost:99999999", 400),
        ("GET /runs/%ff%00", "Host: localhost", 404),
    ],
)  # fmt: skip
def test_strange_requests_are_visitors_errors(tmp_path: Path, request_line: str, headers: str, expected: int) -> None:
    with served(create_app(tmp_path)) as url:
        host, port = url.removeprefix("http://").split(":")
        named = headers if headers.startswith("Host") else f"Host: localhost\n{headers}"
        assert status(answer((host, int(port)), f"{request_line} HTTP/1.1\n{named}")) == expected
