"""Results of tools: values for the script, and files of the task."""

import base64
from pathlib import Path

import pytest

from delf.errors import OutcomeUnknownError
from plugins.mcp.conftest import invoke, run
from plugins.mcp.test_hostile import tool

DATA = base64.b64encode(b"\x89PNG").decode()
IMAGE = {"type": "image", "data": DATA, "mimeType": "image/png"}
SOUND = {"type": "audio", "data": DATA, "mimeType": "audio/wav; rate=8000"}
NOTE = {"type": "resource", "resource": {"uri": "notes://a/to%20do.md?x=1", "text": "buy lamps"}}
BLOB = {
    "type": "resource",
    "resource": {"uri": "notes://../..%2f..%2f.bashrc", "blob": DATA, "mimeType": "image/gif"},
}
ODD = {"type": "resource", "resource": {"uri": "x:", "text": "odd", "mimeType": "text/plain"}}
WORD = {"type": "text", "text": "a dot"}


async def test_pictures_sounds_and_resources_become_output_files(rogue) -> None:
    content = [WORD, IMAGE, SOUND, NOTE, BLOB, ODD]
    srv = rogue("plain", does={"answer": {"content": content}})
    response, _, _ = await run(srv, "print((await rogue.good())[0])")
    assert response.text == "a dot"
    files = {name: Path(path).read_bytes() for name, path in response.files.items()}
    assert files == {
        "rogue-1-2.png": b"\x89PNG",
        "rogue-1-3.wav": b"\x89PNG",
        "rogue-1-4-to-do.md": b"buy lamps",
        "rogue-1-5-resource.bashrc": b"\x89PNG",
        "rogue-1-6-resource.txt": b"odd",
    }


async def test_files_accompany_a_structured_result(rogue) -> None:
    answer = {"content": [IMAGE], "structuredContent": {"n": 1}}
    srv = rogue("plain", does={"answer": answer})
    response, _, _ = await run(srv, "print(await rogue.good())")
    assert response.text == "{'n': 1}"
    assert set(response.files) == {"rogue-1-1.png"}


@pytest.mark.parametrize("uri", ["http://[::1", "http://[x]y/z", "http://a:99999/b", "", "\x00"])
async def test_resource_with_an_invalid_uri_is_a_result(rogue, uri) -> None:
    resource = {"uri": uri, "text": "glow", "mimeType": "text/plain"}
    content = [{"type": "resource", "resource": resource}]
    srv = rogue("plain", does={"answer": {"content": content}})
    response, _, _ = await run(srv, "print((await rogue.good())[0]['content'])")
    assert response.text == "glow"
    assert list(response.files) == ["rogue-1-1-resource.txt"]


@pytest.mark.parametrize("data", ["a", "\u00e9", "\ud800"])
@pytest.mark.parametrize("structured", [{}, {"structuredContent": {"n": 1}}])
async def test_call_with_unreadable_bytes_has_unknown_outcome(rogue, data, structured) -> None:
    content = [{"type": "image", "data": data, "mimeType": "image/png"}]
    srv = rogue("plain", does={"answer": {"content": content, **structured}})
    with pytest.raises(OutcomeUnknownError, match=r"^rogue: good: the server sent"):
        await invoke(srv, "good")


@pytest.mark.parametrize("protocol", ["legacy", "auto"])
async def test_missing_declared_result_falls_back_to_text(rogue, protocol) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    does = {"tools": [tool("good", outputSchema=schema)], "answer": {"content": [WORD]}}
    srv = rogue("plain", does=does, protocol=protocol)
    response, _, _ = await run(srv, "print(await rogue.good())")
    assert response.text == "a dot"


def returned(srv) -> str:
    return srv.listed_actions[0].full_types().returns


@pytest.mark.parametrize(
    ("answer", "learned"),
    [
        ({"content": [WORD]}, "str"),
        ({"content": [{"type": "text", "text": '[{"n": 1}]'}]}, 'str (JSON: list[{"n": int}])'),
        ({"content": [], "structuredContent": {"n": [1.5]}}, '{"n": list[float]}'),
        ({"content": [WORD, IMAGE]}, 'list[str | {"type": str, "media_type": str, "data": bytes}]'),
    ],
)
async def test_result_type_is_learned_from_answers(rogue, answer, learned) -> None:
    srv = rogue("plain", does={"answer": answer})
    (before,) = await srv.actions()
    assert before.returns == returned(srv) == "str | list"
    shown = await srv.context("x")
    assert shown.startswith("rogue: ")
    assert "a result that is a list has pieces: str, {type" in shown
    await invoke(srv, "good")
    _, _, model = await run(srv, "print(await rogue.good())")
    assert f"-> {learned}:" in model.prompts[0], "the next task has it"
    later = rogue("plain", does={"answer": answer})
    (after,) = await later.actions()
    assert returned(later) == learned
    assert after.digest == before.digest, "what was approved stays approved"
    quiet = rogue("plain", does={"answer": answer}, sample=False)
    await invoke(quiet, "good")
    assert returned(quiet) == "str | list"


