"""delf's client under the suite of `@modelcontextprotocol/conformance`.

    npm i node@22 @modelcontextprotocol/conformance@0.2.0-alpha.12
    npx conformance client --requirements 2025-11-25 --timeout 120000 \\
        --command ".venv/bin/python tests/plugins/mcp/conformance_client.py"

The suite starts a server for each scenario, and this program with its address. Every tool is
called through the connection's own actions; a person who agrees to everything stands by.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

from delf import CallContext, LLMConfig
from delf.errors import DelfError
from delf.tools.action import Action
from delf_mcp import MCP
from delf_mcp.connection import _CONTEXT

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
GIVEN = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
DESCRIBED_AT = "https://conformance-test.local/client-metadata.json"
EXAMPLES = {"integer": 3, "number": 3.0, "string": "x", "boolean": True, "array": [], "object": {}}


async def follow(url: str) -> None:
    """What a browser does where the user agrees at once."""
    async with httpx.AsyncClient(follow_redirects=True, timeout=30) as http:
        await http.get(url)


async def agreed(_question: str, arguments: Any, _name: str, _fit: Any) -> Any:
    return arguments


async def nobody(*_given: Any) -> Any:
    raise DelfError("not here")


def connection(url: str, folder: str) -> MCP:
    settings: dict[str, Any] = {"url": url, "start_timeout": 100, "sampling": "allow"}
    if os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2025") < "2026":
        settings["protocol"] = "legacy"
    if SCENARIO.startswith("auth/"):
        way = "client_credentials" if "client-credentials" in SCENARIO else "browser"
        settings |= {"oauth": way, "tokens": f"{folder}/tokens.json", "open_url": follow}
        settings["oauth_port"] = 20000 + os.getpid() % 20000
        if "client_id" in GIVEN:
            settings["client_id"] = GIVEN["client_id"]
        if "client_secret" in GIVEN:
            settings["client_secret"] = GIVEN["client_secret"]
        if SCENARIO == "auth/basic-cimd":
            settings["client_metadata_url"] = DESCRIBED_AT
    return MCP(name="conformance", **settings)


def arguments_of(action: Action) -> dict[str, Any]:
    if action.name == "add_numbers":
        return {"a": 5, "b": 3}
    schema = action.schema() if action.schema else {}
    kinds = {name: field.get("type") for name, field in schema.get("properties", {}).items()}
    return {name: EXAMPLES.get(kinds[name], "x") for name in schema.get("required", ())}


async def main(url: str, folder: str) -> None:
    server = connection(url, folder)
    context = CallContext(
        task_id="t",
        task="conformance",
        call_id=1,
        connection=server.name,
        folder=Path(folder),
        depth=0,
        input_files={},
        llm=LLMConfig(model="nobody"),
        strategy="codegen",
        tools={},
        connect=nobody,
        _say=print,
        _keep=nobody,
        _loop=asyncio.get_running_loop(),
        _output_files=dict,
        _delegate=nobody,
        _ask=nobody,
        _consent=agreed,
    )
    try:
        for action in await server.actions():
            if action.context != _CONTEXT:
                continue
            given = {**action.validate(arguments_of(action)), _CONTEXT: context}
            try:
                print(action.name, await action.call(**given))
            except DelfError as error:
                print(action.name, error.describe(), file=sys.stderr)
    finally:
        await server.aclose()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[-1], folder))
