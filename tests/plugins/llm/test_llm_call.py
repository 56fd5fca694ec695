"""Scripts that ask models: what arrives at the provider, what it costs, what is refused."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delf import Agent, LLMConfig, ToolDefinitionError, tool
from delf.events import CallFinished
from delf.specs import JournalSpec
from delf.testing import PluginContract
from delf_devkit.testing.hosts import TestHost
from delf_engine.journal.in_process import InProcessJournal
from delf_llm.attachments import Attachments
from support.model_fixtures import LITELLM_WARNING
from support.openai_server import OpenAIServer, Reply

pytestmark = [pytest.mark.services, pytest.mark.filterwarnings(LITELLM_WARNING)]

StartServer = Callable[..., OpenAIServer]

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PDF = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\n%%EOF\n"


class TestPackage(PluginContract):
    name = "llm"


def block(code: str) -> str:
    return f"```python\n{code}\n```"


def config(server: OpenAIServer, model: str = "writer", **options: Any) -> LLMConfig:
    return LLMConfig(model, base_url=server.base_url, api_key="sk-planted-secret", **options)


def last_message(server: OpenAIServer, number: int = -1) -> Any:
    return server.json[number]["messages"][-1]["content"]


def test_text_is_sent_to_the_heavy_model(openai_server: StartServer) -> None:
    server = openai_server([block("print(await llm.call('Is this spam?', desc='judge'))"), "yes"])
    models = {"heavy_llm": config(server, "heavy"), "light_llm": config(server, "light")}
    with Agent(sandbox="local", system_prompt="Be short.", **models) as agent:  # type: ignore[arg-type]
        response = agent.run("judge it").raise_for_status()
        assert agent.usage.input_tokens == 22
    assert response.text == "yes"
    assert [body["model"] for body in server.json] == ["heavy", "heavy"]
    assert server.json[1]["messages"] == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Is this spam?"},
    ]
    (call,) = response.trace.tool_calls
    assert (call.name, call.status, call.result, call.description) == (
        "llm.call",
        "ok",
        "yes",
        "judge",
    )
    assert response.trace.usage_by_step["execute"].usage.output_tokens == 7
    purposes = [(item.purpose, item.step) for item in response.trace.model_calls]
    assert purposes == [("generate", "generate"), ("call", "execute")]


def test_files_and_images_are_sent_in_provider_form(
    openai_server: StartServer, tmp_path: Path
) -> None:
    (tmp_path / "photo.png").write_bytes(PNG)
    (tmp_path / "notes.csv").write_text("name,price\nlamp,20\n")
    (tmp_path / "bill.pdf").write_bytes(PDF)
    code = """
