"""Questions of a server during a call: to a person, to the agent's model, and for folders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Literal, cast

import mcp_types as types
from mcp.client.session import ClientRequestContext

from delf import CallContext
from delf.environment import beside
from delf.errors import DelfError, ToolDefinitionError, ToolRefusedError
from delf.messages import system
from delf.network.urls import split_http_url
from delf.tools.json_schema import Checker
from delf_mcp.questions import Unshowable, form_question, model_question, url_question
from delf_mcp.results import as_message

_MAX_QUESTIONS: Final = 50
_MAX_FIELDS: Final = 50
_current_call: ContextVar[PendingCall | None] = ContextVar("delf_mcp_caller", default=None)

Sampling = Literal["ask", "allow", "refuse"]


class IdleTimeout:
    """A timeout that restarts at each sign of progress, and is paused while a person is asked.

    Args:
        limit: The asyncio timeout, which is rescheduled.
        seconds: The seconds that the server may be silent.
    """

    def __init__(self, limit: asyncio.Timeout, seconds: float) -> None:
        self._limit = limit
        self._seconds = seconds
        self._open_questions = 0

    async def restart_on_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        """Restart the timeout; a progress callback of the MCP client."""
        del progress, total, message
        self._reschedule()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Pause the timeout while a person is asked."""
        self._open_questions += 1
        self._reschedule()
        try:
            yield
        finally:
            self._open_questions -= 1
            self._reschedule()

    def _reschedule(self) -> None:
        """Set the deadline to ``seconds`` from now; remove it while a question is open."""
        now = asyncio.get_running_loop().time()
        if not self._limit.expired():
            self._limit.reschedule(None if self._open_questions else now + self._seconds)


class PendingCall:
    """A call in progress, during which the server may ask questions.

    Args:
        context: The call's context.
    """

    def __init__(self, context: CallContext) -> None:
        self.context = context
        self.idle_timeout: IdleTimeout | None = None
        self._question_lock = asyncio.Lock()
        self._question_count = 0

    @asynccontextmanager
    async def question(self) -> AsyncGenerator[bool]:
        """Wait for earlier questions of the call, and pause the call's timeout.

        Yields:
            True; or False if the call has already had the maximum number of questions.
        """
        async with self._question_lock:
            self._question_count += 1
            if self._question_count > _MAX_QUESTIONS:
                yield False
            elif self.idle_timeout is None:
                yield True
            else:
                with self.idle_timeout.paused():
                    yield True


