"""Every command that a page shows exists, and has the options that it is shown with."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from typer.core import TyperGroup

from experiments.cli import application
from testbed.node_binary import ROOT

#: The old changelog names commands of its time.
PAGES = [
    "README.md", "CONTRIBUTING.md", "CHANGELOG.md",
    *sorted(
        str(path.relative_to(ROOT))
        for path in (ROOT / "docs").rglob("*.md")
        if path.name != "changes-before-0.1.md"
    ),
]  # fmt: skip
#: A command up to the end of its line, of the code around it, or of its own words.
CALL = re.compile(r"\./backchannel ([a-z][a-z-]*)((?:[^`\n#|;]|\|(?=[a-z]))*)")
LAUNCHER = (ROOT / "backchannel").read_text(encoding="utf-8")
#: Commands of the launcher, and the programs that read their options.
LAUNCHED = {
    "test": [LAUNCHER, (ROOT / "tests/run").read_text(encoding="utf-8")],
    "build": [LAUNCHER],
    "docs": [LAUNCHER],
    "screenshots": [LAUNCHER, (ROOT / "tests/screenshots.py").read_text(encoding="utf-8")],
}


@cache
def cli() -> TyperGroup:
    return application()


def options_of(name: str, rest: str) -> tuple[set[str], str] | None:
    """The options of a command, and the words after its name; None if there is no such command."""
    if name == "bench":
        benchmark, _, rest = rest.strip().partition(" ")
        program = ROOT / "benchmarks" / f"{benchmark.replace('-', '_')}.py"
        if not program.is_file() or not re.search(rf"\b{re.escape(benchmark)}\b", LAUNCHER):
            return (set(), "") if benchmark in ("", "NAME") else None
        return set(re.findall(r'add_argument\(\s*"(-[^"]+)"', program.read_text(encoding="utf-8"))), rest
    if name in LAUNCHED:
        if not re.search(rf"^ *{name}\)", LAUNCHER, re.MULTILINE):
            return None
        return set(re.findall(r"--[a-z][a-z-]*", " ".join(LAUNCHED[name]))), rest
    command = cli().commands.get(name)
    if command is None:
        return None
    if isinstance(command, TyperGroup):
        group, (word, _, after) = command, rest.strip().partition(" ")
        command = group.commands.get(word, group)
        rest = after if word in group.commands else rest
    return {option for param in command.params for option in (*param.opts, *param.secondary_opts)}, rest


def unknown(text: str) -> list[str]:
    """Commands and options of a page that do not exist."""
    wrong = []
    for match in CALL.finditer(text):
        name, rest = match.groups()
        found = options_of(name, rest)
        if found is None:
            wrong.append(match[0].strip())
            continue
        known, rest = found
        # What follows is another program's: behind `--`, or a value in quotes.
        own = re.sub(r"'[^']*'|\"[^\"]*\"", "", re.split(r"\s--(?:\s|$)", f" {rest} ")[0])
        used = re.findall(r"(?<=[\s\[])(--?[A-Za-z][A-Za-z-]*)", own)
        wrong += [f"{name} {option}" for option in used if option not in known]
    return wrong


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_commands_that_exist(page: str) -> None:
    assert unknown((ROOT / page).read_text(encoding="utf-8")) == []


def test_what_does_not_exist_is_found() -> None:
    page = """
    ./backchannel validate mine.yaml --sett x=y    # --fine in a comment
    ./backchannel tell mine.yaml
    ./backchannel bench tap --rounds 3 --nothing 4
    ./backchannel bench nothing
Run `./backchannel kernel build --verse 6.1` and `./backchannel shell -- curl --fine` or `./backchannel test --bear`.
"""
    wrong = ["validate --sett", "./backchannel tell mine.yaml", "bench --nothing", "./backchannel bench nothing"]
    assert unknown(page) == [*wrong, "kernel --verse", "test --bear"]


def test_commands_are_found_on_the_pages() -> None:
    calls = [match for page in PAGES for match in CALL.finditer(Path(ROOT, page).read_text(encoding="utf-8"))]
    assert len(calls) > 150


#: Set by Backchannel for its own processes, or names of earlier versions.
INTERNAL = {"CAMPAIGN", "COMPLETE", "KERNEL_SEED", "LAB", "SERVICE", "TRIES"}


def test_every_variable_of_the_environment_is_told() -> None:
    folders = ("agents", "testbed", "analysis", "experiments", "web")
    files = [path for folder in folders for kind in ("py", "rs") for path in (ROOT / folder).rglob(f"*.{kind}")]
    found = {
        name for path in files for name in re.findall(r"\bBACKCHANNEL_([A-Z_]+)", path.read_text(encoding="utf-8"))
    }
    told = (ROOT / "docs/command-line.md").read_text(encoding="utf-8").partition("\n## Environment\n")[2]
    assert [name for name in sorted(found - INTERNAL) if f"`BACKCHANNEL_{name}`" not in told] == []


def test_every_benchmark_is_told() -> None:
    names = re.search(r"bench (\S+\|\S+)\"", LAUNCHER)
    page = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    assert names
    assert set(re.findall(r"^\| \[([a-z0-9-]+)\]\(", page, re.MULTILINE)) == set(names[1].split("|"))