async def test_result_without_content_is_empty_text(rogue) -> None:
    srv = rogue("plain", does={"answer": {"content": []}})
    response, _, _ = await run(srv, "print(repr(await rogue.good()))")
    assert response.text == "''"


async def test_uncaught_tool_failure_fails_the_task(rogue) -> None:
    failed = {"isError": True, "content": [{"type": "text", "text": "the room is taken"}]}
    srv = rogue("plain", does={"answer": failed})
    response, _, _ = await run(srv, "print('begun')\nawait rogue.good()", retry_count=0)
    assert response.status is False
    assert "the room is taken" in str(response.error)
    caught = "try:\n    await rogue.good()\nexcept ToolError as error:\n    print(error)"
    response, _, _ = await run(srv, caught)
    assert (response.status, response.text) == (True, "the room is taken")


async def test_undeclared_nulls_are_reported_once_and_learned(rogue, caplog) -> None:
    item = {"type": "object", "properties": {"by": {"type": "string"}, "n": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"found": {"type": "array", "items": item}}}
    found = [{"by": "ada", "n": 1}, {"by": None, "n": 2}, {"by": None, "n": 3}]
    answer = {"content": [], "structuredContent": {"found": found}}
    srv = rogue("plain", does={"tools": [tool("good", outputSchema=schema)], "answer": answer})
    response, _, _ = await run(srv, "for _ in range(2):\n    await rogue.good()\nprint('done')")
    shown = [r.message for r in caplog.records if "None" in r.message]
    assert shown == ["rogue.good answered with None at found.1.by, contrary to its schema"]
    assert "found.1.by" in str(response.trace.to_dict())
    assert returned(srv) == '{"found": list[{"by": str | None, "n": int}]}'


async def test_wrong_declared_types_are_corrected_from_answers(rogue, caplog) -> None:
    properties = {"fee": {"type": "integer"}, "code": {"enum": ["IN", "OUT"]}}
    schema = {"type": "object", "properties": properties}
    answer = {"content": [], "structuredContent": {"fee": "490", "code": "LOST"}}
    srv = rogue("plain", does={"tools": [tool("good", outputSchema=schema)], "answer": answer})
    await srv.actions()
    await invoke(srv, "good")
    await invoke(srv, "good")
    shown = [r.message for r in caplog.records if "contrary to its schema" in r.message]
    assert len(shown) == 1
    assert "str at fee" in shown[0]
    assert "str at code" in shown[0]
    assert returned(srv) == "{\"fee\": int | str, \"code\": Literal['IN', 'OUT'] | str}"


async def test_json_inside_wrapped_text_is_learned(rogue) -> None:
    schema = {"type": "object", "properties": {"result": {"type": "string"}}}
    answer = {"content": [], "structuredContent": {"result": '[{"id": 1}]'}}
    srv = rogue("plain", does={"tools": [tool("good", outputSchema=schema)], "answer": answer})
    await srv.actions()
    assert returned(srv) == '{"result": str}'
    await invoke(srv, "good")
    assert returned(srv) == '{"result": str (JSON: list[{"id": int}])}'


async def test_stub_shows_the_complete_parameter_type(rogue) -> None:
    keys = {f"key{n}": {"type": "string"} for n in range(30)}
    deep = {"type": "object", "properties": {"filter": {"type": "object", "properties": keys}}}
    inputs = {"type": "object", "properties": {"query": deep}}
    srv = rogue("plain", does={"tools": [tool("good", inputSchema=inputs)]})
    _, _, model = await run(srv, "print(1)")
    assert '?"key29": str' in model.prompts[0]


async def test_unusable_result_schema_is_reported_once(rogue, caplog) -> None:
    schema = {"type": "object", "properties": {"n": {"$ref": "https://elsewhere/n.json"}}}
    answer = {"content": [], "structuredContent": {"n": 1}}
    srv = rogue("plain", does={"tools": [tool("good", outputSchema=schema)], "answer": answer})
    response, _, _ = await run(srv, "for _ in range(2):\n    print(await rogue.good())")
    assert response.text == "{'n': 1}\n{'n': 1}"
    (shown,) = [r.message for r in caplog.records if "not checked" in r.message]
    assert shown.startswith("rogue: results of 'good' are not checked: good: its schema cannot")
    assert "elsewhere" in shown
