"""The contract of connections."""

from __future__ import annotations

import asyncio
import datetime as dt
import inspect
import json
import os
import sys
import typing
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import pytest

from delf.errors import DelfError, ToolRefusedError
from delf.machine.interpreter import own_python
from delf.messages import ModelRequest
from delf.protocols.connection import (
    Allowed,
    ConnectionLike,
    NeedsApproval,
    ProposedCall,
    Refused,
    SupportsCheck,
    SupportsClose,
    SupportsContext,
)
from delf.settings import PluginSettings
from delf.specs import SandboxSpec
from delf.tools.action import EFFECTS, Action
from delf.tools.connection import Connection
from delf.tools.permissions import is_allowed
from delf.tools.signature import check_name
from delf.values.encoding import dumps, loads
from delf_devkit.testing.contracts.base import (
    IN_A_COMMAND,
    LOOP_ITERATIONS,
    Contract,
    cancel_after_iterations,
    chained_exceptions,
    fail_without,
    needs,
)
from delf_devkit.testing.contracts.clocks import TESTED_SHIFTS, shifted_clock
from delf_devkit.testing.contracts.guard import started_programs
from delf_devkit.testing.contracts.leaks import (
    captured_logs,
    declared_secrets_of,
    plain_secrets,
    reprs_of,
    secrets_of,
    texts_of,
    types_of,
)
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel, script
from delf_devkit.testing.tasks import ScriptedTask

_CONCURRENT = 2
_MOMENT = 0.1
_START_SECONDS = 60.0
# The classes of results that ``isinstance`` can check. It rejects many other annotations, such as
# ``Any``, ``Literal`` or a ``TypedDict``.
_CHECKED_RESULT_CLASSES = frozenset({list, dict, str, int, bool, bytes, tuple, set})
_INSTANT = 0.01
_LIMITS = ("limit", "max_results", "top_k")
_MAX_VARIANTS = 2
_DATES = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d %B %Y", "%B %d, %Y", "%d %b %Y", "%Y/%m/%d")
_INSPECT = """
import importlib, json, sys
sys.path[:] = json.loads(sys.argv[1])
kind = importlib.import_module(sys.argv[2])
for name in sys.argv[3].split("."):
    kind = getattr(kind, name)
print(json.dumps(kind.inspect(verbose=True), default=str))
"""


@dataclass(frozen=True, init=False)
class Call:
    """A call that a suite makes: ``Call("find", status="open")``."""

    action: str
    arguments: Mapping[str, Any]

    def __init__(self, action: str, /, **arguments: Any) -> None:
        object.__setattr__(self, "action", action)
        object.__setattr__(self, "arguments", arguments)

    async def make(self, connection: ConnectionLike, task: ScriptedTask | None = None) -> Any:
        """Make the call as a task would: validate arguments, run plain functions in a thread.

        Args:
            connection: The connection of the action.
            task: The task whose ``CallContext`` an action gets.
        """
        action = await _action(connection, self.action)
        arguments = action.validate(self.arguments)
        context_parameter = action.context
        if context_parameter is not None:
            task = task or ScriptedTask()
            tools = {connection.name: connection}
            arguments[context_parameter] = task.context(connection.name, tools=tools)
        if action.is_async:
            return await action.call(**arguments)
        return await asyncio.to_thread(action.call, **arguments)

    def source(self, connection: ConnectionLike) -> str:
        """Return the call as Python source."""
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        target = connection.name
        if not connection.is_function:
            target += f".{self.action}"
        return f"await {target}({arguments})"


