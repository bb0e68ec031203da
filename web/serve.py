"""`./backchannel serve`: the site on a local port."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path

import typer
import waitress

from testbed.errors import TestbedError
from web.app import create_app


def serve(results: Path | str, host: str, port: int) -> None:
    """Serves until interrupted.

    Raises:
        StoreError: the results folder cannot be used.
        TestbedError: the port cannot be had.
    """
    app = create_app(results)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        raise TestbedError(f"cannot listen on {host} port {port}: {error.strerror}; --port takes another") from None
    listener.listen(64)
    shown = f"[{host}]" if ":" in host else host
    typer.echo(f"http://{shown}:{listener.getsockname()[1]}/ shows the results in {results} (Ctrl-C ends it)")
    if not _is_local(host):
        typer.echo("Anyone who can reach this address sees every result: the site asks for no password", err=True)
    waitress.serve(app, sockets=[listener], threads=8)


def _is_local(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
