"""The services of a distributed lab: `./backchannel dask scheduler` and `./backchannel dask worker`."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from typing import cast

import dask
import typer
from distributed import Nanny, Scheduler
from distributed.comm.addressing import get_address_host
from distributed.core import Server
from distributed.utils import get_ip

from experiments.engine.dask_executor import MOST_JOBS
from experiments.engine.dask_security import check_encryption, http_settings, protocol, root_cause
from testbed.capability import missing_for_emulation
from testbed.errors import TestbedError, Unavailable
from testbed.local_folders import ScratchFolder

#: Seconds for which a worker waits for its scheduler.
CONNECT_S = 60.0


#: Of an HTTP server that nobody asked for.
CLOSED = "127.0.0.1:0"


def serve_scheduler(host: str, port: int, http_port: int | None = None) -> None:
    """Serves until interrupted.

    Args:
        host: address to listen on.
        port: to listen on.
        http_port: port of Dask's pages and metrics at this address; None: they are off.

    Raises:
        Unavailable: the port is not available.
        TestbedError: a client stopped the scheduler.
    """

    async def start() -> Server:
        try:
            scheduler: Scheduler = await Scheduler(
                host=host,
                port=port,
                protocol=protocol(),
                # None: Dask has its dashboard if bokeh is installed.
                dashboard=False if http_port is None else None,
                dashboard_address=CLOSED if http_port is None else f"{host}:{http_port}",
            )
        except (OSError, RuntimeError, ValueError) as error:
            cause = error.__cause__ or error
            reason = getattr(cause, "strerror", None) or str(cause)
            raise Unavailable(f"cannot listen on {host} port {port}: {reason}") from None
        typer.echo(
            f"scheduler at {scheduler.address}; './backchannel dask worker {scheduler.address}' connects a machine"
        )
        if http_port is not None:
            scheme = "https" if protocol() == "tls" else "http"
            typer.echo(
                f"Dask's pages at {scheme}://{host}:{scheduler.services['dashboard'].port}/info/main/workers.html"
            )
        return cast(Server, scheduler)

    _serve(start, f"a client stopped the scheduler on {host} port {port}", http_settings(http_port))


def serve_worker(scheduler: str, host: str | None, name: str | None) -> None:
    """Serves until interrupted or until the scheduler ends.

    Args:
        scheduler: its address.
        host: address of this machine to listen on; None: that which leads to the scheduler.
        name: of the worker in messages.

    Raises:
        Unavailable: no scheduler answers.
        TestbedError: the scheduler ended or does not answer any more.
    """
    check_encryption(scheduler, "worker")
    missing = missing_for_emulation()

    async def start() -> Server:
        # A nanny restarts its worker.
        try:
            address = host or get_ip(get_address_host(scheduler))
        except (OSError, ValueError) as error:
            raise Unavailable(f"no Dask scheduler answers at {scheduler}: {root_cause(error)}") from None
        nanny = Nanny(
            scheduler,
            nthreads=MOST_JOBS,
            memory_limit=0,
            host=address,
            protocol=protocol(),
            dashboard=False,
            death_timeout=CONNECT_S,
            silence_logs=logging.WARNING,
            dashboard_address=CLOSED,
            name=name or f"{os.uname().nodename}-{os.getpid()}",
        )
        try:
            await asyncio.wait_for(nanny, CONNECT_S)
        except (OSError, TimeoutError, ValueError, RuntimeError) as error:
            raise Unavailable(f"no Dask scheduler answers at {scheduler}: {root_cause(error)}") from None
        typer.echo(f"worker {nanny.worker_address} serves {scheduler}")
        if missing:
            typer.echo(f"this worker can only run simulations: {'; '.join(missing)}", err=True)
        return nanny

    _serve(
        start,
        f"the worker ended because the Dask scheduler {scheduler} is gone; restart it with the scheduler",
        http_settings(None),
    )


def _serve(start: Callable[[], Awaitable[Server]], ended: str, settings: dict[str, object]) -> None:
    """Serves with Dask's settings until a signal. Raises TestbedError(ended) if the server ends by itself."""
    logging.getLogger("distributed").setLevel(logging.ERROR)

    async def serve() -> None:
        interrupted = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, interrupted.set)
        server = await start()
        events = [asyncio.ensure_future(interrupted.wait()), asyncio.ensure_future(server.finished())]
        await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
        if not interrupted.is_set():
            raise TestbedError(ended)
        await server.close()

    with ScratchFolder() as scratch, dask.config.set({"temporary-directory": str(scratch), **settings}):
        asyncio.run(serve())
