"""Remote calls between Backchannel's programs, over a UNIX socket or a child's standard input and output.

Agents, sessions, the gateway's daemon, cells and the emulator speak this. A request is one line of JSON, and so is the
answer:

    {"op": "settings", "sysctls": {"net.ipv4.tcp_sack": "1"}}
    {"ok": true, "result": {"net.ipv4.tcp_sack": "1"}}  or  {"ok": false, "error": sentence}

Lines {"event": ...} may come before the answer. The content of a file follows its answer, {"ok": true, "bytes": N}. A
server that is locked wants the holder's "token" with each request.

A protocol is a class. Its methods that are marked with `method` are the requests, and their annotations are the types
of both sides: a server calls them through a Dispatcher, and a client names them (`Client.call`). Standard library only,
for bare hosts.
"""

from __future__ import annotations

import json
import os
import select
import socket
import socketserver
import subprocess
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Concatenate, ParamSpec, TypeVar

from agents.errors import panic
from agents.typed_json import MistypedValue, parameters, parameters_reader, result_reader

R = TypeVar("R")
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])

#: Longest line, in bytes: a link may carry recorded traces. The emulator has the same limit.
LONGEST_BYTES = 64 << 20
#: Bytes that are read at once from a stream, and from a file.
CHUNK_BYTES, FILE_CHUNK_BYTES = 1 << 16, 1 << 20
#: Longest wait for a line, and for the end of a child whose output has ended, in s.
TIMEOUT_S, END_S = 30.0, 10.0

OnEvent = Callable[[Any], None]


class Rejected(Exception):
    """A request that the server answered with an error; the message is its sentence."""


class Unanswered(Exception):
    """A request without a complete answer. The message has the reason."""


class Silent(Unanswered):
    """The other side neither sends nor takes anything."""


def method(function: F) -> F:
    """Marks a method as a request. All of its parameters have annotations."""
    function.is_request = True  # type: ignore[attr-defined]
    return function


@dataclass(frozen=True)
class File:
    """A result whose content is sent after the answer."""

    path: Path


