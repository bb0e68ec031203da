"""Whether two builds give the same results: records ids, files and metrics of a corpus of simulated runs.

    python -m tests.equality record CHECKOUT OUT.json       # runs the corpus with the software in CHECKOUT
    python -m tests.equality compare BEFORE.json AFTER.json # lists every difference; exit status 1 if there is one
    python -m tests.equality golden RECORDED.json           # keeps its digests for the suite (test_equality.py)

The corpus is this folder's campaigns, whole, two runs of every other campaign of experiments/, and the ids and
scenarios of every run of all of them (`plan --json`). Only the command line and the results folder of a checkout are
used, so that any two revisions compare. Metrics that changed their name or subject on purpose count as one
(`analysis.results`).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from analysis.results import RENAMED

HERE = Path(__file__).resolve().parent
#: Digests of this folder's campaigns that the suite compares with.
GOLDEN = HERE / "golden.json"
#: Files that hold times of the machine.
VOLATILE = {"manifest.json"}
#: Metrics that more runs have since captures and counters share a registry: each serves what it can.
ADDED = {
    "ack_gap_mode", "ack_packet_size", "ack_rate", "active_total_packet_throughput", "active_total_throughput",
    "aggregate_packet_throughput", "aggregate_throughput", "carried", "carried_acks", "carried_data", "cwnd_excursions",
    "data_packet_size", "line_busy", "longest_gap_of_data", "mean_completion_time", "resent_twice_per_loss",
    "retransmissions_per_loss", "throughput_sd", "throughput_spread", "throughput_variation", "utilisation_tcp",
}  # fmt: skip
#: Metrics whose sums over groups runs with counters alone now have, too.
SUMMED = {"active_packet_throughput", "active_throughput", "fast_retransmits", "retransmissions"}
#: Metrics whose formula is evaluated in another order, which may change the last bit.
ROUNDED = {"active_packet_throughput", "active_total_packet_throughput"}
#: Sampled runs of a paper's campaign that take longer than this in virtual time are left to their ids.
LONGEST_S = 700.0


def main() -> int:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    record_ = commands.add_parser("record")
    record_.add_argument("checkout", type=Path)
    record_.add_argument("out", type=Path)
    record_.add_argument("--only", default="", help="campaigns whose name contains this")
    record_.add_argument("--jobs", type=int, default=2)
    compare_ = commands.add_parser("compare")
    compare_.add_argument("before", type=Path)
    compare_.add_argument("after", type=Path)
    golden_ = commands.add_parser("golden")
    golden_.add_argument("recorded", type=Path)
    asked = parser.parse_args()
    if asked.command == "record":
        asked.out.write_text(json.dumps(record(asked.checkout.resolve(), asked.only, asked.jobs), indent=0) + "\n")
        return 0
    if asked.command == "golden":
        GOLDEN.write_text(json.dumps(digests(json.loads(asked.recorded.read_text())), indent=1) + "\n")
        return 0
    result = differences(json.loads(asked.before.read_text()), json.loads(asked.after.read_text()))
    for line in result[:200]:
        print(line)
    print(f"{len(result)} differences")
    return 1 if result else 0


def campaigns() -> list[tuple[str, int | None]]:
    """Campaign files of the corpus, relative to a checkout or absolute, and how many of their runs are made."""
    own = [(str(path), None) for path in sorted(HERE.glob("*.yaml"))]
    root = HERE.parents[1]
    published = [
        (str(path.relative_to(root)), 2)
        for paper in ("asym", "ton", "aq", "acq", "pulsed", "ns2", "beyond", "programs")
        for path in sorted((root / "experiments" / paper).glob("*.yaml"))
        if path.name not in ("targets.yaml", "chosen.yaml")
    ]
    return [*own, *published]


#: Runs a command line.
Command = Callable[..., subprocess.CompletedProcess[str]]


def record(checkout: Path, only: str, jobs: int) -> dict[str, Any]:
    """Runs the corpus with a checkout's software."""
    command = _of(checkout)
    wanted = [(file, limit) for file, limit in campaigns() if only in file]
    with ThreadPoolExecutor(jobs) as pool:
        result = pool.map(lambda item: campaign(command, *item), wanted)
        return {Path(file).stem: entry for (file, _), entry in zip(wanted, result, strict=True)}


def _of(checkout: Path) -> Command:
    """The command line of a checkout."""
    environment = {
        **os.environ, "PYTHONPATH": str(checkout), "BACKCHANNEL_ROOT": str(checkout),
        "BACKCHANNEL_NODE": os.environ.get("BACKCHANNEL_NODE", str(checkout / "target/release/backchannel-node")),
    }  # fmt: skip

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [checkout / ".venv/bin/python", "-m", "experiments", *words],
            cwd=checkout, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return call


