"""Malformed requests of clients of other standards: refused in words, and never a failure of ours.

One server gets all of the requests, because a request that is refused leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delf_serve.problems import ProblemError
from delf_serve.standards.content import add_message
from delf_serve.standards.turns import Turn

VALUES: list[Any] = [None, 0, 1.5, True, "x", "", [], [1], ["x"], [[]], [None], {}, {"a": 1}]
PARTS: list[Any] = [
    {"type": kind, name: value}
    for kind, name in (
        ("text", "text"),
        ("image_url", "image_url"),
        ("input_image", "image_url"),
        ("file", "file"),
        ("input_file", "file_data"),
        ("input_file", "file_url"),
        ("input_file", "file_id"),
        ("image", "source"),
        ("input_audio", "input_audio"),
        ("refusal", "refusal"),
    )
    for value in (
        *VALUES,
        "data:;base64,é",
        {"url": 1},
        {"file_data": 1},
        {"type": "data", "value": "?"},
        "data:x,y",
    )
]
FEW: list[Any] = [None, 0, "x", [1], {"a": 1}]
CHAT = {"model": "no such model", "messages": [{"role": "user", "content": "hello"}]}
RUN = {
    "threadId": "t",
    "runId": "r",
    "messages": [{"id": "m1", "role": "user", "content": "hello"}],
    "forwardedProps": {"model": "no such model"},
}
FIELDS = {
    "/v1/chat/completions": (CHAT, "messages tools response_format stream_options"),
    "/v1/responses": (
        {"model": "no such model", "input": "hello"},
        "input text previous_response_id instructions",
    ),
    "/ag-ui": (RUN, "messages resume threadId"),
}


def bodies() -> Iterator[tuple[str, Any]]:
    """Yield requests, each with one invalid value."""
    for path, (base, fields) in FIELDS.items():
        for value in FEW:
            yield path, value
            for field in fields.split():
                yield path, {**base, field: value}
                yield path, {**base, field: [value]}
    for value in FEW:
        schema = {"type": "json_schema", "json_schema": value}
        yield "/v1/chat/completions", {**CHAT, "response_format": schema}
        yield "/v1/responses", {"model": "no", "input": "x", "text": {"format": value}}
        yield "/v1/responses", {"input": [{"type": "mcp_approval_response", "approve": value}]}
        tool = {"role": "tool", "tool_call_id": "c", "content": value}
        yield "/v1/chat/completions", {**CHAT, "messages": [tool]}


@pytest.mark.parametrize("is_last", [True, False])
def test_content_of_any_form_is_read_or_refused(is_last: Any):
    statuses: list[int] = []
    for content in (*VALUES, *([part] for part in (*VALUES, *PARTS))):
        try:
            add_message(Turn(), "user", content, is_last=is_last)
        except ProblemError as problem:
            statuses.append(problem.status)
    assert set(statuses) == {422}
    assert len(statuses) >= (100 if is_last else 5)


def rpc(method: Any, params: Any) -> dict[str, Any]:
    """Return a request of A2A."""
    return {"jsonrpc": "2.0", "id": "1", "method": method, "params": params}


async def test_malformed_requests_get_a_json_error(serve: Any):
    served = await serve()
    for path, body in bodies():
        answer = await served.client.post(path, json=body)
        assert 400 <= answer.status_code < 500, (path, body, answer.status_code, answer.text[:300])
        assert answer.json(), (path, body)
    assert (await served.client.get("/tasks")).json()["tasks"] == []


def bodies_with_file(name: str) -> Iterator[tuple[str, Any]]:
    """Yield a request of each standard, with a file of this name."""
    file = {"filename": name, "file_data": "data:text/plain;base64,eA=="}
    parts = [{"type": "text", "text": "read it"}, {"type": "file", "file": file}]
    source = {"type": "data", "value": "eA==", "mimeType": "text/plain"}
    document = {"type": "document", "source": source, "metadata": {"filename": name}}
    message = {"role": "user", "content": parts}
    yield "/v1/chat/completions", {"model": "delf", "messages": [message]}
    yield "/v1/responses", {"input": [{**message, "content": [parts[0], {"type": "f", **file}]}]}
    content = [parts[0], document]
    yield "/ag-ui", {**RUN, "forwardedProps": {}, "messages": [{**message, "content": content}]}
    a2a_parts = [{"text": "read it"}, {"raw": "eA==", "filename": name}]
    sent = {"messageId": "1", "role": "ROLE_USER", "parts": a2a_parts}
    yield "/a2a", rpc("SendMessage", {"message": sent})


async def test_file_name_of_a_client_is_no_path(serve: Any, tmp_path: Path):
    served = await serve()
    head = {"A2A-Version": "1.0"}
    for name in ("../../stolen", f"{tmp_path}/stolen", "..", ".", "a/stolen", "stolen\0"):
        for path, body in bodies_with_file(name):
            answer = await served.client.post(path, json=body, headers=head)
            assert answer.status_code == 422 or "-32602" in answer.text, (path, name, answer.text)
    assert not list(tmp_path.rglob("*stolen*"))
    assert (await served.client.get("/files")).json()["files"] == []


async def test_file_of_a_client_may_have_any_plain_name(serve: Any):
    served = await serve()
    names = ["Report – final.pdf", "a’b 100%.csv", "Q1: notes?.txt", ".env", "10.00\u202fAM.png"]
    for name in names:
        (path, body), *_ = bodies_with_file(name)
        answer = await served.client.post(path, json=body)
        assert answer.status_code != 422, (name, answer.text)
    files = (await served.client.get("/files")).json()["files"]
    assert {file["name"] for file in files} == {*names}


async def test_decision_of_a_chat_client_in_any_form_is_read_or_refused(serve: Any):
    served = await serve()
    task = await served.run("await send('ada@x.org')")
    question = await served.question(task["task_id"])
    for content in ('{"decision": "approve", "kind": "x"}', "[" * 100_000, "null", "{}"):
        tool = {"role": "tool", "tool_call_id": question["request_id"], "content": content}
        body = {"model": "delf", "messages": [tool]}
        answer = await served.client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 422, (content[:50], answer.text[:300])
    assert served.box.sent == []


async def test_malformed_a2a_requests_cause_no_internal_error(serve: Any):
    served = await serve()
    head = {"A2A-Version": "1.0"}
    message = {"messageId": "1", "role": "ROLE_USER"}
    parts = [*FEW, *([part] for part in FEW), [{"url": "http://10.0.0.1"}], [{"raw": "?"}]]
    asked = [rpc("SendMessage", {"message": {**message, "parts": part}}) for part in parts]
    asked += [rpc("SendMessage", {"message": value}) for value in FEW]
    asked += [rpc("SendMessage", value) for value in FEW]
    asked += [
        rpc(method, {"id": value})
        for method in ("GetTask", "CancelTask", "SubscribeToTask")
        for value in (*FEW, "", "no-such-task", "../x")
    ]
    asked += [rpc("ListTasks", {"pageSize": value}) for value in FEW if value]
    asked += [rpc("ListTasks", {"pageToken": "no-such-task"}), rpc("NoSuchMethod", {}), rpc(1, {})]
    for body in asked:
        answer = await served.client.post("/a2a", json=body, headers=head)
        assert answer.status_code < 500, (body, answer.text[:300])
        given = answer.text
        assert '"error"' in given or body["method"] == "ListTasks", (body, given[:300])
        assert "-32603" not in given, (body, given[:400])  # an internal error
