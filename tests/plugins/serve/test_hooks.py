"""Incoming webhooks: signed messages of other services, each of which starts one task."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from dataclasses import replace
from typing import Any

import httpx
import pytest

from delf.errors import DelfError
from delf_serve.signatures import signature
from plugins.serve.test_people import add, change, person
from plugins.serve.test_routines import store  # noqa: F401 - a fixture
from support.serving import bearer, doing
from support.until import until

SECRET = "a-secret-of-the-hook"
ORDER = {"order": {"id": "A-17", "number": 3}, "tags": ["x", "y"]}


@pytest.fixture
def journal_url(tmp_path):
    return str(tmp_path / "journal.db")


def hook(code="print(item['order']['id'])", **more: Any) -> dict[str, Any]:
    return {"order": {"secret": SECRET, "task": doing(code), **more}}


async def send(
    server: Any, message: Any = ORDER, name: str = "msg-1", secret: str = SECRET, **headers: str
) -> httpx.Response:
    body = json.dumps(message).encode()
    signed = signature(secret, name, int(time.time()), body)
    sent = {**signed, "content-type": "application/json", **headers}
    async with httpx.AsyncClient(base_url=server.url) as client:
        return await client.post("/hooks/order", content=body, headers=sent)


async def test_hook_starts_a_task_with_the_message_as_a_variable(serve):
    server = await serve(hooks=hook())
    answer = await send(server)
    assert answer.status_code == 202, answer.text
    done = await server.until(answer.json()["task_id"], "done", "failed")
    assert (done["state"], done["result"]) == ("done", "A-17")


async def test_hook_starts_one_task_per_message(serve):
    server = await serve(hooks=hook())
    first, again, other = [await send(server, name=name) for name in ("m1", "m1", "m2")]
    assert first.json()["task_id"] == again.json()["task_id"] != other.json()["task_id"]
    assert [one.json()["is_new"] for one in (first, again, other)] == [True, False, True]


async def test_github_signature_is_accepted_once_per_body(serve):
    server = await serve(hooks=hook())
    body = json.dumps(ORDER).encode()
    signed = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    async with httpx.AsyncClient(base_url=server.url) as client:
        answers = [
            await client.post(
                "/hooks/order",
                content=body,
                headers={"x-hub-signature-256": signed, "x-github-delivery": delivery},
            )
            for delivery in ("d1", "invented")
        ]
    assert [one.json()["is_new"] for one in answers] == [True, False]


async def test_message_starts_no_second_task_after_the_first_was_deleted(serve):
    server = await serve(hooks=hook())
    first = (await send(server)).json()["task_id"]
    await server.until(first, "done")
    assert (await server.client.delete(f"/tasks/{first}")).status_code == 204
    again = await send(server)
    assert (again.status_code, "was deleted" in again.text) == (409, True)
    assert (await server.client.get("/tasks")).json()["tasks"] == []
    assert (await send(server, name="msg-2")).status_code == 202


async def test_message_starts_no_second_task_for_the_successor_of_its_person(serve):
    server = await serve(hooks=hook(person="ada"))
    await add(server, ada := person("ada"))
    first = (await send(server)).json()
    await change(server, ada, gone := replace(ada, revoked_at=time.time()))
    await change(server, gone, replace(ada, uid="new-uid", former_uids=(ada.uid,)))
    assert (await send(server)).json() == {"task_id": first["task_id"], "is_new": False}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"webhook-signature": "v1,AAAA"}, 401),
        ({"webhook-signature": ""}, 401),
        ({"webhook-timestamp": str(int(time.time()) - 1000)}, 401),
        ({"webhook-timestamp": "now"}, 401),
        ({"webhook-timestamp": "9" * 5000}, 401),
        # The first digits are the current time, but int() refuses the whole number.
        ({"webhook-timestamp": f"{int(time.time()):015}{'0' * 5000}"}, 401),
        ({"webhook-id": "another"}, 401),
        ({"origin": "https://evil.example"}, 403),
        ({"host": "evil.example"}, 421),
    ],
)
async def test_message_with_a_wrong_signature_is_refused(serve, headers, status):
    server = await serve(hooks=hook())
    assert (await send(server, **headers)).status_code == status
    assert (await server.client.get("/tasks")).json()["tasks"] == []


async def test_unsigned_message_and_unknown_hook_are_refused(serve):
    server = await serve(hooks=hook())
    assert (await send(server, secret="another-secret-of-a-hook")).status_code == 401
    for headers in ({}, {"x-hub-signature-256": "sha256=00"}):
        answers = [
            await server.client.post(f"/hooks/{name}", json=ORDER, headers=headers)
            for name in ("order", "nothing", "two/parts", "two%0Alines")
        ]
        assert {answer.status_code for answer in answers} == {401}
        assert len({answer.json()["detail"] for answer in answers}) == 1
    assert (await server.client.get("/hooks/order")).status_code == 405
    assert (await server.client.get("/tasks")).json()["tasks"] == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"no json", 422),
        (b'{"total": NaN}', 422),
        (b'{"total": -Infinity}', 422),
        (b'{"total": 1' + b"0" * 5_000 + b"}", 422),
        (b"[" * 100_000, 422),
        (b'"' + b"x" * 70_000 + b'"', 413),
    ],
)
async def test_unsupported_message_is_refused(serve, body, status):
    server = await serve(hooks=hook())
    headers = signature(SECRET, "m", int(time.time()), body)
    answer = await server.client.post("/hooks/order", content=body, headers=headers)
    assert answer.status_code == status, answer.text


async def test_message_must_match_the_schema_of_its_hook(serve):
    number = {"properties": {"number": {"type": "integer", "maximum": 5}}}
    schema = {"type": "object", "required": ["order"], "properties": {"order": number}}
    server = await serve(hooks=hook(schema=schema))
    assert (await send(server)).status_code == 202
    wrong = await send(server, {"order": {"number": 9}}, name="m2")
    assert (wrong.status_code, "order.number" in wrong.text) == (422, True)
    assert (await send(server, {}, name="m3")).status_code == 422


async def test_hook_runs_a_routine_with_values_of_the_message(store, serve):  # noqa: F811
    of_routine = {"secret": SECRET, "routine": "thing", "inputs": {"number": "/order/number"}}
    server = await serve(hooks={"order": of_routine})
    done = await server.until((await send(server)).json()["task_id"], "done", "failed")
    assert (done["task"], done["result"]) == ("thing(number=3)", "thing 3")
    for message in ({"order": {}}, {"order": {"number": "x'; drop"}}, []):
        assert (await send(server, message, name="m2")).status_code == 422


async def test_hook_tasks_belong_to_its_person(serve):
    server = await serve("boss-key", api_key="boss:boss-key", hooks=hook(person="ada"))
    assert (await send(server)).status_code == 409
    await add(server, person("ada", rights=("read",)))
    assert (await send(server)).status_code == 409
    await change(server, person("ada", rights=("read",)), person("ada"))
    await add(server, person("eve"))
    task_id = (await send(server)).json()["task_id"]
    for name, status in (("ada", 200), ("eve", 404)):
        answer = await server.client.get(f"/tasks/{task_id}", headers=bearer(f"{name}-key"))
        assert answer.status_code == status


async def test_value_from_a_message_requires_approval(serve):
    server = await serve(hooks=hook("await send(item['order']['id'])"), agent={"flows": "guard"})
    answer = await send(server, {"order": {"id": "eve@evil.example"}})
    asked = await server.question(answer.json()["task_id"])
    assert "variable item" in asked["flow"]


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"task": ""}, "either a task or a routine"),
        ({"routine": "thing"}, "either a task or a routine"),
        ({"inputs": {"a": "/b"}}, "only a routine takes inputs"),
        ({"secret": "short"}, "16"),
        ({"secret": "whsec_not base64 at all!"}, "secret"),
        ({"secret": " " * 20}, "16 bytes"),
        ({"secret": "whsec_AAAAAAAAAA=="}, "16 bytes"),
        ({"other": 1}, "other"),
        ({"schema": {"type": 7}}, "its schema cannot be used"),
    ],
)
async def test_hook_settings_are_checked_at_start(serve, wrong, problem):
    with pytest.raises(DelfError, match=problem):
        await serve(hooks=hook(**wrong))


def test_signature_is_that_of_standard_webhooks():
    webhooks = pytest.importorskip("standardwebhooks")
    secret = "whsec_" + base64.b64encode(b"a" * 24).decode()
    body, at = b'{"a": 1}', int(time.time())
    assert webhooks.Webhook(secret).verify(body, signature(secret, "m", at, body)) == {"a": 1}


async def test_message_starts_its_task_once_despite_server_restarts(serve):
    """The sender repeats the message at two servers, and again after the first one ended."""
    code = "await hold()\nprint(await look(number=item['order']['number']))"
    one = await serve(hooks=hook(code))
    two = await serve(hooks=hook(code))
    answers = await asyncio.gather(*(send(each) for each in (one, two, one, two)))
    (name,) = {answer.json()["task_id"] for answer in answers}
    assert sorted(answer.json()["is_new"] for answer in answers) == [False] * 3 + [True]
    await until(lambda: one.app.tasks.running.count + two.app.tasks.running.count == 1)
    first, last = (one, two) if one.app.tasks.running.count else (two, one)
    await first.app.stop()  # in the midst of the task
    await last.client.post(f"/tasks/{name}/resume", json={})
    again = await send(last)
    assert (again.json()["task_id"], again.json()["is_new"]) == (name, False)
    await until(lambda: last.app.tasks.running.count == 1)
    last.box.gate.set()
    done = await last.until(name, "done", "failed")
    assert (done["state"], "thing 3" in done["result"]) == ("done", True)
    assert (await send(last)).json()["is_new"] is False
    assert len((await last.client.get("/tasks")).json()["tasks"]) == 1
