"""AG-UI: a front end gets the events of a task, as the types of the protocol read them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from delf.errors import ApprovalRejectedError
from support.serving import doing

core: Any = pytest.importorskip("ag_ui.core")
READ: Any = TypeAdapter(core.Event)
SEND = "print(await send(to='ada@x.org'))"


def given(words: Any, run: str = "r1", **more: Any) -> dict[str, Any]:
    """Return the input of a run, serialized by the protocol's own types."""
    asked = core.RunAgentInput(
        thread_id="t1",
        run_id=run,
        messages=[core.UserMessage(id="m1", role="user", content=words)],
        **more,
    )
    return asked.model_dump(by_alias=True, exclude_none=True, mode="json")


async def run(served: Any, body: dict[str, Any]) -> list[Any]:
    """Return the events of a run, parsed by the protocol's own types."""
    found: list[Any] = []
    async with served.client.stream("POST", "/ag-ui", json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                data = json.loads(line[6:])
                found.append(READ.validate_python(data))
    return found


async def test_ag_ui_run_has_the_calls_and_the_answer_of_a_task(serve: Any):
    served = await serve()
    found = await run(served, given(doing("print((await look(number=3))['name'])")))
    by_type = {event.type.value: event for event in found}
    assert found[0].type.value == "RUN_STARTED"
    assert by_type["TOOL_CALL_START"].tool_call_name == "look"
    assert json.loads(by_type["TOOL_CALL_RESULT"].content)["name"] == "thing 3"
    assert by_type["TEXT_MESSAGE_CONTENT"].delta == "thing 3"
    assert found[-1].outcome.type == "success"


async def test_ag_ui_interrupted_run_is_resumed_by_the_next_run(serve: Any):
    served = await serve()
    found = await run(served, given(doing(f"await look()\n{SEND}")))
    (asked,) = found[-1].outcome.interrupts
    assert "ada@x.org" in asked.message
    answer = core.ResumeEntry(interrupt_id=asked.id, status="resolved", payload={"approve": True})
    more = await run(served, given("", run="r2", resume=[answer]))
    assert [e.tool_call_name for e in more if e.type.value == "TOOL_CALL_START"] == ["send"]
    assert more[-1].outcome.type == "success"
    assert served.box.sent == [("ada@x.org", 1)]


async def test_ag_ui_cancelled_interrupt_is_a_rejection(serve: Any):
    served = await serve(agent={"flows": "guard", "chat": True})
    body = given(doing(SEND))
    earlier = [
        core.UserMessage(id="m-2", role="user", content="Read my mails."),
        core.AssistantMessage(id="m-1", role="assistant", content="Done."),
    ]
    body["messages"][:0] = [each.model_dump(mode="json", exclude_none=True) for each in earlier]
    found = await run(served, body)
    (request,) = (await served.client.get("/approvals")).json()["approvals"]
    # The client's copy of an answer may hold words of others.
    assert "others_words" in [fact["kind"] for fact in request["facts"]]
    (asked,) = found[-1].outcome.interrupts
    answer = core.ResumeEntry(interrupt_id=asked.id, status="cancelled")
    more = await run(served, given("", run="r2", resume=[answer]))
    assert (more[-1].type.value, more[-1].code) == ("RUN_ERROR", ApprovalRejectedError.code)
    assert ApprovalRejectedError.default_hint in more[-1].message
    assert served.box.sent == []


async def test_ag_ui_file_is_an_input_file_of_the_task(serve: Any):
    served = await serve()
    data = base64.b64encode(b"city\nRome\n").decode()
    source = {"type": "data", "value": data, "mimeType": "text/csv"}
    parts = [
        {"type": "text", "text": doing("print(open('cities.csv').read())")},
        {"type": "document", "source": source, "metadata": {"filename": "cities.csv"}},
    ]
    found = await run(served, given(parts))
    assert any("Rome" in getattr(event, "delta", "") for event in found)


async def test_ag_ui_interrupt_of_a_question_has_the_schema_of_its_answer(serve: Any):
    served = await serve()
    found = await run(served, given(doing("print(await ask('How many?', answer='number') + 1)")))
    (asked,) = found[-1].outcome.interrupts
    assert asked.reason == "input_required"
    assert asked.response_schema["properties"] == {"answer": {"type": "number"}}
    answer = core.ResumeEntry(interrupt_id=asked.id, status="resolved", payload={"answer": 41})
    more = await run(served, given("", run="r2", resume=[answer]))
    assert any(getattr(event, "delta", "") == "42" for event in more)