class ConnectionContract(Contract):
    """Tests for a connection; needs a fixture ``connection`` and ``calls`` that succeed.

    The fixture returns a usable connection, which the suite closes. The suite makes each of
    ``calls`` many times, sequentially and concurrently, so each call must be repeatable. For
    example, closing a closed ticket must succeed, and the fixture's service must discard each
    object that a call creates.

    Every action needs a call that succeeds, or an entry in ``untested``. For an action with a
    ``CallContext`` parameter, the suite passes a context in which the person approves every
    request, and in which models and child tasks return ``answer``.

    The suite reads secrets from the connection's settings (``SecretStr``); list others in
    ``secrets``. ``calls_with_refused_login`` are calls made with the fixture
    ``refused_connection``, whose password or key the service refuses; set ``logs_in = False`` if no
    secret is for a login. ``failing_calls`` have valid arguments, but the service refuses them.
    ``slow_call`` takes a second or more with the fixture ``slow_connection``, for tests of
    cancellation. ``calls_to_refuse`` are calls that ``check`` never allows: it refuses
    them, or asks a person. Set ``check_refuses = False`` if ``check`` allows all calls.
    """

    calls: ClassVar[Sequence[Call]] = ()
    failing_calls: ClassVar[Sequence[Call]] = ()
    slow_call: ClassVar[Call | None] = None
    calls_to_refuse: ClassVar[Sequence[Call]] = ()
    calls_with_refused_login: ClassVar[Sequence[Call]] = ()
    check_refuses: ClassVar[bool] = True
    logs_in: ClassVar[bool] = True
    untested: ClassVar[Sequence[str]] = ()
    sandbox: ClassVar[str] = "auto"
    answer: ClassVar[str] = "done"

    @pytest.fixture
    def connection(self) -> ConnectionLike:
        """The connection under test."""
        fail_without(self, "a fixture `connection`")

    @pytest.fixture
    def slow_connection(self, connection: Any) -> Any:
        """The connection for which ``slow_call`` is slow; ``connection`` unless overridden."""
        return connection

    @pytest.fixture
    def refused_connection(self) -> Any:
        """A connection whose login the service refuses, for ``calls_with_refused_login``."""
        fail_without(
            self, "a fixture `refused_connection`, or no calls in `calls_with_refused_login`"
        )

    # -- what it says about itself ---------------------------------------------------------

    def test_connection_has_a_name(self, connection: Any) -> None:
        assert isinstance(connection, ConnectionLike)
        assert check_name(connection.name, "the connection name") == connection.name
        assert connection.summary.strip(), "its class has no docstring and no summary"
        assert "\n" not in connection.summary

    async def test_actions_have_descriptions(self, connection: Any) -> None:
        actions = await connection.actions()
        names = [action.name for action in actions]
        assert names, "it has no action"
        assert len(set(names)) == len(names)
        assert names == [action.name for action in await connection.actions()]
        silent = [a.name for a in actions if a.summary == a.name.replace("_", " ")]
        assert not silent, f"without a docstring: {silent}"
        untyped: list[str] = []
        for action in actions:
            names_without_type = [p.name for p in action.parameters if not p.type_text]
            untyped += [f"{action.name}({name})" for name in names_without_type]
        assert not untyped
        for action in actions:
            assert action.effect in EFFECTS
            if action.schema is not None:
                schema = json.loads(json.dumps(action.schema()))  # raises if it is not JSON
                assert set(schema.get("properties", {})) == {p.name for p in action.parameters}
            assert action.declares_effect, (
                f"{action.name} has no effect: delf takes it for irreversible, and a person is "
                f"asked before each call; give effect=…, one of: {', '.join(EFFECTS)}"
            )

    async def test_allow_accepts_an_action_or_a_group(self, connection: Any) -> None:
        actions = await connection.actions()
        for action in actions:
            # ``allow`` takes names of actions and of groups. A group must not have the name of an
            # action, as allowing the action would allow the whole group.
            allowed = [item.name for item in actions if is_allowed((action.name,), item)]
            assert allowed == [action.name], (
                f"allow = [{action.name!r}] allows {', '.join(allowed)}: give their group in "
                "@action(…) a name that no action has"
            )

    async def test_class_describes_itself_without_settings(self, connection: Any) -> None:
        kind = cast("Any", type(connection))
        # If the class does not override ``actions``, its ``inspect`` has to list all actions.
        if getattr(kind, "actions", None) is Connection.actions:
            described = kind.inspect(verbose=True)
            assert described["total"] == len(await connection.actions())

    def test_inspect_describes_the_connection(self, connection: Any) -> None:
        described = connection.inspect(verbose=True)
        assert described["tool"] == connection.name
        json.dumps(described)
        json.dumps(connection.inspect())

    async def test_sample_calls_cover_every_action(self, connection: Any) -> None:
        called = {call.action for call in self.calls}
        names = [action.name for action in await connection.actions()]
        covered = {*called, *self.untested}
        uncalled = [name for name in names if name not in covered]
        assert not uncalled, (
            f"no Call succeeds with {', '.join(uncalled)}: add one to `calls`, or name it in "
            "`untested`; an action that only fails was never seen to work"
        )
        superfluous = [name for name in self.untested if name in called or name not in names]
        assert not superfluous, (
            f"`untested` names {', '.join(superfluous)}, which is tried or is not an action"
        )

    async def test_connection_describes_itself_consistently(self, connection: Any) -> None:
        texts = await self._model_texts(connection)
        await asyncio.sleep(_INSTANT)
        assert await self._model_texts(connection) == texts, (
            "the prompt changes from moment to moment: leave times and counters out, "
            "or no prompt can be cached and no task be replayed"
        )
        texts_without_context = await self._model_texts(connection, with_context=False)
        _check_no_time(texts, texts_without_context)
        # The context is read on one other day only, because a context may ask a slow service.
        first_shift, *other_shifts = TESTED_SHIFTS
        await self._check_equal_at(first_shift, connection, texts, with_context=True)
        for shift in other_shifts:
            await self._check_equal_at(shift, connection, texts_without_context, with_context=False)
        connection_class = cast("Any", type(connection))
        # If the actions are methods of the class, a new process can describe the class without an
        # instance, and thus without the connection's settings.
        if getattr(connection_class, "actions", None) is Connection.actions:
            await self._check_equal_in_processes(connection_class)

    async def _check_equal_at(
        self, shift: dt.timedelta, connection: Any, texts_of_today: str, *, with_context: bool
    ) -> None:
        """Fail if a model would read other texts about a connection at a later time."""
        with shifted_clock(connection, shift):
            try:
                texts = await self._model_texts(connection, with_context=with_context)
            except Exception:  # such as an expired login
                return
        assert texts == texts_of_today, (
            "the prompt is another one on another day: leave the date, the weekday and the "
            "time out of actions() and context()"
        )

    async def _check_equal_in_processes(self, connection_class: Any) -> None:
        both_descriptions = asyncio.gather(
            _describe_in_new_process(connection_class, "1"),
            _describe_in_new_process(connection_class, "2"),
        )
        one, other = await self.within(both_descriptions, _START_SECONDS)
        assert one == other, (
            "the prompt differs from process to process: sort what comes from a set"
        )

    async def _model_texts(self, connection: Any, *, with_context: bool = True) -> str:
        """Return all that a model reads about a connection, as JSON.

        Fail if the connection has an empty context.
        """
        actions = await connection.actions()
        schemas = [action.schema() for action in actions if action.schema is not None]
        action_texts = [
            [a.name, a.effect, a.summary, a.signature, a.description, a.returns_doc, a.notes]
            for a in actions
        ]
        context: str | None = None
        if with_context:
            context = await _context(connection)
            assert context is None or context.strip(), "its context is an empty text"
        summaries = [connection.inspect(verbose=True), connection.summary]
        return json.dumps([summaries, action_texts, schemas, context], default=str)

    # -- arguments ----------------------------------------------------------------------

    async def test_connection_refuses_invalid_arguments(self, connection: Any) -> None:
        for action in await connection.actions():
            with pytest.raises(ToolRefusedError):
                action.validate({**_placeholder_arguments(action), "no_such_argument": 1})
            required = [item.name for item in action.parameters if item.required]
            for name in required:
                rest = {
                    key: value
                    for key, value in _placeholder_arguments(action).items()
                    if key != name
                }
                with pytest.raises(ToolRefusedError, match=name):
                    action.validate(rest)
            for item in action.parameters:
                if "Any" not in item.type_text:
                    with pytest.raises(ToolRefusedError):
                        action.validate({**_placeholder_arguments(action), item.name: object()})

    # -- calls --------------------------------------------------------------------------

    async def test_results_can_be_stored(self, connection: Any) -> None:
        for call in self._calls():
            loads(dumps(await self._make(call, connection)))  # raises if it cannot be stored

    async def test_results_have_the_declared_type(self, connection: Any) -> None:
        for call in self._calls():
            declared_class = _result_class(await _action(connection, call.action))
            result = await self._make(call, connection)
            assert declared_class is None or isinstance(result, declared_class), (
                f"{call.action} says that it returns a {declared_class.__name__}, and gave a "
                f"{type(result).__name__}: scripts are written for what it says"
            )

    async def test_results_keep_within_the_limit(self, connection: Any) -> None:
        for call in self._calls():
            arguments = (await _action(connection, call.action)).validate(call.arguments)
            limit = next((arguments[name] for name in _LIMITS if name in arguments), None)
            result = await self._make(call, connection)
            if isinstance(limit, int) and isinstance(result, list):
                count = len(cast("list[Any]", result))
                assert count <= limit, (
                    f"{call.action} gave {count} items where {limit} were asked for: the "
                    "model's prompt becomes longer, and the task more expensive, than intended"
                )

    async def test_calls_keep_default_arguments(self, connection: Any) -> None:
        for call in self._calls():
            action = await _action(connection, call.action)
            signature_before = str(inspect.signature(action.call))
            await self._make(call, connection)
            signature_after = str(inspect.signature(action.call))
            assert signature_before == signature_after, (
                f"{call.action} changes a mutable default argument: the next call, also of another "
                f"user, starts with the changed value; now it is {signature_after[:200]}"
            )

    async def test_calls_can_overlap(self, connection: Any) -> None:
        # Add calls with other arguments: their results differ, so that a mix-up of results shows.
        calls = [*self._calls(), *await self._accepted_variants(connection)]
        # Make the calls one by one, twice, to know which results are the same in each call.
        first_results = [await self._encoded_result(call, connection) for call in calls]
        second_results = [await self._encoded_result(call, connection) for call in calls]
        rounds = await asyncio.gather(
            *(self._overlapping_results(calls, connection) for _ in range(_CONCURRENT))
        )
        for results in rounds:
            for call, first, second, result in zip(
                calls, first_results, second_results, results, strict=True
            ):
                is_repeatable = first == second
                if is_repeatable:
                    assert result == first, (
                        f"{call.action}: calls at one time are mixed up: keep a call's values "
                        "in variables, not in `self`"
                    )

    async def _overlapping_results(self, calls: Sequence[Call], connection: Any) -> list[bytes]:
        return await asyncio.gather(*(self._encoded_result(call, connection) for call in calls))

    async def _encoded_result(self, call: Call, connection: Any) -> bytes:
        # Encode at once: the result may change later.
        return dumps(await self._make(call, connection))

    async def _accepted_variants(self, connection: Any) -> list[Call]:
        """Return a few copies of the suite's calls with other arguments.

        The service accepts these arguments.
        """
        variants = [v for call in self._calls() for v in await _enum_variants(call, connection)]
        return [v for v in variants[:_MAX_VARIANTS] if await self._is_accepted(v, connection)]

    async def _is_accepted(self, call: Call, connection: Any) -> bool:
        try:
            await self._encoded_result(call, connection)
        except Exception:
            return False  # a simulated service may refuse the arguments
        return True

    async def test_calls_do_not_block_the_event_loop(self, connection: Any) -> None:
        for call in self._calls():
            await self.check_loop_stays_free(lambda call=call: self._make(call, connection))
        await self.check_loop_stays_free(lambda: _context(connection))

    @needs("failing_calls")
    async def test_failure_raises_a_delf_error(self, connection: Any) -> None:
        for call in self.failing_calls:
            with pytest.raises(DelfError) as caught:
                await self._make(call, connection)
            self.check_message_explains(caught.value)
        for call in self._calls():
            await self._make(call, connection)  # the connection still works after the failures

    @needs("slow_call")
    async def test_connection_works_after_a_cancelled_call(self, slow_connection: Any) -> None:
        call = self.slow_call
        connection = slow_connection
        assert call is not None
        work = asyncio.ensure_future(self._make(call, connection))
        await asyncio.wait({work}, timeout=_MOMENT)
        assert not work.done(), "slow_call is over at once"
        work.cancel()
        await asyncio.wait({work})
        assert work.cancelled()
        for good in self._calls():
            await self._make(good, connection)

    async def test_calls_can_be_cancelled_at_any_point(self, connection: Any) -> None:
        for call in self._calls():
            for iterations in LOOP_ITERATIONS:
                await cancel_after_iterations(
                    lambda call=call: self._make(call, connection), iterations
                )
            await self._make(call, connection)

    # -- checks -------------------------------------------------------------------------

    def test_connection_with_a_check_tests_refusals(self, connection: Any) -> None:
        if not isinstance(connection, SupportsCheck):
            assert not self.calls_to_refuse, "it has no `check`, and `calls_to_refuse` has calls"
            return
        assert self.calls_to_refuse or not self.check_refuses, (
            "the connection has a `check`: name calls in `calls_to_refuse` that the check does not "
            "allow, or set check_refuses = False if the check only shows what would happen"
        )

    async def test_check_refuses_calls_to_refuse(self, connection: Any) -> None:
        for call in self.calls_to_refuse:
            verdict = await _verdict(call, connection)
            assert isinstance(verdict, (Refused, NeedsApproval)), (
                f"{call.action}: its check says {type(verdict).__name__}; where it cannot judge, "
                "it has to refuse, to raise, or to ask a person (NeedsApproval)"
            )

    async def test_check_returns_a_verdict(self, connection: Any) -> None:
        if isinstance(connection, SupportsCheck):
            for call in self._calls():
                verdict = await _verdict(call, connection)
                assert isinstance(verdict, (Allowed, NeedsApproval, Refused)), (
                    f"{call.action}: its check returns {verdict!r}, which is no verdict"
                )

    # -- secrets ------------------------------------------------------------------------

    async def test_secrets_are_never_shown(self, connection: Any) -> None:
        settings = getattr(connection, "settings", None)
        texts = [*reprs_of(connection), repr(settings), str(settings)]
        texts += [json.dumps(connection.inspect(verbose=True)), repr(connection.metadata)]
        with captured_logs() as lines, started_programs() as programs:
            texts.append(str(await _context(connection)))
            for call in self._calls():
                text = dumps(await self._make(call, connection)).decode(errors="replace")
                self._fail_if_secret_in(
                    connection, text, f"a result of {call.action} holds a secret"
                )
            for call in self.failing_calls:
                with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it raises
                    await self._make(call, connection)
                texts += map(texts_of, chained_exceptions(caught.value))
            texts += reprs_of(connection)
            await _close(connection)
        for text in texts:
            self._fail_if_secret_in(connection, text, "a secret is shown")
        for line in lines:
            self._fail_if_secret_in(connection, line, "a secret is logged or printed")
        for line in programs:
            self._fail_if_secret_in(connection, line, IN_A_COMMAND)

    def test_secret_settings_are_declared_as_secrets(self, connection: Any) -> None:
        settings = getattr(connection, "settings", None)
        if not isinstance(settings, PluginSettings):
            return
        fields = type(settings).model_fields
        plain = plain_secrets(types_of(fields))
        assert not plain, (
            f"the setting {plain[0]!r} is a plain str: `delf config`, errors and logs would show "
            "it; declare it as delf.settings.SecretStr"
        )
        for name, value in settings:
            is_plain_secret = isinstance(value, str) and value in {*self.secrets}
            assert not is_plain_secret, (
                f"the setting {name!r} is a plain str and holds one of the suite's `secrets`: "
                "declare it as delf.settings.SecretStr"
            )

    def test_connection_with_a_secret_tests_a_refused_login(self, connection: Any) -> None:
        has_secret = bool(declared_secrets_of(getattr(connection, "settings", None)))
        if not has_secret or not self.logs_in:
            return
        assert self.calls_with_refused_login, (
            "the connection has a secret, and no test shows what happens if the service refuses "
            "the secret: name calls in `calls_with_refused_login`, with a fixture "
            "`refused_connection`, or set logs_in = False"
        )

    @needs("calls_with_refused_login")
    async def test_refused_login_raises(
        self, connection: Any, request: pytest.FixtureRequest
    ) -> None:
        # First, use the valid login: if the connection keeps it in a class or module, the calls
        # with the refused login succeed.
        results = [(call, await self._make(call, connection)) for call in self._calls()]
        refused_connection = request.getfixturevalue("refused_connection")
        try:
            await self._check_refused(refused_connection)
            refused_actions = {call.action for call in self.calls_with_refused_login}
            for call, result in results:
                # Other actions may work without a login, but must not return an empty result
                # because of the refusal.
                if result and call.action not in refused_actions:
                    await self._check_raises_or_finds_something(call, refused_connection)
        finally:
            await _close(refused_connection)

    async def _check_raises_or_finds_something(self, call: Call, refused_connection: Any) -> None:
        """Fail if a call with a refused login returns an empty result instead of raising.

        Only for calls that found something with the right login.
        """
        try:
            result = await self._make(call, refused_connection)
        except Exception:
            return
        # False is an answer, such as that a file does not exist, and not an empty result.
        assert result or result is False, (
            f"{call.action} gave {result!r} with the login that the service refuses, and more with "
            "the right one: a task would take the refusal for an empty result; raise "
            "ConnectionUnavailableError"
        )

    async def _check_refused(self, refused_connection: Any) -> None:
        """Fail unless each call with a refused login raises a ``DelfError``.

        Also fail if the error shows the login.
        """
        for call in self.calls_with_refused_login:
            try:
                result = await self._make(call, refused_connection)
            except DelfError as refusal:
                for text in map(texts_of, chained_exceptions(refusal)):
                    self._fail_if_secret_in(refused_connection, text, "the error shows the login")
                continue
            except Exception as error:
                pytest.fail(
                    f"{call.action} raised {type(error).__name__} where the login is refused: "
                    "raise ConnectionUnavailableError, so that the task says what to do"
                )
            pytest.fail(
                f"{call.action} gave {result!r} although the service refuses the login: a task "
                "would take the refusal for an empty result"
            )

    async def test_use_leaves_the_process_unchanged(self, connection: Any) -> None:
        argument_values = (value for call in self._calls() for value in call.arguments.values())
        argument_texts = {str(value) for value in argument_values if isinstance(value, str)}

        # check_nothing_remains() calls this function twice, closes the connection, and compares the
        # process with its state before.
        async def use() -> None:
            for call in self._calls():
                await self._make(call, connection)

        secrets = declared_secrets_of(getattr(connection, "settings", None))
        # No class and no module may contain these texts after the use.
        forbidden_texts = argument_texts | secrets
        await self.check_nothing_remains(connection, use, forbidden_texts=forbidden_texts)

    # -- its life -----------------------------------------------------------------------

    async def test_use_after_repeated_close_works(self, connection: Any) -> None:
        await _close(connection)
        for _ in range(2):
            for call in self._calls():
                await self._make(call, connection)
            for _ in range(2):
                await _close(connection)

    # -- as a part of an agent ----------------------------------------------------------

    async def test_connection_works_in_a_task(self, connection: Any) -> None:
        from delf import Agent

        host = TestHost.discover(environ={})
        if not host.specs(SandboxSpec):
            pytest.skip("needs a sandbox: delf plugins install sandbox-local")
        # The replies after the script are for actions that ask a model.
        model = ScriptedModel(default=self._reply)
        host.provide(model.spec, model.factory)
        lines = [f"print(repr({self._source(call, connection)})[:200])" for call in self._calls()]
        # The lines contain reprs such as ``datetime.date(2026, 10, 31)``, which need these imports.
        model.writes("\n".join(["import datetime, decimal", "from decimal import Decimal", *lines]))
        async with Agent(
            tools=self._tools_of(connection),
            llm="scripted",
            host=host,
            sandbox=self.sandbox,
            approval_mode="approve_all",
            retry_count=0,
        ) as agent:
            response = await agent.arun("Try everything.")
        response.raise_for_status()
        assert [call.status for call in response.trace.tool_calls] == ["ok"] * len(self.calls)
        for prompt in model.prompts:
            self._fail_if_secret_in(connection, prompt, "a secret is in a prompt")
        text = json.dumps(response.to_dict(), default=str)
        self._fail_if_secret_in(connection, text, "a secret is in the response")

    def _fail_if_secret_in(self, connection: Any, text: str, what: str) -> None:
        """Fail if a text contains a secret; the failure does not show the secret."""
        __tracebackhide__ = True
        secrets_of(self, {"connection": connection}).check(text, f"{type(self).__name__}: {what}")

    def _tools_of(self, connection: Any) -> list[Any]:
        return [connection]

    def _source(self, call: Call, connection: Any) -> str:
        return call.source(connection)

    def _make(self, call: Call, connection: Any) -> Coroutine[Any, Any, Any]:
        return call.make(connection, ScriptedTask(answer=self.answer))

    def _reply(self, request: ModelRequest) -> str:
        if request.purpose == "call":
            return self.answer
        return script(f"print({self.answer!r})")

    def _calls(self) -> Sequence[Call]:
        return self.calls or fail_without(self, "`calls`, at least one Call that succeeds")


