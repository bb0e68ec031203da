"""A lab in one cell: a PostgreSQL server, a scheduler, and two workers in network namespaces of their own.

    backchannel-node cell -- python -m tests.support.dask_lab FOLDER MODE

The cell's namespace is the lab's network: a bridge with the addresses of the server and the scheduler. A veth pair
connects each worker's namespace to it. The last line on standard output is the outcome as JSON. The modes:

    plain      run the campaign in FOLDER/lab.yaml twice
    failed     attempt one of its runs once
    kill       kill the process of one worker, with its nanny, during the campaign
    runner     kill the runner during the campaign, then run the same command again
    scheduler  kill the scheduler during the campaign
    store      run the store's tests on PostgreSQL
    tls        use certificates of one authority, then a worker and a runner without one and with another authority's
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from testbed import node_binary
from tests.support.faults.leftovers import descendants
from tests.support.postgresql import postgresql
from tests.support.waiting import HANGS_S, end, wait_until

HERE = "10.77.0.1"
SCHEDULER = f"tcp://{HERE}:8786"
SECURE = f"tls://{HERE}:8786"
DATABASE = f"postgresql://backchannel@{HERE}:5433/postgres"


def sh(*words: str) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def running(*words: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out)
    try:
        yield process
    finally:
        end(process, 15)


@contextmanager
def scheduler(folder: Path, address: str = SCHEDULER) -> Iterator[subprocess.Popen[bytes]]:
    """A scheduler that serves at this address."""
    log = folder / "scheduler.log"
    with running(sys.executable, "-m", "experiments", "dask", "scheduler", "--host", HERE, log=log) as process:
        wait_until(lambda: f"scheduler at {address}" in log.read_text(), "the scheduler")
        yield process


@contextmanager
def worker(number: int, folder: Path, scheduler: str = SCHEDULER) -> Iterator[subprocess.Popen[bytes]]:
    """A worker in a network namespace of its own, with one wire to the lab's bridge."""
    holder = subprocess.Popen(["unshare", "--net", "sleep", "1000"])
    try:
        own = Path("/proc/self/ns/net").readlink()
        wait_until(lambda: Path(f"/proc/{holder.pid}/ns/net").readlink() != own, "a namespace")
        near, address = f"w{number}", f"10.77.0.{10 + number}"
        sh("ip", "link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        sh("ip", "link", "set", near, "master", "br0", "up")
        inside = ["nsenter", "-t", str(holder.pid), "-n"]
        sh(*inside, "ip", "address", "add", f"{address}/24", "dev", "eth0")
        for name in ("lo", "eth0"):
            sh(*inside, "ip", "link", "set", name, "up")
        words = [*inside, sys.executable, "-m", "experiments", "dask", "worker", scheduler, "--host", address]
        with running(*words, "--name", near, log=folder / f"{near}.log") as process:
            yield process
    finally:
        holder.kill()
        holder.wait()


def authority(folder: Path, name: str) -> Path:
    """A certificate authority."""
    sh(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", f"/CN={name}", "-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem"),
    )  # fmt: skip
    return folder / f"{name}.pem"


def certificates(folder: Path, by: Path) -> dict[str, str]:
    """Dask's settings for somebody with a certificate of an authority, as docs/distributed.md has them."""
    key, request, made = (folder / f"{by.stem}-lab.{what}" for what in ("key", "csr", "pem"))
    sh(
        "openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=lab",
        "-keyout", str(key), "-out", str(request),
    )  # fmt: skip
    sh(
        "openssl", "x509", "-req", "-in", str(request), "-CA", str(by), "-CAkey", str(by.with_suffix(".key")),
        "-CAcreateserial", "-days", "2", "-out", str(made),
    )  # fmt: skip
    comm = "DASK_DISTRIBUTED__COMM__"
    settings = {f"{comm}REQUIRE_ENCRYPTION": "true", f"{comm}TLS__CA_FILE": str(by)}
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        settings |= {f"{comm}TLS__{role}__CERT": str(made), f"{comm}TLS__{role}__KEY": str(key)}
    return settings


def secured(folder: Path, outcome: dict[str, Any]) -> None:
    """A campaign on workers with certificates, and rejected clients."""
    own = certificates(folder, authority(folder, "own"))
    foreign = certificates(folder, authority(folder, "foreign"))
    os.environ.update(own)
    with ExitStack() as stack:
        stack.enter_context(scheduler(folder, SECURE))
        for number in (1, 2):
            stack.enter_context(worker(number, folder, SECURE))
            await_worker(folder, number)
        command = run(folder)
        command[command.index(SCHEDULER)] = SECURE
        outcome |= campaign(command)
        strangers = {"with no certificate": {}, "of another authority": foreign}
        for name, settings in strangers.items():
            for key in own:
                os.environ.pop(key)
            os.environ.update(settings)
            for kind, words in (
                ("worker", ["dask", "worker", SECURE, "--host", HERE]),
                ("runner", [*command[3:], "--force"]),
            ):
                outcome[f"{kind} {name}"] = finish([sys.executable, "-m", "experiments", *words])
            os.environ.update(own)
        # A client whose settings require encryption rejects an address with tcp://.
        outcome["runner in clear"] = finish(run(folder, "--force"))


def run(folder: Path, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "experiments", "run", str(folder / "lab.yaml"), "--results", DATABASE,
        "--artefacts", f"file://{folder}/artefacts", "--scheduler", SCHEDULER, "--json", *more,
    ]  # fmt: skip


def finish(words: Sequence[str]) -> tuple[int, str, str]:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=HANGS_S)
    return done.returncode, done.stdout, done.stderr


