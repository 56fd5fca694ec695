"""Turns of other standards' clients: messages become tasks, and decisions answer requests."""

from __future__ import annotations

import asyncio
import base64
import re
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar, runtime_checkable
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from delf.events import Event
from delf.messages import Usage
from delf.protocols.conversation import USER_SEPARATOR, ChatMessage
from delf.protocols.facts import facts, plain_lines
from delf.protocols.journal import RequestRecord
from delf.terminal import visible
from delf.types import TaskState, Trust
from delf_engine.views.trace import Trace
from delf_serve import schemas as s
from delf_serve.call import Call
from delf_serve.problems import ProblemError
from delf_serve.streams import BEAT_SECONDS, LiveEvents
from delf_serve.tasks.conversation_names import CLIENT_CONVERSATION_PREFIX, stored_name

ModelT = TypeVar("ModelT", bound=BaseModel)

OWN_MODEL: Final = "delf"
"""The model name by which clients choose the agent itself."""
WAIT_SECONDS: Final = 540.0
"""The maximum wait for a task in seconds. Clients of OpenAI's API give up after 600 seconds."""
# The seconds within which a repeated request continues the same task.
_MAX_RETRY_SECONDS: Final = 900.0
_DECISION: Final = re.compile(r"\s*(approve|reject)\s*(?::\s*(.*))?", re.IGNORECASE | re.DOTALL)
# The maximum number of user messages between a task and the reply to its question.
_MAX_SEARCHED_MESSAGES: Final = 20
_DATA_URL: Final = re.compile(
    r"data:(?P<kind>[\w./+-]*)(?:;[\w=.-]+)*;base64,(?P<data>.*)", re.DOTALL
)
# Matches path separators, control characters and unpaired surrogates.
_NOT_IN_FILE_NAMES: Final = re.compile(r"[/\\\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_SUFFIXES: Final = {"image/png": ".png", "image/jpeg": ".jpg", "application/pdf": ".pdf"}


@runtime_checkable
class OffersWorkers(Protocol):
    """A connection with workers, to which clients can give whole tasks.

    A protocol, so that the server also works without the workers plugin.
    """

    def callable_workers(self) -> Sequence[str]:
        """Return the names of the workers that clients may call. Reads the workers' files."""
        ...


@dataclass(kw_only=True)
class Turn:
    """A client's request in the format of a standard, such as OpenAI's, converted to a task.

    Args:
        model: The name of the model that the client chose.
        user_message: The user's newest message.
        history: The earlier messages, oldest first.
        instructions: The texts of system and developer messages.
        files: The attached files: pairs of name and content, or ids of uploaded files.
        output: The JSON Schema of the answer; None for a text answer.
        conversation: The id of the conversation to continue; None if the client sends the history.
    """

    model: str = OWN_MODEL
    user_message: str = ""
    history: list[ChatMessage] = field(default_factory=list[ChatMessage])
    instructions: list[str] = field(default_factory=list[str])
    files: list[tuple[str, bytes] | str] = field(default_factory=list[tuple[str, bytes] | str])
    output: dict[str, Any] | None = None
    conversation: str | None = None

    def add_message(self, role: str, text: str) -> None:
        """Add a message after the earlier ones.

        A system message is added to the instructions. A message of the user becomes
        ``user_message``, and an earlier ``user_message`` moves to the history. An answer of the
        assistant is added to the history, after the ``user_message`` to which it belongs.
        """
        if role in ("system", "developer"):
            self.instructions.append(text)
        elif role == "user":
            self._move_to_history()
            self.user_message = text
        elif text:  # an empty answer of the assistant is left out
            self._move_to_history()
            # The answer may repeat untrusted data, such as the text of a web page, and the client
            # does not send whether it does. The field ``trust`` keeps its default ``outside``.
            self.history.append(ChatMessage(role="assistant", content=text, at=time.time()))

    def _move_to_history(self) -> None:
        if self.user_message:
            self.history.append(ChatMessage(role="user", content=self.user_message, at=time.time()))
            self.user_message = ""

    def attach(self, url: str, name: str | None = None) -> None:
        """Attach a file from a data URL.

        Raises:
            ProblemError: If the URL is not a data URL, or the data is invalid.
        """
        match = _DATA_URL.fullmatch(url)
        if match is None:
            raise ProblemError(
                422, "files come as data URLs; the server opens no address", "data:…;base64,…"
            )
        try:
            content = base64.b64decode(match["data"], validate=True)
        except ValueError:
            raise ProblemError(422, "the data of a file are not base64") from None
        if not name:
            suffix = _SUFFIXES.get(match["kind"], "")
            name = f"file{len(self.files) + 1}{suffix}"
        self.files.append((name, content))

    def task_text_for(self, user_message: str) -> str:
        """Return the text of the task: the client's instructions, then the user's message."""
        kind, _, name = self.model.partition("/")
        task = "\n\n".join([*self.instructions, user_message])
        return f"{name}: {task}" if kind == "worker" else task


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """A request that waits for a person.

    Args:
        record: The request.
        text: The message to the person, with the possible answers.
    """

    record: RequestRecord
    text: str

    @property
    def request_id(self) -> str:
        """The id of the request."""
        return self.record.requested.request_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The state of a task after a client's request.

    Args:
        detail: The task.
        usage: The tokens of its model calls so far.
        pending_request: The first pending approval request or question of the task; None if nothing
            waits for a person.
    """

    detail: s.TaskDetail
    usage: Usage
    pending_request: PendingRequest | None = None

    @property
    def failure(self) -> str:
        """The reason why the task ended without a result, with the hint on a line of its own."""
        detail = self.detail
        reason = detail.error or f"The task was {detail.state}."
        has_hint = detail.hint and detail.state is TaskState.FAILED
        return f"{reason}\n{detail.hint}" if has_hint else reason

    def text(self, call: Call) -> str:
        """Return the text of the answer: the result, the pending request, or the error.

        A running task gives a note with the link to its page.
        """
        detail = self.detail
        if self.pending_request is not None:
            return self.pending_request.text
        page = page_link(call, f"/#/{detail.task_id}")
        if not detail.is_terminal:
            return f"The task still runs. Reply `continue`, or watch it: {page}"
        if detail.state is not TaskState.DONE:
            return f"{detail.output_so_far}\n\n{self.failure}\n{page}".strip()
        folder_link = page_link(call, f"/tasks/{detail.task_id}/files/")
        file_links = [f"[{file.name}]({folder_link}{quote(file.name)})" for file in detail.files]
        return "\n\n".join([detail.result or "", *file_links]).strip()


def page_link(call: Call, path: str) -> str:
    """Return the full URL of a path on this server, as the client reaches the server."""
    return f"{call.service.settings.public_url or str(call.http.base_url).rstrip('/')}{path}"


async def models_of(call: Call) -> list[str]:
    """Return the model names that a client may choose: the agent, its models, and its workers."""
    names = [OWN_MODEL, *(f"{OWN_MODEL}/{name}" for name in call.service.settings.models)]
    for connection in call.service.agent.tools:
        if isinstance(connection, OffersWorkers):
            workers = await asyncio.to_thread(connection.callable_workers)
            names += [f"worker/{name}" for name in workers]
    return names


async def begin(call: Call, turn: Turn, *, is_retry: bool = False, trust: Trust = "own") -> str:
    """Submit the task of a turn, and return its id.

    Args:
        call: The API request.
        turn: The client's messages.
        is_retry: Whether the client may be repeating a request that got no answer. If a recent
            task has the same text, no task is submitted, and the id of the recent task is returned.
        trust: ``own`` if the user wrote the messages, ``outside`` if another agent did.

    Raises:
        ProblemError: If the model is unknown, or the turn has no user message.
    """
    if not turn.user_message.strip():
        raise ProblemError(422, "the last message has to be the user's, with text")
    names = await models_of(call)
    if turn.model not in names:
        listed_names = ", ".join(names[:20])
        raise ProblemError(
            404, f"no model {turn.model[:60]!r} is here: {listed_names}", param="model"
        )
    # The model is `delf`, `delf/MODEL` or `worker/WORKER`, as models_of() lists.
    kind, _, name = turn.model.partition("/")
    chosen_model: str | None = None
    if kind == OWN_MODEL and name:
        chosen_model = name
    # The strategy `worker` gives the task to the worker whose name begins the task's text.
    strategy = "worker" if kind == "worker" else None
    task_text = turn.task_text_for(turn.user_message)
    if is_retry:
        existing_task = await call.service.tasks.views.newest(
            task_text, call.caller, time.time() - _MAX_RETRY_SECONDS
        )
        if existing_task is not None:
            return existing_task
    conversation_id = await _store_history(call, turn)
    file_ids = await _store_files(call, turn)
    fields = {
        "task": task_text,
        "llm": chosen_model,
        "output": turn.output,
        "conversation_id": conversation_id,
        "files": [{"id": file_id} for file_id in file_ids],
    }
    request = _validate(s.RunRequest, fields)
    submitted = await call.service.tasks.submissions.submit(
        request, call.caller, strategy=strategy, client=call.client, trust=trust
    )
    return submitted.task_id


def _validate(kind: type[ModelT], data: object) -> ModelT:
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ProblemError(422, f"{where}: {first['msg']}") from None


async def _store_history(call: Call, turn: Turn) -> str | None:
    """Return the id of the conversation that a turn continues; None for a turn without history.

    If the client has sent the earlier messages itself, store them as a new conversation.

    Raises:
        ProblemError: If the conversation is another person's, or if the agent has no chat in which
            the messages can be stored.
    """
    if turn.conversation is not None and USER_SEPARATOR in turn.conversation:
        # The list of conversations shows other people's conversations as USER|NAME, and the
        # caller's own as NAME.
        raise ProblemError(
            403,
            "the conversation is somebody else's, who alone can continue it",
            "begin a conversation of your own",
        )
    if turn.conversation is not None or not turn.history:
        return turn.conversation
    chat: Any = call.service.agent.chat
    if chat is None:
        raise ProblemError(409, "earlier messages cannot be stored: the agent has no chat")
    name = f"{CLIENT_CONVERSATION_PREFIX}{secrets.token_hex(8)}"
    await chat.store().append(stored_name(name, call.caller), turn.history)
    return name


async def _store_files(call: Call, turn: Turn) -> list[str]:
    """Upload the files whose content is in a turn.

    Return the ids of these files and of the earlier uploads that the turn names.

    Raises:
        ProblemError: If a name is not a plain file name.
    """

    async def as_one_chunk(content: bytes) -> AsyncIterator[bytes]:
        yield content

    ids: list[str] = []
    for file in turn.files:
        if isinstance(file, str):
            ids.append(file)
        else:
            name, content = file
            if name in ("", ".", "..") or _NOT_IN_FILE_NAMES.search(name):
                raise ProblemError(422, f"{visible(name)!r} is not the name of a file")
            stored = await call.service.uploads.store(call.caller, name, as_one_chunk(content))
            ids.append(stored.id)
    return ids


async def outcome(call: Call, task_id: str, seconds: float = WAIT_SECONDS) -> Outcome:
    """Wait until a task ends or needs a person, and return its state.

    Args:
        call: The API request.
        task_id: The id of the task.
        seconds: The maximum time to wait.
    """
    service = call.service
    # The caller's rights may have changed during the wait: go on with the present rights.
    call = await call.wait(task_id, seconds)
    detail = await service.tasks.views.detail(task_id, call.caller)
    events = await service.tasks.journal.read(detail.task_id)
    usage = await asyncio.to_thread(lambda: Trace(events).usage)
    pending_request: PendingRequest | None = None
    if detail.state is TaskState.WAITING:
        records = (await service.tasks.pending_requests.by_task()).get(detail.task_id, ())
        if records:  # empty if the request was decided since the task was read
            # Only the first, so that a reply is for the request that the person read.
            record = records[0]
            pending_request = PendingRequest(record=record, text=_request_text(call, record))
    return Outcome(detail=detail, usage=usage, pending_request=pending_request)


async def watch(
    call: Call, task_id: str, seconds: float = WAIT_SECONDS, *, after: int = 0
) -> AsyncGenerator[Event | Outcome | None]:
    """Yield the events of a task until it ends or needs a person, then its outcome.

    None is yielded if nothing happens for some seconds, so that the client gets a heartbeat.

    Args:
        call: The API request.
        task_id: The id of the task.
        seconds: The maximum time to watch.
        after: The number of the last event that the client has.
    """
    journal = call.service.tasks.journal
    live = LiveEvents(journal.subscribe(task_id))
    last_number = after
    outcome_task = asyncio.ensure_future(outcome(call, task_id, seconds))
    try:
        while True:
            # Checked before the events are read, so that no event before the outcome is missed.
            is_over = outcome_task.done()
            for event in await journal.read(task_id, last_number):
                last_number = event.seq
                yield event
            if is_over:
                yield await outcome_task
                return
            # A live event only signals that the journal has new events.
            live_event = await live.next(BEAT_SECONDS, until=outcome_task)
            if live.is_closed:  # no more live events: only wait for the outcome
                await asyncio.wait({outcome_task})
            elif live_event is None and not outcome_task.done():
                yield None  # a heartbeat
    finally:
        outcome_task.cancel()
        live.close()


def _request_text(call: Call, record: RequestRecord) -> str:
    """Return the message that asks a person: the facts, and how to decide.

    Clients render messages as Markdown, which would join the lines and hide parts of the facts,
    such as ``<!-- … -->`` or the address of a link. So the facts are a fenced block.
    """
    lines = "\n".join(plain_lines(facts(record.requested, record.discussion)))
    block = f"{visible(record.requested.message)}\n\n{lines}"
    longest_run = max(map(len, re.findall("`+", block)), default=0)
    fence = "`" * max(3, longest_run + 1)  # so that no text of the facts ends the block
    url = page_link(call, f"/#/{record.task.task_id}/{record.requested.request_id}")
    instructions = f"Decide on the page: {url}\nOr reply `approve`, or `reject: REASON`."
    if record.requested.is_question:
        instructions = f"Answer on the page: {url}\nOr reply with the answer, or `reject`."
    return f"{fence}text\n{block}\n{fence}\n\n{instructions} Reply `continue` once it is decided."


def parse_decision(text: str) -> s.DecisionRequest | None:
    """Parse a message as an approval or a rejection; None for any other message."""
    match = _DECISION.fullmatch(text)
    if match is None:
        return None
    kind = match[1].lower()
    reason = (match[2] or "").strip() or None
    if kind == "approve" and reason is not None:
        return None  # the text after "approve" could be a condition
    return decision(kind, reason=reason)


def parse_reply(record: RequestRecord, text: str) -> s.DecisionRequest | None:
    """Parse a reply to a request as a decision; None if the reply decides nothing.

    Any text answers a question, except for ``reject`` and ``continue``.
    """
    if is_continue(text):  # only asks for the task's outcome
        return None
    parsed = parse_decision(text)
    is_rejection = parsed is not None and parsed.root.decision == "reject"
    if is_rejection or not record.requested.is_question:
        return parsed
    return decision("answer", answer=text.strip())


def decision(kind: str, /, **fields: Any) -> s.DecisionRequest:
    """Create a decision from its kind and its fields.

    Raises:
        ProblemError: If the fields are invalid.
    """
    given_fields = {name: value for name, value in fields.items() if value is not None}
    return _validate(s.DecisionRequest, {"decision": kind, **given_fields})


def build_decision(data: Mapping[str, Any]) -> s.DecisionRequest:
    """Create a decision from the JSON fields that a client program sent.

    Args:
        data: For a question, ``answer``. For another request, ``approve`` (true or false) and, if
            there is a reason, ``reason``.
    """
    if "answer" in data:
        return decision("answer", answer=data["answer"])
    return decision(
        "approve" if data.get("approve") is True else "reject", reason=data.get("reason")
    )


async def decide(call: Call, request_id: str, given: s.DecisionRequest) -> str:
    """Decide a request as the caller, and return the id of the task.

    If the request is already decided, the decision is ignored.

    Raises:
        ProblemError: If the caller may not decide, or the request is unknown.
    """
    record = await call.service.approvals.record(request_id, call.caller)
    if record.waits:
        await call.service.approvals.decide(request_id, given, call.caller, call.via)
    return record.task.task_id


async def continue_task(call: Call, turn: Turn) -> str | None:
    """Return the id of the task that a turn continues; None if the turn starts a new task.

    A turn continues a task if the user's message decides the task's pending approval request, or
    asks for the task's outcome. The last message before the user's has the id of the request.

    Raises:
        ProblemError: If the caller may not decide.
    """
    if not turn.history:
        return None
    # A client may send forged earlier messages. Only ids of pending requests have an effect.
    named_requests = await _requests_named_in(call, turn.history[-1].content)
    # After a decision such as "approve", the client gets the task's outcome, even if somebody
    # else has decided the request, so that the request is no longer pending.
    asks_for_outcome = (
        is_continue(turn.user_message) or parse_decision(turn.user_message) is not None
    )
    if not named_requests and not asks_for_outcome:
        return None
    task_id = await _find_earlier_task(call, turn)
    # The assistant's text may name requests of other tasks. If the text names several requests of
    # this task, the user may mean any of these requests, so the message decides none.
    requests_of_task = [record for record in named_requests if record.task.task_id == task_id]
    if len(requests_of_task) == 1:
        (record,) = requests_of_task
        given = parse_reply(record, turn.user_message)
        if given is not None:
            return await decide(call, record.requested.request_id, given)
    return task_id if asks_for_outcome else None


async def _requests_named_in(call: Call, text: str) -> list[RequestRecord]:
    """Return the pending requests whose ids are in a text."""
    requests_by_task = await call.service.tasks.pending_requests.by_task()
    return [
        record
        for records in requests_by_task.values()
        for record in records
        if record.requested.request_id in text
    ]


async def _find_earlier_task(call: Call, turn: Turn) -> str | None:
    """Return the id of the latest task that a user message of the history began.

    Messages such as ``approve`` began no task. If several tasks of the caller have the text of the
    message, return the newest task. Return None if no task is found.
    """
    user_messages = [m.content for m in turn.history if m.role == "user"]
    newest_first = user_messages[::-1]
    for words in newest_first[:_MAX_SEARCHED_MESSAGES]:
        task_id = await call.service.tasks.views.newest(turn.task_text_for(words), call.caller)
        if task_id is not None:
            return task_id
    return None


def is_continue(text: str) -> bool:
    """Return True for the message ``continue``, which asks for the outcome of the current task."""
    return text.strip().lower() == "continue"
