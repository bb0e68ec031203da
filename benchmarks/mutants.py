"""Mutation tests: how many small faults of a crate or a Python package its tests find.

    ./backchannel bench mutants --rust --package policies --sample 100 --seed 1
    ./backchannel bench mutants --python --package store --sample 30 --seed 1

cargo-mutants (https://mutants.rs) or `python_mutants.py` changes one operator, condition or value at a time, in a copy
of the last commit under `.cache`. A mutant is killed if a test fails or hangs, and survives if all pass. `mutants.toml`
lists equivalent mutants, which no test can tell from the original, with reasons. They are not tried.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from benchmarks import python_mutants
from benchmarks.python_mutants import Package

ROOT = Path(__file__).resolve().parents[1]
VERSION = "27.1.0"
PROGRAM = ROOT / f".cache/cargo-mutants-{VERSION}/bin/cargo-mutants"
EQUIVALENT = Path(__file__).with_suffix(".toml")
COPY = ROOT / ".cache/rust-mutants"
#: Linux kills a test program of a mutant that computes for longer, many times what any needs. Time on the clock would
#: count what other programs take, and kill mutants that no test finds.
HANGS_CPU_S = 120
#: A mutant whose tests take more memory would take the machine's.
HANGS_BYTES = 4 << 30
#: A mutant whose tests wait for longer hangs, too.
HANGS_S = 1200
#: Cargo builds incrementally, and links faster without debug information. `--tests` leaves out the examples in docs.
BUILD = {
    "CARGO_TARGET_DIR": str(ROOT / ".cache/mutants-target"),
    "CARGO_PROFILE_DEV_DEBUG": "0",
    "PROPTEST_CASES": "64",
    f"CARGO_TARGET_{platform.machine().upper()}_UNKNOWN_LINUX_GNU_RUNNER": (
        f"prlimit --cpu={HANGS_CPU_S} --as={HANGS_BYTES}"
    ),
}
PACKAGES = ("core", "links", "policies", "middleboxes", "stacks", "simulator", "traces")
#: cargo-mutants: all killed, some survived, some timed out. Others are errors.
RUN = (0, 2, 3)


@dataclass(frozen=True)
class Position:
    line: int


@dataclass(frozen=True)
class Span:
    start: Position


@dataclass(frozen=True)
class Mutant:
    """A mutant as `cargo mutants --list --json` describes it."""

    file: str
    name: str
    span: Span


@dataclass(frozen=True, order=True)
class Change:
    """A mutant without its line number, which other changes of the file move."""

    file: str
    line: str
    mutant: str


@dataclass(frozen=True)
class Equivalent:
    """An entry of `mutants.toml`: source line without indentation, cargo-mutants' description, reason."""

    file: str
    line: str
    mutant: str
    reason: str

    @property
    def change(self) -> Change:
        return Change(self.file, self.line, self.mutant)


@dataclass(frozen=True)
class Outcome:
    """Names of the mutants of one package by their fate; `unviable` do not compile."""

    killed: list[str]
    survived: list[str]
    unviable: list[str]

    def row(self, package: str) -> str:
        tried = len(self.killed) + len(self.survived)
        share = f"{100 * len(self.killed) / tried:.0f} %" if tried else "-"
        return f"{package:12} {tried:6} {len(self.killed):7} {len(self.survived):9} {len(self.unviable):9} {share:>7}"


HEADER = f"{'package':12} {'tried':>6} {'killed':>7} {'survived':>9} {'unviable':>9} {'killed':>7}"


def change(mutant: Mutant, root: Path = ROOT) -> Change:
    """Identifies a mutant by the text of its source line."""
    line = (root / mutant.file).read_text().splitlines()[mutant.span.start.line - 1]
    return Change(mutant.file, line.strip(), mutant.name.split(": ", 1)[1])


def equivalents() -> list[Equivalent]:
    """Entries of `mutants.toml`."""
    return TypeAdapter(list[Equivalent]).validate_python(tomllib.loads(EQUIVALENT.read_text())["equivalent"])


def python_packages() -> dict[str, Package]:
    """The Python packages of `mutants.toml`."""
    return TypeAdapter(dict[str, Package]).validate_python(tomllib.loads(EQUIVALENT.read_text())["python"])


def install() -> None:
    """Builds cargo-mutants into `.cache`, once."""
    if not PROGRAM.exists():
        print(f"installing cargo-mutants {VERSION} (once, some minutes)", flush=True)
        command = ["cargo", "install", "cargo-mutants", "--locked", "--quiet", "--version", VERSION]
        subprocess.run([*command, "--root", PROGRAM.parents[1]], check=True)


