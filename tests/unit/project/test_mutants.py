"""The list of equivalent mutants follows the code, and Python mutants are what their names say."""

from __future__ import annotations

import ast
import json
import sys
import threading
from pathlib import Path

import pytest

from benchmarks import mutants, python_mutants
from benchmarks.mutants import Mutant, Outcome, Position, Span
from benchmarks.usage import used_s


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


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("a = b < c <= d", ["b <= c <= d", "b < c < d"]),
        ("a = b + c", ["b - c"]),
        ("a += b", ["a -= b"]),
        ("a = b and c", ["b or c"]),
        ("a = not b", ["b"]),
        ("a = -1", ["1", "2"]),
        ("a = True", ["False"]),
        ("def f() -> int:\n    return a", ["return None"]),
        ("f(a)", ["pass"]),
        ("while a:\n    break", ["not a", "continue"]),
        ("a = [b for b in c if d]", ["not d"]),
        ("def f(a: Literal[1] = b) -> Literal[2]:\n    return None", []),
        ("@f(1)\ndef g() -> None:\n    pass", []),
        ("a = zip(b, c, strict=True)", []),
        ("a = 'b'", []),
    ],
)
def test_a_mutant_changes_one_node(text: str, changes: list[str]) -> None:
    tried = list(python_mutants.mutants("a.py", text))
    assert [mutant.mutant.split(" with ")[1] for mutant in tried] == changes
    sources = [mutant.source() for mutant in tried]
    assert len({ast.unparse(ast.parse(text)), *sources}) == len(changes) + 1
    assert [mutant.source() for mutant in tried] == sources, "a mutant leaves the tree as it was"


