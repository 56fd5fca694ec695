"""Turns of other standards' clients: messages become tasks, and decisions answer requests."""

from __future__ import annotations

import asyncio
import base64
import binascii
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
from delf.protocols.conversation import ChatMessage
from delf.protocols.facts import facts, plain_lines
from delf.protocols.journal import RequestRecord
from delf.terminal import visible
from delf.types import TaskState, Trust
from delf_engine.views.trace import Trace
from delf_serve import schemas as s
from delf_serve.call import Call
from delf_serve.problems import ProblemError
from delf_serve.streams import BEAT_SECONDS
from delf_serve.tasks import TURN, kept_name

ModelT = TypeVar("ModelT", bound=BaseModel)

OWN_MODEL: Final = "delf"
"""The name under which clients find the agent itself."""
WAIT_SECONDS: Final = 540.0
"""The longest wait for a task: clients of OpenAI's API give up after 600 seconds."""
_RETRIED_SECONDS: Final = 900.0
"""The period in seconds in which a repeated request means the same task."""
_DECISION: Final = re.compile(r"\s*(approve|reject)\s*(?::\s*(.*))?", re.IGNORECASE | re.DOTALL)
_MAX_REPLIES: Final = 20
"""The most messages of the user between a task and a reply to its question."""
_DATA: Final = re.compile(r"data:(?P<kind>[\w./+-]*)(?:;[\w=.-]+)*;base64,(?P<data>.*)", re.DOTALL)
_SUFFIXES: Final = {"image/png": ".png", "image/jpeg": ".jpg", "application/pdf": ".pdf"}


@runtime_checkable
class OffersWorkers(Protocol):
    """A connection whose workers can be given whole tasks.

    A protocol, because a server works without the plugin that brings workers.
    """

    def callable_workers(self) -> Sequence[str]:
        """Return the names of the workers that may be called; reads files."""
        ...


