"""Recording: what is written, and that it replays."""

import asyncio
import json
import multiprocessing
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delf.errors import LLMExecutionError, ModelConfigurationError
from delf.llm import LLMConfig
from delf.messages import (
    ImagePart,
    ModelDelta,
    ModelReply,
    ModelRequest,
    ModelTool,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    results,
    user,
)
from delf.protocols.context import PluginContext
from delf.testing import ScriptedModel
from delf_model_recorded import RecordedModel, RecordingMismatch, RecordingModel
from support.model_fixtures import ask, read_stream
from support.openai_server import Reply
from support.recording_worker import record_many


class Echo:
    """A model that answers with the prompt."""

    closed = 0
    warm = False

    async def complete(self, request: Any):
        await asyncio.sleep(0)
        return ModelReply(text=request.messages[-1].text, model="echo")

    async def stream(self, request: Any):
        yield ModelDelta("e")
        yield ModelReply(text=request.messages[-1].text, model="echo")

    async def aclose(self):
        self.closed += 1

    async def warm_up(self):
        self.warm = True


def lines(path: Any):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


async def test_recording_replays_without_the_server(
    openai_server: Any, litellm_model: Any, tmp_path: Path
):
    path = tmp_path / "run.jsonl"
    usage = (100, 20, 50)
    server = openai_server([Reply(text="print('ä')", usage=usage), Reply(text="b c", usage=usage)])
    real = litellm_model("gpt-4o-mini", base_url=server.base_url, api_key="k")
    recorder = RecordingModel(real, path)
    image = ModelRequest(messages=(user("see", [ImagePart(b"PNG", "image/png")]),))
    first = await recorder.complete(ask(settings={"stop": ("a", "b"), "temperature": 0.1}))
    pieces, second = await read_stream(recorder, image)
    assert pieces == ["b", " c"]
    server.stop()

    model = RecordedModel(PluginContext(), LLMConfig(f"recorded:{path}"))
    no_id = {"reply_id": None}  # no provider gave one to an answer that is replayed
    assert (await read_stream(model, image))[1] == replace(second, **no_id)
    again = ask(settings={"temperature": 0.1, "stop": ["a", "b"]})
    assert await model.complete(again) == replace(first, **no_id)
    assert first.usage == Usage(input_tokens=100, cached_tokens=50, output_tokens=20)
    assert first.cost_usd is not None
    assert first.cost_usd > 0
    await recorder.aclose()


async def test_keys_and_headers_are_not_recorded(
    openai_server: Any, litellm_model: Any, tmp_path: Path
):
    path = tmp_path / "run.jsonl"
    server = openai_server(["ok"])
    config = {"base_url": server.base_url, "api_key": "s3cret-key", "headers": {"X": "t0ken"}}
    await RecordingModel(litellm_model(**config), path).complete(ask())
    text = path.read_text()
    assert "s3cret-key" not in text
    assert "t0ken" not in text
    assert server.base_url not in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_failed_calls_and_partial_streams_are_not_recorded(
    openai_server: Any, litellm_model: Any, tmp_path: Path
):
    path = tmp_path / "run.jsonl"
    server = openai_server([Reply(status=400), Reply(text="a b c d", drop="stream"), "a b c"])
    recorder = RecordingModel(litellm_model(base_url=server.base_url), path)
    with pytest.raises(LLMExecutionError):
        await recorder.complete(ask())
    with pytest.raises(LLMExecutionError):
        await read_stream(recorder, ask())
    stream = recorder.stream(ask())
    await anext(stream)
    await stream.aclose()
    assert lines(path) == []


async def test_recording_is_appended_to_the_file(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    path.write_text('{"about": "kept"}\n')
    await RecordingModel(Echo(), path).complete(ask("one"))
    await RecordingModel(Echo(), path).complete(ask("two"))
    assert [line.get("reply", {}).get("text") for line in lines(path)] == [None, "one", "two"]


def test_concurrent_processes_can_record_to_one_file(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    make = multiprocessing.get_context("forkserver").Process
    workers = [make(target=record_many, args=(path, name, 40)) for name in "abcd"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(50)
    names = {line["reply"]["text"].split(" ")[0] for line in lines(path)}
    assert names == {f"{name}-{i}" for name in "abcd" for i in range(40)}


async def test_lone_surrogates_survive_recording(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    await RecordingModel(Echo(), path).complete(ask("half \ud83d"))
    assert lines(path)[0]["reply"]["text"] == "half \ud83d"


def test_unwritable_recording_fails_before_any_request(tmp_path: Path):
    with pytest.raises(ModelConfigurationError, match="cannot be written"):
        RecordingModel(Echo(), tmp_path / "no" / "folder.jsonl")
    with pytest.raises(ModelConfigurationError, match="cannot be written"):
        RecordingModel(Echo(), tmp_path)


async def test_calls_and_results_are_recorded_and_replayed(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    call = ToolCall(id="1", name="add", arguments='{"a": 1}', token="t")
    reply = ModelReply(text="", model="m", calls=(call,), usage=Usage(reasoning_tokens=3))
    recorder = RecordingModel(ScriptedModel(default=reply), path)
    assert recorder.takes_tools
    brought = results([ToolResult(id="1", name="add", text="2")])
    tool = ModelTool(name="add", description="adds", parameters={"type": "object"})
    request = ModelRequest(messages=(user("q"), assistant("", (call,)), brought), tools=(tool,))
    assert await recorder.complete(request) == reply
    assert not RecordingModel(Echo(), path).takes_tools

    model = RecordedModel(PluginContext(), LLMConfig(f"recorded:{path}"))
    with pytest.raises(RecordingMismatch, match="-tools: "):
        await model.complete(ModelRequest(messages=request.messages))
    assert await model.complete(request) == reply
