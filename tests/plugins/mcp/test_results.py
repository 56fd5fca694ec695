"""What happens to a tool's result: values for the script, and files of the task."""

import base64
from pathlib import Path

import pytest

from plugins.mcp.conftest import run
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


async def test_pictures_sounds_and_resources_are_output_files(rogue) -> None:
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


async def test_files_come_beside_a_structured_result(rogue) -> None:
    answer = {"content": [IMAGE], "structuredContent": {"n": 1}}
    srv = rogue("plain", does={"answer": answer})
    response, _, _ = await run(srv, "print(await rogue.good())")
    assert response.text == "{'n': 1}"
    assert set(response.files) == {"rogue-1-1.png"}


@pytest.mark.parametrize("protocol", ["legacy", "auto"])
async def test_a_tool_that_does_not_keep_its_word_gives_its_text(rogue, protocol) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    does = {"tools": [tool("good", outputSchema=schema)], "answer": {"content": [WORD]}}
    srv = rogue("plain", does=does, protocol=protocol)
    response, _, _ = await run(srv, "print(await rogue.good())")
    assert response.text == "a dot"