@dataclass(kw_only=True)
class Turn:
    """The messages of a client's request, converted to a task.

    Args:
        model: The name of the model that the client chose.
        words: The user's newest message.
        history: The earlier messages, the oldest first.
        instructions: The texts of system and developer messages.
        files: The attached files as names and contents, and ids of uploaded files.
        output: The JSON Schema of the answer, if the client asks for data.
        conversation: The conversation to continue, if delf keeps it.
    """

    model: str = OWN_MODEL
    words: str = ""
    history: list[ChatMessage] = field(default_factory=list[ChatMessage])
    instructions: list[str] = field(default_factory=list[str])
    files: list[tuple[str, bytes] | str] = field(default_factory=list[tuple[str, bytes] | str])
    output: dict[str, Any] | None = None
    conversation: str | None = None

    def say(self, role: str, text: str) -> None:
        """Add a message; the newest message of the user so far becomes history."""
        if role in ("system", "developer"):
            self.instructions.append(text)
        elif role == "user":
            if self.words:
                self.history.append(ChatMessage(role="user", content=self.words, at=time.time()))
            self.words = text
        elif text:
            if self.words:
                self.history.append(ChatMessage(role="user", content=self.words, at=time.time()))
                self.words = ""
            # A client's copy of an answer has no record of what the task read.
            self.history.append(ChatMessage(role="assistant", content=text, at=time.time()))

    def attach(self, url: str, name: str | None = None) -> None:
        """Attach a file that came as a data URL.

        Raises:
            ProblemError: For another address, which the server does not open, or for broken data.
        """
        match = _DATA.fullmatch(url)
        if match is None:
            raise ProblemError(
                422, "files come as data URLs; the server opens no address", "data:…;base64,…"
            )
        try:
            content = base64.b64decode(match["data"], validate=True)
        except binascii.Error:
            raise ProblemError(422, "the data of a file are not base64") from None
        name = name or f"file{len(self.files) + 1}{_SUFFIXES.get(match['kind'], '')}"
        self.files.append((name, content))

    def task_of(self, words: str) -> str:
        """Return the task for a message of the user, after the client's instructions."""
        kind, _, name = self.model.partition("/")
        task = "\n\n".join([*self.instructions, words])
        return f"{name}: {task}" if kind == "worker" else task


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """A request of a task that waits for a person.

    Args:
        record: The request.
        text: The request for a person, with the possible answers.
    """

    record: RequestRecord
    text: str

    @property
    def request_id(self) -> str:
        """The id of the request."""
        return self.record.requested.request_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The state of a task after a turn.

    Args:
        detail: The task.
        usage: The tokens of its model calls so far.
        question: The first request that waits for a person, if any.
    """

    detail: s.TaskDetail
    usage: Usage
    question: PendingRequest | None = None

    def text(self, call: Call) -> str:
        """Return the answer, the questions or the failure as text for a person."""
        detail = self.detail
        if self.question is not None:
            return self.question.text
        page = page_link(call, f"/#/{detail.task_id}")
        if not detail.is_terminal:
            return f"The task still runs. Reply `continue`, or watch it: {page}"
        if detail.state is not TaskState.DONE:
            why = detail.error or f"The task was {detail.state}."
            return f"{detail.output_so_far}\n\n{why}\n{page}".strip()
        place = page_link(call, f"/tasks/{detail.task_id}/files/")
        files = [f"[{file.name}]({place}{quote(file.name)})" for file in detail.files]
        return "\n\n".join([detail.result or "", *files]).strip()


def page_link(call: Call, path: str) -> str:
    """Return the whole address of a path, by the name under which the client knows the server."""
    return f"{call.service.settings.public_url or str(call.http.base_url).rstrip('/')}{path}"


async def models_of(call: Call) -> list[str]:
    """Return the names that a client may choose: the agent, its models, and its workers."""
    names = [OWN_MODEL, *(f"{OWN_MODEL}/{name}" for name in call.service.settings.models)]
    for connection in call.service.agent.tools:
        if isinstance(connection, OffersWorkers):
            workers = await asyncio.to_thread(connection.callable_workers)
            names += [f"worker/{name}" for name in workers]
    return names


async def begin(call: Call, turn: Turn, *, is_retry: bool = False, trust: Trust = "own") -> str:
    """Submit the task of a turn, and return its id.

    Args:
        call: The request.
        turn: The client's messages.
        is_retry: Whether the client repeats a request that got no answer. The task that the first
            request submitted is returned in that case.
        trust: The author of the words: ``outside`` if another agent writes them.

    Raises:
        ProblemError: If the model is unknown or the turn has no words of a user.
    """
    if not turn.words.strip():
        raise ProblemError(422, "the last message has to be the user's, with text")
    names = await models_of(call)
    if turn.model not in names:
        listed_names = ", ".join(names[:20])
        raise ProblemError(
            404, f"no model {turn.model[:60]!r} is here: {listed_names}", param="model"
        )
    kind, _, name = turn.model.partition("/")
    words, strategy = turn.task_of(turn.words), "worker" if kind == "worker" else None
    if is_retry:
        earlier_task = await call.service.tasks.newest(
            words, call.key, time.time() - _RETRIED_SECONDS
        )
        if earlier_task is not None:
            return earlier_task
    fields = {
        "task": words,
        "llm": name if kind == OWN_MODEL and name else None,
        "output": turn.output,
        "conversation_id": await _conversation(call, turn),
        "files": [{"id": file_id} for file_id in await _stored(call, turn)],
    }
    order = _valid(s.RunRequest, fields)
    submitted = await call.service.tasks.submit(
        order, call.key, strategy=strategy, client=call.client, trust=trust
    )
    return submitted.task_id


def _valid(kind: type[ModelT], data: object) -> ModelT:
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ProblemError(422, f"{where}: {first['msg']}") from None


async def _conversation(call: Call, turn: Turn) -> str | None:
    """Return the conversation of a turn; store earlier messages that only the client keeps."""
    if turn.conversation is not None or not turn.history:
        return turn.conversation
    chat: Any = call.service.agent.chat
    if chat is None:
        raise ProblemError(409, "the agent keeps no conversations, and messages came before")
    name = f"{TURN}{secrets.token_hex(8)}"
    await chat.store().append(kept_name(name, call.key), turn.history)
    return name


async def _stored(call: Call, turn: Turn) -> list[str]:
    """Store the attached files as uploads, and return their ids."""

    async def whole(content: bytes) -> AsyncIterator[bytes]:
        yield content

    ids: list[str] = []
    for file in turn.files:
        if isinstance(file, str):
            ids.append(file)
        else:
            name, content = file
            ids.append((await call.service.uploads.store(call.key, name, whole(content))).id)
    return ids


async def outcome(call: Call, task_id: str, seconds: float = WAIT_SECONDS) -> Outcome:
    """Wait until a task is over or asks a person, up to a timeout in seconds."""
    service = call.service
    with service.sessions.seat(call.key, call.cookie):
        await service.tasks.wait(task_id, seconds)
    detail = await service.tasks.detail(task_id, call.key)
    events = await service.tasks.journal.read(detail.task_id)
    usage = await asyncio.to_thread(lambda: Trace(events).usage)
    question: PendingRequest | None = None
    if detail.state is TaskState.WAITING:
        records = (await service.tasks.waiting()).get(detail.task_id, ())
        # Only the first, so that a reply is for the request that the person read.
        for record in records[:1]:
            question = PendingRequest(record=record, text=_question_text(call, record))
    return Outcome(detail=detail, usage=usage, question=question)


async def watch(
    call: Call, task_id: str, seconds: float = WAIT_SECONDS, *, after: int = 0
) -> AsyncGenerator[Event | Outcome | None]:
    """Yield the events of a task until it is over or asks a person, then its outcome.

    None is yielded if nothing happened for some seconds.

    Args:
        call: The request.
        task_id: The task.
        seconds: The timeout.
        after: The number of the last event that the client has.
    """
    journal = call.service.tasks.journal
    live, coming, last = journal.subscribe(task_id), None, after
    resting = asyncio.ensure_future(outcome(call, task_id, seconds))
    try:
        while True:
            is_over = resting.done()
            for event in await journal.read(task_id, last):
                last = event.seq
                yield event
            if is_over:
                yield await resting
                return
            coming = coming or asyncio.ensure_future(anext(live, None))
            await asyncio.wait(
                {resting, coming}, timeout=BEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if not coming.done():
                yield None
            elif coming.result() is None:
                await asyncio.wait({resting})  # the journal was closed
            else:
                coming = None  # the event only signals new data
    finally:
        for work in (resting, coming):
            if work is not None:
                work.cancel()


def _question_text(call: Call, record: RequestRecord) -> str:
    lines = "\n".join(plain_lines(facts(record.requested, record.so_far)))
    url = page_link(call, f"/#/{record.task.task_id}/{record.requested.request_id}")
    ways = f"Decide on the page: {url}\nOr reply `approve`, or `reject: REASON`."
    if record.requested.is_question:
        ways = f"Answer on the page: {url}\nOr reply with the answer, or `reject`."
    return (
        f"{visible(record.requested.message)}\n\n{lines}\n\n{ways} "
        "Reply `continue` once it is decided."
    )


def decision_in(text: str) -> s.DecisionRequest | None:
    """Return the decision if a message is an approval or a rejection; otherwise None."""
    match = _DECISION.fullmatch(text)
    if match is None:
        return None
    is_yes, reason = match[1].lower() == "approve", (match[2] or "").strip() or None
    if is_yes and reason is not None:
        return None  # "approve" may be followed by a condition
    return decision("approve" if is_yes else "reject", reason=reason)


def reply_to(record: RequestRecord, text: str) -> s.DecisionRequest | None:
    """Return the decision of a message about a request; a question takes any text as its answer."""
    given = decision_in(text)
    if not record.requested.is_question or is_continue(text):
        return given
    is_no = given is not None and given.root.decision == "reject"
    return given if is_no else decision("answer", answer=text.strip())


def decision(kind: str, **fields: Any) -> s.DecisionRequest:
    """Make a decision about one request.

    Raises:
        ProblemError: If the fields are no decision.
    """
    filled = {name: value for name, value in fields.items() if value is not None}
    return _valid(s.DecisionRequest, {"decision": kind, **filled})


def decision_from(data: Mapping[str, Any]) -> s.DecisionRequest:
    """Read the decision of a program: ``approve`` as true or false, ``answer``, and ``reason``."""
    if "answer" in data:
        return decision("answer", answer=data["answer"])
    return decision(
        "approve" if data.get("approve") is True else "reject", reason=data.get("reason")
    )


async def decide(call: Call, request_id: str, given: s.DecisionRequest) -> str:
    """Answer a request of a task as its person; return the task's id.

    Raises:
        ProblemError: If the person may not decide, or the request is unknown.
    """
    record = await call.service.approvals.record(request_id, call.key)
    if record.waits:
        await call.service.approvals.decide(request_id, given, call.key, call.via)
    return record.task.task_id


async def replied(call: Call, turn: Turn) -> str | None:
    """Return the task whose question a turn answers; None if the turn begins a new task.

    A client that keeps its messages itself sends the text of the task again, and after it the
    question. The task is found by its owner and its text, and the request by the id in the
    question. A stranger's text in an answer may look like a question, but names no pending request.

    Raises:
        ProblemError: If the person may not decide.
    """
    if not turn.history:
        return None
    last_message, waiting = turn.history[-1].content, await call.service.tasks.waiting()
    named_requests = [
        record
        for requests in waiting.values()
        for record in requests
        if record.requested.request_id in last_message
    ]
    is_reply = is_continue(turn.words) or decision_in(turn.words) is not None
    if not named_requests and not is_reply:
        return None
    task_id = await _task_before(call, turn)
    named_requests = [record for record in named_requests if record.task.task_id == task_id]
    decision = reply_to(named_requests[0], turn.words) if len(named_requests) == 1 else None
    if decision is not None:
        await decide(call, named_requests[0].requested.request_id, decision)
    return task_id if decision is not None or is_reply else None


async def _task_before(call: Call, turn: Turn) -> str | None:
    """Return the person's newest task that one of the latest user messages started."""
    earlier = [m.content for m in turn.history if m.role == "user"]
    for words in earlier[: -_MAX_REPLIES - 1 : -1]:
        task_id = await call.service.tasks.newest(turn.task_of(words), call.key)
        if task_id is not None:
            return task_id
    return None


def is_continue(text: str) -> bool:
    """Return True if a message asks for the outcome of the earlier task."""
    return text.strip().lower() == "continue"
