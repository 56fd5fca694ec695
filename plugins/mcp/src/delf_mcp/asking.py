"""Questions of a server during a call: to a person, to the agent's model, and for roots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

import mcp_types as types
from mcp.client.session import ClientRequestContext

from delf import CallContext
from delf.errors import DelfError, ToolDefinitionError, ToolRefusedError
from delf.messages import system
from delf.tools.json_schema import Checker
from delf_mcp.questions import Unshowable, form_question, model_question, url_question
from delf_mcp.results import as_message

_MAX_QUESTIONS: Final = 50
_MAX_FIELDS: Final = 50
_caller: ContextVar[Caller | None] = ContextVar("delf_mcp_caller", default=None)

Sampling = Literal["ask", "allow", "refuse"]


class SilenceTimeout:
    """The timeout for a silent server, paused while a person is asked.

    Args:
        limit: The timeout to reschedule.
        seconds: Seconds without a message from the server.
    """

    def __init__(self, limit: asyncio.Timeout, seconds: float) -> None:
        self._limit = limit
        self._seconds = seconds
        self._questions = 0

    async def alive(self, progress: float, total: float | None, message: str | None) -> None:
        """Reschedule the timeout on a progress notification."""
        del progress, total, message
        self._begin()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Pause the timeout while a person is asked."""
        self._questions += 1
        self._begin()
        try:
            yield
        finally:
            self._questions -= 1
            self._begin()

    def _begin(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self._limit.expired():
            self._limit.reschedule(None if self._questions else now + self._seconds)


class Caller:
    """A call in progress, and the server's questions for it.

    Args:
        context: The call's context.
    """

    def __init__(self, context: CallContext) -> None:
        self.context = context
        self.silence: SilenceTimeout | None = None
        self._turn = asyncio.Lock()
        self._question_count = 0

    @asynccontextmanager
    async def question(self) -> AsyncGenerator[bool]:
        """Serialise questions to the person; yield False if the limit of questions is reached."""
        async with self._turn:
            self._question_count += 1
            if self._question_count > _MAX_QUESTIONS:
                yield False
            elif self.silence is None:
                yield True
            else:
                with self.silence.paused():
                    yield True


class Asking:
    """Answers a server's questions on behalf of the call in progress.

    Args:
        name: The connection's name.
        sampling: Whether the server may use the agent's model.
        roots: Folders that the server may work in.
    """

    def __init__(self, name: str, sampling: Sampling, roots: Sequence[str]) -> None:
        self._name = name
        self._sampling = sampling
        self._roots = roots
        self._calls: list[Caller] = []

    @contextmanager
    def calling(self, context: CallContext) -> Generator[None]:
        """Register a call in progress, to which the server's questions belong."""
        caller = Caller(context)
        self._calls.append(caller)
        token = _caller.set(caller)
        try:
            yield
        finally:
            _caller.reset(token)
            self._calls.remove(caller)

    @property
    def context(self) -> CallContext | None:
        """The call in progress here; None if unknown."""
        caller = _caller.get()
        return None if caller is None else caller.context

    def waiting(self, timeout: SilenceTimeout) -> None:
        """Record the timeout of the call that waits for the server."""
        caller = _caller.get()
        if caller is not None:
            caller.silence = timeout

    @property
    def callbacks(self) -> dict[str, Any]:
        """The client's callbacks; features without a callback are not offered to the server."""
        callbacks_: dict[str, Any] = {"elicitation_callback": self.elicit}
        if self._sampling != "refuse":
            callbacks_["sampling_callback"] = self.sample
        if self._roots:
            callbacks_["list_roots_callback"] = self.list_roots
        return callbacks_

    async def elicit(
        self, _context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Ask a person to fill a form, as an approval whose arguments are the form's fields."""
        caller = self._caller()
        if caller is None:
            return _error(self._unclear())
        try:
            if isinstance(params, types.ElicitRequestURLParams):
                return await self._elicit_url(caller, params)
            return await self._elicit_form(caller, params)
        except (Unshowable, ToolDefinitionError) as error:
            return _error(error.message)

    async def _elicit_url(
        self, caller: Caller, params: types.ElicitRequestURLParams
    ) -> types.ElicitResult:
        if urlsplit(params.url).scheme not in ("http", "https"):
            raise Unshowable("only http and https addresses are shown to the user")
        question = url_question(self._name, params)
        agreed = await self._consent(caller, question, {"url": params.url}, name="elicitation")
        return types.ElicitResult(action="decline" if agreed is None else "accept")

    async def _elicit_form(
        self, caller: Caller, params: types.ElicitRequestFormParams
    ) -> types.ElicitResult:
        schema: Mapping[str, Any] = params.requested_schema
        properties = schema.get("properties")
        fields = cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}
        if len(fields) > _MAX_FIELDS:
            raise Unshowable(f"a form has at most {_MAX_FIELDS} fields")
        checker = Checker(schema, "the form")

        def fit(arguments: Mapping[str, Any]) -> dict[str, Any]:
            """Convert a person's input to the form's types; None omits a field."""
            values = {name: value for name, value in arguments.items() if value is not None}
            fault = checker.fault(values)
            if fault is not None:
                raise ToolRefusedError(str(fault))
            return values

        values = {name: field.get("default") for name, field in _objects(fields)}
        question = form_question(self._name, params.message, schema)
        agreed = await self._consent(caller, question, values, name="elicitation", fit=fit)
        if agreed is None:
            return types.ElicitResult(action="decline")
        try:
            return types.ElicitResult(action="accept", content=fit(agreed))
        except ToolRefusedError:  # approved with invalid values
            return types.ElicitResult(action="cancel")

    async def sample(
        self, _context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        """Ask the agent's model, under its budget."""
        caller = self._caller()
        if caller is None:
            return _error(self._unclear())
        if params.tools:
            return _error("the model is not given tools of a server")
        try:
            messages = [as_message(message) for message in params.messages]
            question = model_question(self._name, caller.context.llm.model, params)
            if self._sampling == "ask":
                agreed = await self._consent(caller, question, {}, name="sampling")
                if agreed is None:
                    return _error("the user does not want the model to be asked")
            if params.system_prompt:
                messages.insert(0, system(params.system_prompt))
            reply = await caller.context.ask(messages, settings=_settings(params))
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
        paths = await asyncio.to_thread(lambda: [Path(root).resolve() for root in self._roots])
        roots = [{"uri": path.as_uri(), "name": path.name} for path in paths]
        return types.ListRootsResult(roots=[types.Root.model_validate(root) for root in roots])

    async def _consent(
        self, caller: Caller, question: str, arguments: dict[str, Any], **options: Any
    ) -> Mapping[str, Any] | None:
        async with caller.question() as allowed:
            if not allowed:
                raise Unshowable(f"a call has at most {_MAX_QUESTIONS} questions for the user")
            return await caller.context.consent(question, arguments, **options)

    def _unclear(self) -> str:
        """Return the reason that nobody can be asked."""
        if self._calls:
            return "calls of several tasks are under way, and the question does not say for which"
        return "no call is under way for which somebody could be asked"

    def _caller(self) -> Caller | None:
        """Return the call that the server's question belongs to: the one that the server names.

        If the server names no call, return the latest call, provided that all calls in progress
        are of one task. Otherwise return None, so that no question reaches another user.
        """
        named = _caller.get()
        if named is not None:
            return named
        tasks = {caller.context.task_id for caller in self._calls}
        return self._calls[-1] if len(tasks) == 1 else None


def _objects(fields: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (n, cast("dict[str, Any]", f) if isinstance(f, dict) else {}) for n, f in fields.items()
    ]


def _settings(params: types.CreateMessageRequestParams) -> dict[str, Any]:
    settings: dict[str, Any] = {"max_tokens": params.max_tokens}
    if params.temperature is not None:
        settings["temperature"] = params.temperature
    if params.stop_sequences:
        settings["stop"] = params.stop_sequences
    return settings


def _error(message: str) -> types.ErrorData:
    return types.ErrorData(code=types.INVALID_REQUEST, message=message)
