"""A2A's own client against the server: other agents give tasks to this agent."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from plugins.serve.test_people import add, change, person
from support.serving import bearer, doing

pb: Any = pytest.importorskip("a2a.types.a2a_pb2")
client_module: Any = pytest.importorskip("a2a.client")
MessageToDict: Any = pytest.importorskip("google.protobuf.json_format").MessageToDict
errors: Any = pytest.importorskip("a2a.utils.errors")

SEND = "print(await send(to='ada@x.org'))"


@asynccontextmanager
async def client_of(served: Any, key: str = "", *, streaming: bool = False):
    """Open an official client that has read the agent's card."""
    headers = bearer(key) if key else {}
    async with httpx.AsyncClient(headers=headers, timeout=20) as http:
        card = await client_module.A2ACardResolver(http, served.url).get_agent_card()
        config = client_module.ClientConfig(httpx_client=http, streaming=streaming)
        yield client_module.ClientFactory(config).create(card)


def message(text: str, **more: Any) -> Any:
    """Return a user's request with a text."""
    made = pb.Message(message_id="m1", role=pb.ROLE_USER, parts=[pb.Part(text=text)], **more)
    return pb.SendMessageRequest(message=made)


async def task_of(client: Any, request: Any) -> Any:
    """Return the task in the last answer to a request."""
    found = [item async for item in client.send_message(request)]
    return found[-1].task


@pytest.mark.parametrize(
    "filters", [{"context_id": "other"}, {"status": pb.TASK_STATE_FAILED}], ids=str
)
async def test_a2a_list_does_not_ignore_a_filter(serve: Any, filters: Any):
    served = await serve()
    async with client_of(served) as client:
        task = await task_of(client, message(doing("print(6 * 7)")))
        listed = await client.list_tasks(pb.ListTasksRequest())
        assert [item.id for item in listed.tasks] == [task.id]
        with pytest.raises(errors.InvalidParamsError, match="without a filter"):
            await client.list_tasks(pb.ListTasksRequest(**filters))


async def test_a2a_task_returns_its_answer_as_an_artifact(serve: Any):
    served = await serve()
    async with client_of(served) as client:
        task = await task_of(client, message(doing("print(6 * 7)")))
        assert task.status.state == pb.TASK_STATE_COMPLETED
        assert task.artifacts[0].parts[0].text == "42"
        again = await client.get_task(pb.GetTaskRequest(id=task.id))
        assert again.artifacts[0].parts[0].text == "42"


async def test_a2a_task_streams_its_calls_and_its_end(serve: Any):
    served = await serve()
    async with client_of(served, streaming=True) as client:
        code = "print((await look(number=3))['name'])"
        found = [item async for item in client.send_message(message(doing(code)))]
    texts = [part.text for i in found for part in i.status_update.status.message.parts]
    assert any("look" in text for text in texts)
    artifacts = [part.text for i in found for part in i.artifact_update.artifact.parts]
    assert artifacts == ["thing 3"]
    assert found[-1].status_update.status.state == pb.TASK_STATE_COMPLETED


@pytest.mark.parametrize("change_of", [{"scope": "own"}, {"revoked_at": 1.0}])
async def test_a2a_stream_ends_when_the_rights_of_its_caller_change(serve: Any, change_of: Any):
    served = await serve(api_key="boss:boss-key")
    await add(served, person("ada"), mo := person("mo", scope="all"))
    order = {"task": doing("print(await hold())\nprint((await look(number=3))['name'])")}
    started = await served.client.post("/run", json=order, headers=bearer("ada-key"))
    request = pb.SubscribeToTaskRequest(id=started.json()["task_id"])
    async with client_of(served, "mo-key", streaming=True) as client:
        updates = client.subscribe(request)
        assert (await anext(updates)).task.id == request.id
        await change(served, mo, replace(mo, **change_of))
        served.box.gate.set()
        # The updates may begin with the call of hold(), which is before the change.
        with pytest.raises(errors.InvalidParamsError, match=r"your rights have changed|has ended"):
            _ = [update async for update in updates]


