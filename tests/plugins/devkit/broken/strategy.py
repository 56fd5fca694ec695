"""Strategies that break one thing each."""

import asyncio
import time
from typing import ClassVar

import pytest
from planting import planting

from delf.errors import DelfError
from delf.messages import assistant, user
from delf.protocols.sandbox import Raised
from delf.testing import StrategyContract, script
from delf_strategy_codegen.strategy import CodegenStrategy


class Suite(StrategyContract):
    seconds = 3.0
    kind = CodegenStrategy
    replies = (script("print(await add(1, b=2))"),)
    replies_that_need_approval = (
        script("try:\n    await forget('Ann')\nexcept ApprovalRejected: print('no')"),
    )
    replies_that_write = (
        script("print(await keep('Ann'))\nrerun('Ann is kept', 'keep Bob')"),
        script("print(await keep('Bob'))"),
    )

    @pytest.fixture
    def strategy(self):
        return self.kind


breaks = planting(Suite)


class ByCall:
    """A strategy that makes a call for each answer line with a tool and its argument.

    An answer without such lines is the answer to the task.
    """

    most = 20
    calls_only = True

    async def solve(self, host):
        messages = self.begin(host)
        reply = await host.ask(messages)
        for _ in range(self.most):
            if ":" not in reply.text:
                break
            calls = [line.split(": ") for line in reply.text.splitlines()]
            results = await self.make(host, calls)
            host.say(f"{results}\n")
            messages = self.go_on(messages, assistant(reply.text), user(f"{results}"))
            reply = await host.ask(messages)
        host.say(reply.text)
        return host.output

    def begin(self, host):
        names = (tool.name for tool in host.tools)
        return [*host.begin(" ".join(["Name a tool and a value:", *names]))]

    def go_on(self, messages, *more):
        return [*messages, *more]

    async def make(self, host, calls):
        return [await self.call(host, name, value) for name, value in calls]

    async def call(self, host, name, value):
        keys = {"add": {"a": 1, "b": 2}}.get(name, {"name": value})
        answer = await host.call(name, keys, f"{name} it")
        return getattr(answer, "value", answer)


class TestGoodByCall(Suite):
    kind = ByCall
    replies = ("add: 1 2", "The sum is 3.")
    replies_that_need_approval = ("forget: Ann", "That was all.")
    replies_that_write = ("keep: Ann\nkeep: Bob", "Both are kept.")


class TestGoodByCallsTogether(TestGoodByCall):
    passes = ("test_results_match_their_calls", "test_killed_task_resumes_from_every_event")

    class kind(ByCall):
        async def make(self, host, calls):
            return await asyncio.gather(*(self.call(host, *call) for call in calls))


class TestRemembersByItself(Suite):
    """The strategy's memory is lost with its process, so a resumed task does something else."""

    breaks = ("test_killed_task_resumes_from_every_event",)
    replies_that_write = ("keep: Ann", "keep: Bob", "Both are kept.")
    replies = TestGoodByCall.replies
    replies_that_need_approval = TestGoodByCall.replies_that_need_approval

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
    """Messages stay in the class, like in a chat with a single user."""

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
    breaks = ("test_equal_tasks_have_equal_prompts",)
    says = "leave times and random names out"

    class kind(ByCall):
        async def solve(self, host):
            begin = host.begin
            host.begin = lambda rules: begin(f"{rules} It is {time.time_ns()}.")
            return await super().solve(host)


class OneByOne(TestGoodByCall):
    replies_that_write = ("keep: Ann", "keep: Bob", "Both are kept.")


class TestGoodOneByOne(OneByOne):
    passes = ("test_results_match_their_calls", "test_killed_task_resumes_from_every_event")


breaks_calls = planting(TestGoodByCall)
breaks_steps = planting(OneByOne)


@breaks_calls("test_results_match_their_calls", says="in another order than")
class TestCrossesResults(ByCall):
    async def make(self, host, calls):
        ended = []

        async def call(name, value):
            ended.append(await self.call(host, name, value))

        await asyncio.gather(*(call(*each) for each in calls))
        return ended


@breaks_steps("test_results_match_their_calls", says="do the work again")
class TestSendsTheLastResultAlone(ByCall):
    def go_on(self, messages, *more):
        return [*messages[:2], *more]


@breaks_calls("test_model_learns_of_a_rejection", says="would count as done")
class TestTellsARejectionAsDone(ByCall):
    async def call(self, host, name, value):
        answer = await super().call(host, name, value)
        return "ok" if getattr(answer, "kind", "") == "ApprovalRejected" else answer


@breaks_calls("test_model_learns_of_a_failure", says="would count as done")
class TestTellsAFailureAsNothing(ByCall):
    async def call(self, host, name, value):
        answer = await super().call(host, name, value)
        return [] if isinstance(answer, Raised) else answer


@breaks_calls("test_model_learns_of_a_failure", says="let the model decide")
class TestCallsOnceMoreByItself(ByCall):
    async def call(self, host, name, value):
        answer = await super().call(host, name, value)
        return await super().call(host, name, value) if isinstance(answer, Raised) else answer


@breaks_calls("test_earlier_turns_reach_the_model", says="all messages of `host.begin`")
class TestForgetsTheConversation(ByCall):
    def begin(self, host):
        first, *_, last = super().begin(host)
        return [first, last]


@breaks_calls("test_task_ends_if_the_model_repeats_itself", says="more than 200 times")
class TestNeverEnds(ByCall):
    most = 10**9


@breaks_calls("test_task_ends_if_the_model_writes_nonsense", says="more than 200 times")
class TestAsksUntilAToolIsNamed(ByCall):
    async def solve(self, host):
        while ":" not in (await host.ask(self.begin(host))).text:
            pass
        return host.output


@breaks_calls("test_prompt_names_every_tool", says="leaves out the tools")
class TestNamesNoTools(ByCall):
    def begin(self, host):
        return [*host.begin("Name a tool and a value.")]


@breaks_calls("test_methods_do_not_block_the_event_loop", says="time.sleep")
class TestSleepsOnTheLoop(ByCall):
    async def solve(self, host):
        time.sleep(0.01)
        return await super().solve(host)


@breaks_calls("test_strategy_leaves_no_task_running", says="still runs after the agent")
class TestBeatsOn(ByCall):
    async def solve(self, host):
        self.beating = asyncio.ensure_future(self.beat())
        return await super().solve(host)

    async def beat(self):
        await asyncio.Event().wait()
