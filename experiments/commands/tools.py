"""`mcp`: the commands as tools of the Model Context Protocol, for agents."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.errors import message_of
from analysis.versions import version
from experiments import exits
from experiments.catalogue import read_named
from experiments.commands.options import RESULTS, ResultsOption
from experiments.commands.shared import fail, rejecting
from experiments.labels import duration_text
from experiments.language import campaign as campaigns, source
from experiments.language.problems import CampaignError
from testbed import node_binary, units
from testbed.local_folders import ScratchFolder

if TYPE_CHECKING:
    from mcp.server import MCPServer

#: What agents are told of the server.
INSTRUCTIONS = (
    "Backchannel makes experiments on TCP and QUIC over asymmetric, lossy or half-duplex links. A campaign is YAML "
    "text or the name of one that comes with it, such as quickstart or tutorial. Validate and plan it, launch it, then "
    "read the results. Values are in SI units."
)
#: A launch is stopped after so many times its expected time, or after `LEAST_S`, whichever is longer.
OVERTIME = 4.0
LEAST_S = 60.0


class Refused(Exception):
    """A tool does not do what was asked; the sentence says why."""


@dataclass(frozen=True)
class Limits:
    """What an agent may launch at a time."""

    runs: int
    time_s: float
    #: Whether a campaign may run programs of this machine.
    programs: bool


def mcp(
    results: ResultsOption = RESULTS,
    max_runs: Annotated[
        int, typer.Option("--max-runs", metavar="N", min=1, help="Most runs that a launch may make.")
    ] = 100,
    max_time: Annotated[
        str, typer.Option("--max-time", metavar="TIME", help="Longest expected time of a launch.")
    ] = "10 min",
    allow_commands: Annotated[
        bool,
        typer.Option(
            "--allow-commands", help="Launch campaigns with flows of kind command, which run programs with your rights."
        ),
    ] = False,
) -> None:
    """Serve the commands as tools of the Model Context Protocol on standard input and output, for agents (docs/mcp.md).

    Lists mechanisms, validates and plans campaigns, launches them within limits, and reads results.
    """
    with rejecting("--max-time"):
        limits = Limits(max_runs, float(units.parse(max_time, "time")), allow_commands)
    try:
        mcp_server = server(results, limits)
    except ModuleNotFoundError:
        fail("the package mcp is missing: pip install 'backchannel[mcp]', or pip install mcp", exits.UNAVAILABLE)
    mcp_server.run("stdio")


def server(results: str, limits: Limits) -> MCPServer:
    """The server with its tools."""
    # An extra, and slow to import.
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    mcp_server = MCPServer("backchannel", instructions=INSTRUCTIONS, version=version(), log_level="WARNING")
    tools = Tools(results, limits)

    for function in (
        tools.list_mechanisms,
        tools.show_mechanism,
        tools.validate,
        tools.plan,
        tools.launch,
        tools.list_campaigns,
        tools.results,
        tools.runs,
        tools.compare,
    ):

        def tool(*words: Any, _function: Any = function, **named: Any) -> Any:
            try:
                return _function(*words, **named)
            except (Refused, CampaignError) as error:
                raise ToolError(str(error)) from None

        tool.__signature__ = inspect.signature(function, eval_str=True)  # type: ignore[attr-defined]
        mcp_server.tool(name=function.__name__, description=function.__doc__, structured_output=False)(tool)
    return mcp_server


class Tools:
    """What agents may ask. Each answer is the document that the command prints with `--json` (docs/json.md)."""

    def __init__(self, results: str, limits: Limits) -> None:
        self._results = results
        self._limits = limits

    def list_mechanisms(self, kind: str) -> str:
        """Lists stacks, policies, links, profiles, error-models, middleboxes, workloads, backends, topologies, metrics,
        figures or exports: name, summary and source of each.
        """
        entries = self._asked("list", kind)
        return json.dumps([{key: entry[key] for key in ("name", "summary", "source")} for entry in entries])

    def show_mechanism(self, name: str) -> str:
        """Shows a mechanism with its options, their units, defaults and ranges."""
        return json.dumps(self._asked("show", name))

    def validate(self, campaign: str, overrides: list[str] | None = None) -> str:
        """Checks a campaign, YAML text or a name; answers with problems by line and field, or the number of runs.
        Overrides are FIELD=VALUE.
        """
        with _file(campaign) as file:
            return json.dumps(self._asked("validate", str(file), *_set(overrides), allowed=(exits.BAD_INPUT,)))

    def plan(self, campaign: str, overrides: list[str] | None = None) -> str:
        """Says which runs a launch would make, and the expected time and disk space."""
        with _file(campaign) as file:
            return json.dumps(_short(self._plan(file, overrides)))

    def launch(self, campaign: str, overrides: list[str] | None = None) -> str:
        """Runs what the results lack of a campaign, and answers with its results. Refuses more than this server's
        limits of runs and expected time.
        """
        with _file(campaign) as file:
            programs = campaigns.load(file, overrides or ()).programs
            if programs and not self._limits.programs:
                raise Refused(
                    f"this campaign runs programs on this machine ({', '.join(programs)}); start the server with "
                    "--allow-commands to launch it"
                )
            expected = self._plan(file, overrides)["expected"]
            if expected["runs"] > self._limits.runs:
                raise Refused(
                    f"{units.number_of(expected['runs'], 'run')} to make, and this server launches at most "
                    f"{self._limits.runs}: sweep fewer values, lower repetitions, or raise --max-runs"
                )
            if expected["time_s"] > self._limits.time_s:
                raise Refused(
                    f"expected to take {duration_text(expected['time_s'])}, and this server launches at most "
                    f"{duration_text(self._limits.time_s)}: shorten the campaign, or raise --max-time"
                )
            at_most_s = max(OVERTIME * expected["time_s"], LEAST_S)
            answer = self._asked(
                "run", str(file), *_set(overrides), allowed=(exits.FAILED,), results=True, at_most_s=at_most_s
            )
            return json.dumps(answer)

    def list_campaigns(self) -> str:
        """Lists the campaigns that have results."""
        return json.dumps(self._asked("results", results=True))

    def results(self, campaign: str) -> str:
        """The results of a campaign by its name or id: means with 95 % confidence intervals for each combination."""
        return json.dumps(self._asked("results", campaign, results=True))

    def runs(self, campaign: str) -> str:
        """The runs of a campaign with swept values, state and id."""
        return json.dumps(self._asked("runs", campaign, "--limit", "1000", results=True))

    def compare(self, campaign: str, baseline: str = "", field: str = "") -> str:
        """Compares the values of a campaign's swept field with a baseline value: differences, corrected p, verdicts.
        Of several swept fields `field` names the one.
        """
        words = [*(("--baseline", baseline) if baseline else ()), *(("--field", field) if field else ())]
        return json.dumps(self._asked("compare", campaign, *words, allowed=(exits.FAILED,), results=True))

    def _plan(self, file: Path, overrides: Sequence[str] | None) -> dict[str, Any]:
        document: dict[str, Any] = self._asked("plan", str(file), *_set(overrides), results=True)
        return document

    def _asked(
        self, command: str, *words: str, allowed: Sequence[int] = (), results: bool = False, at_most_s: float = 600.0
    ) -> Any:
        """The document of a command.

        Raises:
            Refused: the command failed; with its message.
        """
        line = [*node_binary.module("experiments"), command, "--json"]
        line += ["--results", self._results] if results else []
        try:
            done = subprocess.run(
                # Text from agents is never an option.
                [*line, *_options(words)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=at_most_s,
            )
        except subprocess.TimeoutExpired:
            raise Refused(
                f"stopped after {duration_text(at_most_s)}; what was made stays, and the same call continues"
            ) from None
        if done.returncode not in (exits.OK, *allowed) or not done.stdout:
            last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            raise Refused(message_of(done.stderr) or last)
        return json.loads(done.stdout)


def _options(words: Sequence[str]) -> list[str]:
    """Options first, then `--` and the arguments, so that no argument is taken for an option."""
    options, arguments = list[str](), list[str]()
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word in ("--set", "--limit", "--baseline", "--field"):
            options += [f"{word}={waiting.pop(0)}"]
        else:
            arguments.append(word)
    return [*options, "--", *arguments]


def _set(overrides: Sequence[str] | None) -> list[str]:
    return [word for override in overrides or () for word in ("--set", override)]


def _short(plan: dict[str, Any]) -> dict[str, Any]:
    """A plan without the scenarios of its runs, each of which is a page long."""
    runs = [{key: value for key, value in run.items() if key != "scenario"} for run in plan["runs"]]
    return {**plan, "runs": runs}


@contextmanager
def _file(campaign: str) -> Iterator[Path]:
    """A campaign as a file of its own: a name of ours, or YAML text, which names no file of this machine."""
    if "\n" in campaign:
        text, name = campaign, "campaign"
        source.parse("campaign.yaml", text)
    elif re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)*", campaign):
        text, name = read_named(Path(campaign)).text, Path(campaign).stem
    else:
        raise Refused("a campaign is YAML text, or the name of one that comes with Backchannel")
    with ScratchFolder() as folder:
        file = folder / f"{name}.yaml"
        file.write_text(text, encoding="utf-8")
        yield file
