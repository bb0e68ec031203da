"""`./backchannel scheduler` and `./backchannel worker`: what a lab's machines run, so that campaigns find them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable

import typer
from distributed import Nanny, Scheduler
from distributed.core import Server

from experiments.engine.dask_executor import THREADS, check_secrecy, protocol, why
from testbed.capability import missing_for_emulation
from testbed.errors import TestbedError, Unavailable

#: Seconds that a worker waits for its scheduler.
CONNECT_S = 20.0


def serve_scheduler(host: str, port: int) -> None:
    """Serves until interrupted.

    Raises:
        Unavailable: the port cannot be had.
        TestbedError: a client has ended it.
    """

    async def start() -> Server:
        try:
            scheduler: Server = await Scheduler(
                host=host, port=port, protocol=protocol(), dashboard=False, dashboard_address=f"{host}:0"
            )
        except (OSError, RuntimeError, ValueError) as error:
            cause = error.__cause__ or error
            said = getattr(cause, "strerror", None) or str(cause)
            raise Unavailable(f"cannot listen on {host} port {port}: {said}") from None
        typer.echo(
            f"scheduler at {scheduler.address}; './backchannel worker {scheduler.address}' brings machines to it"
        )
        return scheduler

    _until_told(start, f"the scheduler on {host} port {port} was ended by one of its clients")


def serve_worker(scheduler: str, host: str | None, name: str | None) -> None:
    """Serves until interrupted, or until the scheduler is gone.

    Raises:
        Unavailable: no scheduler answers.
        TestbedError: it has ended, or does not answer any more.
    """
    check_secrecy(scheduler, "worker")
    missing = missing_for_emulation()

    async def start() -> Server:
        # A nanny starts its worker again when that dies. Threads only wait for cells: the runner says how many.
        nanny = Nanny(
            scheduler, nthreads=THREADS, memory_limit=0, host=host, protocol=protocol(), dashboard=False,
            death_timeout=CONNECT_S, silence_logs=logging.WARNING, dashboard_address=f"{host}:0" if host else None,
            name=name or f"{os.uname().nodename}-{os.getpid()}",
        )  # fmt: skip
        try:
            await asyncio.wait_for(nanny, CONNECT_S)
        except (OSError, TimeoutError, ValueError, RuntimeError) as error:
            raise Unavailable(f"no Dask scheduler answers at {scheduler}: {why(error)}") from None
        typer.echo(f"worker {nanny.worker_address} serves {scheduler}")
        if missing:
            typer.echo(f"only for simulations: {'; '.join(missing)}", err=True)
        return nanny

    _until_told(
        start,
        f"the Dask scheduler {scheduler} is gone, and this worker with it: start the worker again when there is one",
    )


def _until_told(start: Callable[[], Awaitable[Server]], gone: str) -> None:
    """Serves until a signal, or until the server has ended by itself, which is told with `gone`."""
    logging.getLogger("distributed").setLevel(logging.ERROR)

    async def serve() -> None:
        told = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, told.set)
        server = await start()
        ways = [asyncio.ensure_future(told.wait()), asyncio.ensure_future(server.finished())]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        if not told.is_set():
            raise TestbedError(gone)
        await server.close()

    asyncio.run(serve())
