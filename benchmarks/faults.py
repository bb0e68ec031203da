"""Kills of running campaigns at seeded random moments: what stays behind, what is lost, how the command goes on.

    ./backchannel bench faults [--kills N] [--emulated-kills N] [--emulated-stops N] [--site-kills N]
                               [--cluster-kills N] [--no-shortages] [--seed S]

A kill is SIGKILL of one part, a stop is SIGSTOP for a second. After each, the machine is searched for processes,
namespaces, interfaces, mounts, cgroups and sockets of the command, and the results folder is checked against its
database. Each campaign is continued until it is complete; a simulated one must then have the results of an
uninterrupted one. A cluster has a scheduler, two workers and a PostgreSQL store on loopback. Then a command runs short
of disk, inodes, descriptors or memory, is stopped, or has a clock that jumps. The exit status is 1 if anything was
found.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from testbed.local_folders import ScratchFolder, sweep
from tests.support.faults.cluster import Cluster
from tests.support.faults.commands import Count
from tests.support.faults.kills import (
    EMULATED_PARTS,
    SIMULATED_TURNS,
    SITE_PARTS,
    Campaign,
    Part,
    Site,
    emulated,
    simulated,
)
from tests.support.faults.shortages import DISTURBANCES, SHORTAGES, Bench
from tests.support.waiting import interrupted_by_sigterm

#: More and shorter runs, so that a campaign is killed many times before it is complete; those with real packets as long
#: as the captures need to start and end, and so to be killed.
SIMULATED_OFTEN, EMULATED_OFTEN = simulated("1 s", 10), emulated("1 s")
#: A kill comes within this share of the time of a whole campaign, so that several fall into each. With real packets
#: the first run begins after half of the time, which the cell and its calibration take.
SHARE, EMULATED_SHARE = 0.15, 0.6


def main() -> int:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="kills in simulated campaigns (100)")
    parser.add_argument("--emulated-kills", type=int, default=20, help="kills in campaigns with real packets (20)")
    parser.add_argument("--emulated-stops", type=int, default=6, help="parts stopped for 1 s in such campaigns (6)")
    parser.add_argument("--site-kills", type=int, default=4, help="kills of the site and of its runner (4)")
    parser.add_argument("--cluster-kills", type=int, default=8, help="kills of a Dask cluster's parts (8)")
    parser.add_argument("--no-shortages", action="store_true", help="leave out the shortages (they need root)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments and parts (1)")
    options = parser.parse_args()
    interrupted_by_sigterm()
    rng = random.Random(options.seed)
    counts: dict[str, Count] = {}
    sweep()
    others: dict[str, list[str]] = {}
    with ScratchFolder() as folder:
        try:
            if options.kills:
                _campaign(folder / "sim", SIMULATED_OFTEN, SIMULATED_TURNS, options.kills, SHARE, rng, counts)
            if options.emulated_kills:
                _campaign(
                    folder / "emulated",
                    EMULATED_OFTEN,
                    EMULATED_PARTS,
                    options.emulated_kills,
                    EMULATED_SHARE,
                    rng,
                    counts,
                )
            if options.emulated_stops:
                _stops(folder / "stops", options.emulated_stops, rng, counts)
            if options.site_kills:
                _site(folder / "site", options.site_kills, rng, counts)
            if options.cluster_kills:
                _cluster(folder / "cluster", options.cluster_kills, rng, counts)
            if not options.no_shortages:
                others = _shortages(folder / "shortages")
        except KeyboardInterrupt:
            print("interrupted: these are the counts until then")
    print(f"{'part':<28} {'kills':>6} {'too late':>9} {'completed':>10} {'sentence':>9} {'findings':>9}")
    for name, count in counts.items():
        print(
            f"{name:<28} {count.kills:>6} {count.missed:>9} {count.completed:>10} {count.sentences:>9} "
            f"{len(count.findings):>9}"
        )
    kills, findings = sum(count.kills for count in counts.values()), [f for c in counts.values() for f in c.findings]
    compared = sum(count.compared for count in counts.values())
    print(f"{kills} kills; {compared} simulated campaigns completed with equal results; {len(findings)} findings")
    for name, result in others.items():
        print(f"{name:<34} {'told or endured, then completed' if not result else f'{len(result)} findings'}")
        findings += result
    for finding in findings:
        print(f"  {finding}")
    return bool(findings)


def _campaign(
    folder: Path,
    text: str,
    turns: Sequence[Part],
    kills: int,
    share: float,
    rng: random.Random,
    counts: dict[str, Count],
) -> None:
    """Spreads the kills over the parts."""
    folder.mkdir()
    with closing(Campaign(folder, text, rng, share)) as campaign:
        done = 0
        for attempt in range(3 * kills):
            part = turns[attempt % len(turns)]
            count = counts.setdefault(f"{folder.name}: {part.name}", Count())
            before = count.kills
            campaign.kill(part, count, kills - done)
            done += count.kills - before
            _progress(folder.name, done, kills, count)
            if done == kills:
                break
        campaign.check_complete(count)


def _stops(folder: Path, stops: int, rng: random.Random, counts: dict[str, Count]) -> None:
    """Stops each part with real packets in turn."""
    folder.mkdir()
    with closing(Campaign(folder, emulated(), rng)) as campaign:
        for number in range(stops):
            part = EMULATED_PARTS[number % len(EMULATED_PARTS)]
            count = counts.setdefault(f"stopped: {part.name}", Count())
            campaign.stop(part, count)
            _progress("stops", number + 1, stops, count)


def _site(folder: Path, kills: int, rng: random.Random, counts: dict[str, Count]) -> None:
    folder.mkdir()
    site = Site(folder, rng)
    for number in range(kills):
        part = SITE_PARTS[number % len(SITE_PARTS)]
        count = counts.setdefault(part, Count())
        site.kill_once(part, number, count)
        _progress("site", number + 1, kills, count)
    site.close()


def _cluster(folder: Path, kills: int, rng: random.Random, counts: dict[str, Count]) -> None:
    folder.mkdir()
    with closing(Cluster(folder, rng)) as cluster:
        names = list(cluster.parts())
        for number in range(kills):
            part = names[number % len(names)]
            count = counts.setdefault(f"cluster: {part}", Count())
            cluster.kill_once(part, count)
            _progress("cluster", number + 1, kills, count)


def _shortages(folder: Path) -> dict[str, list[str]]:
    """Findings of each shortage and disturbance."""
    folder.mkdir()
    bench = Bench(folder)
    result = {name: bench.shortage(shortage) for name, shortage in SHORTAGES.items()}
    return result | {name: bench.disturbance(name) for name in DISTURBANCES}


def _progress(name: str, done: int, of: int, count: Count) -> None:
    last = f"; last finding: {count.findings[-1]}" if count.findings else ""
    print(f"{time.strftime('%H:%M:%S')} {name}: {done} of {of} kills{last}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