async def test_a2a_task_waits_for_input_and_accepts_a_decision(serve: Any):
    served = await serve(agent={"flows": "guard"})
    async with client_of(served) as client:
        asked = await task_of(client, message(doing(SEND)))
        (request,) = (await served.client.get("/approvals")).json()["approvals"]
        # Another agent wrote the task, so its words are not a user's.
        assert "others_words" in [fact["kind"] for fact in request["facts"]]
        assert asked.status.state == pb.TASK_STATE_INPUT_REQUIRED
        text, name = asked.status.message.parts[0].text, asked.status.message.message_id
        assert "ada@x.org" in text
        with pytest.raises(errors.InvalidParamsError, match="does not wait"):
            await task_of(client, message("approve req_0", task_id=asked.id))
        with pytest.raises(errors.InvalidParamsError, match="the task goes on"):
            await task_of(client, message("yes", task_id=asked.id))
        done = await task_of(client, message(f"approve {name}", task_id=asked.id))
    assert done.status.state == pb.TASK_STATE_COMPLETED
    assert served.box.sent == [("ada@x.org", 1)]


async def test_a2a_message_answers_a_question_of_a_script(serve: Any):
    served = await serve()
    async with client_of(served) as client:
        asked = await task_of(client, message(doing("print(await ask('Whose order?'))")))
        name = asked.status.message.message_id
        assert f"answer {name}" in asked.status.message.parts[0].text
        done = await task_of(client, message(f"answer {name}: Ada's", task_id=asked.id))
    assert done.artifacts[0].parts[0].text == "Ada's"


@pytest.mark.parametrize(
    "value",
    [{"n": 3, "of": [1.5, None, "x", True]}, {"id": 175928847299117063}, {"n": 10**400}, "deep"],
    ids=["plain", "long number", "too large number", "deep"],
)
async def test_a2a_value_of_a_task_is_exact(serve: Any, value: Any):
    served = await serve()
    code = f"value = {value}"
    if value == "deep":
        value = json.loads('{"a":' * 60 + "1" + "}" * 60)
        code = "value = 1\nfor _ in range(60):\n    value = {'a': value}"
    made = await served.run(f"{code}\nanswer(value)", output={"type": "object"})
    await served.until(made["task_id"], "done")
    async with client_of(served) as client:
        task = await client.get_task(pb.GetTaskRequest(id=made["task_id"]))
    part = task.artifacts[0].parts[1]
    assert part.media_type == "application/json"
    assert (json.loads(part.text) if part.text else MessageToDict(part.data)) == value
    assert bool(part.text) is (value != {"n": 3, "of": [1.5, None, "x", True]})


async def test_a2a_task_is_cancelled(serve: Any):
    served = await serve()
    async with client_of(served) as client:
        request = message(doing("await hold()"))
        request.configuration.return_immediately = True
        task = await task_of(client, request)
        stopped = await client.cancel_task(pb.CancelTaskRequest(id=task.id))
        assert stopped.status.state == pb.TASK_STATE_CANCELED


async def test_a2a_tasks_of_other_users_are_unknown(serve: Any):
    served = await serve(
        "ada-key", api_key="ada:run+read+decide@own:ada-key,cy:run+read@own:cy-key"
    )
    async with client_of(served, "ada-key") as ada, client_of(served, "cy-key") as cy:
        task = await task_of(ada, message(doing("print(1)")))
        with pytest.raises(errors.TaskNotFoundError):
            await cy.get_task(pb.GetTaskRequest(id=task.id))


async def test_a2a_card_needs_a_key(serve: Any):
    served = await serve("ada-key", api_key="ada:run+read:ada-key")
    async with httpx.AsyncClient(base_url=served.url) as anybody:
        assert (await anybody.get("/.well-known/agent-card.json")).status_code == 401
        assert (await anybody.post("/a2a", json={})).status_code == 401