def cargo_mutants(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs cargo-mutants in the copy, where each mutant is one incremental build."""
    command = [PROGRAM, "mutants", "--colors", "never", *arguments]
    done = subprocess.run(command, cwd=COPY, env=BUILD | os.environ, capture_output=True, text=True)
    if done.returncode not in RUN:
        raise SystemExit(f"cargo-mutants failed:\n{done.stdout}{done.stderr}")
    return done


def sample(package: str, size: int | None, seed: int, parts: list[str]) -> list[str]:
    """Names of the mutants to try: `size` of those whose names contain one of `parts`, drawn by `seed`; or all."""
    listed = cargo_mutants("--list", "--json", "--package", f"backchannel-{package}").stdout
    left_out = {entry.change for entry in equivalents()}
    mutants = TypeAdapter(list[Mutant]).validate_json(listed)
    names = [mutant.name for mutant in mutants if change(mutant, COPY) not in left_out]
    names = [name for name in names if not parts or any(part in name for part in parts)]
    return names if size is None else random.Random(seed).sample(names, min(size, len(names)))


def try_mutants(package: str, names: list[str]) -> Outcome:
    """Builds each mutant and runs the tests of its package."""
    with tempfile.TemporaryDirectory(prefix="backchannel-mutants-") as folder:
        chosen = [argument for name in names for argument in ("--re", f"^{re.escape(name)}$")]
        options = ["--in-place", "--no-shuffle", "--timeout", str(HANGS_S), "--output", folder]
        cargo_mutants("--package", f"backchannel-{package}", *options, *chosen, "--", "--tests")

        def named(fate: str) -> list[str]:
            return (Path(folder) / "mutants.out" / f"{fate}.txt").read_text().splitlines()

        return Outcome(named("caught") + named("timeout"), named("missed"), named("unviable"))


def try_rust(package: str, size: int | None, seed: int, parts: list[str]) -> Outcome:
    """Tries a sample of a crate's mutants."""
    python_mutants.check_out(COPY)
    return try_mutants(package, sample(package, size, seed, parts))


def try_python(package: str, size: int | None, seed: int, parts: list[str], markers: str) -> Outcome:
    """Tries a sample of a Python package's mutants, and prints survivors as they appear."""
    fates: dict[bool, list[str]] = {True: [], False: []}
    left_out = {(entry.file, entry.line, entry.mutant) for entry in equivalents()}
    chosen = python_packages()[package]
    python_mutants.check_out(python_mutants.COPY)
    tried = python_mutants.sample(chosen, left_out, size, seed, parts)
    for name, killed in python_mutants.fates(chosen, tried, markers):
        fates[killed].append(name)
        if not killed:
            print(f"survived: {name}", file=sys.stderr, flush=True)
    return Outcome(fates[True], fates[False], [])


def main() -> None:
    """Prints the table and the survivors."""
    parser = argparse.ArgumentParser(description="Mutation tests of the crates or of Python packages.")
    languages = parser.add_mutually_exclusive_group(required=True)
    languages.add_argument("--rust", action="store_true", help=f"mutate crates: {', '.join(PACKAGES)}")
    languages.add_argument("--python", action="store_true", help=f"mutate packages: {', '.join(python_packages())}")
    parser.add_argument("--package", action="append", help="a crate or package; repeatable; all by default")
    parser.add_argument("--sample", type=int, metavar="N", help="mutants per package, drawn at random; all by default")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample (default: 1)")
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="TEXT",
        help="only mutants with TEXT in their names, such as a survivor's change; repeatable",
    )
    parser.add_argument(
        "--default-tier",
        action="store_true",
        help="of Python, try with the tests of `./backchannel test` alone; what survives this only is killed by --all",
    )
    arguments = parser.parse_args()
    if arguments.default_tier and arguments.rust:
        parser.error("--default-tier is for --python: the crates have no slow tests")
    markers = python_mutants.OF_DEFAULT if arguments.default_tier else python_mutants.MARKERS
    packages = tuple(python_packages()) if arguments.python else PACKAGES
    for package in arguments.package or ():
        if package not in packages:
            parser.error(f"unknown package '{package}'; allowed: {', '.join(packages)}")
    if arguments.rust:
        install()
    print(HEADER, flush=True)
    survivors = []
    for package in arguments.package or packages:
        chosen = (package, arguments.sample, arguments.seed, arguments.name)
        outcome = try_python(*chosen, markers) if arguments.python else try_rust(*chosen)
        print(outcome.row(package), flush=True)
        survivors += outcome.survived
    print(f"\n{len(survivors)} survived", *sorted(survivors), sep="\n  ")


if __name__ == "__main__":
    main()