picture = b"\\xff\\xd8\\xff\\xe0 a jpeg"
print(await llm.call("What is it?", file_data=["photo.png", "notes.csv", "bill.pdf", picture]))
"""
    server = openai_server([block(code), "a lamp"])
    files = [str(tmp_path / name) for name in ("photo.png", "notes.csv", "bill.pdf")]
    models = {"llm": config(server), "vision_llm": config(server, "eyes")}
    with Agent(sandbox="local", files=files, **models) as agent:  # type: ignore[arg-type]
        response = agent.run("look").raise_for_status()
    assert response.text == "a lamp"
    assert server.json[1]["model"] == "eyes"
    assert [item.model for item in response.trace.model_calls] == ["writer", "eyes"]
    text, photo, notes, bill, jpeg = last_message(server)
    assert text == {"type": "text", "text": "What is it?"}
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert photo == {"type": "image_url", "image_url": {"url": url}}
    assert notes["type"] == "text"
    assert "lamp,20" in notes["text"]
    assert bill["type"] == "file"
    assert bill["file"]["filename"] == "bill.pdf"
    assert base64.b64decode(bill["file"]["file_data"].partition("base64,")[2]) == PDF
    assert jpeg["image_url"]["url"].startswith("data:image/jpeg;base64,")


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "gemini-2.5-flash"])
def test_request_uses_the_form_of_each_provider(
    openai_server: StartServer, tmp_path: Path, model: str
) -> None:
    (tmp_path / "photo.png").write_bytes(PNG)
    (tmp_path / "bill.pdf").write_bytes(PDF)
    code = "print(await llm.call('What?', file_data=['photo.png', 'bill.pdf']))"
    server = openai_server([block(code), "a lamp"])
    family: Any = "anthropic" if "claude" in model else "google"
    root = server.root_url if family == "anthropic" else f"{server.root_url}/v1beta"
    eyes = LLMConfig(model, provider=family, base_url=root, api_key="k-planted")
    files = [str(tmp_path / name) for name in ("photo.png", "bill.pdf")]
    with Agent(sandbox="local", files=files, llm=config(server), vision_llm=eyes) as agent:
        agent.run("look").raise_for_status()
    sent = json.dumps(server.json[1])
    assert base64.b64encode(PNG).decode() in sent
    assert base64.b64encode(PDF).decode() in sent
    if family == "anthropic":
        kinds = [part["type"] for part in last_message(server)]
        assert kinds == ["text", "image", "document"]
    else:
        parts = server.json[1]["contents"][-1]["parts"]
        media = [(p.get("inline_data") or p.get("inlineData") or {}) for p in parts]
        assert [m.get("mime_type", m.get("mimeType")) for m in media] == [
            None,
            "image/png",
            "application/pdf",
        ]


def test_vision_model_falls_back_to_the_heavy_one(openai_server: StartServer) -> None:
    code = "print(await llm.call('What?', file_data=[('a.png', b'\\x89PNG\\r\\n\\x1a\\n..')]))"
    server = openai_server([block(code), "a dot"])
    models = {"heavy_llm": config(server, "heavy"), "light_llm": config(server, "light")}
    with Agent(sandbox="local", **models) as agent:  # type: ignore[arg-type]
        assert agent.run("look").text == "a dot"
    assert [body["model"] for body in server.json] == ["heavy", "heavy"]


UNASKED = {
    "''": "the prompt is empty",
    "'x' * 1_000_001": "the prompt has 1,000,001 characters",
    "'x', file_data=['/etc/passwd']": "no input file '/etc/passwd'; input files: notes.txt",
    "'x', file_data=['note.txt']": "did you mean 'notes.txt'?",
    "'x', file_data=['../secret.txt']": "there is no input file",
    "'x', file_data=[3]": "item 1 must be the name of an input file",
    "'x', file_data=[b'']": "'file-1' is empty",
    "'x', file_data=[b'\\x00\\x01']": "the type of 'file-1' is unknown",
    "'x', file_data=[b'a'] * 21": "has 21 items, and at most 20 fit",
    "'x', file_data=[b'a' * (11 << 20)] * 2": "larger than 20 MB in all",
    "3": "prompt",
}


def test_invalid_request_raises_in_the_script(openai_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path.parent / "secret.txt").write_text("planted")
    code = "\n".join(
        f"try:\n    await llm.call({arguments})\nexcept Exception as error:\n    print(error)"
        for arguments in UNASKED
    )
    server = openai_server([block(code)])
    files = [str(tmp_path / "notes.txt")]
    with Agent(sandbox="local", files=files, llm=config(server)) as agent:
        response = agent.run("ask").raise_for_status()
    message = response.text.splitlines()
    assert [
        expected
        for expected, line in zip(UNASKED.values(), message, strict=True)
        if expected not in line
    ] == []
    assert len(server.requests) == 1
    assert {call.status for call in response.trace.tool_calls} <= {"error", "refused"}


def test_file_is_accepted_by_sandbox_path_and_by_name(
    openai_server: StartServer, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    code = f"""
