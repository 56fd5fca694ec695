"""Users of one served project, each of whom a program keeps in a ContextVar."""

from __future__ import annotations

from typing import Any, cast

import pytest
from mcp import Client
from mcp_types import ElicitResult

from delf_mcp.serving import Served
from support.users import *  # noqa: F403 - the fixture office
from support.users import NAMED, PARTS, Office, all_at_once


@pytest.mark.timeout(120)
async def test_concurrent_mcp_clients_are_kept_apart(office: Office) -> None:
    """Questions reach the client whose task asks, and tools see the user of its connection."""
    sightings = office.sightings

    def open_agent(**more: Any) -> Any:
        return office.open(**more, approvals=[])

    served = Served(open_agent)

    async def one(name: str) -> None:
        async def yes(context: Any, params: Any) -> ElicitResult:
            sightings.note("client", params.message)
            return ElicitResult(action="accept", content={"approve": True})

        async with Client(served.server(), elicitation_callback=yes) as client:
            done = await client.call_tool("run", {"task": f"Pay {name}."})
            assert not done.is_error, done.content
            assert set(NAMED.findall(cast("Any", done.content[0]).text)) == {name}

    await all_at_once(one, 20)
    await served.aclose()
    assert sightings.strangers == {}
    assert sightings.parts >= {*PARTS, "client"} - {"listener", "on_confirm", "channel"}
