"""Duties of every strategy."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, ClassVar

import pytest

from delf.errors import LLMExecutionError, ToolExecutionError
from delf.events import CallFinished, CallStarted, Event, ModelReplied, Printed, ScriptGenerated
from delf.messages import ModelReply, ModelRequest, TextPart, ToolCall, ToolResult, Usage
from delf.protocols.approval import AlreadyDone, Approved, Rejected
from delf.specs import JournalSpec, SandboxSpec, StrategySpec
from delf.tools.function import Tool, tool
from delf_devkit.testing.contracts.base import Contract, fail_without
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import Answer, ScriptedModel
from delf_engine.journal.in_process import InProcessJournal
from delf_engine.response import Response

_COST = 1.0
_INSTANT = 0.01
_ATTEMPTS = 3
_AT_ONCE = 3
# The seconds that a reply of the model waits for the requests of concurrent tasks.
_REPLY_SECONDS = 1.0
_MARK = "marmalade-7741"
_REPEATED = 150
# Matches words by which a strategy says that a result was truncated.
_TRUNCATION_NOTE = re.compile(
    r"…|\.\.\.|trunc|short|cut|omit|left out|more|characters|bytes", re.IGNORECASE
)


class _RewindableJournal(InProcessJournal):
    """A journal that can be set back to the state in which a killed process left it."""

    async def reset_to(self, events: Sequence[Event]) -> None:
        """Keep only these events, as if the process had died after the last event."""
        self._tasks.clear()
        for event in events:
            await self.append(event)


class _SimulatedTools:
    """The tools of the tested tasks, and the changes that calls of these tools made."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self.failure = ""  # the message with which ``add`` fails
        self.slow_name = ""  # the call of ``keep`` with this name ends after the other calls
        self.long_filler = ""  # a text that makes the results of ``keep`` long
        self.add_began = asyncio.Event()
        self.may_add = asyncio.Event()  # while this is not set, ``add`` waits
        self.may_add.set()

    @property
    def tools(self) -> list[Tool[..., Any]]:
        """The tools ``add``, ``forget`` and ``keep``.

        With ``long_filler``, a result of ``keep`` is long and ends with words of its own, which
        show a test whether the strategy truncated the result.
        """

        @tool(effect="read", confirm=False)
        async def add(a: int, b: int) -> int:
            """Add two numbers."""
            if self.failure:
                raise ToolExecutionError(self.failure)
            self.add_began.set()
            await self.may_add.wait()
            return a + b

        @tool(effect="write", confirm=True)
        async def forget(name: str) -> str:
            """Delete a name that ``keep`` has stored, and return a confirmation."""
            self.changes.append(f"forgot {name}")
            return f"forgot {name}"

        @tool(effect="write", confirm=False)
        async def keep(name: str) -> str:
            """Store a name, and return a confirmation."""
            if name == self.slow_name:
                await asyncio.sleep(_INSTANT)  # the other calls end first
            self.changes.append(name)
            last_words = f" until {name} ends" if self.long_filler else ""
            return f"kept {name}{self.long_filler}{last_words}"

        return [add, forget, keep]

    def restore(self, events: Sequence[Event], *, were_calls_made: bool) -> None:
        """Set ``changes`` to the changes that were made when a process crashes after some events.

        Args:
            events: The events before the crash.
            were_calls_made: Whether calls without a recorded end had made their changes.
        """
        ended_calls = {event.call_id for event in events if isinstance(event, CallFinished)}
        self.changes = []
        for event in events:
            if not isinstance(event, CallStarted) or event.effect != "write":
                continue
            if were_calls_made or event.call_id in ended_calls:
                self.changes.append(event.arguments["name"])

    def decide(self, request: Any) -> Any:
        """Declare an interrupted call as done if the call took effect; approve all other calls."""
        name = request.arguments["name"]
        has_happened = request.outcome_unknown and name in self.changes
        if has_happened:
            return AlreadyDone(result=f"kept {name}")
        return Approved()