async def _action(connection: ConnectionLike, name: str) -> Action:
    actions = await connection.actions()
    match = next((action for action in actions if action.name == name), None)
    if match is None:
        pytest.fail(f"{connection.name} has no action {name!r}, but {[a.name for a in actions]}")
    return match


async def _enum_variants(call: Call, connection: ConnectionLike) -> list[Call]:
    """Return copies of a read call, each with another value of one enumeration argument.

    For a call that may change something, return no copies.
    """
    action = await _action(connection, call.action)
    if action.effect != "read" or action.schema is None:
        return []
    variants: list[Call] = []
    for name, schema in action.schema().get("properties", {}).items():
        current_value = call.arguments.get(name, schema.get("default"))
        variants += [
            Call(call.action, **{**call.arguments, name: value})
            for value in schema.get("enum", ())
            if value != current_value
        ]
    return variants


def _check_no_time(texts: str, texts_without_context: str) -> None:
    """Fail if the texts that a model reads contain the current time or date.

    Args:
        texts: All texts that a model reads.
        texts_without_context: The same texts without the connection's context, which may contain
            dates of the connection's data. So dates in other forms than ISO are looked for only in
            these texts.
    """
    now = dt.datetime.now().astimezone()
    # The first digits of the Unix time, because the texts are some seconds old.
    digits_of_unix_time = str(int(now.timestamp()) // 1000)
    for text in (f"{now:%Y-%m-%d}", f"{now:%H:%M:%S}", digits_of_unix_time):
        assert text not in texts, "the current time is in the prompt: leave it out"
    for form in _DATES:
        assert f"{now:{form}}" not in texts_without_context, (
            f"the current date is in the prompt, as {now:{form}}: leave it out"
        )


def _result_class(action: Action) -> type | None:
    """Return the class in an action's return annotation, if the class is built in; otherwise None.

    ``isinstance`` rejects many other annotations, such as ``Any``, ``Literal`` or a ``TypedDict``.
    """
    try:
        hint = typing.get_type_hints(action.call).get("return")
    except (NameError, TypeError):  # a name that only type checkers import
        return None
    kind = typing.get_origin(hint) or hint
    return kind if kind in _CHECKED_RESULT_CLASSES else None


async def _verdict(call: Call, connection: Any) -> Any:
    """Return the connection's verdict on a call, obtained as the approval gate would."""
    arguments = (await _action(connection, call.action)).validate(call.arguments)
    proposed = ProposedCall(action=call.action, arguments=arguments)
    try:
        if inspect.iscoroutinefunction(connection.check):
            return await connection.check(proposed)
        verdict = await asyncio.to_thread(connection.check, proposed)
        return await verdict if inspect.isawaitable(verdict) else verdict
    except Exception as error:  # like the gate, refuse a call whose check fails
        return Refused(message=str(error))


async def _describe_in_new_process(kind: type, seed: str) -> str | None:
    """Describe a class in a process with another hash seed; None if the class is not importable."""
    arguments = (json.dumps(sys.path), kind.__module__, kind.__qualname__)
    process = await asyncio.create_subprocess_exec(
        own_python(),
        "-c",
        _INSPECT,
        *arguments,
        env={**os.environ, "PYTHONHASHSEED": seed},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    output, _ = await process.communicate()
    return output.decode() if process.returncode == 0 else None


async def _context(connection: Any) -> str | None:
    """Return what a connection adds to the prompt of a task; None if it adds nothing."""
    if not isinstance(connection, SupportsContext):
        return None
    any_task = "What is there?"  # a connection has to accept every text as the task
    return await connection.context(any_task)


async def _close(connection: Any) -> None:
    if isinstance(connection, SupportsClose):
        await connection.aclose()


def _placeholder_arguments(action: Action) -> dict[str, Any]:
    """Return a text for each required argument, for calls that must be refused for another reason.

    The texts only prevent the refusal of a missing argument; they may be invalid values.
    """
    return {item.name: "x" for item in action.parameters if item.required}
