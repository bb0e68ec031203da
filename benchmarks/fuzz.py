"""Feeds parsers and state machines with mutated bytes for a given time, and keeps every input that breaks one.

    ./backchannel bench fuzz --seconds 60
    ./backchannel bench fuzz endpoint --seconds 3600 --seed 7

A finding is a panic, an exception, a broken assertion, memory or time without bound. tests/fuzz has targets and corpus;
the build has debug assertions and overflow checks.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.usage import used_s
from testbed import resource_limits
from testbed.node_binary import ROOT
from tests.fuzz import readers
from tests.support.waiting import cpu_s

CORPUS, FOUND = ROOT / "tests/fuzz/corpus", ROOT / ".cache/fuzz"
TARGETS = sorted(path.name for path in CORPUS.iterdir())
#: Address space of a target, and CPU time for one input, in s. Inputs have at most 64 KiB.
MEMORY_BYTES, INPUT_CPU_S = 2 << 30, 20.0


@dataclass(frozen=True)
class Finding:
    """An input that broke its target."""

    file: Path
    reason: str


def build() -> Path:
    """Builds the program; its path."""
    cargo = os.environ.get("CARGO", "cargo")
    subprocess.run([cargo, "build", "--quiet", "--locked", "-p", "backchannel-fuzz"], cwd=ROOT, check=True)
    return ROOT / "target/debug/backchannel-fuzz"


def fuzz(program: Path, target: str, seconds: int, seed: int) -> tuple[int, Finding | None]:
    """Tries inputs of one seed; the number of inputs, and what broke the target."""
    with tempfile.NamedTemporaryFile() as at:
        words = [str(program), target, "--corpus", str(CORPUS), "--seed", str(seed)]
        if target in readers.TARGETS:
            running = [sys.executable, "-m", readers.__name__, target, "--program", words[0], *words[2:]]
        else:
            running = words
        process = subprocess.Popen(
            [*running, "--seconds", str(seconds), "--at", at.name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "RUST_BACKTRACE": "0"},
            preexec_fn=_limit,
        )
        number, since_s = -1, 0.0
        while True:
            try:
                said, errors = process.communicate(timeout=1)
                break
            except subprocess.TimeoutExpired:
                now, taken_s = _number(at.name), cpu_s(process.pid)
                if now != number:
                    number, since_s = now, taken_s
                elif taken_s - since_s > INPUT_CPU_S:
                    process.kill()
                    process.communicate()
                    reason = f"more than {INPUT_CPU_S:g} s of CPU for one input"
                    return number, _keep(words, target, seed, number, reason)
        if process.returncode == 0:
            return int(said), None
        number = _number(at.name)
        return number, _keep(words, target, seed, number, _reason(errors, process.returncode))


def _limit() -> None:
    resource_limits.lower(resource.RLIMIT_AS, MEMORY_BYTES)
    resource_limits.lower(resource.RLIMIT_CORE, 0)


def _number(file: str) -> int:
    return int.from_bytes(Path(file).read_bytes()[:8], "little")


def _reason(errors: str, status: int) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip() and not line.startswith("note:")]
    if "Traceback (most recent call last):" in lines:
        lines = [lines[-1], *(line for line in reversed(lines) if line.startswith("File "))]
    return "; ".join(lines[:2]) or f"it ended with status {status}"


def _keep(words: list[str], target: str, seed: int, number: int, reason: str) -> Finding:
    data = subprocess.run([*words, "--only", str(number)], capture_output=True, check=True).stdout
    FOUND.mkdir(parents=True, exist_ok=True)
    file = FOUND / f"{target}-{seed}-{number}"
    file.write_bytes(data)
    return Finding(file, reason)


def main() -> int:
    """Prints inputs, CPU time and findings of every target."""
    parser = argparse.ArgumentParser(description="Parsers and state machines fed with mutated bytes.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"{', '.join(TARGETS)} (default: all)")
    parser.add_argument("--seconds", type=int, default=60, help="time for each target (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="of the first inputs (default 1)")
    asked = parser.parse_args()
    unknown = sorted(set(asked.targets) - set(TARGETS))
    if unknown:
        parser.error(f"unknown target {unknown[0]}; allowed: {', '.join(TARGETS)}")
    program, findings = build(), 0
    print(f"{'target':<16}{'seeds':>8}{'inputs':>14}{'CPU min':>9}{'findings':>10}")
    for target in asked.targets or TARGETS:
        end, seed, inputs, result = time.monotonic() + asked.seconds, asked.seed, 0, list[Finding]()
        before_s = used_s()
        # A finding ends its seed; the next one begins elsewhere.
        while (left := round(end - time.monotonic())) > 0:
            tried, finding = fuzz(program, target, left, seed)
            seed, inputs = seed + 1, inputs + tried
            if finding is not None:
                result.append(finding)
        cpu_min = (used_s() - before_s) / 60
        print(f"{target:<16}{seed - asked.seed:>8}{inputs:>14,}{cpu_min:>9.1f}{len(result):>10}", flush=True)
        for finding in {finding.reason: finding for finding in reversed(result)}.values():
            print(f"    {finding.file.relative_to(ROOT)}: {finding.reason}")
        findings += len(result)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
