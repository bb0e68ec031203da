"""Every capture of a folder, imported, plotted in all kinds and exported in all forms.

    ./backchannel bench captures FOLDER... [--sample N] [--seed S] [--formats svg html]

A capture may be rejected, and a figure or an export may be refused, by a sentence and exit status 2. A finding is any
other status, a traceback, a panic, or a command without result after a minute. The exit status is 1 if anything was
found. Public corpora to try are the tests of tcpdump, Wireshark, Arkime, PcapPlusPlus and Suricata.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from analysis.exports.registry import EXPORTS
from analysis.figures.printed import FORMATS
from analysis.figures.registry import FIGURES
from experiments.exits import BAD_INPUT
from testbed.local_folders import ScratchFolder, sweep
from tests.support.starter import Starter
from tests.support.waiting import interrupted_by_sigterm

#: What plots and exports import, beside what the starter does.
IMPORTED = ("analysis.figures.printed", "analysis.handle", "experiments.commands.plot", "experiments.commands.export")
#: Limits of an import: 2 GB and a minute. Other commands have the same time.
MEMORY_GB, LONGEST_S = 2.0, 60.0
#: The last is what an import says of an error that it did not expect.
BROKEN = re.compile(r"Traceback \(most recent call last\)|panicked at|stack backtrace|core dumped|internal error")
SUFFIXES = (".pcap", ".pcapng", ".cap", ".gz", ".zst", ".dump", ".ntar", ".dmp")


@dataclass
class Outcome:
    """Counts of commands, and what was found."""

    imported: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    drawn: int = 0
    exported: int = 0
    #: Sentences of refused figures and exports.
    refused: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Ended:
    """How a command ended; no status if it took too long."""

    status: int | None
    output: str

    def fault(self) -> str:
        """What is wrong with it; empty if it did what it should, or refused with a sentence."""
        if self.status is None:
            return f"no result within {LONGEST_S:.0f} s"
        if BROKEN.search(self.output):
            return "a traceback, a panic or a defect"
        return "" if self.status in (0, BAD_INPUT) and self.output.strip() else f"exit status {self.status}"

    def sentence(self) -> str:
        """Its last line without what is particular to a file."""
        last = (self.output.strip().splitlines() or [""])[-1]
        return re.sub(r"\S*/\S+|[0-9a-f]{8,}|\d[\d.,]*", "*", last)


class Commands:
    """Runs commands of the program one after another."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "BACKCHANNEL_LOCAL": str(folder / "local")}
        self._results = ["--results", str(folder / "results")]
        self._starter = Starter(environment, folder / "log", IMPORTED)

    def run(self, *words: str | Path) -> Ended:
        """The end of a command on the results."""
        command = self._starter.start([*map(str, words), *self._results])
        try:
            output, _ = command.communicate(LONGEST_S)
        except subprocess.TimeoutExpired:
            command.kill()
            output, _ = command.communicate()
            return Ended(None, output)
        return Ended(command.returncode, output)

    def close(self) -> None:
        """Ends the process that starts them."""
        self._starter.close()


def captures(folders: list[Path]) -> list[Path]:
    """Files whose names end like a capture's, sorted."""
    return sorted(
        path for folder in folders for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file()
    )


def uses(run: str, formats: list[str], folder: Path) -> Iterator[tuple[str, ...]]:
    """The commands that use an imported run."""
    for kind in FIGURES:
        yield ("plot", kind, run, *(word for form in formats for word in ("-o", str(folder / f"{kind}.{form}"))))
    for export in EXPORTS.values():
        if export.of == "run":
            yield ("export", export.name, run, "-o", str(folder / export.file.format(name=export.name)))


def judge(path: Path, commands: Commands, formats: list[str], folder: Path, outcome: Outcome) -> None:
    """Imports a capture and uses it."""
    limits = ("--memory-limit", str(MEMORY_GB), "--time-limit", str(LONGEST_S))
    result = commands.run("import", path, "--label", "capture", "--campaign", path.stem[:40], *limits, "--json")
    if fault := result.fault():
        outcome.findings.append(f"{path}: import: {fault}\n{result.output[-2000:]}")
        return
    if result.status:
        outcome.rejected[result.sentence()] += 1
        return
    outcome.imported += 1
    run = str(json.loads(result.output[result.output.index("{\n") :])["run"])
    for words in uses(run, formats, folder):
        result = commands.run(*words)
        if fault := result.fault():
            outcome.findings.append(f"{path}: {' '.join(words[:2])}: {fault}\n{result.output[-2000:]}")
        elif result.status:
            outcome.refused[f"{words[0]} {words[1]}: {result.sentence()}"] += 1
        elif words[0] == "plot":
            outcome.drawn += 1
        else:
            outcome.exported += 1


def main() -> int:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER", help="folder with captures, searched in depth"
    )
    parser.add_argument("--sample", type=int, help="try so many captures, drawn at random (all)")
    parser.add_argument("--seed", type=int, default=1, help="of their order (1)")
    parser.add_argument("--formats", nargs="+", default=["svg", "html"], choices=FORMATS, help="of figures (svg html)")
    options = parser.parse_args()
    interrupted_by_sigterm()
    sweep()
    paths, outcome, tried = captures(options.folders), Outcome(), 0
    if not paths:
        parser.error(
            f"no file in {', '.join(map(str, options.folders))} is named like a capture ({', '.join(SUFFIXES)})"
        )
    # A sample that ends early is still one of the whole corpus.
    order = random.Random(options.seed).sample(paths, min(options.sample or len(paths), len(paths)))
    with ScratchFolder() as folder:
        commands = Commands(folder)
        try:
            for tried, path in enumerate(order, 1):
                scratch = folder / "made"
                scratch.mkdir()
                judge(path, commands, options.formats, scratch, outcome)
                shutil.rmtree(scratch)
                if tried % 50 == 0:
                    print(
                        f"{tried} of {len(order)} captures, {len(outcome.findings)} findings",
                        file=sys.stderr,
                        flush=True,
                    )
        except KeyboardInterrupt:
            print("interrupted: these are the counts until then")
        finally:
            commands.close()
    print(
        f"{tried} captures: {outcome.imported} imported, {outcome.rejected.total()} rejected with a sentence; "
        f"{outcome.drawn} figures drawn, {outcome.exported} exports written, {outcome.refused.total()} refused with a "
        f"sentence; {len(outcome.findings)} findings"
    )
    for title, sentences in (("Rejected", outcome.rejected), ("Refused", outcome.refused)):
        for sentence, count in sentences.most_common(12):
            print(f"  {title} {count:5}: {sentence[:160]}")
    for finding in outcome.findings:
        print(f"\n{finding}")
    return int(bool(outcome.findings))


if __name__ == "__main__":
    sys.exit(main())
