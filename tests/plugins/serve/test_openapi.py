"""The document of the API: made of what validates, and true."""

from __future__ import annotations

import ast
import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from jsonschema import Draft202012Validator
from pydantic import BaseModel

import delf_serve
from delf.types import TaskState
from delf_devkit.testing.events import every_event
from delf_openapi import APITool
from delf_serve.openapi import document
from delf_serve.operations import OPERATIONS
from delf_serve.streams import frame
from support.serving import KEYS, doing

COMMAND = re.compile(r"\bdelf (?:users|runs?|approvals|routines|resume|serve|plugins)\b|--[a-z]")
OWN = document(OPERATIONS, server="/", keyed=False)


@pytest.mark.slow
async def test_openapi_document_is_valid_and_lists_every_operation(serve):
    from openapi_spec_validator import validate

    server = await serve(key="ada-key", api_key=KEYS)
    message = (await server.client.get("/openapi.json")).json()
    validate(message)
    assert message["openapi"] == "3.1.0"
    assert message["security"]
    assert set(message["paths"]) == {operation.path for operation in OPERATIONS}


async def test_openapi_plugin_calls_the_operations_of_the_server(serve):
    server = await serve(key="ada-key", api_key=KEYS)
    spec = (await server.client.get("/openapi.json")).json()
    api = APITool(
        spec, base_url=server.url, name="delf", headers={"X-API-Key": "ada-key"}, allow=True
    )
    try:
        actions = {action.name: action for action in await api.actions()}
        assert {"run", "get_task", "list_approvals", "decide"} <= actions.keys()

        async def call(name, **arguments):
            return await actions[name].call(**actions[name].validate(arguments))

        accepted = await call("run", task=doing("print(await send('bob'))"))
        await server.question(accepted["task_id"])
        asked = await call("list_approvals")
        name = asked["approvals"][0]["request_id"]
        await call("decide", request_id=name, body={"decision": "approve"})
        await server.until(accepted["task_id"], "done")
        assert (await call("get_task", task_id=accepted["task_id"]))["result"] == "sent 1 to bob"
    finally:
        await api.aclose()


@pytest.mark.parametrize("event", every_event("t1"), ids=lambda event: type(event).__name__)
def test_events_match_the_openapi_document(event):
    place = "#/components/schemas/Event"
    validator = Draft202012Validator({**OWN, "$ref": place})
    message = json.loads(frame(event, TaskState.RUNNING).partition(b"data: ")[2])
    validator.validate(message)
    assert message["type"] in OWN["components"]["schemas"]["Event"]["discriminator"]["mapping"]
    named = OWN["components"]["schemas"][f"{message['type']}Data"]["properties"]
    assert message["data"].keys() <= named.keys()
    assert message.get("headline", "") == event.headline


async def test_stream_events_match_the_specification(serve):
    server = await serve()
    task = await server.run("print(await look(1))")
    events = await server.events(task["task_id"])
    validator = Draft202012Validator({**OWN, "$ref": "#/components/schemas/Event"})
    for event in events:
        validator.validate(event)
    for path, name in (("/tasks/{task_id}/events", "Event"), ("/events", "Task")):
        content = OWN["paths"][path]["get"]["responses"]["200"]["content"]
        assert content["text/event-stream"]["schema"]["contentSchema"]["$ref"].endswith(f"/{name}")


def test_nullable_fields_are_declared_for_client_generators():
    def choices(node):
        if isinstance(node, dict):
            yield from [node["anyOf"]] if "anyOf" in node else []
        for item in node.values() if isinstance(node, dict) else node:
            yield from choices(item) if isinstance(item, (dict, list)) else ()

    nullable = [choice for choice in choices(OWN) if {"type": "null"} in choice]
    assert nullable
    assert all("$ref" in choice[0] for choice in nullable), nullable


class OneWord(BaseModel):
    word: Literal["yes"] | None = None


def test_nullable_constant_can_be_null():
    operation = replace(OPERATIONS[0], answer=OneWord)
    content = document([operation], server="/", keyed=False)
    (name,) = (name for name in content["components"]["schemas"] if name.startswith("OneWord"))
    validator = Draft202012Validator({**content, "$ref": f"#/components/schemas/{name}"})
    validator.validate({"word": None})
    validator.validate({"word": "yes"})
    assert not validator.is_valid({"word": "no"})


STREAMS = ("/events", "/tasks/{task_id}/events")


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_schemathesis_finds_nothing(serve):
    """Valid and invalid requests get only answers that the document describes."""
    import schemathesis  # takes most of a second, which only this test needs

    server = await serve()
    await server.until((await server.run("print(1)"))["task_id"], "done")
    schema = schemathesis.openapi.from_dict(OWN)
    schema.config.update(base_url=server.url)
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path not in STREAMS:
            await asyncio.to_thread(try_out, operation)


def try_out(operation) -> None:
    @settings(
        max_examples=10,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def check(case) -> None:
        case.call_and_validate(timeout=10)

    check()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_operations_declare_their_error_answers(operation):
    message = OWN["paths"][operation.path][operation.method.lower()]
    assert message["operationId"] == operation.name
    assert str(operation.status) in message["responses"]
    if operation.right is not None:
        assert {"401", "403"} <= message["responses"].keys()


def test_api_errors_do_not_suggest_cli_commands():
    """Users of the API have no terminal there, so hints for it are left out."""
    found: list[str] = []
    for path in sorted(Path(delf_serve.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) != "ProblemError":
                continue
            message = ast.unparse(node)
            if COMMAND.search(message) or ".hint" in message:
                found.append(f"{path.name}:{node.lineno} {message}")
    assert not found, "\n".join(found)


def test_lists_come_in_pages():
    """A list has ``more``, and a parameter that asks for the next page."""
    lists = [
        operation
        for operation in OPERATIONS
        if operation.method == "GET"
        and "{" not in operation.path
        and "List" in str(operation.answer)
    ]
    assert len(lists) > 5
    for operation in lists:
        assert "more" in operation.answer.model_fields, operation.path
        given = operation.query.model_fields.keys()
        assert "limit" in given, operation.path
        assert given & {"offset", "after", "before"}, operation.path


def test_specification_declares_the_csv_response():
    message = OWN["paths"]["/figures"]["get"]["responses"]["200"]["content"]
    assert message.keys() == {"application/json", "text/csv"}
