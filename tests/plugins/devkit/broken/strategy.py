"""Strategies that break one thing each."""

import asyncio
import time
from typing import ClassVar

import pytest
from planting import planting

from delf.errors import DelfError
from delf.messages import assistant, user
from delf.testing import StrategyContract, script
from delf_strategy_codegen.strategy import CodegenStrategy


class Suite(StrategyContract):
    seconds = 3.0
    kind = CodegenStrategy
    replies = (script("print(await add(1, b=2))"),)
    unapproved = (script("try:\n    await forget('Ann')\nexcept ApprovalRejected: print('no')"),)
    writing = (
        script("print(await keep('Ann'))\nrerun('Ann is kept', 'keep Bob')"),
        script("print(await keep('Bob'))"),
    )

    @pytest.fixture
    def strategy(self):
        return self.kind


breaks = planting(Suite)


class TestGood(Suite):
    pass


class ByCall:
    """A tool, and the value of its argument, for each line of an answer; else the answer."""

    async def solve(self, host):
        rules = " ".join(["Name a tool and a value:", *(tool.name for tool in host.tools)])
        messages = [*host.begin(rules)]
        reply = await host.ask(messages)
        while ":" in reply.text:
            message = [line.split(": ") for line in reply.text.splitlines()]
            results = [await self.call(host, name, value) for name, value in message]
            host.say(f"{results}\n")
            messages += [assistant(reply.text), user(f"{results}")]
            reply = await host.ask(messages)
        host.say(reply.text)
        return host.output

    async def call(self, host, name, value):
        keys = {"add": {"a": 1, "b": 2}}.get(name, {"name": value})
        answer = await host.call(name, keys, f"{name} it")
        return getattr(answer, "value", answer)


class TestGoodByCall(Suite):
    kind = ByCall
    replies = ("add: 1 2", "The sum is in the results.")
    unapproved = ("forget: Ann", "That was all.")
    writing = ("keep: Ann\nkeep: Bob", "Both are kept.")


class TestGoodByCallsTogether(TestGoodByCall):
    class kind(ByCall):
        async def solve(self, host):
            while ":" in (text := (await host.ask(host.begin("Help."))).text):
                message = [line.split(": ") for line in text.splitlines()]
                keys = {"add": {"a": 1, "b": 2}}
                calls = [(name, keys.get(name, {"name": value})) for name, value in message]
                host.say(str(await asyncio.gather(*(host.call(*call) for call in calls))))
            return host.output


class TestRemembersByItself(Suite):
    """What it did before the kill is lost with it: it does something else than is recorded."""

    breaks = ("test_killed_task_resumes_from_every_event",)
    writing = ("keep: Ann", "keep: Bob", "Both are kept.")
    replies, unapproved = TestGoodByCall.replies, TestGoodByCall.unapproved

    class kind(ByCall):
        times = 0

        async def call(self, host, name, value):
            type(self).times += 1
            return await super().call(host, name, f"{value}{'!' * (self.times > 2)}")


class TestDoesNothing(Suite):
    breaks = (
        "test_approval_is_requested_once",
        "test_task_can_be_cancelled_during_a_call",
        "test_model_calls_count_against_the_budget",
        "test_incomplete_script_does_not_run",
    )

    class kind:
        async def solve(self, host):
            return "3"


class TestGuesses(Suite):
    breaks = ("test_strategy_answers_with_tool_results",)

    class kind:
        async def solve(self, host):
            await host.ask(host.begin("Help."))
            return "3"


class TestGoesPastTheGate(Suite):
    breaks = ("test_calls_pass_the_gate",)

    class kind:
        async def solve(self, host):
            await host.ask(host.begin("Help."))
            return str((await host.call("add", {"a": 1, "b": 2})).value)


@breaks("test_failing_model_fails_the_task")
class TestHidesFailures(CodegenStrategy):
    async def solve(self, host):
        try:
            return await super().solve(host)
        except DelfError:
            return "all is well"


@breaks("test_task_can_time_out")
class TestGivesUpByItself(CodegenStrategy):
    async def solve(self, host):
        try:
            async with asyncio.timeout(0.05):
                return await super().solve(host)
        except TimeoutError:
            return "later"


class Keeps(ByCall):
    """What was said stays with the class, as that of a chat with one user."""

    history: ClassVar = []

    async def solve(self, host):
        rules = " ".join(["Name a tool and a value:", *(tool.name for tool in host.tools)])
        messages = [*host.begin(rules + " ".join(self.history))]
        self.history.append(messages[-1].text)
        reply = await host.ask(messages)
        while ":" in reply.text:
            message = [line.split(": ") for line in reply.text.splitlines()]
            results = [await self.call(host, name, value) for name, value in message]
            host.say(f"{results}\n")
            messages += [assistant(reply.text), user(f"{results}")]
            reply = await host.ask(messages)
        host.say(reply.text)
        return host.output


class TestKeepsWhatWasReported(TestGoodByCall):
    breaks = ("test_nothing_is_kept_between_tasks",)
    says = "in the prompt of another"
    kind = Keeps


class KeepsHost(ByCall):
    async def solve(self, host):
        self.host = host
        messages = [*self.host.begin("Name a tool and a value.")]
        reply = await self.host.ask(messages)
        while ":" in reply.text:
            message = [line.split(": ") for line in reply.text.splitlines()]
            results = [await self.call(self.host, name, value) for name, value in message]
            self.host.say(f"{results}\n")
            messages += [assistant(reply.text), user(f"{results}")]
            reply = await self.host.ask(messages)
        self.host.say(reply.text)
        return self.host.output


class TestKeepsItsTaskInSelf(TestGoodByCall):
    breaks = ("test_concurrent_tasks_are_independent",)
    kind = KeepsHost


class KeepsMessages(ByCall):
    async def solve(self, host):
        rules = " ".join(["Name a tool and a value:", *(tool.name for tool in host.tools)])
        self.messages = [*host.begin(rules)]
        reply = await host.ask(self.messages)
        while ":" in reply.text:
            message = [line.split(": ") for line in reply.text.splitlines()]
            results = [await self.call(host, name, value) for name, value in message]
            host.say(f"{results}\n")
            self.messages += [assistant(reply.text), user(f"{results}")]
            reply = await host.ask(self.messages)
        host.say(reply.text)
        return host.output


class TestKeepsItsMessagesInSelf(TestGoodByCall):
    breaks = ("test_concurrent_tasks_are_independent",)
    says = "a prompt is about these tasks"
    kind = KeepsMessages


class TestTellsTheTime(TestGoodByCall):
    breaks = ("test_strategy_sends_the_same_prompts_on_replay",)
    says = "leave times and random names out"

    class kind(ByCall):
        async def solve(self, host):
            begin = host.begin
            host.begin = lambda rules: begin(f"{rules} It is {time.time_ns()}.")
            return await super().solve(host)