def test_a_mutant_is_tried_by_the_tests_that_execute_it() -> None:
    """Lines that run at import, or in no traced test, are tried by all of the files."""
    mutant = next(python_mutants.mutants("a.py", "\na = b + c"))
    assert (mutant.line, mutant.name) == ("a = b + c", "a.py:2: replace b + c with b - c")
    executed = {"a.py:1": ["near.py::x"], "a.py:2": ["", "near.py::y", "wide.py::z"]}
    assert mutant.tests(executed, ["near.py"]) == ["near.py::y"]
    assert mutant.tests(executed, ["wide.py", "near.py"]) == ["near.py::y", "wide.py::z"]
    assert mutant.tests(executed, ["other.py"]) == ["other.py"]
    assert mutant.tests({"a.py:2": [""]}, ["near.py"]) == ["near.py"]


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The copy in which mutants are tried, without the libraries of the repository."""
    monkeypatch.setattr(python_mutants, "COPY", tmp_path)
    monkeypatch.setattr(python_mutants, "LIBRARIES", ())
    return tmp_path


def test_the_fastest_test_that_executes_a_line_comes_first(copy: Path) -> None:
    tracer = python_mutants.Tracer(["a.py"], copy / "out.json")
    line, before = compile("a = 1", copy / "a.py", "exec"), sys.gettrace()
    tracer.pytest_sessionstart()
    for name, duration_s in (("a", 3.0), ("b", 1.0), ("c", 2.0)):
        tracer.pytest_runtest_logstart(name)
        exec(line, {})
        report = pytest.TestReport(name, ("a.py", 0, name), {}, "passed", None, "call", duration=duration_s)
        tracer.pytest_runtest_logreport(report)
    tracer.pytest_sessionfinish()
    sys.settrace(before)
    assert json.loads((copy / "out.json").read_text())["a.py:1"] == ["b", "c", "a"]


def test_lines_that_a_test_executes_in_a_thread_are_traced(copy: Path) -> None:
    tracer = python_mutants.Tracer(["a.py"], copy / "out.json")
    line, before = compile("a = 1", copy / "a.py", "exec"), sys.gettrace()
    tracer.pytest_sessionstart()
    tracer.pytest_runtest_logstart("a")
    thread = threading.Thread(target=exec, args=(line, {}))
    thread.start()
    thread.join()
    tracer.pytest_sessionfinish()
    sys.settrace(before)
    assert json.loads((copy / "out.json").read_text())["a.py:1"] == ["a"]


@pytest.mark.slow("starts pytest for each mutant; guards a benchmark alone")
def test_a_mutant_that_computes_without_end_is_killed(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_mutants, "HANGS_CPU_S", 3)
    monkeypatch.setattr(python_mutants, "HANGS_S", 60)
    (copy / "test_good.py").write_text("def test_a() -> None:\n    pass\n")
    (copy / "test_endless.py").write_text("def test_a() -> None:\n    while True:\n        pass\n")
    assert python_mutants.passes(["test_good.py"])
    before_s = used_s()
    assert not python_mutants.passes(["test_endless.py"])
    assert used_s() - before_s < 6, "it ended by the clock"


@pytest.mark.slow("starts pytest for each mutant; guards a benchmark alone")
def test_a_mutant_that_slow_tests_alone_kill_survives_the_default_tier(copy: Path) -> None:
    (copy / "mutated_module.py").write_text("def one() -> int:\n    return 1\n")
    (copy / "test_near.py").write_text(
        "import pytest\nfrom mutated_module import one\n\n\ndef test_it_returns() -> None:\n    one()\n\n\n"
        "@pytest.mark.slow('reason')\ndef test_one() -> None:\n    assert one() == 1\n"
    )
    package = python_mutants.Package(["mutated_module.py"], ["test_near.py"], [])
    tried = python_mutants.sample(package, (), None, 1, ["replace 1 with 2"])
    for markers, killed in ((python_mutants.MARKERS, True), (python_mutants.OF_DEFAULT, False)):
        assert [fate for _, fate in python_mutants.fates(package, tried, markers)] == [killed]


@pytest.mark.slow("starts pytest for each mutant; guards a benchmark alone")
@pytest.mark.parametrize("server", [{"BACKCHANNEL_TEST_POSTGRESQL": "url"}, None])
def test_tests_of_a_package_with_postgresql_run_on_it_too_if_the_machine_has_it(
    copy: Path, monkeypatch: pytest.MonkeyPatch, server: dict[str, str] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(python_mutants, "on_postgresql", lambda _: server)
    (copy / "mutated_module.py").write_text("def one() -> int:\n    return 1\n")
    (copy / "test_near.py").write_text(
        "import os\n\nfrom mutated_module import one\n\n\ndef test_one() -> None:\n"
        "    assert one() == 1 or 'BACKCHANNEL_TEST_POSTGRESQL' not in os.environ\n"
    )
    for on_postgresql in (True, False):
        package = python_mutants.Package(["mutated_module.py"], ["test_near.py"], [], on_postgresql)
        tried = python_mutants.sample(package, (), None, 1)
        assert len(tried) == 2
        killed = {killed for _, killed in python_mutants.fates(package, tried)}
        assert killed == {on_postgresql and server is not None}
        assert ("on SQLite alone" in capsys.readouterr().err) == (on_postgresql and server is None)


def test_a_sample_depends_on_its_seed_and_omits_equivalents(copy: Path) -> None:
    (copy / "a.py").write_text("a = [" + ", ".join(map(str, range(50))) + "]")
    package = python_mutants.Package(["a.py"], [], [])

    def drawn(size: int | None, seed: int, *left_out: tuple[str, str, str]) -> list[str]:
        return [mutant.mutant for mutant in python_mutants.sample(package, left_out, size, seed)]

    assert len(drawn(None, 1)) == 50
    assert drawn(5, 1) == drawn(5, 1) != drawn(5, 2)
    assert [mutant.mutant for mutant in python_mutants.sample(package, (), None, 1, ["7 with", "9 with 50"])] == [
        "replace 7 with 8", "replace 17 with 18", "replace 27 with 28", "replace 37 with 38", "replace 47 with 48",
        "replace 49 with 50",
    ]  # fmt: skip
    equivalent = ("a.py", (copy / "a.py").read_text(), "replace 7 with 8")
    assert set(drawn(None, 1)) - set(drawn(None, 1, equivalent)) == {"replace 7 with 8"}


def test_python_packages_have_files_and_tests() -> None:
    for package in mutants.python_packages().values():
        for path in (*package.files, *package.near, *package.wide):
            assert (mutants.ROOT / path).exists(), path
