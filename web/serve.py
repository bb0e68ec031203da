"""`./backchannel serve`: the site on a port of this machine, served by waitress."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import typer
import waitress
from flask import Flask

from analysis.store import Store, StoreError, requests, shown as store_name
from testbed.errors import BadRequest, TestbedError
from web.app import create_app, warm
from web.bodies import MOST_CONNECTIONS, Bodies, channels
from web.live import Watcher
from web.security import LEAST_TOKEN, is_local

#: Pages take a thread for milliseconds; live pages hold one each, at most web.live.STREAMS.
THREADS = 40


def serve(
    results: Path | str,
    host: str,
    port: int,
    token_file: Path | None = None,
    names: list[str] | None = None,
    allow_commands: bool = False,
) -> None:
    """Serves until interrupted. `allow_commands`: visitors may request campaigns that run programs.

    Raises:
        StoreError: the results folder cannot be used.
        BadRequest: others could reach the site without a token, or this machine does not have the address.
        TestbedError: the port is taken.
    """
    token = read_token(token_file)
    names = names or []
    if not token and not is_local(host):
        raise BadRequest(
            f"others can reach {host}, so the site needs a token there: write one of at least {LEAST_TOKEN} characters "
            "into a file and name it with --token-file, or set BACKCHANNEL_TOKEN (openssl rand -hex 16 makes one)"
        )
    if not token and names:
        raise BadRequest(
            "--name makes the site known to others, so it needs a token: --token-file, or BACKCHANNEL_TOKEN"
        )
    if allow_commands and not token:
        raise BadRequest(
            "--allow-commands lets visitors run any program, so the site needs a token, on this machine too: "
            "--token-file, or BACKCHANNEL_TOKEN"
        )
    shown, names = shown_and_accepted(host, names)
    app = create_app(results, token=token, names=names, allow_commands=allow_commands)
    threading.Thread(target=warm, args=(app,), name="warm", daemon=True).start()
    store = app.extensions["store"]
    threading.Thread(target=_release_lost, args=(store,), name="release", daemon=True).start()
    threading.Thread(target=app.extensions["damage"].watch, args=(store,), name="damage", daemon=True).start()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise BadRequest(f"this machine has no address {host}; --host takes one of its own") from None
        raise TestbedError(f"cannot listen on {host} port {port}: {error.strerror}; --port takes another") from None
    listener.listen(64)
    address = f"http://{shown}:{listener.getsockname()[1]}/"
    typer.echo(f"{address} shows the results in {store_name(results)} (Ctrl-C ends it)")
    if not names:
        typer.echo("Reached under another name than localhost, it asks for --name NAME", err=True)
    _end_streams_on_signals(app.extensions["watcher"])
    server(app, sockets=[listener]).run()


def shown_and_accepted(host: str, names: list[str]) -> tuple[str, list[str]]:
    """The host of the printed address of a site that listens on `host`, and the names that requests may use besides
    localhost. A wildcard is neither: requests for it are refused.
    """
    if host in ("0.0.0.0", "::"):
        return (names or ["localhost"])[0], names
    own = f"[{host}]" if ":" in host else host
    return own, [*names, own]


def server(app: Flask, **options: Any) -> Any:
    """A server of waitress for the site, with bounds on what arrives."""
    made = waitress.create_server(
        app, threads=THREADS, ident="", clear_untrusted_proxy_headers=True, connection_limit=MOST_CONNECTIONS, **options
    )
    made.channel_class = channels(Bodies(app))
    return made


def _release_lost(store: Store) -> None:
    """Releases requests of dead runners, also if no other runner does."""
    while True:
        # A store that is unavailable for a while is polled again.
        with contextlib.suppress(StoreError):
            requests.release_lost(store)
        time.sleep(requests.GONE_AFTER_S)


def _end_streams_on_signals(watcher: Watcher) -> None:
    """Lets Ctrl-C and a service manager stop the site at once, in spite of open streams."""

    def end(_: int, __: FrameType | None) -> None:
        watcher.close()
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def read_token(file: Path | None) -> str:
    """The token that visitors must give; empty if there is none.

    Raises:
        BadRequest: the file cannot be read, or the token is too short.
    """
    token, source = os.environ.get("BACKCHANNEL_TOKEN", ""), "$BACKCHANNEL_TOKEN"
    if file is not None:
        source = str(file)
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadRequest(f"the token file {file} cannot be read: {error}") from None
    if (token or file is not None) and len(token) < LEAST_TOKEN:
        raise BadRequest(f"the token in {source} has {len(token)} characters; it needs at least {LEAST_TOKEN}")
    return token