def campaign(call: Command, file: str, limit: int | None = None) -> dict[str, Any]:
    """Runs a campaign, or as many of its runs, by a command line."""
    print(file, file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as results:
        planned = call("plan", file, "--backend", "sim", "--json", "--results", results)
        if planned.returncode:
            return {"refused": planned.stderr}
        plan = json.loads(planned.stdout)
        runs = plan["runs"]
        told: dict[str, Any] = {
            "runs": len(runs),
            "plan_sha256": _sha256(json.dumps([[run["id"], run["scenario"]] for run in runs], sort_keys=True)),
        }
        if limit and max(run["scenario"]["duration_s"] for run in runs) > LONGEST_S:
            return told
        words = ["--limit", str(limit)] if limit else []
        ran = call("run", file, "--backend", "sim", "--results", results, "--jobs", "1", *words)
        database = Path(results, "results.sqlite")
        if not database.is_file():
            return {**told, "failed": ran.stderr}
        told["results"] = recorded_results(database)
        return told


def recorded_results(database: Path) -> dict[str, Any]:
    store = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        result: dict[str, Any] = {
            id_: {"state": state, "files": {}, "metrics": {}}
            for id_, state in store.execute("SELECT id, state FROM run")
        }
        for id_, path, digest in store.execute("SELECT run_id, path, sha256 FROM file ORDER BY path"):
            if path.endswith(".gz"):
                # What is inside counts: earlier versions kept records plain, and compressed captures more.
                packed = database.parent / "runs" / id_[:2] / id_ / path
                path, digest = path.removesuffix(".gz"), _digest(gzip.decompress(packed.read_bytes()))
            if path not in VOLATILE:
                result[id_]["files"][path] = digest
        for id_, name, subject, value in store.execute("SELECT run_id, name, subject, value FROM metric"):
            result[id_]["metrics"][f"{name} {subject}".strip()] = value
        return result
    finally:
        store.close()


def digests(recorded: dict[str, Any]) -> dict[str, Any]:
    """Of this folder's campaigns: the digest of all scenarios with their ids, and of each run's files and metrics."""
    own = {path.stem for path in HERE.glob("*.yaml")}
    return {
        name: {
            "plan": campaign["plan_sha256"],
            "runs": {
                run: _sha256(json.dumps([result["files"], result["metrics"]], sort_keys=True))
                for run, result in sorted(campaign["results"].items())
            },
        }
        for name, campaign in recorded.items()
        if name in own
    }


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """One line for each difference."""
    result: list[str] = []
    for campaign in sorted(before.keys() | after.keys()):
        old, new = before.get(campaign), after.get(campaign)
        if old is None or new is None:
            result.append(f"{campaign}: only in {'after' if old is None else 'before'}")
            continue
        for key in ("runs", "plan_sha256", "refused", "failed"):
            if old.get(key) != new.get(key):
                result.append(f"{campaign}: {key}: {old.get(key)} -> {new.get(key)}")
        runs = (old.get("results", {}), new.get("results", {}))
        for run in sorted(runs[0].keys() | runs[1].keys()):
            here, present = runs[0].get(run), runs[1].get(run)
            if here is None or present is None:
                result.append(f"{campaign} {run}: only in {'after' if here is None else 'before'}")
                continue
            if here["state"] != present["state"]:
                result.append(f"{campaign} {run}: {here['state']} -> {present['state']}")
            for what, first, second in (
                ("file", here["files"], present["files"]),
                ("metric", _todays(here["metrics"]), _todays(present["metrics"])),
            ):
                for name in sorted(first.keys() | second.keys()):
                    if not _equal(what, name, first.get(name), second.get(name), _has_both(here["metrics"])):
                        result.append(f"{campaign} {run} {what} {name}: {first.get(name)} -> {second.get(name)}")
    return result


def _has_both(metrics: dict[str, float]) -> bool:
    """Whether an older run had captures and counters, by the two forms of a line's name."""
    return any(":" in name for name in metrics) and any("/" in name for name in metrics)


def _equal(what: str, name: str, before: Any, after: Any, both: bool) -> bool:
    metric = name.partition(" ")[0] if what == "metric" else ""
    if metric in SUMMED and before is None:
        return True
    # Where a run has both, captures now serve what only counters did, by their definition (docs/metrics.md).
    if metric in ADDED and (before is None or both):
        return True
    if metric in ROUNDED and before is not None and after is not None:
        return bool(abs(after - before) <= 4 * math.ulp(before))
    return bool(before == after)


def _todays(metrics: dict[str, float]) -> dict[str, float]:
    # A value from captures goes before one from counters that had another name.
    renamed = {_renamed(name): value for name, value in metrics.items()}
    return renamed | {name: value for name, value in metrics.items() if name == _renamed(name)}


def _renamed(name: str) -> str:
    """A metric and its subject as they are called today."""
    metric, _, subject = name.partition(" ")
    # subject: LINK:DIRECTION is LINK/DIRECTION since the registries are one
    subject = re.sub(r"^([\w-]+):(forward|reverse)$", r"\1/\2", subject)
    return f"{RENAMED.get(metric, metric)} {subject}".strip()


def _sha256(text: str) -> str:
    return _digest(text.encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