class _RepliesByTask:
    """The replies of a model to concurrent tasks, which the model tells apart by their marks.

    Args:
        marks: A text in each task that no other task contains.
        replies: The replies to each task.
    """

    def __init__(self, marks: Sequence[str], replies: Sequence[Answer]) -> None:
        self.mixed_requests: list[str] = []
        """For each request that is not about exactly one running task: the marks in it."""
        self._remaining = {mark: deque(replies) for mark in marks}
        self._arrived: set[str] = set()
        self._all_arrived = asyncio.Event()

    async def reply_to(self, request: ModelRequest) -> Any:
        """Return the next reply for the task of a request.

        Wait until all tasks have made a request, so that they run at the same time.
        """
        text = "".join(message.text for message in request.messages)
        # The text of each task contains a unique mark.
        marks = [mark for mark in self._remaining if mark in text]
        self._arrived.update(marks)
        await self._wait_for_all_tasks()
        replies = self._remaining[marks[0]] if len(marks) == 1 else None
        if not replies:
            self.mixed_requests.append(", ".join(marks) or "none")
            raise LLMExecutionError("the tasks are mixed up")
        return replies.popleft()

    async def _wait_for_all_tasks(self) -> None:
        """Wait until each task has made a request, but not longer than ``_REPLY_SECONDS``."""
        if len(self._arrived) == len(self._remaining):
            self._all_arrived.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REPLY_SECONDS):
                await self._all_arrived.wait()


