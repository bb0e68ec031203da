"""Flows of kind `command` on real packets: every example of experiments/programs, and what faults leave behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed import node_binary
from tests.support.faults.leftovers import nothing_left
from tests.support.only_run import only_run
from tests.support.waiting import HANGS_S

pytestmark = [pytest.mark.slow("every program in real time"), pytest.mark.emulated]

EXAMPLES = node_binary.ROOT / "experiments/programs"
#: These tests are of programs and files, which hold on a machine that is late too.
LATE = "fidelity={rate: 50 %, delay: 1 s, lateness: 1 s, stall: 10 s, stalled: 100 %}"
#: Runs a server that fetches nothing, as simple as possible.
SERVED = """\
name: served
network: {topology: line, forward: {rate: 10 Mbit/s, delay: 5 ms}}
stack: cubic
workload:
  - name: f
    kind: command
    from: left
    to: right
    command:
      client: CLIENT
      server: SERVER
      files: [serve.py]
duration: 6 s
"""
SERVE = "{run: [python3, serve.py]}"
FETCH = '[curl, -sSf, -o, /dev/null, "http://{server}:{port}/bytes/100000/x"]'


def campaign(results: Path, file: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    with nothing_left(results.parent / f"{results.name}-watched") as environment:
        return subprocess.run(
            [
                sys.executable, "-m", "experiments", "run", str(file), "--results", str(results), "--attempts", "1",
                "--jobs", "1", "--set", LATE, *(word for override in overrides for word in ("--set", override)),
            ],
            capture_output=True, text=True, check=False, timeout=HANGS_S, env=environment,
        )  # fmt: skip


def values_of(results: Path) -> tuple[dict[tuple[str, str], float], Path]:
    """The values of the only run, and its folder."""
    run, folder = only_run(results)
    assert run.state == "valid", run.problems
    return {(row.name, row.subject): row.value for row in run.metrics}, folder


def example(results: Path, name: str, *overrides: str) -> tuple[dict[tuple[str, str], float], Path]:
    done = campaign(results, EXAMPLES / f"{name}.yaml", *overrides)
    assert done.returncode == 0, done.stdout + done.stderr
    return values_of(results)


def test_iperf3_reports_the_rate_that_the_captures_show(tmp_path: Path) -> None:
    values, _ = example(
        tmp_path, "iperf3", "workload.bulk.command.client=[iperf3, -c, '{server}', -p, '{port}', -t, 3, -J]"
    )
    received = values["output.received", "bulk"]
    # iperf3 has a connection for control, and its time has neither handshakes nor the last round trip.
    assert received == pytest.approx(values["throughput", "bulk"], rel=0.15)
    assert 15e6 < received < 20e6
    assert values["latency_p50", "probe"] > 0.02


def test_curl_fetches_from_nginx(tmp_path: Path) -> None:
    values, folder = example(tmp_path, "curl-nginx")
    assert values["output.size", "file"] == 1_000_000
    assert 0.04 < values["output.connected", "file"] < values["output.first_byte", "file"]
    assert values["output.last_byte", "file"] > 1_000_000 * 8 / 10e6
    # Data flow from the server, which the client has called: the captures count them for the flow.
    assert 3e6 < values["throughput", "file"] < 10e6
    assert values["completion_time", "file"] == pytest.approx(values["output.last_byte", "file"], abs=0.5)
    report = json.loads((folder / "programs/file.json").read_text())
    assert (report["client"]["exit_status"], report["server"]["ended"]) == (0, "stopped")


def test_a_quic_client_fetches_from_a_quic_server(tmp_path: Path) -> None:
    values, _ = example(tmp_path, "quic")
    assert values["output.size", "file"] == 1_000_000
    # The line's rate, and at least one round trip of 40 ms for the handshake and one for the request.
    assert values["output.completion", "file"] > 1_000_000 * 8 / 10e6 + 0.08


def test_a_browser_loads_a_page_and_states_its_own_timing(tmp_path: Path) -> None:
    values, folder = example(tmp_path, "page-load")
    # 12 images of 20 kB at 5 Mbit/s, and the handshakes' round trips of 40 ms.
    assert values["output.load", "page"] > 12 * 20_000 * 8 / 5e6 + 0.08
    assert values["output.response", "page"] < values["output.load", "page"]
    assert "response=" in (folder / "programs/page.client.out").read_text()


def test_a_player_adapts_to_the_line(tmp_path: Path) -> None:
    values, _ = example(tmp_path, "player", "workload.video.command.client=[python3, player.py, --segments, 8]")
    assert 300_000 <= values["output.bitrate", "video"] < 3_000_000
    assert values["output.startup", "video"] > 300_000 * 2 / 3e6
    assert 0 <= values["output.stalled", "video"] < 0.5


def test_typing_over_ssh_is_slower_beside_a_download(tmp_path: Path) -> None:
    values, _ = example(tmp_path, "ssh")
    assert values["output.echo_p50", "session"] > 0.04
    # The download's queue holds up to 50 packets at 2 Mbit/s.
    assert values["output.echo_p95", "session"] > 0.1


def served(tmp_path: Path, client: str = FETCH, server: str = SERVE) -> subprocess.CompletedProcess[str]:
    (tmp_path / "serve.py").write_text((EXAMPLES / "serve.py").read_text())
    file = tmp_path / "served.yaml"
    file.write_text(SERVED.replace("CLIENT", client).replace("SERVER", server))
    return campaign(tmp_path / "results", file)


def test_a_run_ends_when_its_client_has_ended(tmp_path: Path) -> None:
    done = served(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    values, folder = values_of(tmp_path / "results")
    assert values["throughput", "f"] > 0
    assert json.loads((folder / "manifest.json").read_text())["report"]["duration_s"] < 5


@pytest.mark.parametrize(
    ("programs", "sentence"),
    [
        ({"client": "[no-such-program]"}, "program 'no-such-program' not found on this host"),
        ({"client": "[sleep, 60]"}, "its client had not ended after 6 s"),
        ({"client": '[sh, -c, "setsid sleep 60 & exit 0"]'}, "left 1 process in the background"),
        ({"client": "['yes']"}, "it wrote more than 1048576 bytes"),
        ({"client": '[sh, -c, "kill -9 $$"]'}, "its client was killed by SIGKILL"),
        ({"client": "[sleep, 2]", "server": "{run: ['false'], ready: started}"}, "its server ended with status 1"),
        ({"server": "{run: [sleep, 60], within: 1 s}"}, "did not serve within 1 s: it has no TCP socket on port 5001"),
        ({"server": '{run: [sh, -c, "python3 serve.py & exit 0"]}'}, "the server ended with status 0 before it served"),
    ],
)  # fmt: skip
def test_a_fault_is_one_sentence_and_nothing_is_left(tmp_path: Path, programs: dict[str, Any], sentence: str) -> None:
    done = served(tmp_path, **programs)
    assert done.returncode == 1, done.stdout + done.stderr
    assert sentence in " ".join(done.stdout.split()), done.stdout