class ServerQuestions:
    """Answers the questions that a server asks its client during calls.

    Args:
        name: The connection's name.
        sampling: The reaction if the server wants to use the agent's model: ``allow``, ``refuse``,
            or ``ask`` a person.
        roots: The folders that the server may work in.
    """

    def __init__(self, name: str, sampling: Sampling, roots: Sequence[str]) -> None:
        self._name = name
        self._sampling = sampling
        self._roots = roots
        self._calls: list[PendingCall] = []

    @contextmanager
    def answered_by(self, context: CallContext) -> Generator[None]:
        """Answer the server's questions through a call's context while the block makes the call."""
        call = PendingCall(context)
        self._calls.append(call)  # for questions that do not show to which call they belong
        token = _current_call.set(call)
        try:
            yield
        finally:
            _current_call.reset(token)
            self._calls.remove(call)

    @property
    def context(self) -> CallContext | None:
        """The context of the call that this asyncio task makes; None outside of a call."""
        call = _current_call.get()
        return None if call is None else call.context

    def set_timeout(self, timeout: IdleTimeout) -> None:
        """Set the timeout of the current call.

        The timeout is paused while a question of the server waits for an answer.
        """
        call = _current_call.get()
        if call is not None:
            call.idle_timeout = timeout

    @property
    def callbacks(self) -> dict[str, Any]:
        """The callbacks for the MCP client, as keyword arguments.

        The client does not offer a feature without a callback to the server.
        """
        arguments: dict[str, Any] = {"elicitation_callback": self.elicit}
        if self._sampling != "refuse":
            arguments["sampling_callback"] = self.sample
        if self._roots:
            arguments["list_roots_callback"] = self.list_roots
        return arguments

    async def elicit(
        self, _context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Ask a person to fill in a form or to open a URL.

        The question is an approval request. The fields of a form are the request's arguments.
        """
        call = self._asking_call()
        if call is None:
            return _error(self._why_no_call())
        try:
            if isinstance(params, types.ElicitRequestURLParams):
                return await self._elicit_url(call, params)
            return await self._elicit_form(call, params)
        except (Unshowable, ToolDefinitionError) as error:
            return _error(error.message)

    async def _elicit_url(
        self, call: PendingCall, params: types.ElicitRequestURLParams
    ) -> types.ElicitResult:
        """Ask a person to open a URL, such as that of a login."""
        if split_http_url(params.url) is None:
            raise Unshowable("only http and https addresses are shown to the user")
        question = url_question(self._name, params)
        approved_arguments = await self._ask_consent(
            call, question, {"url": params.url}, name="elicitation"
        )
        return types.ElicitResult(action="decline" if approved_arguments is None else "accept")

    async def _elicit_form(
        self, call: PendingCall, params: types.ElicitRequestFormParams
    ) -> types.ElicitResult:
        """Ask a person to fill in a form."""
        form = _Form(params.requested_schema)
        question = form_question(self._name, params.message, params.requested_schema)
        approved_arguments = await self._ask_consent(
            call,
            question,
            form.defaults(),
            name="elicitation",
            fit=form.check,  # checks the values if the person edits them
        )
        if approved_arguments is None:
            return types.ElicitResult(action="decline")
        try:
            # If the person edited nothing, these are the defaults of the server, which are not
            # checked yet.
            return types.ElicitResult(action="accept", content=form.check(approved_arguments))
        except ToolRefusedError:
            return types.ElicitResult(action="cancel")

    async def sample(
        self, _context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        """Ask the agent's model, within the task's budget, if the person agrees."""
        call = self._asking_call()
        if call is None:
            return _error(self._why_no_call())
        if params.tools:
            return _error("delf does not pass a server's tools to the model")
        try:
            messages = [as_message(message) for message in params.messages]
            question = model_question(self._name, call.context.llm.model, params)
            if self._sampling == "ask":
                no_arguments: dict[str, Any] = {}  # the question has all that the person approves
                approved_arguments = await self._ask_consent(
                    call, question, no_arguments, name="sampling"
                )
                if approved_arguments is None:
                    return _error("the user does not want the model to be asked")
            if params.system_prompt:
                messages.insert(0, system(params.system_prompt))
            reply = await call.context.ask(messages, settings=_settings(params))
        except (DelfError, Unshowable) as error:
            return _error(error.message)
        return types.CreateMessageResult(
            role="assistant",
            content=types.TextContent(type="text", text=reply.text),
            model=reply.model,
            stop_reason="maxTokens" if reply.broken_by == "length" else "endTurn",
        )

    async def list_roots(
        self, _context: ClientRequestContext
    ) -> types.ListRootsResult | types.ErrorData:
        """Return the folders that the settings name."""
        paths = await asyncio.to_thread(
            lambda: [Path(beside(Path(), root)).resolve() for root in self._roots]
        )
        roots = [{"uri": path.as_uri(), "name": path.name} for path in paths]
        return types.ListRootsResult(roots=[types.Root.model_validate(root) for root in roots])

    async def _ask_consent(
        self, call: PendingCall, question: str, arguments: dict[str, Any], **options: Any
    ) -> Mapping[str, Any] | None:
        """Ask the person; return the approved arguments, or None if the person declines."""
        async with call.question() as is_allowed:
            if not is_allowed:
                raise Unshowable(f"a call has at most {_MAX_QUESTIONS} questions for the user")
            return await call.context.consent(question, arguments, **options)

    def _why_no_call(self) -> str:
        if self._calls:
            return "calls of several tasks are under way, and the question does not say for which"
        return "no call is under way for which somebody could be asked"

    def _asking_call(self) -> PendingCall | None:
        """Return the call during which the server asks its question; None if unknown.

        Some transports do not show to which call a question belongs. In this case, return the
        latest call if all calls in progress belong to one task. Otherwise return None, because the
        question might reach the user of another task.
        """
        call = _current_call.get()
        if call is not None:
            return call
        task_ids = {call.context.task_id for call in self._calls}
        return self._calls[-1] if len(task_ids) == 1 else None


class _Form:
    """A form that a server asks a person to fill in.

    Args:
        schema: The schema of the values, an object with a property for each field.

    Raises:
        Unshowable: If the form has too many fields.
        ToolDefinitionError: If the schema is invalid.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        properties = schema.get("properties")
        self._fields = cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}
        if len(self._fields) > _MAX_FIELDS:
            raise Unshowable(f"a form has at most {_MAX_FIELDS} fields")
        self._checker = Checker(schema, "the form")

    def defaults(self) -> dict[str, Any]:
        """Return the default value of each field; None for a field without a default."""
        defaults: dict[str, Any] = {}
        for name, schema in self._fields.items():
            field = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
            defaults[name] = field.get("default")
        return defaults

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the filled-in fields.

        Raises:
            ToolRefusedError: If a value does not match the form's schema.
        """
        values = {name: value for name, value in arguments.items() if value is not None}
        fault = self._checker.fault(values)
        if fault is not None:
            raise ToolRefusedError(str(fault))
        return values


def _settings(params: types.CreateMessageRequestParams) -> dict[str, Any]:
    settings: dict[str, Any] = {"max_tokens": params.max_tokens}
    if params.temperature is not None:
        settings["temperature"] = params.temperature
    if params.stop_sequences:
        settings["stop"] = params.stop_sequences
    return settings


def _error(message: str) -> types.ErrorData:
    return types.ErrorData(code=types.INVALID_REQUEST, message=message)