class Stream:
    """Lines and bytes in both directions. Methods raise Unanswered when it is broken, or Silent.

    Args:
        source, sink: file descriptors; the same for a socket.
        timeout_s: longest wait for the other side to send or to take something; None: no limit.
    """

    def __init__(self, source: int, sink: int, timeout_s: float | None = None) -> None:
        self._source, self._sink = source, sink
        self._received = bytearray()
        self.timeout_s = timeout_s
        if timeout_s is not None:
            os.set_blocking(sink, False)

    def read_line(self) -> bytes:
        """A line without its end; empty at the end of the stream. Raises Unanswered if the stream ends within it."""
        searched = 0
        while (end := self._received.find(b"\n", searched)) < 0:
            searched = len(self._received)
            if searched > LONGEST_BYTES:
                raise Unanswered(f"a line of more than {LONGEST_BYTES} bytes is too long")
            chunk = self._read()
            if not chunk and not searched:
                return b""
            self._received += self._complete(chunk)
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def copy_to(self, file: BinaryIO, length: int) -> None:
        """Writes the next bytes to a file. Raises OSError if it cannot be written."""
        while length:
            chunk = bytes(self._received[:length])
            del self._received[:length]
            chunk = chunk or self._complete(self._read(min(FILE_CHUNK_BYTES, length)))
            file.write(chunk)
            length -= len(chunk)

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends a message as a line."""
        self.write(json.dumps(message, default=_as_json).encode() + b"\n")

    def write(self, content: bytes) -> None:
        """Sends bytes."""
        left = memoryview(content)
        while left:
            try:
                left = left[os.write(self._sink, left) :]
            except BlockingIOError:
                self._wait(self._sink, select.POLLOUT)
            except OSError as error:
                raise Unanswered(error.strerror) from error

    @property
    def is_readable(self) -> bool:
        """Whether the other side sent something or ended."""
        return _is_ready(self._source, select.POLLIN, 0.0)

    def _read(self, most: int = CHUNK_BYTES) -> bytes:
        self._wait(self._source, select.POLLIN)
        try:
            return os.read(self._source, most)
        except OSError as error:
            raise Unanswered(error.strerror) from error

    def _complete(self, chunk: bytes) -> bytes:
        if not chunk:
            raise Unanswered("the message was cut off")
        return chunk

    def _wait(self, descriptor: int, event: int) -> None:
        if self.timeout_s is not None and not _is_ready(descriptor, event, self.timeout_s):
            raise Silent("timed out")


def _is_ready(descriptor: int, event: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(timeout_s * 1000))


def _as_json(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    # Such as an empty default that nobody may change.
    if isinstance(value, Mapping):
        return dict(value)
    return value.as_json() if hasattr(value, "as_json") else vars(value)


def _object(line: bytes) -> dict[str, Any]:
    """The JSON object of a line. Raises ValueError if it is anything else."""
    try:
        value = json.loads(line)
    except RecursionError as error:
        raise ValueError("too deep") from error
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


# Servers -------------------------------------------------------------------------------------------------------------


class Dispatcher:
    """Answers requests by the methods of an object.

    Args:
        name: of the server, for messages about defects.
        protocol: the class that declares the requests.
        target: an object that has them.
        errors: exceptions whose text is a sentence for the client. Others are defects: their traceback goes to standard
            error.
        admit: called with the name and the token of each request; raises one of `errors` to reject it.
    """

    def __init__(
        self,
        name: str,
        protocol: type,
        target: object,
        errors: tuple[type[Exception], ...],
        admit: Callable[[str, str], None] = lambda op, token: None,
    ) -> None:
        self._name = name
        self._requests = {op: each for op, each in vars(protocol).items() if hasattr(each, "is_request")}
        self._target = target
        self._errors = errors
        self._admit = admit

    def serve(self, stream: Stream) -> None:
        """Answers requests until the stream ends."""
        with suppress(Unanswered):
            while True:
                try:
                    line = stream.read_line()
                except Unanswered as error:
                    stream.send(_refusal(f"the request is invalid: {error}"))
                    return
                if not line:
                    return
                answer, file = self._answer(line)
                stream.send(answer)
                if file is not None and not _send_file(stream, file, answer["bytes"]):
                    # What follows would be read as a part of the file.
                    return

    def _answer(self, line: bytes) -> tuple[dict[str, Any], BinaryIO | None]:
        """The answer to a request, and the file that follows it."""
        try:
            op, arguments = self._read(line)
            result = getattr(self._target, op)(**arguments)
            if isinstance(result, File):
                file = result.path.open("rb")
                return {"ok": True, "bytes": os.fstat(file.fileno()).st_size}, file
            return {"ok": True, "result": result}, None
        except self._errors as error:
            # First, because a document that a handler reads may be mistyped too.
            return _refusal(str(error)), None
        except MistypedValue as error:
            return _refusal(f"the request is invalid: {error}"), None
        except OSError as error:
            return _refusal(f"{error.strerror}: {error.filename}" if error.filename else str(error)), None
        except Exception as error:  # noqa: BLE001 (a defect must reach the user and the log)
            traceback.print_exc()
            return _refusal(f"{self._name} failed: {type(error).__name__}: {error}"), None

    def _read(self, line: bytes) -> tuple[str, dict[str, Any]]:
        """The name and the arguments of a request."""
        try:
            request = _object(line)
            op, token = str(request.pop("op")), str(request.pop("token", ""))
        except (KeyError, ValueError):
            raise MistypedValue(f"not a JSON object with an 'op': {str(line[:80], errors='replace')}") from None
        self._admit(op, token)
        if op not in self._requests:
            raise MistypedValue(f"{self._name} has no '{op}', it may be of another version")
        arguments: dict[str, Any] = parameters_reader(self._requests[op])(request)
        return op, arguments


def _refusal(sentence: str) -> dict[str, Any]:
    return {"ok": False, "error": sentence}


def _send_file(stream: Stream, file: BinaryIO, length: int) -> bool:
    """Whether all of the bytes could be read and sent."""
    with file, suppress(OSError):
        while length and (chunk := file.read(min(FILE_CHUNK_BYTES, length))):
            stream.write(chunk)
            length -= len(chunk)
    return not length


class Server(socketserver.ThreadingUnixStreamServer):
    """Serves a UNIX socket that only its owner can open, with a thread for each connection. An older socket at this
    path is replaced.

    The socket is made under another name and gets its own when it listens, because a socket that is bound refuses
    connections until then: a client that waits for the file would be refused, and one that looks for sockets without
    a server would remove it.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: Path, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        early = path.with_name(f"{path.name}~")
        early.unlink(missing_ok=True)
        super().__init__(str(early), socketserver.BaseRequestHandler, bind_and_activate=False)
        try:
            self.server_bind()
            early.chmod(0o600)
            self.server_activate()
            early.replace(path)
        except BaseException:
            self.server_close()
            early.unlink(missing_ok=True)
            raise

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serves one connection."""
        self._dispatcher.serve(Stream(request.fileno(), request.fileno()))


def listens(path: Path) -> bool:
    """Whether a server takes connections at a UNIX socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


