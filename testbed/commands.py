"""Flows of kind `command`: the programs on their hosts, where their output is kept, and what makes their runs invalid.

docs/programs.md is the reference for users.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agents.messages import OptionValue
from testbed.addressing import Plan
from testbed.errors import TestbedError
from testbed.flows import Program
from testbed.report import CommandReport, Problem, ProblemKind, ProgramReport, Report
from testbed.scenario import CommandSpec, Flow, Scenario

#: Folder of a run that has the outputs of programs, FLOW.client.out and so on, and FLOW.json, the CommandReport.
FOLDER = "programs"
#: Endings of the files of standard output and standard error.
OUTPUT, ERRORS = "out", "err"
#: Characters of a program's last line that a message has.
LONGEST_LINE = 200
#: Role to its outputs, as core::command::Stream has them.
STREAMS: Mapping[str, tuple[str, str]] = {
    "client": ("client", OUTPUT),
    "client-errors": ("client", ERRORS),
    "server": ("server", OUTPUT),
    "server-errors": ("server", ERRORS),
}


def spec_of(flow: Flow) -> CommandSpec:
    """The programs of a flow.

    Raises:
        TestbedError: it has none.
    """
    if flow.command is None:
        raise TestbedError(f"flow '{flow.name}' is of kind command, but has no command")
    return flow.command


def hosts(flow: Flow) -> tuple[str, str]:
    """Node of the client and node of the server."""
    ends = (flow.from_, flow.to)
    return ends if spec_of(flow).client_at == "from" else ends[::-1]


def program_name(flow: Flow, role: str) -> str:
    """Under which an agent knows a program; also the name of its working folder."""
    return f"{flow.name}.{role}"


def output_file(flow: str, role: str, suffix: str) -> str:
    """Name of the file of an output, on the node and in FOLDER.

    Args:
        flow: its name.
        role: client or server.
        suffix: OUTPUT or ERRORS.
    """
    return f"{flow}.{role}.{suffix}"


def roles(flow: Flow) -> Iterator[tuple[str, str]]:
    """Each program of a flow and its node: the client, and the server if there is one."""
    client, server = hosts(flow)
    yield "client", client
    if spec_of(flow).server is not None:
        yield "server", server


def server(scenario: Scenario, plan: Plan, flow: Flow) -> tuple[Program, float] | None:
    """The server, and the longest time until it serves in s; None if the flow has none."""
    spec = spec_of(flow).server
    if spec is None:
        return None
    node = hosts(flow)[1]
    options = {
        **_options(scenario, plan, flow, "server", spec.run),
        "ready": spec.ready,
        "line": spec.line,
        "port": flow.port,
        "within-s": spec.within_s,
    }
    return Program(node, program_name(flow, "server"), "program", options), float(spec.within_s)


def client(scenario: Scenario, plan: Plan, flow: Flow, zero_ns: int) -> Program:
    """The client; `zero_ns` is the start of the run on its node's CLOCK_MONOTONIC."""
    stop_s = min(flow.stop_s or scenario.duration_s, scenario.duration_s)
    options = {
        **_options(scenario, plan, flow, "client", spec_of(flow).client),
        "start-at-ns": zero_ns + round(flow.start_s * 1e9),
        "stop-at-ns": zero_ns + round(stop_s * 1e9),
    }
    return Program(hosts(flow)[0], program_name(flow, "client"), "program", options)


def _options(scenario: Scenario, plan: Plan, flow: Flow, role: str, words: Sequence[str]) -> dict[str, OptionValue]:
    at_client, at_server = (plan.nodes[node].address_over(flow.ip) for node in hosts(flow))
    values = {"client": at_client, "server": at_server, "port": str(flow.port), "seed": str(scenario.seed)}
    spec = spec_of(flow)
    environment = {f"BACKCHANNEL_{name.upper()}": value for name, value in values.items()}
    environment |= {name: filled(value, values) for name, value in spec.environment.items()}
    return {
        "words": json.dumps([filled(word, values) for word in words]),
        "environment": json.dumps(environment),
        "cwd": program_name(flow, role),
        "output": output_file(flow.name, role, OUTPUT),
        "errors": output_file(flow.name, role, ERRORS),
        "limit-bytes": spec.output_bytes,
    }


def filled(text: str, values: Mapping[str, str]) -> str:
    """A text with its placeholders replaced; other braces stay."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def ends_by_itself(flow: Flow) -> bool:
    """Whether the client has to end by itself: a flow with a stop time is ended by that."""
    return flow.stop_s is None


def problems(scenario: Scenario, report: Report, folder: Path) -> Iterator[Problem]:
    """What makes a run invalid: programs that failed, did not end, left something behind, or wrote too much.

    Args:
        scenario: of the run.
        report: of the run.
        folder: of the run, with the outputs of its programs.
    """
    for flow in scenario.workload:
        of_flow = report.flows.get(flow.name)
        if flow.command is not None and of_flow is not None and of_flow.command is not None:
            for sentence in _failures(scenario, flow, of_flow.command, folder / FOLDER):
                yield Problem(ProblemKind.COMMAND, flow.name, f"flow {flow.name}: {sentence}")


def _failures(scenario: Scenario, flow: Flow, report: CommandReport, outputs: Path) -> Iterator[str]:
    spec = spec_of(flow)
    for role, program in (("client", report.client), ("server", report.server)):
        if program is None:
            continue
        if program.ended == "flooded":
            yield (
                f"its {role} was ended, because it wrote more than {spec.output_bytes} bytes to one of its outputs "
                "(command.output)"
            )
        if program.left_behind:
            yield (
                f"its {role} left {program.left_behind} process{'es' if program.left_behind > 1 else ''} in the "
                "background, ended now; a program must stay in the foreground"
            )
    client = report.client
    if client.ended == "itself" and client.exit_status != 0:
        said = _last_line(outputs / output_file(flow.name, "client", ERRORS))
        yield f"its client {_how(client)}{said}; its output and errors are among the run's files"
    if client.ended == "stopped" and ends_by_itself(flow):
        yield (
            f"its client had not ended after {scenario.duration_s:g} s, the end of the run, and was ended; lengthen "
            "'duration', or set 'stop' if it is to run until then"
        )
    if report.server is not None and report.server.ended == "itself":
        said = _last_line(outputs / output_file(flow.name, "server", ERRORS))
        yield (
            f"its server {_how(report.server)}{said} before its client had ended; a server stays in the foreground "
            "until it is asked to end"
        )


def _last_line(file: Path) -> str:
    """The last line that a program wrote to a file, in parentheses; empty without one."""
    if not file.is_file():
        return ""
    lines = file.read_text(errors="replace").strip().splitlines()
    return f" ({''.join(filter(str.isprintable, lines[-1]))[:LONGEST_LINE]})" if lines else ""


def ending(program: ProgramReport) -> str:
    """How a program ended, in a few words."""
    if program.ended == "stopped":
        return "when it was asked to"
    return "it wrote too much" if program.ended == "flooded" else _how(program).removeprefix("ended with ")


def _how(program: ProgramReport) -> str:
    if program.signal is not None:
        return f"was killed by {signal.Signals(program.signal).name}"
    return f"ended with status {program.exit_status}"
