"""Mutants of Python modules: each changes one operator, condition, number, call or returned value.

A mutant is tried by the tests that execute its lines, then by a wider set; `mutants.toml` lists both. In between, the
nearest tests of a package with `postgresql` run again on a PostgreSQL server. Every run is a fork of one process that
has imported the libraries. It works in a git worktree of the last commit, so the checkout stays untouched. Decorators,
annotations, strings and `strict=` of zip are left alone.

Neither library fits: cosmic-ray has one test command for all files, mutmut chooses the tests by its own rule, and
neither draws a sample by seed.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.support import postgresql

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / ".cache/python-mutants"
#: Libraries of the tests that take long to import.
LIBRARIES = ("numpy", "polars", "scipy.stats", "pydantic", "sqlalchemy", "hypothesis", "ruamel.yaml", "flask")
#: Tests that try mutants, and those of them that `./backchannel test` has.
MARKERS = "not emulated and not browser and not vm"
OF_DEFAULT = f"{MARKERS} and not slow"
#: CPU time and time after which the tests of a mutant hang. The first does not count what other programs take.
HANGS_CPU_S, HANGS_S = 300, 1200
LEFT_ALONE = {"annotation", "returns", "decorator_list"}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}


@dataclass(frozen=True)
class Package:
    """Files and folders to mutate, the tests nearest to them, and more tests for mutants that those do not kill."""

    files: list[str]
    near: list[str]
    wide: list[str]
    #: The nearest tests also run on PostgreSQL.
    postgresql: bool = False


def alternatives(node: ast.AST, field: str) -> Iterator[ast.AST]:
    """The mutants of one node, which is in `field` of its parent."""
    match node:
        case ast.Compare(left, ops, right):
            for index, op in enumerate(ops):
                yield ast.Compare(left, [*ops[:index], COMPARISONS[type(op)](), *ops[index + 1 :]], right)
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            yield ast.BinOp(left, OPERATORS[type(op)](), right)
        case ast.AugAssign(target, op, value) if type(op) in OPERATORS:
            yield ast.AugAssign(target, OPERATORS[type(op)](), value)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.Return(ast.AST() as value) if ast.unparse(value) != "None":
            yield ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call()):
            yield ast.Pass()
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
    if field in ("test", "ifs") and not isinstance(node, ast.UnaryOp):
        yield ast.UnaryOp(ast.Not(), node)  # type: ignore[arg-type]


@dataclass(frozen=True)
class PythonMutant:
    """`other` in place of `node`, a child of `parent`. `file`, `line` and `mutant` identify it in `mutants.toml`."""

    file: str
    line: str
    tree: ast.Module
    parent: ast.AST
    field: str
    index: int
    node: Any
    other: ast.AST

    @property
    def mutant(self) -> str:
        return f"replace {ast.unparse(self.node)} with {ast.unparse(self.other)}"

    @property
    def name(self) -> str:
        return f"{self.file}:{self.node.lineno}: {self.mutant}"

    def source(self) -> str:
        """The mutated module."""
        self._put(self.other)
        text = ast.unparse(self.tree)
        self._put(self.node)
        return text

    def _put(self, node: ast.AST) -> None:
        value = getattr(self.parent, self.field)
        if isinstance(value, list):
            value[self.index] = node
        else:
            setattr(self.parent, self.field, node)

    def tests(self, executed: dict[str, list[str]], files: list[str]) -> list[str]:
        """The tests of `files` that execute its lines, in order; `files` if they run at import or in no traced test."""
        lines = range(self.node.lineno, self.node.end_lineno + 1)
        tests = dict.fromkeys(test for line in lines for test in executed.get(f"{self.file}:{line}", []))
        return [test for test in tests if test.startswith(tuple(files))] or files


def mutants(file: str, text: str) -> Iterator[PythonMutant]:
    """All mutants of a module, in an order that only the module determines."""
    tree, lines = ast.parse(text), text.splitlines()

    def walk(parent: ast.AST) -> Iterator[PythonMutant]:
        for field, value in ast.iter_fields(parent):
            if field in LEFT_ALONE or (isinstance(parent, ast.keyword) and parent.arg == "strict"):
                continue
            for index, node in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(node, ast.AST):
                    for other in alternatives(node, field):
                        line = lines[node.lineno - 1].strip()  # type: ignore[attr-defined]
                        yield PythonMutant(file, line, tree, parent, field, index, node, other)
                    yield from walk(node)

    return walk(tree)


class Tracer:
    """A pytest plugin that records which tests execute each line of the mutated files, the fastest first. Imports have
    the test "".
    """

    def __init__(self, files: list[str], out: Path) -> None:
        self._files = tuple(str(COPY / file) for file in files)
        self._out = out
        self._test = ""
        self._tests: defaultdict[str, set[str]] = defaultdict(set)
        self._took_s: defaultdict[str, float] = defaultdict(float)

    def pytest_sessionstart(self) -> None:
        sys.settrace(self._trace)
        threading.settrace(self._trace)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        file = frame.f_code.co_filename
        if not file.startswith(self._files):
            return None
        self._tests[f"{Path(file).relative_to(COPY)}:{frame.f_lineno}"].add(self._test)
        return self._trace

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._test = nodeid

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._took_s[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        sys.settrace(None)
        threading.settrace(None)
        fastest_first = {line: sorted(tests, key=self._took_s.__getitem__) for line, tests in self._tests.items()}
        self._out.write_text(json.dumps(fastest_first))


def passes(
    tests: list[str], plugin: object = None, environment: Mapping[str, str] | None = None, markers: str = MARKERS
) -> bool:
    """Runs tests of the copy in a fork. What they print is in `.cache/python-mutants.log`.

    With a plugin, which traces the tests without a mutant, they may take any time.
    """
    child = os.fork()
    if child == 0:
        os.setsid()
        if plugin is None:
            signal.alarm(HANGS_S)
            resource.setrlimit(resource.RLIMIT_CPU, (HANGS_CPU_S, HANGS_CPU_S))
        os.chdir(COPY)
        for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
            del sys.modules[name]
        sys.path[:] = [str(COPY), *(entry for entry in sys.path if Path(entry).resolve() != ROOT)]
        os.environ |= {"PYTHONPATH": str(COPY), "BACKCHANNEL_ROOT": str(COPY), **(environment or {})}
        log = os.open(COPY.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        options = ["-xq", "-m", markers, "-p", "no:cacheprovider", "-p", "no:xdist"]
        os._exit(pytest.main([*tests, *options], plugins=[plugin] if plugin else []))
    _, status = os.waitpid(child, 0)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if os.waitstatus_to_exitcode(status) == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise SystemExit(f"no tests in {', '.join(tests)}")
    return status == 0


def check_out(copy: Path) -> None:
    """Makes `copy` a git worktree of the last commit. Files that have not changed since keep their times."""
    git = ["git", "-C", str(ROOT)]
    if copy.exists():
        commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
        command = ["git", "-C", str(copy), "checkout", "--force", "--detach", commit]
    else:
        command = [*git, "worktree", "add", "--force", "--detach", str(copy)]
    subprocess.run(command, check=True, capture_output=True)


def sample(
    package: Package,
    left_out: Collection[tuple[str, str, str]],
    size: int | None,
    seed: int,
    parts: Collection[str] = (),
) -> list[PythonMutant]:
    """Mutants of a package, but for those left out by file, line and change: `size` of them, or all.

    Args:
        parts: names of the mutants contain one of these; empty for any name.
    """
    files = [file for name in package.files for file in sorted(COPY.glob(f"{name}/**/*.py")) or [COPY / name]]
    result = [mutant for file in files for mutant in mutants(str(file.relative_to(COPY)), file.read_text())]
    result = [mutant for mutant in result if (mutant.file, mutant.line, mutant.mutant) not in left_out]
    result = [mutant for mutant in result if not parts or any(part in mutant.name for part in parts)]
    return result if size is None else random.Random(seed).sample(result, min(size, len(result)))


@dataclass(frozen=True)
class Stage:
    """Tests that try a mutant, with their environment, and the tests that execute each line in it."""

    files: list[str]
    environment: Mapping[str, str]
    executed: dict[str, list[str]]
    markers: str

    def kills(self, mutant: PythonMutant) -> bool:
        """Whether a test fails with the mutant, which is in the copy."""
        tests = mutant.tests(self.executed, self.files)
        return not passes(tests, environment=self.environment, markers=self.markers)


def traced(
    package: Package, tests: list[str], environment: Mapping[str, str], markers: str = MARKERS
) -> dict[str, list[str]]:
    """The tests that execute each line of a package, the fastest first.

    Raises:
        SystemExit: a test fails.
    """
    trace = COPY.with_suffix(".json")
    if not passes(tests, Tracer(package.files, trace), environment, markers):
        raise SystemExit(f"the tests fail without a mutant; {COPY.with_suffix('.log')} has their output")
    executed: dict[str, list[str]] = json.loads(trace.read_text())
    return executed


def on_postgresql(stack: ExitStack) -> dict[str, str] | None:
    """Starts a PostgreSQL server, and returns the environment of tests that use it; None if the machine has none."""
    if not postgresql.is_installed():
        return None
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="backchannel-mutants-")))
    server = stack.enter_context(postgresql.on_loopback(folder / "log"))
    return {"BACKCHANNEL_TEST_POSTGRESQL": server.url, "BACKCHANNEL_LOCAL": str(folder)}


def fates(package: Package, tried: list[PythonMutant], markers: str = MARKERS) -> Iterator[tuple[str, bool]]:
    """The name of each mutant, and whether a test with these markers kills it."""
    for library in LIBRARIES:
        importlib.import_module(library)
    with ExitStack() as stack:
        executed = traced(package, [*package.near, *package.wide], {}, markers)
        stages = [Stage(files, {}, executed, markers) for files in (package.near, package.wide)]
        if package.postgresql:
            environment = on_postgresql(stack)
            if environment is None:
                print("no PostgreSQL server here: its code is tried on SQLite alone", file=sys.stderr, flush=True)
            else:
                of_near = traced(package, package.near, environment, markers)
                stages.insert(1, Stage(package.near, environment, of_near, markers))
        for mutant in tried:
            file = COPY / mutant.file
            original = file.read_text()
            file.write_text(mutant.source())
            Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)
            yield mutant.name, any(stage.kills(mutant) for stage in stages)
            file.write_text(original)
