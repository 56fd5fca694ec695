"""A project as an MCP server: its connections' actions as tools, and ``run`` for whole tasks."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from pydantic import ValidationError

from delf import Agent, __version__
from delf.errors import DelfError, ToolRefusedError
from delf.events import ASK, CallPrinted, CallStarted, Event, ModelCalled
from delf.protocols.approval import ApprovalRequest, Decision, Rejected
from delf.tools.stubs import FIND_TOOLS
from delf.types import can_be_undone
from delf_engine.one_call import LIST_TOOLS, ONE_CALL, call_task
from delf_mcp.forms import decision_of, question_of
from delf_mcp.outputs import Outputs
from delf_mcp.results import blocks_of

_log = logging.getLogger(__name__)

_RUN: Final = "run"
_ANSWER: Final = "approval"
_MAX_NAME_CHARACTERS: Final = 64
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
_PREFIXES_OF_OWN_TOOLS: Final = ("llm.", "files.")
_OWN_TOOLS: Final = frozenset({ASK, FIND_TOOLS})
_INSTRUCTIONS: Final = (
    "Each tool is an action of a connection. `run` has a task in plain words done by a script that "
    "may use all of them. The user is asked, by elicitation, before what matters."
)
_CANNOT_ASK: Final = "it needs approval, and the client cannot ask its user"
_ABANDONED: Final = (
    "nothing waits for this answer: the call has ended, or was given up because the answer took "
    "too long; what it did until then is done, so look before you call it again"
)
_MAX_PROGRESS_CHARACTERS: Final = 500
MakeAgent = Callable[..., Agent]
_Question = tuple[ApprovalRequest, asyncio.Future[Decision]]
"""A question for a client's user, and the future that gets the decision."""


class Work:
    """A call or task that a client has started, with the questions for the client's user.

    Args:
        coroutine: The coroutine of the call or task, which returns the content for the client.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, list[types.ContentBlock]]) -> None:
        self.questions: asyncio.Queue[_Question] = asyncio.Queue()
        self.open_question: _Question | None = None
        """The newest question that the client got, which may be decided by now; None at first."""
        # The progress messages for the client; None after the last message.
        self._progress: asyncio.Queue[str | None] = asyncio.Queue()
        self._reported_step_count = 0
        # The task copies the current context, so that the coroutine finds this object there.
        token = _current_work.set(self)
        try:
            self.task = asyncio.ensure_future(coroutine)
        finally:
            _current_work.reset(token)

    async def next_question(self) -> ApprovalRequest | None:
        """Return the next question for the user; None when the work is done.

        If the client has left the previous question unanswered, that question is rejected.
        """
        self.refuse("the client left the question unanswered")
        while True:
            from_queue = asyncio.ensure_future(self.questions.get())
            await asyncio.wait({from_queue, self.task}, return_when=asyncio.FIRST_COMPLETED)
            if not from_queue.done():
                from_queue.cancel()
                return None
            self.open_question = from_queue.result()
            request, future_decision = self.open_question
            if not future_decision.done():  # a request may have expired in the queue
                return request

    async def wait_for_decision(self) -> None:
        """Wait until the open question is decided or has expired."""
        if self.open_question is not None:
            _, future_decision = self.open_question
            await asyncio.wait({future_decision})

    def answer(self, result: Any) -> None:
        """Pass the client's answer to the open question.

        Args:
            result: The response to the question, as the client sent it.
        """
        self._decide(lambda request: decision_of(request, result))

    def refuse(self, reason: str) -> None:
        """Reject the open question, because the client's user cannot be asked or did not answer."""
        self._decide(lambda _: Rejected(reason=reason))

    def _decide(self, decision: Callable[[ApprovalRequest], Decision]) -> None:
        """Decide the open question; no-op if there is none or it is already decided."""
        if self.open_question is None:
            return
        request, future_decision = self.open_question
        if not future_decision.done():
            future_decision.set_result(decision(request))

    def queue_progress(self, event: Event) -> None:
        """Queue a progress message for the client if an event, such as CallStarted, is progress."""
        match event:
            case CallPrinted():
                self._progress.put_nowait(event.text.strip()[:_MAX_PROGRESS_CHARACTERS])
            case CallStarted():
                self._progress.put_nowait(event.action)
            case ModelCalled():
                self._progress.put_nowait(f"asks {event.model}")
            case _:
                pass

    @asynccontextmanager
    async def sending_progress(self, context: ServerRequestContext[Any]) -> AsyncGenerator[None]:
        """Send progress notifications to the client while the block runs."""
        sender = asyncio.create_task(self._send_progress(context))
        try:
            yield
        except BaseException:  # the client is gone, and messages to it may wait forever
            sender.cancel()
            raise
        finally:
            self._progress.put_nowait(None)  # the sender sends the earlier messages, and then ends
            await asyncio.wait({sender})
            if not sender.cancelled() and (error := sender.exception()) is not None:
                _log.debug("a client gets no more progress of its call: %s", error)

    async def _send_progress(self, context: ServerRequestContext[Any]) -> None:
        while (message := await self._progress.get()) is not None:
            self._reported_step_count += 1
            await context.session.report_progress(self._reported_step_count, message=message)


