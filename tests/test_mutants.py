"""The list of equivalent mutants follows the crates."""

from __future__ import annotations

from tests.benchmarks import mutants
from tests.benchmarks.mutants import Mutant, Outcome, Position, Span


def test_equivalent_mutants_name_a_line_of_their_file_and_a_reason() -> None:
    for entry in mutants.equivalents():
        lines = [line.strip() for line in (mutants.ROOT / entry.file).read_text().splitlines()]
        assert entry.line in lines, f"mutants.toml: {entry.file} has no line '{entry.line}'; remove or change the entry"
        assert entry.mutant.startswith(("replace ", "delete "))
        assert entry.reason.endswith(".")


def test_a_mutant_is_known_by_its_source_line() -> None:
    entry = mutants.equivalents()[0]
    lines = [line.strip() for line in (mutants.ROOT / entry.file).read_text().splitlines()]
    number = lines.index(entry.line) + 1
    mutant = Mutant(entry.file, f"{entry.file}:{number}:9: {entry.mutant}", Span(Position(number)))
    assert mutants.change(mutant) == entry.change
    moved = Mutant(entry.file, mutant.name, Span(Position(number + 1)))
    assert mutants.change(moved) != entry.change


def test_unviable_mutants_count_neither_as_killed_nor_as_survived() -> None:
    assert Outcome(["a", "b", "c"], ["d"], ["e", "f"]).row("links").split() == ["links", "4", "3", "1", "2", "75", "%"]
    assert Outcome([], [], ["e"]).row("links").split()[-1] == "-"
