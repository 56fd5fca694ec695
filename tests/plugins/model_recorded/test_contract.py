"""The contract of models: replaying, and recording another one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from delf.errors import LLMExecutionError
from delf.llm import LLMConfig
from delf.messages import ModelReply, ToolCall, Usage
from delf.protocols.context import PluginContext
from delf.testing import ModelContract, PluginContract, ScriptedModel
from delf_model_recorded import RecordingModel
from delf_model_recorded.model import RecordedModel

USAGE = {"input_tokens": 9, "output_tokens": 4}
CALL = {"id": "1", "name": "add", "arguments": '{"a": 1, "b": 2}'}
ANY = {"request": {"contains": []}, "reply": {"text": "Hello, grüß Gott 🦊!", "usage": USAGE}}


def recorded(path: Path, count: int) -> RecordedModel:
    path.write_text("\n".join(json.dumps(ANY) for _ in range(count)) + "\n")
    return RecordedModel(PluginContext(), LLMConfig(f"recorded:{path}"))


class TestRecorded(ModelContract):
    # A recording answers what it holds, for images, too; it sends nothing.
    sends = echoes = cuts = False
    images = True
    calls = True

    @pytest.fixture
    def calling_model(self, tmp_path):
        path = tmp_path / "calls.jsonl"
        line = json.dumps({**ANY, "reply": {**ANY["reply"], "calls": [CALL]}})
        path.write_text(f"{line}\n{line}\n")
        return RecordedModel(PluginContext(), LLMConfig(f"recorded:{path}"))

    @pytest.fixture
    def model(self, tmp_path):
        return recorded(tmp_path / "a.jsonl", 50)

    @pytest.fixture
    def failing_model(self, tmp_path):
        path = tmp_path / "b.jsonl"
        other = {**ANY, "request": {"contains": ["never asked"]}}
        path.write_text(json.dumps(other) + "\n")
        return RecordedModel(PluginContext(), LLMConfig(f"recorded:{path}"))


class TestRecording(ModelContract):
    # All that is asked goes on to the model that is recorded.
    sends = echoes = cuts = False
    images = True
    slow = True
    calls = True

    @pytest.fixture
    def calling_model(self, tmp_path):
        reply = ModelReply(text="", model="m", calls=(ToolCall(**CALL),), usage=Usage(**USAGE))
        return RecordingModel(ScriptedModel(default=reply), tmp_path / "a.jsonl")

    @pytest.fixture
    def model(self, tmp_path):
        return RecordingModel(ScriptedModel(default="Hello."), tmp_path / "a.jsonl")

    @pytest.fixture
    def failing_model(self, tmp_path):
        return RecordingModel(ScriptedModel(default=LLMExecutionError("no")), tmp_path / "a.jsonl")

    @pytest.fixture
    def slow_model(self, tmp_path):
        never = ScriptedModel(default=lambda _: asyncio.Event().wait())
        return RecordingModel(never, tmp_path / "a.jsonl")


class TestPackage(PluginContract):
    name = "model-recorded"
    offers = {"model": ["recorded"]}
