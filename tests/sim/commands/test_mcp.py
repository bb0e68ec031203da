"""An agent's client speaks to `./backchannel mcp`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from testbed.node_binary import ROOT
from tests.support.campaign_texts import one_line
from tests.support.waiting import HANGS_S

CAMPAIGN = one_line("agents", "sweep: {network.reverse.queue.policy: [droptail, acks-first]}\nrepetitions: 2")


def spoken(folder: Path, talk: Callable[[Client], Awaitable[None]]) -> None:
    """Starts a server that launches at most four runs, and lets the client talk to it."""
    words = ["-m", "experiments", "mcp", "--results", str(folder / "results"), "--max-runs", "4"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    async def conversation() -> None:
        async with Client(StdioServerParameters(command=sys.executable, args=words, env=environment)) as client:
            await talk(client)

    asyncio.run(asyncio.wait_for(conversation(), HANGS_S))


async def asked(client: Client, tool: str, **arguments: Any) -> Any:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer
    return json.loads(answer.content[0].model_dump()["text"])


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error, answer
    return str(answer.content[0].model_dump()["text"])


def test_an_agent_plans_launches_and_reads(tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"list_mechanisms", "validate", "plan", "launch", "results"} <= names
        policies = await asked(client, "list_mechanisms", kind="policies")
        assert "acks-first" in [entry["name"] for entry in policies]
        (checked,) = await asked(client, "validate", campaign=CAMPAIGN)
        assert checked["runs"] == 4
        (checked,) = await asked(client, "validate", campaign=CAMPAIGN.replace("newreno", "newrino"))
        assert [problem["field"] for problem in checked["problems"]] == ["stack"]
        assert (await asked(client, "plan", campaign="tutorial"))["expected"]["runs"] == 20
        launched = await asked(client, "launch", campaign=CAMPAIGN)
        assert [len(point["runs"]) for point in launched["points"]] == [2, 2]
        assert await asked(client, "results", campaign="agents") == launched
        assert (await asked(client, "plan", campaign=CAMPAIGN))["expected"]["runs"] == 0
        assert {line["value"] for line in await asked(client, "compare", campaign="agents", field="policy")} == {
            "acks-first"
        }
        assert "'stck'" in await refused(client, "compare", campaign="agents", field="stck")

    spoken(tmp_path, talk)


def test_a_launch_above_a_limit_is_refused(tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        sentence = await refused(client, "launch", campaign=CAMPAIGN, overrides=["repetitions=3"])
        assert "6 runs to make, and this server launches at most 4" in sentence
        assert "--allow-commands" in await refused(client, "launch", campaign="programs/curl-nginx")
        assert "unknown stack" in await refused(client, "launch", campaign=CAMPAIGN, overrides=["stack=cubc"])
        assert "no results in" in await refused(client, "results", campaign="agents")

    spoken(tmp_path, talk)
    assert not (tmp_path / "results").exists()


def test_a_name_is_no_file_of_this_machine(tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        for name in ("/etc/passwd", "../secret", "--results=/etc"):
            sentence = await refused(client, "plan", campaign=name)
            assert "a campaign is YAML text, or the name of one" in sentence

    spoken(tmp_path, talk)
