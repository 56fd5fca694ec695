"""delf's client under the suite of `@modelcontextprotocol/conformance`; `make conformance` runs it.

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
from delf_mcp.connection import CONTEXT

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
GIVEN = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
DESCRIBED_AT = "https://conformance-test.local/client-metadata.json"
WAYS = {
    "auth/client-credentials-jwt": "client_credentials",
    "auth/client-credentials-basic": "client_credentials",
}
NAMES = {
    "client_id": "client_id",
    "client_secret": "client_secret",
    "private_key_pem": "private_key",
    "signing_algorithm": "signing_algorithm",
}
EXAMPLES = {"integer": 3, "number": 3.0, "string": "x", "boolean": True, "array": [], "object": {}}


async def follow(url: str) -> None:
    """Follow redirects like a browser whose user agrees at once."""
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
        settings |= {
            "oauth": WAYS.get(SCENARIO, "browser"),
            "tokens": f"{folder}/tokens.json",
            "open_url": follow,
        }
        settings["oauth_port"] = 20000 + os.getpid() % 20000
        settings |= {ours: GIVEN[name] for name, ours in NAMES.items() if name in GIVEN}
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
        vision_llm=LLMConfig(model="nobody"),
        strategy="codegen",
        tools={},
        connect=nobody,
        _say=print,
        _read_file=nobody,
        _loop=asyncio.get_running_loop(),
        _output_files=dict,
        _add_file=lambda *_: None,
        _delegate=nobody,
        _ask=nobody,
        _consent=agreed,
    )
    try:
        actions = await server.actions()
        schemas = [a.schema() for a in actions if a.name == "json_schema_2020_12_tool" and a.schema]
        for action in actions:
            if action.context != CONTEXT:
                continue
            arguments = arguments_of(action)
            if action.name == "json_schema_echo":
                arguments["schema"] = schemas[0]
            try:
                given = {**action.validate(arguments), CONTEXT: context}
                print(action.name, await action.call(**given))
            except DelfError as error:
                print(action.name, error.describe(), file=sys.stderr)
    finally:
        await server.aclose()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[-1], folder))
