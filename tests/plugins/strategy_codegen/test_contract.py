"""The contract of strategies, with scripts in fences and in a tool."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delf.messages import ModelReply, ToolCall, Usage
from delf.testing import PluginContract, StrategyContract, script
from delf_strategy_codegen.strategy import CodegenStrategy

ADDS = "print(await add(1, b=2))"
FORGETS = "try:\n    await forget('Ann')\nexcept ApprovalRejected: print('no')"
KEEPS = (
    "print(await keep('Ann'))\nrerun('Ann is kept', 'keep Bob')",
    "print(await keep('Bob'))",
)


def native(code: str) -> ModelReply:
    call = ToolCall(id="1", name="run", arguments=json.dumps({"code": code}))
    usage = Usage(input_tokens=10, output_tokens=5)
    return ModelReply(text="", model="scripted", calls=(call,), usage=usage, cost_usd=0.0)


class TestPackage(PluginContract):
    name = "strategy-codegen"


class TestFence(StrategyContract):
    replies = (script(ADDS),)
    replies_that_need_approval = (script(FORGETS),)
    replies_that_write = tuple(map(script, KEEPS))

    @pytest.fixture
    def strategy(self) -> Any:
        return CodegenStrategy


class TestTool(StrategyContract):
    replies = (native(ADDS),)
    replies_that_need_approval = (native(FORGETS),)
    replies_that_write = tuple(map(native, KEEPS))

    @pytest.fixture
    def strategy(self) -> Any:
        return lambda: CodegenStrategy(code_in="tool")