class StrategyContract(Contract):
    """Tests for a strategy.

    The contract needs a fixture ``strategy``: the ``factory`` of the plugin's
    :class:`StrategySpec`.

    The suite runs an agent with the tools ``add(a, b)``, ``keep(name)``, and ``forget(name)``,
    which needs approval. The class attributes are the model's answers:

    ``replies`` make the strategy call ``add(1, 2)`` and answer with a text that contains 3.
    ``replies_that_need_approval`` make it try ``forget("Ann")``. ``replies_that_write`` make it
    call ``keep("Ann")``, then ``keep("Bob")``, and answer. ``most_requests`` is how often a task
    may ask the model.
    """

    replies: ClassVar[Sequence[Answer]] = ()
    replies_that_need_approval: ClassVar[Sequence[Answer]] = ()
    replies_that_write: ClassVar[Sequence[Answer]] = ()
    most_requests: ClassVar[int] = 200

    @pytest.fixture
    def strategy(self) -> Any:
        """The factory of the strategy under test."""
        fail_without(self, "a fixture `strategy`")

    async def test_strategy_answers_with_tool_results(self, strategy: Any) -> None:
        response = await self._solve(strategy, self.replies)
        response.raise_for_status()
        assert "3" in response.text
        assert [(call.name, call.status) for call in response.trace.tool_calls] == [("add", "ok")]
        assert response.trace.usage.total_tokens > 0

    async def test_nothing_is_kept_between_tasks(self, strategy: Any) -> None:
        """Check that a task sees nothing of earlier tasks, because one agent serves many users."""
        model = ScriptedModel()
        async with self._agent(strategy, self.replies, _SimulatedTools(), model=model) as agent:
            await agent.arun(f"Add 1 and 2, and forget {_MARK}.", timeout=20)
            request_count = len(model.prompts)
            assert any(_MARK in prompt for prompt in model.prompts), "the task is in no prompt"
            model.replies.clear()
            model.says(*self.replies)
            response = await agent.arun("Add 1 and 2.", timeout=20)
            response.raise_for_status()
        for prompt in model.prompts[request_count:]:
            assert _MARK not in prompt, "one task's words are in the prompt of another"
        calls = [call.name for call in response.trace.tool_calls]
        assert calls == ["add"], (
            f"the same task made the calls {calls} the second time: a result of another task, of "
            "another user, is given again; keep nothing in `self`"
        )

    async def test_concurrent_tasks_are_independent(self, strategy: Any) -> None:
        """Check that concurrent tasks do not mix, although they share one strategy object."""
        marks = [f"{_MARK}-{number}-x" for number in range(_AT_ONCE)]
        replies = _RepliesByTask(marks, self.replies)
        model = ScriptedModel(default=replies.reply_to)
        async with self._agent(strategy, self.replies, _SimulatedTools(), model=model) as agent:
            work = [agent.arun(f"Add 1 and 2 for {mark}.", timeout=20) for mark in marks]
            responses = await asyncio.gather(*work)
        advice = (
            "tasks share the strategy's object: keep what is a task's in variables, not in `self`"
        )
        mixed = replies.mixed_requests
        assert not mixed, f"a prompt is about these tasks: {mixed[0]}; {advice}"
        for response in responses:
            response.raise_for_status()
            assert "3" in response.text
            calls = [call.name for call in response.trace.tool_calls]
            assert calls == ["add"], f"one of the tasks made these calls: {calls}; {advice}"

    async def test_equal_tasks_have_equal_prompts(self, strategy: Any) -> None:
        prompts: list[str] = []
        for _ in range(_ATTEMPTS):
            model = ScriptedModel()
            async with self._agent(strategy, self.replies, _SimulatedTools(), model=model) as agent:
                await agent.arun("Add 1 and 2.", timeout=20)
            prompts.append(model.prompts[0])
            # Two equal prompts in a row are enough: a prompt may contain the minute, which may
            # change once during the test.
            if len(prompts) > 1 and prompts[-2] == prompts[-1]:
                return
            await asyncio.sleep(_INSTANT)
        pytest.fail(
            "the same task has another prompt: leave times and random names out, and sort what "
            "comes from a set, so that prompts can be cached"
        )

    async def test_prompt_names_every_tool(self, strategy: Any) -> None:
        model = ScriptedModel()
        async with self._agent(strategy, self.replies, _SimulatedTools(), model=model) as agent:
            await agent.arun("Add 1 and 2.", timeout=20)
        offered = [*(tool.name for tool in model.requests[0].tools), model.prompts[0]]
        unnamed = [name for name in ("add", "keep", "forget") if name not in " ".join(offered)]
        assert not unnamed, f"the prompt leaves out the tools {unnamed}: name all of `host.tools`"

    async def test_results_match_their_calls(self, strategy: Any) -> None:
        """Check that results are matched to their calls, even if the calls end in another order."""
        simulated = _SimulatedTools()
        simulated.slow_name = "Ann"  # keep("Ann") ends after keep("Bob")
        # A strategy may truncate these long results, but must tell the model.
        simulated.long_filler = ". Nothing else happened" * _REPEATED
        model = ScriptedModel()
        journal = _RewindableJournal()
        async with self._agent(
            strategy, self.replies_that_write, simulated, journal, model
        ) as agent:
            response = await agent.arun(f"Keep Ann and Bob for {_MARK}.", timeout=20)
            response.raise_for_status()
        if await _runs_scripts(journal, response) or len(model.requests) < 2:
            return  # scripts get results without the model
        last_request = model.requests[-1]
        for name in ("Ann", "Bob"):
            _check_result_is_sent(name, len(simulated.long_filler), last_request)
        assert _MARK in _texts_of(last_request), (
            "as the model is asked for the last time, the task is not in the messages: send those "
            "of `host.begin` with each request"
        )
        _check_results_are_with_their_calls(last_request)
        _check_order_of_results(last_request)

    async def test_model_learns_of_a_rejection(self, strategy: Any) -> None:
        questions: list[str] = []

        def reject(request: Any) -> Any:
            questions.append(request.action)
            return Rejected(reason=_MARK)

        model = ScriptedModel()
        journal = _RewindableJournal()
        options: dict[str, Any] = {"on_confirm": reject, "approval_mode": "interactive"}
        async with self._agent(
            strategy, self.replies_that_need_approval, _SimulatedTools(), journal, model, **options
        ) as agent:
            response = await agent.arun("Forget Ann.", timeout=20)
        assert questions == ["forget"], (
            f"after a no the person was asked {len(questions)} times in all"
        )
        # In a script, the rejected call raises an error: the script handles the rejection, and the
        # model need not read the reason.
        if not await _runs_scripts(journal, response):
            self._fail_unless_mentioned(_MARK, model, response, "a call was rejected")

    async def test_model_learns_of_a_failure(self, strategy: Any) -> None:
        model = ScriptedModel()
        simulated = _SimulatedTools()
        simulated.failure = _MARK
        async with self._agent(strategy, self.replies, simulated, model=model) as agent:
            response = await agent.arun("Add 1 and 2.", timeout=20)
        self._fail_unless_mentioned(_MARK, model, response, "a tool failed")
        call_count = sum(call.name == "add" for call in response.trace.tool_calls)
        # Each reply of the model may ask for the call once, except the last one: the final answer.
        max_call_count = max(1, len(model.requests) - 1)
        assert call_count <= max_call_count, (
            f"the failing call was made {call_count} times for one answer of the model: a tool "
            "would make its changes twice; let the model decide"
        )

    def _fail_unless_mentioned(
        self, mark: str, model: ScriptedModel, response: Response, what: str
    ) -> None:
        """Fail unless the text of a failure reached the model or is in the answer.

        Args:
            mark: A text that the message of the failure contains.
            model: The model. Its first request came before the failure, so only the other requests
                are searched.
            response: The answer.
            what: The name of the failure, for the message.
        """
        requests_texts = [_texts_of(request) for request in model.requests[1:]]
        texts = "\n".join([*requests_texts, response.text, response.error or ""])
        assert mark in texts, (
            f"{what} with the words {mark!r}, which reached neither the model nor the answer: the "
            "task would count as done"
        )

    async def test_earlier_turns_reach_the_model(self, strategy: Any) -> None:
        if find_spec("delf_chat") is None:
            return  # without the plugin chat there are no conversations
        model = ScriptedModel()
        async with self._agent(
            strategy, self.replies, _SimulatedTools(), model=model, chat=True
        ) as agent:
            await agent.arun(f"Add 1 and 2 for {_MARK}.", timeout=20)
            request_count = len(model.requests)
            model.replies.clear()
            model.says(*self.replies)
            await agent.arun("Add 1 and 2 again.", timeout=20)
        assert _MARK in _texts_of(model.requests[request_count]), (
            "the earlier turns of a conversation are not sent to the model: send all messages of "
            "`host.begin`"
        )

    @pytest.mark.parametrize("failure", ["", "the service is down"])
    async def test_task_ends_if_the_model_repeats_itself(self, strategy: Any, failure: str) -> None:
        first_reply = (self.replies or fail_without(self, "`replies`"))[0]
        await self._check_task_ends(strategy, lambda _: first_reply, failure)

    @pytest.mark.parametrize("nonsense", ["", f"{_MARK} {{}}"])
    async def test_task_ends_if_the_model_writes_nonsense(
        self, strategy: Any, nonsense: str
    ) -> None:
        await self._check_task_ends(strategy, nonsense.format)  # inserts the number of the request

    async def _check_task_ends(
        self, strategy: Any, reply_to: Callable[[int], Any], failure: str = ""
    ) -> None:
        """Fail if a strategy makes more than ``most_requests`` requests to a model.

        Args:
            strategy: The strategy.
            reply_to: Takes the number of a request, from 1; returns the model's reply to it, as an
                item of ``replies``.
            failure: The message with which the tool ``add`` fails; empty if the tool works.
        """
        request_count = 0
        simulated = _SimulatedTools()
        simulated.failure = failure

        async def answer(request: ModelRequest) -> Any:
            nonlocal request_count
            request_count += 1
            if request_count > self.most_requests:
                raise LLMExecutionError("it was asked too often")
            reply = reply_to(request_count)
            reply = reply(request) if callable(reply) else reply
            return await reply if inspect.isawaitable(reply) else reply

        model = ScriptedModel(default=answer)
        async with self._agent(strategy, self.replies, simulated, model=model) as agent:
            await agent.arun("Add 1 and 2.", timeout=20)
        assert request_count <= self.most_requests, (
            f"a model that never ends its task is asked more than {self.most_requests} times, each "
            "paid: end a task after so many steps with CodeGenerationError"
        )

    async def test_methods_do_not_block_the_event_loop(self, strategy: Any) -> None:
        model = ScriptedModel()
        async with self._agent(strategy, self.replies, _SimulatedTools(), model=model) as agent:
            await agent.arun("Add 1 and 2.", timeout=20)  # open lazily opened resources first

            async def solve() -> None:
                model.replies.clear()
                model.says(*self.replies)
                await agent.arun("Add 1 and 2.", timeout=20)

            await self.check_loop_stays_free(solve)

    async def test_strategy_leaves_no_task_running(self, strategy: Any) -> None:
        before = asyncio.all_tasks()
        async with self._agent(strategy, self.replies, _SimulatedTools()) as agent:
            await agent.arun("Add 1 and 2.", timeout=20)
        await asyncio.sleep(_INSTANT)
        running = [task for task in asyncio.all_tasks() - before if not task.done()]
        names = [getattr(task.get_coro(), "__qualname__", "a task") for task in running]
        assert not names, (
            f"{names[0]} still runs after the agent: when a task ends, end everything that the "
            "task has started"
        )

    async def test_calls_pass_the_gate(self, strategy: Any) -> None:
        response = await self._solve(strategy, self.replies_that_need_approval)
        # The gate checks each call before it is made. In the approval mode "strict" of this agent,
        # the gate rejects each call that needs approval, such as that of ``forget``. A call that
        # the strategy makes without the gate is not rejected, or is not recorded at all.
        statuses = [call.status for call in response.trace.tool_calls if call.name == "forget"]
        assert statuses
        assert set(statuses) == {"rejected"}

    async def test_approval_is_requested_once(self, strategy: Any) -> None:
        questions: list[str] = []

        def approve(request: Any) -> bool:
            questions.append(request.action)
            return True

        simulated = _SimulatedTools()
        async with self._agent(
            strategy,
            self.replies_that_need_approval,
            simulated,
            on_confirm=approve,
            approval_mode="interactive",
        ) as agent:
            await agent.arun("Forget Ann.", timeout=20)
        assert questions == ["forget"]
        assert simulated.changes == ["forgot Ann"], "the approved call forget('Ann') was not made"

    async def test_failing_model_fails_the_task(self, strategy: Any) -> None:
        response = await self._solve(strategy, [LLMExecutionError("the model is down")])
        assert not response.status
        assert response.error is not None
        assert "the model is down" in response.error

    async def test_incomplete_script_does_not_run(self, strategy: Any) -> None:
        for reason in ("content_filter", "length"):
            simulated = _SimulatedTools()
            # These replies would make the strategy call ``keep``, which makes a change.
            incomplete = [_with_finish_reason(reply, reason) for reply in self.replies_that_write]
            async with self._agent(strategy, incomplete, simulated) as agent:
                response = await agent.arun("Keep Ann and Bob.", timeout=20)
            has_succeeded = response.status
            assert not has_succeeded, f"an answer that ended by {reason!r} counts as whole"
            assert simulated.changes == [], f"a call of an answer that ended by {reason!r} was made"

    async def test_task_can_time_out(self, strategy: Any) -> None:
        async def never(_request: object) -> str:
            return await asyncio.get_running_loop().create_future()

        response = await self._solve(strategy, [never], timeout=0.2)
        assert not response.status
        assert response.error is not None
        assert "Timeout" in response.error

    async def test_task_can_be_cancelled_during_a_call(self, strategy: Any) -> None:
        simulated = _SimulatedTools()
        journal = _RewindableJournal()
        simulated.may_add.clear()
        async with self._agent(strategy, self.replies, simulated, journal) as agent:
            task = asyncio.ensure_future(agent.arun("Add 1 and 2.", timeout=20))
            await simulated.add_began.wait()
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
        (record,) = await journal.find()
        events = await journal.read(record.task_id)
        ends = [event.status for event in events if isinstance(event, CallFinished)]
        assert ends == ["cancelled"]

    async def test_model_calls_count_against_the_budget(self, strategy: Any) -> None:
        costly = [_costly(answer) for answer in self.replies]
        simulated = _SimulatedTools()
        journal = _RewindableJournal()
        async with self._agent(strategy, costly, simulated, journal, budget_usd=100.0) as agent:
            response = await agent.arun("Add 1 and 2.", timeout=20)
            response.raise_for_status()
        events = await journal.read(response.trace.task_id)
        reply_count = sum(isinstance(event, ModelReplied) for event in events)
        assert reply_count >= 1
        assert response.cost_usd == reply_count * _COST

    @pytest.mark.parametrize("were_calls_made", [True, False], ids=["it happened", "it did not"])
    async def test_killed_task_resumes_from_every_event(
        self, strategy: Any, were_calls_made: bool
    ) -> None:
        """Resume a task from each of its events, with interrupted calls either made or not."""
        simulated = _SimulatedTools()
        journal = _RewindableJournal()
        model = ScriptedModel()
        replies = self.replies_that_write or fail_without(self, "`replies_that_write`")
        options: dict[str, Any] = {"on_confirm": simulated.decide, "approval_mode": "interactive"}
        async with self._agent(strategy, replies, simulated, journal, model, **options) as agent:
            full_response = await agent.arun("Keep Ann and Bob.", timeout=20)
            full_response.raise_for_status()
            task_id = full_response.trace.task_id
            events = await journal.read(task_id)
            assert sorted(simulated.changes) == ["Ann", "Bob"]
            for end in range(1, len(events)):
                past_events = events[:end]
                await journal.reset_to(past_events)
                simulated.restore(past_events, were_calls_made=were_calls_made)
                reply_count = sum(isinstance(event, ModelReplied) for event in past_events)
                model.replies.clear()
                model.says(*replies[reply_count:])
                response = await agent.aresume(task_id)
                place = f"after event {end}, {type(past_events[-1]).__name__}"
                assert response.error is None, place
                assert response.text == full_response.text, place
                assert sorted(simulated.changes) == ["Ann", "Bob"], place
                events_after_resume = await journal.read(task_id)
                assert _printed(events_after_resume) == _printed(events), place

    async def _solve(
        self, strategy: Any, replies: Sequence[Answer], timeout: float = 20.0
    ) -> Response:
        async with self._agent(strategy, replies, _SimulatedTools()) as agent:
            return await agent.arun("Add 1 and 2.", timeout)

    def _agent(
        self,
        strategy: Any,
        replies: Sequence[Answer],
        simulated: _SimulatedTools,
        journal: Any = None,
        model: ScriptedModel | None = None,
        **options: Any,
    ) -> Any:
        """Return an agent that uses the strategy, with a scripted model and simulated tools.

        Args:
            strategy: The factory of the strategy.
            replies: The replies of the model; not used if ``model`` has a ``default`` reply.
            simulated: The tools.
            journal: The journal; a new one when omitted.
            model: The model; a new one when omitted.
            options: Further options of the agent.
        """
        from delf import Agent

        host = TestHost.discover(environ={})
        if not host.specs(SandboxSpec):
            pytest.skip("needs a sandbox: delf plugins install sandbox-local")
        model = ScriptedModel() if model is None else model
        replies = replies or fail_without(self, "`replies` and `replies_that_need_approval`")
        if model.default is None:
            model.says(*replies)
        host.provide(model.spec, model.factory)
        spec = StrategySpec(name="under-test", summary="The one under test.", factory="x:y")
        host.provide(spec, strategy)
        journal = _RewindableJournal() if journal is None else journal
        host.provide(JournalSpec(name="kept", summary="Kept.", factory="x:y"), lambda: journal)
        options.setdefault("approval_mode", "strict")
        return Agent(
            tools=simulated.tools,
            llm="scripted",
            host=host,
            strategy="under-test",
            journal="kept",
            retry_count=0,
            **options,
        )


