"""The contract of connections, and of packages."""

from typing import Any

import pytest

from delf.testing import Call, ConnectionContract, PluginContract
from delf_mcp import MCP


class TestMCP(ConnectionContract):
    untested = (
        "note", "say_hello", "picture", "die", "slow", "silent", "order", "think", "folders", "grow",
        "list_resources", "broken",
    )  # fmt: skip
    calls = (Call("add", a=1, b=2), Call("wipe"), Call("read_resource", uri="notes://today"))
    failing_calls = (Call("broken"), Call("read_resource", uri="nowhere://x"))
    slow_call = Call("silent", seconds=20.0)
    secrets = ("hdr-5ecret",)

    @pytest.fixture
    def connection(self, address: str) -> MCP:
        return MCP(url=address, headers={"X-Mine": "hdr-5ecret"})


class TestPackage(PluginContract):
    name = "mcp"
    offers: Any = {"connection": ["mcp"], "command": ["mcp"]}
    vendors = ("mcp", "mcp_types", "httpx2", "starlette", "uvicorn")