import pathlib
print(await llm.call("A", file_data=[{str(tmp_path / "notes.txt")!r}]))
print(await llm.call("B", file_data=[pathlib.Path("notes.txt")]))
print(await llm.call("C", file_data=[("x.json", b"[1]")]))
print(await llm.call("D", file_data=[{{"name": "x.json", "type": "a/b", "data": b"[2]"}}]))
"""
    server = openai_server([block(code), "a", "b", "c", "d"])
    with Agent(sandbox="local", files=[str(tmp_path / "notes.txt")], llm=config(server)) as agent:
        assert agent.run("ask").raise_for_status().text == "a\nb\nc\nd"
    assert ["hello" in last_message(server, number) for number in (1, 2, 3)] == [True, True, False]
    assert ['<file name="x.json">' in last_message(server, number) for number in (3, 4)] == [
        True
    ] * 2


def test_failing_model_raises_and_the_script_continues(openai_server: StartServer) -> None:
    code = "try:\n    await llm.call('x')\nexcept ToolError as error:\n    print('no:', error)"
    server = openai_server([block(code), Reply(status=400, error="bad sk-planted-secret")])
    with Agent(sandbox="local", llm=config(server)) as agent:
        response = agent.run("ask").raise_for_status()
    assert response.text.startswith("no: ")
    assert "sk-planted-secret" not in json.dumps(response.to_dict())


@pytest.mark.parametrize("name", ["llm", "files"])
def test_tool_named_like_a_built_in_is_refused(openai_server: StartServer, name: str) -> None:
    named = tool(name=name)(lambda: None)
    agent = Agent(sandbox="local", llm=config(openai_server()), tools=[named])
    with pytest.raises(ToolDefinitionError, match=f"cannot be named '{name}'"):
        agent.start()
    agent.stop()


def test_recording_replays_image_questions_of_a_script(
    openai_server: StartServer, tmp_path: Path
) -> None:
    (tmp_path / "photo.png").write_bytes(PNG)
    code = "print(await llm.call('What is it?', file_data=['photo.png']))"
    server = openai_server([block(code), "a lamp"])
    record = tmp_path / "recording.jsonl"
    common: dict[str, Any] = {"sandbox": "local", "files": [str(tmp_path / "photo.png")]}
    with Agent(llm=config(server), record=str(record), **common) as agent:
        assert agent.run("look").raise_for_status().text == "a lamp"
    written = [json.loads(line) for line in record.read_text().splitlines()]
    (image,) = written[1]["request"]["messages"][-1]["parts"]
    assert (image["type"], image["media_type"], image["size"]) == ("image", "image/png", len(PNG))
    assert written[1]["request"]["purpose"] == "call"
    with Agent(llm=f"recorded:{record}", **common) as agent:
        assert agent.run("look").raise_for_status().text == "a lamp"
    (tmp_path / "photo.png").write_bytes(PNG + b"changed")
    with Agent(llm=f"recorded:{record}", retry_count=0, **common) as agent:
        response = agent.run("look")
    assert not response.status
    assert "differs" in (response.error or "")
    assert len(server.requests) == 2


def test_resumed_task_does_not_ask_the_model_again(
    openai_server: StartServer, delf_host: TestHost
) -> None:
    code = "print(await llm.call('first'))\nprint(await llm.call('second'))"
    server = openai_server([block(code), "one", "two", "two again"])
    journals = [InProcessJournal(), InProcessJournal()]
    delf_host.provide(JournalSpec(name="kept", factory="x:y", summary="x"), lambda: journals[-1])
    options: dict[str, Any] = {"sandbox": "local", "host": delf_host, "journal": "kept"}
    with Agent(llm=config(server), **options) as agent:
        trace = agent.run("ask").raise_for_status().trace
    first = journals.pop()

    async def cut_off() -> None:
        for event in await first.read(trace.task_id):
            await journals[0].append(event)
            if isinstance(event, CallFinished):
                break

    asyncio.run(cut_off())
    with Agent(llm=config(server), **options) as agent:
        assert agent.resume(trace.task_id).raise_for_status().text == "one\ntwo again"
    assert len(server.requests) == 4


def test_secrets_are_redacted_in_files_for_a_model(
    openai_server: StartServer, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("the key is sk-planted-secret, keep it")
    code = """
text = "the key is sk-" + "planted-secret"
await llm.call(text, file_data=["notes.txt", ("b.txt", text.encode())])
"""
    server = openai_server([block(code), "ok"])
    with Agent(sandbox="local", llm=config(server), files=[str(tmp_path / "notes.txt")]) as agent:
        agent.run("ask").raise_for_status()
    assert b"the key is" in server.requests[1].body
    assert b"sk-planted-secret" not in server.requests[1].body


async def test_attached_files_are_read_once_per_call(tmp_path: Path) -> None:
    read: list[str] = []

    def of_the_call(name: str, most: int) -> bytes:
        read.append(name)
        return b"as asked"

    attachments = Attachments({"/in/notes.txt": "notes.txt"}, of_the_call)
    (part,) = await attachments.parts(["/in/notes.txt"])
    assert (part.data, read) == (b"as asked", ["notes.txt"])
