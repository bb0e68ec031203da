"""The corpus: our account of every capture held against tshark's and tcptrace's, value by value, in one table.

    ./backchannel bench corpus

The captures are those of the tests: the research TCP in virtual time over lines that lose, damage, reorder and
duplicate packets; with root, the kernel's TCP over such lines, and an emulated campaign, at every interface. It
fails if a difference has no rule.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from testbed.capability import missing_for_emulation
from testbed.local_folders import ScratchFolder
from tests.conftest import CAMPAIGN, backchannel
from tests.support.traces import corpus
from tests.support.traces.agreement import Tally, beside_tcptrace, beside_wireshark


def captures(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """Captures by their origin."""
    yield "research stack, virtual time", list(corpus.of_the_research_stack(folder / "research"))
    missing = missing_for_emulation()
    if missing:
        print(f"No captures of the kernel's TCP: {'; '.join(missing)}")
    else:
        yield "kernel's TCP, emulated lines", list(corpus.of_the_kernel(folder / "kernel"))
        file = folder / "small.yaml"
        file.write_text(CAMPAIGN)
        done = backchannel("run", file, "--results", folder / "results")
        if done.returncode:
            raise SystemExit(done.stderr)
        yield "an emulated campaign", list(corpus.of_campaigns(folder / "results", folder / "campaign"))


def main() -> None:
    """Prints the comparison."""
    argparse.ArgumentParser(description="Our account of captures beside tshark's and tcptrace's.").parse_args()
    beside: dict[str, Callable[[Path, Path, Tally], None]] = {
        "tcptrace": beside_tcptrace,
        "tshark": beside_wireshark,
    }
    for program in beside:
        if shutil.which(program) is None:
            raise SystemExit(f"{program} is not installed: apt-get install {program}")
    tallies = {program: Tally() for program in beside}
    with ScratchFolder() as folder:
        for origin, result in captures(folder):
            print(f"{origin}: {len(result)} captures", flush=True)
            for capture in result:
                for program, compare in beside.items():
                    out = folder / "tables"
                    compare(capture, out, tallies[program])
                    shutil.rmtree(out)
    rules = sorted({rule for tally in tallies.values() for rule in tally.explained})
    rows = [
        ("captures", [tally.captures for tally in tallies.values()]),
        ("connections", [tally.connections for tally in tallies.values()]),
        ("values compared", [tally.compared for tally in tallies.values()]),
        ("equal", [tally.equal for tally in tallies.values()]),
        *((f'rule "{rule}"', [tally.explained[rule] for tally in tallies.values()]) for rule in rules),
        ("unexplained", [len(tally.unexplained) for tally in tallies.values()]),
        ('frames left out, rule "bad checksums"', [tally.damaged_frames for tally in tallies.values()]),
    ]
    print(f"\n{'':<44}" + "".join(f"{'beside ' + program:>18}" for program in tallies))
    for title, numbers in rows:
        print(f"{title:<44}" + "".join(f"{number:>18,}" for number in numbers))
    unexplained = [said for tally in tallies.values() for said in tally.unexplained]
    if unexplained:
        raise SystemExit("\n" + "\n".join(unexplained[:50]))


if __name__ == "__main__":
    main()
