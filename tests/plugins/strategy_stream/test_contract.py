"""The contract of strategies, in both notations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delf.messages import ModelReply, ToolCall, Usage
from delf.testing import PluginContract, StrategyContract
from delf_strategy_stream.strategy import StreamStrategy


def marked(*calls: tuple[str, dict[str, Any]], message: str = "") -> str:
    written = json.dumps([{"name": name, "args": args} for name, args in calls])
    return f"{message}<execute>{written}</execute>"


def native(*calls: tuple[str, dict[str, Any]], message: str = "") -> ModelReply:
    given = (
        ToolCall(id=f"c{n}", name=name, arguments=json.dumps(args))
        for n, (name, args) in enumerate(calls)
    )
    usage = Usage(input_tokens=10, output_tokens=5)
    return ModelReply(text=message, model="scripted", calls=tuple(given), usage=usage, cost_usd=0.0)


class TestPackage(PluginContract):
    name = "strategy-stream"


class TestMarkers(StrategyContract):
    replies = (marked(("add", {"a": 1, "b": 2})), "It is 3.")
    replies_that_need_approval = (marked(("forget", {"name": "Ann"})), "It was refused.")
    replies_that_write = (
        marked(("keep", {"name": "Ann"}), message="First Ann."),
        marked(("keep", {"name": "Bob"}), ("add", {"a": 1, "b": 2})),
        "Both are kept.",
    )

    @pytest.fixture
    def strategy(self) -> Any:
        return StreamStrategy


class TestReplay(TestMarkers):
    @pytest.fixture
    def strategy(self) -> Any:
        return lambda: StreamStrategy(mode="replay")


class TestTools(StrategyContract):
    replies = (native(("add", {"a": 1, "b": 2})), "It is 3.")
    replies_that_need_approval = (native(("forget", {"name": "Ann"})), "It was refused.")
    replies_that_write = (
        native(("keep", {"name": "Ann"}), ("keep", {"name": "Bob"}), message="Both."),
        "Both are kept.",
    )

    @pytest.fixture
    def strategy(self) -> Any:
        return lambda: StreamStrategy(notation="tools")
