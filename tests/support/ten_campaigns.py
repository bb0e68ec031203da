"""Ten campaigns of different shape, small and simulated, that results are held to.

Each is made once (tests/support/simulated.py). A results folder has the ten together, as a store of a user has.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Mapping
from pathlib import Path

from analysis.store import Store
from analysis.store.documents import SessionDescription
from experiments.sessions import record
from testbed import node_binary
from testbed.scenario import Scenario
from tests.support.called import called
from tests.support.command_line import backchannel
from tests.support.simulated import kept

_PATH = """\
backend: sim
network:
  topology: asymmetric-path
  forward: {rate: 4 Mbit/s, delay: 5 ms, queue: {policy: droptail, limit: 20 packets}}
  reverse: {rate: 256 kbit/s, delay: 20 ms, queue: {policy: droptail, limit: 10 packets}}
stack: newreno
"""
_POLICIES = "network.reverse.queue.policy: [droptail, ack-filtering, acks-first]"
#: Of a campaign whose captures no test looks at.
_COUNTED = "capture: {at: [none], telemetry: false, counters: {every: 100 ms, at: [bottleneck]}}\n"
_BOTH = """\
workload:
  - {name: forward, from: server, to: client, start: [0 s, 0.2 s]}
  - {name: reverse, from: client, to: server, start: [0.5 s, 1 s]}
"""


def _wide(rates: int) -> str:
    """A campaign with four combinations for each pair of this many rates."""
    numbers = range(1, rates + 1)
    return f"""\
{_PATH}workload:
  - {{name: down, from: server, to: client, start: [0 s, 0.1 s]}}
  - {{name: up, from: client, to: server, start: [0 s, 0.1 s]}}
duration: 1 s
{_COUNTED}sweep:
  network.forward.rate: [{", ".join(f"{rate} Mbit/s" for rate in numbers)}]
  network.reverse.rate: [{", ".join(f"{32 * rate} kbit/s" for rate in numbers)}]
  network.reverse.queue.policy: [droptail, acks-first]
  network.reverse.queue.limit: [5 packets, 20 packets]
repetitions: 1
"""


SIMULATED = {
    "one-axis": f"{_PATH}{_BOTH}duration: 5 s\nsweep:\n  {_POLICIES}\nrepetitions: 5\n",
    # What the issue was filed about, smaller: two stacks, four policies, five rates.
    "three-axes": f"""\
{_PATH}workload:
  - {{name: download, from: server, to: client, start: [0 s, 0.2 s]}}
  - {{name: upload, from: client, to: server, start: [0.5 s, 1 s]}}
  - {{name: ping, kind: probe, from: client, to: server, options: {{interval: 100 ms}}}}
duration: 3 s
{_COUNTED}sweep:
  stack: [newreno, sack]
  network.reverse.queue.policy: [droptail, ack-filtering, acks-first, ack-filtering-acks-first]
  network.reverse.rate: [9.6 kbit/s, 28.8 kbit/s, 128 kbit/s, 512 kbit/s, 2 Mbit/s]
repetitions: 3
""",
    "probe": f"""\
{_PATH}workload:
  - {{name: ping, kind: probe, from: client, to: server, options: {{interval: 50 ms}}}}
  - {{name: upload, from: client, to: server, start: [0.5 s, 1 s]}}
duration: 6 s
question: {{metric: latency.p99, of: ping, better: less, beside: throughput of upload}}
sweep:
  network.reverse.queue.policy: [droptail, codel]
repetitions: 6
""",
    "call": f"""\
{_PATH}workload:
  - {{name: voice, kind: call, from: client, to: server}}
  - {{name: upload, from: client, to: server, start: [0.5 s, 1 s]}}
duration: 6 s
sweep:
  network.reverse.queue.policy: [droptail, fq-drr]
repetitions: 4
""",
    "uploads": f"""\
{_PATH}workload:
  - {{name: upload, from: client, to: server, count: 3, start: [0 s, 1 s]}}
duration: 8 s
{_COUNTED}sweep:
  network.reverse.queue.limit: [5 packets, 10 packets, 40 packets]
repetitions: 4
""",
    "other-names": f"""\
{_PATH}workload:
  - {{name: backup-to-the-office, from: client, to: server, size: 60 kB, start: [0 s, 0.2 s]}}
  - {{name: film, from: server, to: client, start: [0 s, 0.2 s]}}
duration: 8 s
{_COUNTED}sweep:
  {_POLICIES}
repetitions: 4
""",
    "hundred": _wide(rates=5),
}
#: As wide as campaigns of users are.
WIDE = {"four-hundred": _wide(rates=10)}
#: A paper's, shorter than published.
PAPER, SHORTER = "acq-fig7", ("duration=400 s", "repetitions=2", "capture.counters.every=10 s")
#: Names of the campaigns in the store. Session and import are collections.
NAMES = (*SIMULATED, record.CAMPAIGN, "imports", PAPER)


def ten(folder: Path) -> Path:
    """The results folder with the ten campaigns."""
    kept(folder, "ten-campaigns", "".join(SIMULATED.values()), _make)
    return folder / "results"


def wide(folder: Path) -> Path:
    """A results folder with four hundred combinations."""
    kept(folder, "four-hundred", "".join(WIDE.values()), _make_wide)
    return folder / "results"


def _simulate(made: Path, campaigns: Mapping[str, str]) -> Path:
    results = made / "results"
    for name, text in campaigns.items():
        (made / f"{name}.yaml").write_text(f"name: {name}\n{text}")
        _done("run", made / f"{name}.yaml", "--results", results, "--scheduler", "none")
    return results


def _make_wide(made: Path) -> None:
    _simulate(made, WIDE)


def _make(made: Path) -> None:
    results = _simulate(made, SIMULATED)
    paper = node_binary.ROOT / f"experiments/acq/{PAPER}.yaml"
    _done("run", paper, "--results", results, *(word for change in SHORTER for word in ("--set", change)))
    with Store.open(results) as store:
        one_axis = next(row for row in store.campaigns() if row.name == "one-axis")
        run_id = store.members(one_axis.id, [0])[0].run_id
        captures = sorted((store.run_folder(run_id) / "captures").glob("*.pcap.gz"))
        _keep_session(store, run_id, captures)
    at_client = made / "client.pcap"
    at_client.write_bytes(gzip.decompress(next(path for path in captures if "client" in path.name).read_bytes()))
    # It forks, which no process with the threads of captures does.
    backchannel("import", at_client, "--results", results, status=0)


def _keep_session(store: Store, run_id: str, captures: list[Path]) -> None:
    """A session whose packets are those of a simulated run."""
    run = store.run(run_id)
    assert run is not None
    folder = store.staging_folder("session")
    (folder / "captures").mkdir()
    for path in captures:
        (folder / "captures" / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    scenario = Scenario.read({**run.documents.scenario_document, "workload": []})
    report = run.documents.manifest.report
    assert report is not None
    node_of = {end.address: end.node for end in report.interfaces}
    description = SessionDescription(
        label="dialup", command=("curl",), host="client", internet=False, exit_status=0, lasted_s=8.0
    )
    cpu = {"busy": 0.5, "idle": 0.5, "steal": 0.0}
    collection = record.Collection(record.CAMPAIGN, record.TITLE, ("network", "dialup"))
    record.commit_record(store, scenario, report, description, folder, time.time(), cpu, node_of.get, collection)


def _done(*words: str | Path) -> None:
    status, out, err = called(*words)
    assert status == 0, f"{words}: {err or out}"
