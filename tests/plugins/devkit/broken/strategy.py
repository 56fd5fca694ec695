"""Strategies that break one thing each."""

import asyncio

import pytest

from delf.engine.codegen.strategy import CodegenStrategy
from delf.errors import DelfError
from delf.protocols.sandbox import CallRequest
from delf.testing import StrategyContract, script


class Suite(StrategyContract):
    seconds = 3.0
    kind = CodegenStrategy
    replies = (script("print(await add(1, b=2))"),)
    unapproved = (script("try:\n    await forget('Ann')\nexcept ApprovalRejected: print('no')"),)

    @pytest.fixture
    def strategy(self):
        return self.kind


class TestGood(Suite):
    pass


class TestGuesses(Suite):
    breaks = ("test_answers_with_what_the_tools_gave",)

    class kind:
        async def solve(self, host):
            await host.ask(await host.begin())
            return "3"


class TestGoesPastTheGate(Suite):
    breaks = ("test_calls_pass_the_gate",)

    class kind:
        async def solve(self, host):
            await host.ask(await host.begin())
            call = CallRequest(call_id=1, connection="add", method="", args=(1, 2), kwargs={})
            return str((await host.call(call)).value)


class TestHidesFailures(Suite):
    breaks = ("test_a_failing_model_fails_the_task",)

    class kind(CodegenStrategy):
        async def solve(self, host):
            try:
                return await super().solve(host)
            except DelfError:
                return "all is well"


class TestGivesUpByItself(Suite):
    breaks = ("test_a_task_can_time_out",)

    class kind(CodegenStrategy):
        async def solve(self, host):
            try:
                async with asyncio.timeout(0.05):
                    return await super().solve(host)
            except TimeoutError:
                return "later"