_current_work: ContextVar[Work | None] = ContextVar("delf_mcp_work", default=None)


class Served:
    """The tools for MCP clients: one for each action of a project, and ``run``.

    With ``run``, a client gives an agent a whole task in plain words.

    Args:
        make_agent: Makes an agent of the project, with keyword arguments of :class:`delf.Agent`.
    """

    def __init__(self, make_agent: MakeAgent) -> None:
        # Makes the single calls of actions.
        self._call_agent = make_agent(strategy=ONE_CALL, on_confirm=self._confirm)
        # Does the tasks of the tool ``run``. The client's user answers the questions of a script in
        # the same way as requests for approval.
        self._task_agent = make_agent(on_confirm=self._confirm, on_ask=self._confirm)
        # The tools' definitions by the tools' names for clients; empty until the first listing.
        self._tools: dict[str, types.Tool] = {}
        # The names of the tools' actions, also by the tools' names for clients.
        self._action_names: dict[str, str] = {}
        self._outputs = Outputs()  # the files that clients may read
        # The work that waits for a client's answer, and the timer that cancels the work. The key is
        # the secret token with which the client returns.
        self._suspended: dict[str, tuple[Work, asyncio.TimerHandle]] = {}
        self._listing_lock = asyncio.Lock()

    def server(self) -> Server[Any]:
        """Return an MCP server with the tools, to run on any transport."""
        return Server(
            "delf",
            version=__version__,
            instructions=_INSTRUCTIONS,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=self.list_resources,
            on_read_resource=self.read_resource,
        )

    async def aclose(self) -> None:
        """Stop all work, and release resources."""
        for key in list(self._suspended):
            self._abandon(key)
        await self._call_agent.astop()
        await self._task_agent.astop()

    async def list_tools(
        self, _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """Return all actions that a script could call, and ``run``."""
        return types.ListToolsResult(tools=list((await self._list_once()).values()))

    async def list_resources(
        self, _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """Return an empty list; a client gets links to files in the answer of a task."""
        return types.ListResourcesResult(resources=[])

    async def read_resource(
        self, _context: ServerRequestContext[Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Return an output file of a task.

        Raises:
            MCPError: If the URI is no link to such a file, or the file is unreadable.
        """
        try:
            return types.ReadResourceResult(contents=[await self._outputs.read(str(params.uri))])
        except ValueError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None

    async def call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Make a call or run a task, asking the client's user if necessary.

        If the client's transport cannot carry the server's requests, the result is a question. The
        client then calls the tool again with the answer.
        """
        tools = await self._list_once()
        if params.request_state:
            suspended = self._suspended.pop(params.request_state, None)
            if suspended is None:  # starting the work again could repeat its earlier calls
                return _failed(_ABANDONED)
            work, timer = suspended
            timer.cancel()
            responses = params.input_responses or {}
            if _ANSWER in responses:
                work.answer(responses[_ANSWER])
        elif params.name in tools:
            work = Work(self._run_task_or_call(params.name, params.arguments or {}))
        else:
            return _failed(f"there is no tool {params.name!r}")
        try:
            async with work.sending_progress(context):
                return await self._next_result(context, work)
        except BaseException:  # the client is gone or unreachable
            work.task.cancel()
            raise

    async def _next_result(
        self, context: ServerRequestContext[Any], work: Work
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Return the result of the work, or a question that the client must answer first.

        After the question, the client calls the tool again with the answer and the question's
        ``request_state``, with which :meth:`call_tool` continues the work.
        """
        while (request := await work.next_question()) is not None:
            if not _supports_forms(context):
                work.refuse(_CANNOT_ASK)
            elif context.session.can_send_request:  # ask during this call
                await _elicit(context, work, request)
            else:
                elicit = types.ElicitRequest(params=question_of(request))
                return types.InputRequiredResult(
                    input_requests={_ANSWER: elicit}, request_state=self._suspend(work)
                )
        try:
            content = work.task.result()
        except DelfError as error:
            return _failed(_text_of(error))
        return types.CallToolResult(content=content)

    def _suspend(self, work: Work) -> str:
        """Store work until the client returns with an answer; cancel the work after a timeout.

        Returns:
            The secret token with which the client returns.
        """
        key = secrets.token_urlsafe(24)
        seconds = self._task_agent.config.approval_timeout
        timer = asyncio.get_running_loop().call_later(seconds, self._abandon, key)
        self._suspended[key] = (work, timer)
        return key

    def _abandon(self, key: str) -> None:
        """Cancel suspended work, because its client did not return in time or the server stops."""
        work, timer = self._suspended.pop(key)
        timer.cancel()
        work.task.cancel()

    async def _run_task_or_call(
        self, tool: str, arguments: Mapping[str, Any]
    ) -> list[types.ContentBlock]:
        """Run a task, for the tool ``run``, or call an action; return the result's content."""
        work = _current_work.get()  # the work of which this coroutine is a part
        listeners = [] if work is None else [work.queue_progress]
        if tool == _RUN:
            # The client's model wrote the task, and may have read untrusted texts.
            task = arguments.get("task", "")
            if not isinstance(task, str):
                raise ToolRefusedError("run: the argument task is not a text")
            response = await self._task_agent.arun(task, listeners=listeners, trust="outside")
            response.raise_for_status()
            links = self._outputs.links(response.trace.task_id, response.files)
            return [types.TextContent(type="text", text=response.text), *links]
        call = call_task(self._action_names[tool], arguments)
        response = await self._call_agent.arun(call, listeners=listeners, trust="outside")
        response.raise_for_status()
        return blocks_of(response.text)

    async def _confirm(self, request: ApprovalRequest) -> Decision:
        """Ask the client's user to decide a request. Passed to the agents as ``on_confirm``."""
        work = _current_work.get()
        if work is None:
            return Rejected(reason="no client can be asked")
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        await work.questions.put((request, answer))
        return await answer

    async def _list_once(self) -> dict[str, types.Tool]:
        """List the agent's actions, at the first call only.

        Returns:
            The tools for MCP clients, by their names; these names are unique and valid in MCP.

        Raises:
            MCPError: If the agent cannot be started, for example because a connection is down.
        """
        async with self._listing_lock:
            if self._tools:
                return self._tools
            tools = {_RUN: _definition_of_run()}
            for item in await self._list_actions():
                action_name = item["name"]
                if action_name in _OWN_TOOLS or action_name.startswith(_PREFIXES_OF_OWN_TOOLS):
                    continue
                valid_name = _NOT_IN_NAMES.sub("_", action_name)[:_MAX_NAME_CHARACTERS]
                name = _unique_name(valid_name, tools)
                self._action_names[name] = action_name
                tools[name] = _definition_of_action(name, item)
            self._tools = tools
            return tools

    async def _list_actions(self) -> list[dict[str, Any]]:
        """Return the name, the schema and other fields of each of the agent's actions.

        Raises:
            MCPError: If the agent cannot be started, or its answer is not JSON.
        """
        try:
            # LIST_TOOLS is a fixed task that the strategy ONE_CALL answers with a list in JSON.
            response = await self._call_agent.arun(LIST_TOOLS)
            response.raise_for_status()
        except DelfError as error:  # the library would log any other error as a defect
            raise MCPError(types.INTERNAL_ERROR, _text_of(error)) from None
        try:
            return json.loads(response.text)
        except (ValueError, RecursionError):  # redaction has replaced the digits of a number
            problem = "the tools cannot be listed: a number in a schema has a secret's digits"
            raise MCPError(types.INTERNAL_ERROR, problem) from None


def _definition_of_run() -> types.Tool:
    return types.Tool(
        name=_RUN,
        description="Do a task: delf writes a script for it, which may use all connections.",
        input_schema={
            "type": "object",
            "properties": {"task": {"type": "string", "description": "In plain words."}},
            "required": ["task"],
        },
    )


def _definition_of_action(name: str, item: Mapping[str, Any]) -> types.Tool:
    effect = item["effect"]
    return types.Tool(
        name=name,
        description=item["summary"],
        input_schema={"type": "object", **item["schema"]},
        annotations=types.ToolAnnotations(
            title=item["name"],
            read_only_hint=effect == "read",
            destructive_hint=not can_be_undone(effect),
        ),
    )


def _unique_name(name: str, names: Mapping[str, Any]) -> str:
    candidate = name
    number = 2
    while candidate in names:
        # Four characters are left for the number, from ``_2`` to ``_999``.
        candidate = f"{name[: _MAX_NAME_CHARACTERS - 4]}_{number}"
        number += 1
    return candidate


async def _elicit(context: ServerRequestContext[Any], work: Work, request: ApprovalRequest) -> None:
    """Ask the client's user during the call, and decide the question by the answer.

    The question is withdrawn when the request expires.
    """
    form = question_of(request)
    async with anyio.create_task_group() as group:

        async def withdraw() -> None:
            await work.wait_for_decision()
            group.cancel_scope.cancel()

        group.start_soon(withdraw)  # an answer is a decision, too, so this always ends the group
        try:
            # With the request's id, the question is sent in the response to the call. Without the
            # id, the question needs a stream that a client over HTTP does not have to open.
            answer = await context.session.elicit_form(
                form.message, form.requested_schema, related_request_id=context.request_id
            )
        except (MCPError, ValidationError) as error:
            is_error_response = isinstance(error, MCPError)
            problem = error.error.message if is_error_response else "its response is invalid"
            work.refuse(f"{_CANNOT_ASK}: {problem}")
        else:
            work.answer(answer)


def _supports_forms(context: ServerRequestContext[Any]) -> bool:
    """Return True if a client can show a form to its user (MCP's form elicitation).

    A client that declares elicitation without any mode supports forms.
    """
    capabilities = context.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    if elicitation is None:
        return False
    return elicitation.form is not None or elicitation.url is None


def _text_of(error: DelfError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message


def _failed(message: str) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=message)], is_error=True
    )