# Clients -------------------------------------------------------------------------------------------------------------


class Client(ABC):
    """Makes requests.

    Args:
        rejected: the exception for a server's sentence.
        unanswered: the exception for an answer that is missing or invalid, by the reason.
    """

    def __init__(self, rejected: Callable[[str], Exception], unanswered: Callable[[str], Exception]) -> None:
        self._rejected, self._unanswered = rejected, unanswered

    @abstractmethod
    def request(self, op: str, arguments: Mapping[str, Any], timeout_s: float = TIMEOUT_S) -> Any:
        """The result of a request, as parsed JSON.

        Args:
            op: its name.
            arguments: what it holds.
            timeout_s: longest time without a line.
        """

    def call(
        self, timeout_s: float, function: Callable[Concatenate[Any, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """The result of a request that a protocol's method declares."""
        arguments: dict[str, Any] = {**dict(zip(parameters(function), args, strict=False)), **kwargs}
        answered = self.request(function.__name__, arguments, timeout_s)
        try:
            result: R = result_reader(function)(answered)
        except MistypedValue as error:
            raise self._unanswered(f"gave an invalid answer to '{function.__name__}': {error}") from None
        return result


def remote(
    function: Callable[Concatenate[Any, P], R], timeout_s: float = TIMEOUT_S
) -> Callable[Concatenate[Client, P], R]:
    """The method of a client that makes the request of a protocol's method."""

    def request(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return client.call(timeout_s, function, *args, **kwargs)

    request.__doc__ = function.__doc__
    return request


def exchange(stream: Stream, request: Mapping[str, Any], on_event: OnEvent | None = None) -> dict[str, Any]:
    """Sends a request and returns its answer.

    Raises:
        Rejected: with the server's sentence.
        Unanswered: there is no answer.
    """
    try:
        stream.send(request)
    except Silent:
        raise
    except Unanswered:
        pass  # A server that rejects a long request answers without having read it.
    while True:
        line = stream.read_line()
        if not line:
            raise Unanswered("it closed the connection")
        try:
            answer = _object(line)
        except ValueError:
            raise Unanswered(f"its answer cannot be read: {str(line[:80], errors='replace')}") from None
        if "event" in answer:
            if on_event is not None:
                on_event(answer["event"])
            continue
        if not answer.get("ok", False):
            raise Rejected(str(answer.get("error", f"it rejected '{request['op']}' without a reason")))
        return answer


class _Connection(Stream):
    """A connection to a UNIX socket."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise Unanswered(str(error)) from error
        super().__init__(self._socket.fileno(), self._socket.fileno(), timeout_s)

    def close(self) -> None:
        self._socket.close()


class SocketClient(Client):
    """Makes requests to a server on a UNIX socket, which SSH may forward. Threads may share a client.

    Args:
        path: of the socket.
        rejected, unanswered: exceptions, as of Client.
    """

    def __init__(
        self, path: Path, rejected: Callable[[str], Exception], unanswered: Callable[[str], Exception]
    ) -> None:
        super().__init__(rejected, unanswered)
        self._path = path
        self._lock = threading.Lock()
        #: Connections without a request under way.
        self._idle: list[_Connection] = []
        #: Proves that a request comes from the server's holder.
        self.token = ""

    def close(self) -> None:
        """Closes the connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def request(
        self, op: str, arguments: Mapping[str, Any], timeout_s: float = TIMEOUT_S, to: Path | None = None
    ) -> Any:
        """The result of a request, as parsed JSON. One that results in a file is copied to `to`."""
        connection, is_reusable = None, False
        try:
            connection = self._connection(timeout_s)
            token = {"token": self.token} if self.token else {}
            answer = exchange(connection, {"op": op, **arguments, **token})
            if to is not None:
                if type(length := answer.get("bytes")) is not int:
                    raise Unanswered("its answer has no file")
                with to.open("wb") as file:
                    connection.copy_to(file, length)
            is_reusable = True
            return answer.get("result")
        except Rejected as error:
            is_reusable = True
            raise self._rejected(str(error)) from None
        except Unanswered as error:
            raise self._unanswered(str(error)) from error
        finally:
            if connection is not None and is_reusable:
                with self._lock:
                    self._idle.append(connection)
            elif connection is not None:
                connection.close()

    def _connection(self, timeout_s: float) -> _Connection:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_readable:
                    connection.timeout_s = timeout_s
                    return connection
                connection.close()  # Nothing was asked, so it is the server that closed it.
        return _Connection(self._path, timeout_s)


class ChildProcess(Client):
    """A child process, and requests to it over its standard input and output. One thread at a time makes requests.

    Args:
        name: for messages.
        command: its command line.
        log: file for its standard error.
        error: exception for every failure, with a sentence.
        on_event: called with each event, in the thread that waits for the answer.
        env: its environment; None: this process's.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        error: type[Exception],
        on_event: OnEvent | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._log = log
        super().__init__(error, lambda reason: error(f"{name} {reason}"))
        self._on_event = on_event
        with log.open("wb") as stderr:
            # In a new session, because Ctrl-C is for the runner, which then ends its children in order.
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=env,
                bufsize=0,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stream = Stream(self._process.stdout.fileno(), self._process.stdin.fileno(), TIMEOUT_S)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def request(self, op: str, arguments: Mapping[str, Any], timeout_s: float = TIMEOUT_S) -> Any:
        """The result of a request, as parsed JSON. A child that breaks the protocol is ended."""
        assert self._process.stdin is not None
        self._stream.timeout_s = timeout_s
        try:
            if self._process.stdin.closed:
                # The number of its descriptor may be another file's.
                raise Unanswered("it was closed")
            return exchange(self._stream, {"op": op, **arguments}, self._on_event).get("result")
        except Rejected as error:
            raise self._rejected(str(error)) from None
        except Silent:
            self.kill()
            raise self._unanswered(f"sent no answer to '{op}' for {timeout_s:g} s and was ended") from None
        except Unanswered as error:
            raise self._unanswered(self._end_reason(error)) from None

    def close(self, timeout_s: float = END_S) -> None:
        """Ends the child's input, which ends the child; kills it if it does not end in time."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kills the child, from any thread."""
        if self.is_running:
            self._process.kill()
        self._process.wait()

    def _end_reason(self, error: Unanswered) -> str:
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"was ended: {error}"
        written = self._log.read_text(errors="replace")
        *_, last = ["", *written.strip().splitlines()]
        reason = panic(written) or last.removeprefix("error: ") or f"status {self._process.returncode}"
        return f"has ended: {reason}"


def standard_streams() -> Stream:
    """The stream of a child to its parent."""
    return Stream(sys.stdin.fileno(), sys.stdout.fileno())
