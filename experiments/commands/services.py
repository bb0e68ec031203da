"""`serve` and `dask`: services that run until they are interrupted."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from experiments import exits
from experiments.commands.options import RESULTS, ArtefactsOption, AttemptsOption, FromOption, JobsOption, ResultsOption
from experiments.commands.shared import console, no_options_before, show_note, store_location
from experiments.engine.options import ATTEMPTS
from testbed import node_binary

serve = typer.Typer(invoke_without_command=True)
dask = typer.Typer(help="Share runs among machines with Dask (docs/distributed.md).", no_args_is_help=True)

PortOption = Annotated[
    int,
    typer.Option("--port", metavar="PORT", min=0, max=65535, help="TCP port to listen on; 0 selects a free one."),
]


@serve.callback()
def site(
    ctx: typer.Context,
    results: ResultsOption = RESULTS,
    artefacts: ArtefactsOption = None,
    port: PortOption = 8321,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on. All but loopback need a token.")
    ] = "127.0.0.1",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="File with the token that visitors must enter. Alternative: environment variable BACKCHANNEL_TOKEN. "
            "Required unless --host is a loopback address.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Host name that requests may use in addition to the address; needed behind a proxy. Repeatable.",
        ),
    ] = None,
    allow_commands: Annotated[
        bool,
        typer.Option(
            "--allow-commands",
            help="Accept campaigns with flows of kind command, for runners with the same option. Visitors can then run "
            "any program with the runner's rights (SECURITY.md).",
        ),
    ] = False,
    with_runner: Annotated[
        bool,
        typer.Option(
            "--with-runner",
            help="Also start a runner with default options, which ends with the site. For other options start "
            "'serve runner' beside it.",
        ),
    ] = False,
    crates: FromOption = None,
) -> None:
    """Show results in a browser, by default on 127.0.0.1 only. Visitors can request runs, which a runner makes."""
    if ctx.invoked_subcommand is not None:
        no_options_before(ctx)
        return
    from web.serve import serve as serve_site

    if artefacts:
        # The site opens its store from the environment.
        os.environ["BACKCHANNEL_ARTEFACTS"] = artefacts
    words = ["--results", results, *(["--allow-commands"] if allow_commands else [])]
    words += [word for crate in crates or [] for word in ("--from", str(crate))]
    with _runner(words) if with_runner else nullcontext():
        serve_site(store_location(results), host, port, token_file, name or [], allow_commands)


@contextmanager
def _runner(words: list[str]) -> Iterator[None]:
    """Starts `serve runner` with these options, and ends it. A kill of this process ends it too."""
    command = ["setpriv", "--pdeathsig", "TERM", *node_binary.module("experiments"), "serve", "runner", *words]
    started = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": node_binary.python_path()})
    ending = threading.Event()

    def watch() -> None:
        status = started.wait()
        if not ending.is_set():
            show_note(f"the runner ended with status {status}; the site goes on without it")

    watcher = threading.Thread(target=watch, name="runner", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ending.set()
        started.terminate()
        watcher.join()


@serve.command("runner", short_help="Run the campaigns that visitors request")
def runner(
    results: ResultsOption = RESULTS,
    jobs: JobsOption = None,
    attempts: AttemptsOption = ATTEMPTS,
    once: Annotated[bool, typer.Option("--once", help="Exit as soon as no request is waiting; for scripts.")] = False,
    allow_commands: Annotated[
        bool,
        typer.Option(
            "--allow-commands",
            help="Run campaigns with flows of kind command. Visitors of the site can then run any program with your "
            "rights (SECURITY.md).",
        ),
    ] = False,
    crates: FromOption = None,
) -> None:
    """Run the campaigns that visitors of the site request, until interrupted. The site itself runs nothing."""
    from experiments.runner import Runner

    if Runner(store_location(results), jobs, attempts, console(), allow_commands).serve(once):
        raise typer.Exit(exits.FAILED)


@dask.command("scheduler", short_help="Start the scheduler of a lab")
def scheduler(
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: PortOption = 8786,
    http_port: Annotated[
        int | None,
        typer.Option(
            "--http-port",
            metavar="PORT",
            min=0,
            max=65535,
            help="TCP port for Dask's pages at the same address, over HTTPS with certificates; 0 selects a free one. "
            "Its dashboard needs the package bokeh, its /metrics prometheus-client. Default: no pages.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Start the Dask scheduler of a lab (docs/distributed.md)."""
    from experiments.engine.worker import serve_scheduler

    serve_scheduler(host, port, http_port)


@dask.command("worker", short_help="Start a worker on this machine")
def worker(
    address: Annotated[
        str, typer.Argument(metavar="SCHEDULER", help="Scheduler, such as tcp://host:8786.", show_default=False)
    ],
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Address of this machine to listen on. Default: that of the interface towards the scheduler.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", show_default=False, help="Name in messages. Default: host and process."),
    ] = None,
) -> None:
    """Start a Dask worker, which runs what a scheduler assigns to this machine (docs/distributed.md)."""
    from experiments.engine.worker import serve_worker

    serve_worker(address, host, name)


@dask.command("jobs", short_help="Start a scheduler whose workers are jobs of a batch system")
def jobs_(
    system: Annotated[
        str, typer.Option("--system", metavar="NAME", help="slurm, pbs, sge, lsf, oar, htcondor, or local for a trial.")
    ] = "slurm",
    number: Annotated[int, typer.Option("--jobs", "-n", metavar="N", min=1, help="Jobs, one a machine.")] = 1,
    cores: Annotated[int, typer.Option("--cores", metavar="N", min=1, help="CPUs of a job.")] = 1,
    memory: Annotated[str, typer.Option("--memory", metavar="SIZE", help="Memory of a job.")] = "2GB",
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="NAME", show_default=False, help="Queue or partition of the jobs.")
    ] = None,
    walltime: Annotated[
        str | None,
        typer.Option("--walltime", metavar="TIME", show_default=False, help="Longest time of a job, such as 08:00:00."),
    ] = None,
    directives: Annotated[
        list[str] | None,
        typer.Option(
            "--directive",
            metavar="TEXT",
            show_default=False,
            help="Further line of a job's head, such as '--account=lab'. Repeatable.",
        ),
    ] = None,
    interface: Annotated[
        str | None,
        typer.Option(
            "--interface", metavar="NAME", show_default=False, help="Interface of this machine that the jobs reach."
        ),
    ] = None,
) -> None:
    """Start a Dask scheduler here, and its workers as jobs of a batch system (docs/distributed.md), until interrupted.
    Jobs that end are replaced. It needs the library dask-jobqueue.
    """
    from experiments.engine.batch_system import Jobs, serve

    asked = Jobs(system, number, cores, memory, queue, walltime, directives or (), interface)
    serve(asked, lambda address: typer.echo(f"scheduler at {address}; './backchannel run FILE --scheduler {address}'"))