def campaign(command: Sequence[str]) -> dict[str, Any]:
    """The outcome of a command that runs the campaign."""
    return dict(zip(("status", "campaign", "messages"), finish(command), strict=True))


def await_worker(folder: Path, number: int) -> None:
    """Until it serves."""
    wait_until(lambda: "serves" in (folder / f"w{number}.log").read_text(), "a worker")


def landed() -> int:
    import psycopg

    try:
        with psycopg.connect(DATABASE) as connection:
            row = connection.execute("select count(*) from run where state = 'valid'").fetchone()
            return int(row[0]) if row else 0
    except psycopg.errors.UndefinedTable:
        return 0


def bridge() -> None:
    """The lab's network, in the namespace of this process."""
    sh("ip", "link", "set", "lo", "up")
    sh("ip", "link", "add", "br0", "type", "bridge")
    sh("ip", "address", "add", f"{HERE}/24", "dev", "br0")
    sh("ip", "link", "set", "br0", "up")


def main() -> int:
    folder, mode = Path(sys.argv[1]), sys.argv[2]
    os.environ["BACKCHANNEL_LOCAL"] = str(folder / "local")
    bridge()
    outcome: dict[str, Any] = {}
    with ExitStack() as stack:
        stack.enter_context(postgresql(folder / "postgresql.log", HERE, 5433, "10.77.0.0/24"))
        if mode == "store":
            os.environ["BACKCHANNEL_TEST_POSTGRESQL"] = DATABASE
            names = ("test_store", "test_claims", "test_screened", "test_pruning")
            files = [str(node_binary.ROOT / f"tests/unit/analysis/store/{name}.py") for name in names]
            outcome["status"], said, errors = finish(
                [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
            )
            outcome["messages"] = said + errors
            print(json.dumps(outcome))
            return 0
        if mode == "tls":
            secured(folder, outcome)
            print(json.dumps(outcome))
            return 0
        serving = stack.enter_context(scheduler(folder))
        workers = [stack.enter_context(worker(number, folder)) for number in (1, 2)]
        for number in (1, 2):
            await_worker(folder, number)
        if mode == "plain":
            outcome |= campaign(run(folder))
            _, _, outcome["again"] = finish(run(folder))
        elif mode == "failed":
            outcome |= campaign(run(folder, "--limit", "1", "--attempts", "1"))
        else:
            runner = subprocess.Popen(run(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            wait_until(lambda: landed() > 0, "a first run")
            outcome["landed_before"] = landed()
            victims = {"kill": descendants(workers[0].pid), "scheduler": [serving.pid], "runner": [runner.pid]}
            for pid in victims[mode]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            outcome["campaign"], outcome["messages"] = runner.communicate(timeout=HANGS_S)
            outcome["status"] = runner.returncode
            if mode == "runner":
                outcome |= campaign(run(folder))
    print(json.dumps(outcome))
    return 0


if __name__ == "__main__":
    sys.exit(main())