def _costly(answer: Answer) -> Answer:
    """Return a model's answer with a cost; a function or an error stays unchanged."""
    if isinstance(answer, ModelReply):
        return replace(answer, cost_usd=_COST)
    if not isinstance(answer, str):
        return answer
    usage = Usage(input_tokens=10, output_tokens=10)
    return ModelReply(text=answer, model="scripted", usage=usage, cost_usd=_COST)


def _with_finish_reason(answer: Answer, reason: str) -> Answer:
    """Return a model's answer with a finish reason; a function or an error stays unchanged."""
    if isinstance(answer, ModelReply):
        return replace(answer, finish_reason=reason)
    if not isinstance(answer, str):
        return answer
    return ModelReply(text=answer, model="scripted", cost_usd=0.0, finish_reason=reason)


async def _runs_scripts(journal: Any, response: Response) -> bool:
    events = await journal.read(response.trace.task_id)
    return any(isinstance(event, ScriptGenerated) for event in events)


def _calls_of(request: ModelRequest) -> list[ToolCall]:
    parts = [part for message in request.messages for part in message.parts]
    return [part for part in parts if isinstance(part, ToolCall)]


def _results_of(request: ModelRequest) -> list[ToolResult]:
    parts = [part for message in request.messages for part in message.parts]
    return [part for part in parts if isinstance(part, ToolResult)]


def _texts_of(request: ModelRequest) -> str:
    """Return the texts of a request, with the results of its calls."""
    parts = [part for message in request.messages for part in message.parts]
    return "\n".join(part.text for part in parts if isinstance(part, (TextPart, ToolResult)))


def _check_result_is_sent(name: str, length: int, request: ModelRequest) -> None:
    """Fail unless a request has the result of ``keep(name)``, whole or with a truncation note.

    Args:
        name: The argument of the call.
        length: The number of characters of the result, for the message.
        request: The last request of a task.
    """
    text = _texts_of(request)
    _, first_words, rest_of_text = text.rpartition(f"kept {name}")
    assert first_words, (
        f"as the model is asked for the last time, the result of keep({name!r}) is not in "
        "the messages: the model would do the work again, or make the result up"
    )
    is_complete = f"until {name} ends" in text  # the last words of the result
    assert is_complete or _TRUNCATION_NOTE.search(rest_of_text), (
        f"the result of keep({name!r}), of {length} characters, was "
        "truncated without a note: the model takes a part for the whole; send all of it, "
        "or add a note that there is more"
    )


def _check_results_are_with_their_calls(request: ModelRequest) -> None:
    """Fail if the result ``kept Ann`` has the id of the call ``keep("Bob")``, or the reverse."""
    arguments_by_id = {call.id: call.arguments for call in _calls_of(request)}
    for result in _results_of(request):
        kept = re.search(r"kept (Ann|Bob)", result.text)
        arguments = arguments_by_id.get(result.id)
        if kept is None or arguments is None:
            continue
        assert kept[1] in arguments, (
            f"the result {result.text!r} is given for another call, {arguments}: keep each result "
            "with its call, whichever call ends first"
        )


def _check_order_of_results(request: ModelRequest) -> None:
    """Fail if the user's texts have the results of ``keep`` in another order than the calls.

    A strategy without native tool calls sends the results as texts of the user.
    """
    user_messages = [message for message in request.messages if message.role == "user"]
    user_text = "".join(message.text for message in user_messages)
    if "kept Ann" in user_text and "kept Bob" in user_text:
        assert user_text.index("kept Ann") < user_text.index("kept Bob"), (
            "the results are sent in another order than the calls: 'kept Bob' stands where that of "
            "keep('Ann') belongs"
        )


def _printed(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Printed))
