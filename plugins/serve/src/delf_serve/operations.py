"""The operations of the API in one table: of it, routes and the OpenAPI document are made."""

from __future__ import annotations

import asyncio
import json
import mimetypes
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, unquote

from pydantic import BaseModel, ValidationError
from starlette.requests import Request as HttpRequest
from starlette.responses import FileResponse, RedirectResponse, Response

from delf.engine.views.figures import figures_csv
from delf.errors import DelfError
from delf.protocols.conversation import ChatMessage, ConversationRecord
from delf.protocols.people import digest_of
from delf_cli.story import short_name
from delf_serve import history, oidc
from delf_serve import schemas as s
from delf_serve.approvals import Approvals
from delf_serve.assets import page_file
from delf_serve.away import Deputies
from delf_serve.clients import client_of
from delf_serve.files import Uploads
from delf_serve.guard import COOKIE, PROXY_TOKEN
from delf_serve.keys import ANYBODY, Key, Keys
from delf_serve.logins import Logins
from delf_serve.metrics import metrics_text
from delf_serve.openapi import document
from delf_serve.operation import JSON, Operation
from delf_serve.people import Changer
from delf_serve.plain import json_bytes
from delf_serve.problems import ProblemError
from delf_serve.readiness import Readiness
from delf_serve.routines import Routines
from delf_serve.sessions import Sessions, csrf_of, id_of
from delf_serve.settings import ServeSettings
from delf_serve.streams import Streams
from delf_serve.tasks import Tasks, kept_name, owner_of, shown_name

if TYPE_CHECKING:
    from delf import Agent

ModelT = TypeVar("ModelT", bound=BaseModel)
T = TypeVar("T")
_ROUTINE: Final = "routine"
"""The strategy that runs a routine."""
_EVENTS: Final = "text/event-stream"
_SLOWEST: Final = 20_000
"""Bytes of a body that give it one second more to arrive."""


@dataclass
class Service:
    """The objects that the operations work with.

    Args:
        agent: Does the tasks.
        settings: The server's.
        keys: Who may do what.
        tasks: The tasks.
        routines: The project's routines.
        streams: The open event streams.
        approvals: The questions.
        uploads: The files that were sent in.
        sessions: Who is logged in.
        logins: How people come in without a key.
        deputies: Who decides in whose place.
        oidc: The provider of logins, if there is one.
        readiness: Whether tasks can be taken in.
        start: The name of this start of the server; its processes share it.
    """

    agent: Agent
    settings: ServeSettings
    keys: Keys
    tasks: Tasks
    routines: Routines
    streams: Streams
    approvals: Approvals
    uploads: Uploads
    sessions: Sessions
    logins: Logins
    deputies: Deputies
    oidc: oidc.OpenIdConnect | None
    readiness: Readiness
    start: str


@dataclass(frozen=True)
class Call:
    """One request, with who asks."""

    http: HttpRequest
    service: Service
    key: Key

    @property
    def client(self) -> str:
        """The address from where it is asked."""
        return client_of(self.http.scope.get("client"))

    @property
    def via(self) -> str:
        """From where it is decided: the page or the API, and the address."""
        is_page = self.cookie is not None or self.http.scope.get("delf.proxy")
        return f"{'page' if is_page else 'API'}, {self.client}"

    @property
    def cookie(self) -> str | None:
        """The cookie of the session that was shown, if one was."""
        return self.http.scope.get("delf.cookie")

    def part(self, name: str) -> str:
        """A part of the path."""
        return str(self.http.path_params[name])

    def query(self, kind: type[ModelT]) -> ModelT:
        """The parameters of the query, validated; each may come once.

        Raises:
            ProblemError: Naming the parameter.
        """
        sent = self.http.scope["query_string"]
        pairs = self.http.query_params.multi_items() if sent else []
        given: dict[str, str] = {}
        for name, value in pairs:
            if name in given:
                raise ProblemError(422, f"{name[:60]}: it comes twice", param=name[:60])
            given[name] = value
        return _validated(lambda: kind.model_validate_strings(given))

    async def body(self, kind: type[ModelT]) -> ModelT:
        """The JSON that was sent, validated.

        Raises:
            ProblemError: Naming the field.
        """
        named = self.http.headers.get("content-type", "").partition(";")[0].strip().lower()
        if named != JSON:
            raise ProblemError(415, "the body has to be JSON", f"content-type: {JSON}")
        data = b"".join([chunk async for chunk in self.chunks()])
        return _validated(lambda: kind.model_validate_json(data or b" "))

    async def no_body(self) -> None:
        """Check that nothing was sent where nothing is taken.

        Raises:
            ProblemError: When something was.
        """
        self.query(s.NoQuery)
        if b"".join([chunk async for chunk in self.chunks()]).strip() not in (b"", b"{}"):
            raise ProblemError(422, "the body: nothing is taken here", "GET /openapi.json")

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes; one that is too slow or too large is given up."""
        most, began, size, more = self.http.scope["delf.most"], time.monotonic(), 0, True
        while more:
            end = began + self.service.settings.body_seconds + size / _SLOWEST
            try:
                async with asyncio.timeout(end - time.monotonic()):
                    message = await self.http.receive()
            except TimeoutError:
                raise ProblemError(408, "the body did not arrive in time") from None
            if message["type"] == "http.disconnect":
                raise ProblemError(400, "the body broke off")
            chunk, more = message.get("body", b""), message.get("more_body", False)
            size += len(chunk)
            if size > most:
                raise ProblemError(413, f"the body is larger than {most:,} bytes")
            if chunk:
                yield chunk


def _validated(make: Callable[[], ModelT]) -> ModelT:
    try:
        return make()
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        named = [(_field(item["loc"]), item["msg"].removeprefix("Value error, ")) for item in found]
        told = "; ".join(f"{name or 'the body'}: {text}" for name, text in named[:5])
        raise ProblemError(422, told[:1000], "GET /openapi.json", param=named[0][0]) from None


def _field(place: Sequence[int | str]) -> str | None:
    """The name of a field in a body, or of a parameter, without the kinds of what may be there."""
    return ".".join(str(part) for part in place if part not in s.VARIANTS) or None


def shown(model: BaseModel, status: int = 200, **headers: str) -> Response:
    """A model as an answer."""
    data = json_bytes(model.model_dump(mode="json"))
    return Response(data, status, headers=headers or None, media_type=JSON)


def _page(found: Sequence[T], query: s.PageQuery | s.FiguresQuery) -> tuple[list[T], bool]:
    """The part of a list that is asked for, and whether there is more after it."""
    end = query.offset + query.limit
    return list(found[query.offset : end]), len(found) > end


# -- tasks ------------------------------------------------------------------------------------


async def run(call: Call) -> Response:
    """Take a task in."""
    call.query(s.NoQuery)
    order = await call.body(s.RunRequest)
    header = call.http.headers.get("idempotency-key")
    if header is not None and order.idempotency_key is None:
        if not 0 < len(header) <= 200:
            raise ProblemError(422, "Idempotency-Key has 1 to 200 characters")
        order = order.model_copy(update={"idempotency_key": header})
    return await _handed_in(call, order)


async def list_routines(call: Call) -> Response:
    """Give the routines of the project."""
    query = call.query(s.PageQuery)
    found = await call.service.routines.list(call.key)
    part, more = _page(found.routines, query)
    return shown(found.model_copy(update={"routines": part, "more": more}))


async def save_routine(call: Call) -> Response:
    """Show a task as a routine, and save it once that was seen."""
    call.query(s.NoQuery)
    return shown(await call.service.routines.save(await call.body(s.RoutineSaveRequest), call.key))


async def run_routine(call: Call) -> Response:
    """Take a run of a routine in."""
    call.query(s.NoQuery)
    given = await call.body(s.RoutineRequest)
    try:
        bound: Any = await asyncio.to_thread(call.service.agent.routine, call.part("name"))
    except DelfError as error:
        raise ProblemError(404, error.message, "GET /routines") from None
    try:
        task = bound.task(given.inputs)
    except DelfError as error:
        raise ProblemError(422, error.message, "GET /routines") from None
    order = s.RunRequest(task=task, **given.model_dump(exclude={"inputs"}))
    return await _handed_in(call, order, strategy=_ROUTINE)


async def _handed_in(call: Call, order: s.RunRequest, strategy: str | None = None) -> Response:
    """Take a task in, and wait for it as long as that is wanted."""
    service = call.service
    given = await service.tasks.submit(
        order,
        call.key,
        lambda: service.uploads.paths(call.key, order.files),
        strategy,
        client=call.client,
    )
    headers = {} if given.is_new else {"idempotent-replayed": "true"}
    state, asked = "queued", list[str]()
    if order.wait or not given.is_new:
        detail = await _waited(call, given.task_id, order.wait)
        if detail.is_terminal:
            return shown(detail, 200, **headers)
        state, asked = detail.state, detail.approvals
    url = call.http.scope.get("root_path", "") + f"/tasks/{given.task_id}"
    accepted = s.Accepted(
        task_id=given.task_id,
        state=state,
        conversation_id=given.conversation,
        approvals=asked,
        url=url,
    )
    return shown(accepted, 202, location=url, **headers)


async def _waited(call: Call, task_id: str, seconds: float) -> s.TaskDetail:
    """A task once it is over or asks a person, or after some seconds."""
    if seconds:
        with call.service.sessions.seat(call.key, call.cookie):
            await call.service.tasks.wait(task_id, seconds)
    return await call.service.tasks.detail(task_id, call.key)


async def list_tasks(call: Call) -> Response:
    """Tasks, the newest first."""
    tasks, last = await call.service.tasks.find(
        **call.query(s.TaskQuery).model_dump(), key=call.key
    )
    return shown(s.TaskList(tasks=tasks, more=last is not None, next=last))


async def search(call: Call) -> Response:
    """Find tasks by what happened in them."""
    return shown(await history.search(call.service.tasks, call.query(s.SearchQuery), call.key))


async def figures(call: Call) -> Response:
    """Add up what tasks did and cost."""
    query = call.query(s.FiguresQuery)
    found = await history.figures(call.service.tasks, query, call.key)
    if query.format == "json":
        part, more = _page(found, query)
        return shown(history.figure_list(part, more=more))
    name = f'attachment; filename="delf-{query.by}.csv"'
    return Response(
        figures_csv(query.by, found),
        media_type="text/csv; charset=utf-8",
        headers={"content-disposition": name},
    )


async def get_task(call: Call) -> Response:
    """One task."""
    query = call.query(s.TaskFormatQuery)
    task = await call.service.tasks.record(call.part("task_id"), call.key)
    detail = await _waited(call, task.task_id, query.wait)
    if query.format == "snapshot":
        return shown(await call.service.tasks.snapshot(task.task_id, call.key))
    return shown(detail)


async def list_prompts(call: Call) -> Response:
    """Return the prompts of a task's models."""
    part = call.query(s.PageQuery)
    name = call.part("task_id")
    found = await call.service.tasks.prompts(name, call.key, part.limit, part.offset)
    return shown(found)


async def cancel_task(call: Call) -> Response:
    """Stop a task."""
    await call.no_body()
    task_id, cancelled = await call.service.tasks.cancel(call.part("task_id"), call.key, call.via)
    return shown(s.Cancelled(task_id=task_id, cancelled=cancelled))


async def resume_task(call: Call) -> Response:
    """Go on with a task."""
    await call.no_body()
    task_id = await call.service.tasks.resume(call.part("task_id"), call.key)
    return shown(await call.service.tasks.view(task_id, call.key), 202)


async def fork_task(call: Call) -> Response:
    """Do a task again from one of its events on."""
    wanted = await call.body(s.ForkRequest)
    tasks = call.service.tasks
    name = await tasks.fork(call.part("task_id"), wanted, call.key, call.client)
    return shown(await tasks.view(name, call.key), 202)


async def compare_tasks(call: Call) -> Response:
    """Show two tasks side by side."""
    call.query(s.NoQuery)
    one, other = call.part("task_id"), call.part("other_id")
    return shown(await history.compare(call.service.tasks, one, other, call.key))


async def delete_task(call: Call) -> Response:
    """Forget a task."""
    await call.no_body()
    await call.service.tasks.remove(call.part("task_id"), call.key)
    return Response(status_code=204)


async def task_events(call: Call) -> Response:
    """A task's events as they happen."""
    after = call.query(s.EventQuery).after
    given = call.http.headers.get("last-event-id", "").strip()
    if given:
        if not given.isascii() or not given.isdigit() or len(given) > 15:
            raise ProblemError(422, "Last-Event-ID is the number of an event")
        after = int(given)
    task = await call.service.tasks.view(call.part("task_id"), call.key)
    if task.is_terminal and task.events <= after:
        return Response(status_code=204)  # a browser does not come back
    return EventStreamResponse(call, call.service.streams.events(task.task_id, after))


async def all_changes(call: Call) -> Response:
    """Tasks as lists show them, as they change."""
    call.query(s.NoQuery)
    return EventStreamResponse(call, call.service.streams.changes(call.key))


class EventStreamResponse(Response):
    """Frames until they end, the client goes, or its key or session is none any more.

    Sent without a task group for each client.

    Args:
        call: Who looks on.
        frames: What there is to see.
    """

    media_type = "text/event-stream"

    def __init__(self, call: Call, frames: AsyncGenerator[bytes]) -> None:
        super().__init__(status_code=200)
        self._call = call
        self._frames = frames

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the frames."""
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        start = {"type": "http.response.start", "status": self.status_code, "headers": headers}
        if scope["method"] == "HEAD":
            await send(start)
            await send({"type": "http.response.body", "body": b""})
            return
        own = asyncio.current_task()
        assert own is not None  # noqa: S101 - a coroutine runs in a task
        with self._call.service.sessions.seat(self._call.key, self._call.cookie) as seat:
            await send(start)
            is_over = False

            def end() -> None:
                nonlocal is_over
                is_over = True
                own.cancel()

            gone = asyncio.ensure_future(_until_gone(receive))
            gone.add_done_callback(lambda done: done.cancelled() or end())
            seat.end = end
            try:
                async for chunk in self._frames:
                    body = {"type": "http.response.body", "body": chunk, "more_body": True}
                    await send(body)
            except asyncio.CancelledError:
                if not is_over:
                    raise
            finally:
                seat.end = int
                gone.cancel()
                await self._frames.aclose()
            await send({"type": "http.response.body", "body": b""})


async def _until_gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


# -- files ------------------------------------------------------------------------------------


async def send_file(call: Call) -> Response:
    """Keep a file for later tasks."""
    name = call.query(s.FileQuery).name
    return shown(await call.service.uploads.store(call.key, name, call.chunks()), 201)


async def list_files(call: Call) -> Response:
    """List the files that this key has sent in."""
    query = call.query(s.PageQuery)
    files, more = _page(await call.service.uploads.list(call.key), query)
    return shown(s.StoredList(files=files, more=more))


async def delete_file(call: Call) -> Response:
    """Remove a file that this key has sent in."""
    await call.no_body()
    await call.service.uploads.remove(call.key, call.part("file_id"))
    return Response(status_code=204)


async def get_file(call: Call) -> Response:
    """A file that a task made: one that its journal names, whatever the request says."""
    call.query(s.NoQuery)
    files = await call.service.tasks.output_files(call.part("task_id"), call.key)
    name = call.part("name")
    path = files.get(name)
    if path is None:
        raise ProblemError(404, "the task has no file of this name")
    if not await asyncio.to_thread(os.path.isfile, path):
        raise ProblemError(410, "the file is not on this machine any more")
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return FileResponse(
        path,
        media_type=kind,
        headers={
            "content-disposition": f"attachment; filename*=utf-8''{quote(name, safe='')}",
            "content-security-policy": "sandbox; default-src 'none'",
        },
    )


# -- questions --------------------------------------------------------------------------------


async def list_approvals(call: Call) -> Response:
    """Questions that wait."""
    query = call.query(s.RequestQuery)
    return shown(await call.service.approvals.list(call.key, **query.model_dump()))


async def get_approval(call: Call) -> Response:
    """One question."""
    call.query(s.NoQuery)
    return shown(await call.service.approvals.detail(call.part("request_id"), call.key))


async def decide(call: Call) -> Response:
    """Answer a question."""
    call.query(s.NoQuery)
    given = await call.body(s.DecisionRequest)
    name = call.part("request_id")
    return shown(await call.service.approvals.decide(name, given, call.key, call.via))


async def check(call: Call) -> Response:
    """Check edited arguments."""
    call.query(s.NoQuery)
    given = await call.body(s.CheckRequest)
    name = call.part("request_id")
    return shown(await call.service.approvals.check(name, given.arguments, call.key))


async def list_remembered(call: Call) -> Response:
    """Decisions that hold."""
    query = call.query(s.PageQuery)
    found, more = _page(await call.service.approvals.remembered(call.key), query)
    return shown(s.RememberedList(remembered=found, more=more))


async def revoke(call: Call) -> Response:
    """Make a remembered decision void."""
    await call.no_body()
    return shown(await call.service.approvals.revoke(call.part("request_id"), call.key))


# -- conversations ----------------------------------------------------------------------------


async def list_conversations(call: Call) -> Response:
    """Conversations, the newest first."""
    query = call.query(s.PageQuery)
    chat: Any = call.service.agent.chat
    end, found = query.offset + query.limit, list[ConversationRecord]()
    if chat is not None:
        most = end + 1 if call.key.owners is None else _MOST_CONVERSATIONS
        every = await chat.aconversations(most)
        found = [c for c in every if call.key.sees(owner_of(c.conversation))]
    views = [
        s.Conversation(
            conversation_id=shown_name(c.conversation, call.key),
            title=c.title,
            messages=c.messages,
            updated_at=c.updated_at,
        )
        for c in found[query.offset : end]
    ]
    return shown(s.ConversationList(conversations=views, more=len(found) > end))


async def get_conversation(call: Call) -> Response:
    """Return the messages of a conversation."""
    query = call.query(s.MessageQuery)
    name = await _conversation(call)
    lines = await _messages(call, name, query.after, query.limit + 1)
    messages = [
        s.ChatLine(
            position=line.position,
            role=line.role,
            content=line.content,
            at=line.at,
            task_id=line.task_id,
        )
        for line in lines[: query.limit]
    ]
    more = len(lines) > query.limit
    return shown(
        s.ConversationDetail(
            conversation_id=shown_name(name, call.key), messages=messages, more=more
        )
    )


async def delete_conversation(call: Call) -> Response:
    """Forget a conversation."""
    await call.no_body()
    name = await _conversation(call)
    chat: Any = call.service.agent.chat
    await chat.aclear(name)
    return Response(status_code=204)


async def _conversation(call: Call) -> str:
    """The name in the journal of the conversation that is meant: one's own first."""
    given = call.part("conversation_id")
    for name in dict.fromkeys((kept_name(given, call.key) or given, given)):
        if call.key.sees(owner_of(name)) and await _messages(call, name, 0, 1):
            return name
    raise ProblemError(404, "no such conversation is known")


async def _messages(call: Call, name: str, after: int, limit: int) -> Sequence[ChatMessage]:
    chat: Any = call.service.agent.chat
    return [] if chat is None else await chat.store().read(name, after, limit)


# -- the server itself ------------------------------------------------------------------------


async def health(_call: Call) -> Response:
    """The process runs."""
    return shown(s.Health(ok=True))


async def ready(call: Call) -> Response:
    """Tasks can be taken in: the journal answers, models have their keys, a sandbox opens."""
    await call.service.readiness.check()
    return shown(s.Health(ok=True))


async def metrics(call: Call) -> Response:
    """Figures for Prometheus."""
    call.query(s.NoQuery)
    if call.key.owners is not None:
        raise ProblemError(404, "figures of all tasks are for those who see all")
    text = await metrics_text(call.service.agent, call.service.tasks, call.service.streams)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def openapi(call: Call) -> Response:
    """This document."""
    call.query(s.NoQuery)
    root = call.http.scope.get("root_path", "")
    data = json.dumps(document(OPERATIONS, server=root or "/", keyed=bool(call.service.keys)))
    return Response(data, media_type=JSON)


async def docs(call: Call) -> Response:
    """This document as a page."""
    call.query(s.NoQuery)
    return page_file("docs.html")


async def login(call: Call) -> Response:
    """Begin a session of the page."""
    call.query(s.NoQuery)
    given = await call.body(s.LoginRequest)
    service = call.service
    if not service.keys:
        return shown(_session(call, ANYBODY, None))
    key = service.keys.find(given.key.encode())
    if key is None:
        raise call.http.scope["delf.guard"].wrong_key(call.http.scope, given.key.encode())
    answer = shown(_session(call, key, cookie := await begin_session(call, key, "key")))
    keep_cookie(call, answer, cookie)
    return answer


async def begin_session(call: Call, key: Key, way: str) -> str:
    """Begin a session, and end the one that the browser had; the value of its cookie."""
    if call.cookie is not None:
        await call.service.sessions.end(call.cookie)
    browser = call.http.headers.get("user-agent", "")
    return await call.service.sessions.begin(key, way, call.client, browser)


def keep_cookie(call: Call, answer: Response, cookie: str) -> None:
    """Let a browser keep the cookie of its session."""
    seconds = int(call.service.settings.session_hours * 3600)
    answer.set_cookie(COOKIE, cookie, max_age=seconds, **_cookie_options(call))


async def begin_oidc(call: Call) -> Response:
    """Send the browser to the provider of logins."""
    call.query(s.NoQuery)
    url, cookie = await _oidc(call).begin()
    answer = RedirectResponse(url, 303)
    # It comes back from another site: a strict cookie would stay behind.
    options: dict[str, Any] = {**_cookie_options(call), "samesite": "lax"}
    answer.set_cookie(oidc.COOKIE, quote(cookie), max_age=oidc.LOGIN_SECONDS, **options)
    return answer


async def finish_oidc(call: Call) -> Response:
    """Begin the session of somebody who comes back from the provider."""
    cookie = unquote(call.http.cookies.get(oidc.COOKIE, ""))
    provider = _oidc(call)
    name, teams = await provider.finish(cookie, dict(call.http.query_params))
    key = await call.service.logins.person(name, teams, by_mail=provider.by_mail)
    if key is None:
        raise ProblemError(
            403, f"{name[:80]} is not known here", "whoever runs the server can add you"
        )
    answer = RedirectResponse(call.http.scope.get("root_path", "") + "/", 303)
    keep_cookie(call, answer, await begin_session(call, key, "oidc"))
    options: dict[str, Any] = {**_cookie_options(call), "samesite": "lax"}
    answer.delete_cookie(oidc.COOKIE, **options)
    return answer


def _oidc(call: Call) -> oidc.OpenIdConnect:
    if call.service.oidc is None:
        raise ProblemError(404, "no provider of logins is set", "the setting oidc_issuer")
    return call.service.oidc


async def logout(call: Call) -> Response:
    """End a session of the page."""
    await call.no_body()
    if call.cookie is not None:
        await call.service.sessions.end(call.cookie)
    answer = Response(status_code=204)
    answer.delete_cookie(COOKIE, **_cookie_options(call))
    return answer


def _cookie_options(call: Call) -> dict[str, Any]:
    is_encrypted = call.http.url.scheme == "https"
    is_encrypted |= call.service.settings.public_url.startswith("https://")
    path = call.http.scope.get("root_path", "") or "/"
    return {"path": path, "httponly": True, "samesite": "strict", "secure": is_encrypted}


async def session(call: Call) -> Response:
    """Return the session of the caller."""
    call.query(s.NoQuery)
    known: Key | None = call.http.scope.get("delf.key")
    if known is None:
        ways = "POST /login" if call.service.oidc is None else f"GET {oidc.BEGIN}"
        raise ProblemError(401, "nobody is logged in", ways)
    return shown(_session(call, known, call.cookie))


async def list_sessions(call: Call) -> Response:
    """The sessions of the caller."""
    found, more = _page(await call.service.sessions.of(call.key), call.query(s.PageQuery))
    this = None if call.cookie is None else digest_of(call.cookie)
    sessions = [
        s.Login(
            id=id_of(one.digest),
            began=one.began,
            until=one.until,
            way=one.way,
            client=one.client,
            browser=one.browser,
            is_this=one.digest == this,
        )
        for one in found
    ]
    return shown(s.LoginList(sessions=sessions, more=more))


async def end_session(call: Call) -> Response:
    """End a session of the caller."""
    await call.no_body()
    await call.service.sessions.end_of(call.key, call.part("session_id"))
    return Response(status_code=204)


async def get_away(call: Call) -> Response:
    """Tell who decides in the caller's place, and for whom the caller does."""
    call.query(s.NoQuery)
    return shown(await call.service.deputies.of(call.key))


async def set_away(call: Call) -> Response:
    """Let somebody else decide in the caller's place."""
    call.query(s.NoQuery)
    given = await call.body(s.AwayRequest)
    return shown(await call.service.deputies.set(given, call.key, _changer(call)))


async def end_away(call: Call) -> Response:
    """Let the caller decide again."""
    await call.no_body()
    await call.service.deputies.end(call.key, _changer(call))
    return Response(status_code=204)


def _changer(call: Call) -> Changer:
    return Changer(call.key.name, call.via, call.service.agent.note_person)


def _session(call: Call, key: Key, cookie: str | None) -> s.Session:
    service, is_told = call.service, bool(call.http.scope.get("delf.proxy"))
    csrf = None if cookie is None or not service.keys else csrf_of(cookie)
    way = "proxy" if is_told else "session" if cookie is not None else "key"
    return s.Session(
        name=key.name,
        rights=sorted(key.rights),
        scope=key.scope,
        teams=sorted(key.teams),
        way=way if service.keys else "none",
        csrf=PROXY_TOKEN if is_told else csrf,
        login=bool(service.keys),
        server=service.start,
        model=short_name(service.agent.config.main_llm.model).rpartition("/")[2],
        models=service.settings.models,
        budget=_budget(call, key),
    )


def _budget(call: Call, key: Key) -> s.Budget | None:
    """The agent's budget; who does not see all tasks gets what those that they see have spent."""
    known = call.service.agent.status()["budget"]
    if known["limit_usd"] is None:
        return None
    spent: list[tuple[str, float]] = list(reversed(known["by_task"].items()))
    limit, total, left = known["limit_usd"], known["spent_usd"], known["remaining_usd"]
    if key.owners is not None:
        tasks = call.service.tasks
        spent = [(name, amount) for name, amount in spent if tasks.sees_here(key, name)]
        limit, total, left = None, sum(amount for _, amount in spent), None
    return s.Budget(
        limit_usd=limit,
        spent_usd=total,
        left_usd=left,
        tasks=[
            s.TaskCost(task_id=name, spent_usd=amount)
            for name, amount in spent[:_TASKS_OF_A_BUDGET]
        ],
    )


async def budget(call: Call) -> Response:
    """Return the rest of the agent's budget."""
    call.query(s.NoQuery)
    known = _budget(call, call.key)
    if known is None:
        raise ProblemError(404, "the agent has no budget", "the setting budget_usd gives it one")
    return shown(known)


_TASKS_OF_A_BUDGET: Final = 20
_MOST_CONVERSATIONS: Final = 10_000
_UNKNOWN: Final = ((404, "It is not known."),)
_NO_MODEL: Final = (409, "The model cannot be chosen.")
_NO_SEARCH: Final = (501, "The journal has no search.")
_NO_PERSON: Final = (409, "The key belongs to no person.")
_LATE: Final = (409, "It is too late, or it cannot be done now.")

OPERATIONS: Final = (
    Operation(method="POST", path="/run", name="run", summary="Hand in a task.", right="run",
              handler=run, body=s.RunRequest, answer=s.Accepted, status=202,
              other=(*_UNKNOWN, (200, "The task is over."),
                     (409, "The idempotency key is another task's."))),
    Operation(method="GET", path="/routines", name="list_routines",
              summary="The routines of the project, with their parameters.", right="read",
              handler=list_routines, query=s.PageQuery, answer=s.RoutineList),
    Operation(method="POST", path="/routines", name="save_routine",
              summary="Show a task as a routine; keep it once just that was seen.",
              right="decide", handler=save_routine, body=s.RoutineSaveRequest,
              answer=s.RoutineDraft,
              other=(*_UNKNOWN, (409, "The task cannot become a routine."))),
    Operation(method="POST", path="/routines/{name}", name="run_routine",
              summary="Hand in a run of a routine, which asks no model.", right="run",
              handler=run_routine, body=s.RoutineRequest, answer=s.Accepted, status=202,
              other=(*_UNKNOWN, (200, "The task is over."),
                     (409, "The idempotency key is another task's."))),
    Operation(method="GET", path="/tasks", name="list_tasks", summary="Tasks, the newest first.",
              right="read", handler=list_tasks, query=s.TaskQuery, answer=s.TaskList),
    Operation(method="GET", path="/search", name="search",
              summary="Find tasks by their words, scripts, calls, answers and errors.",
              right="read", handler=search, query=s.SearchQuery, answer=s.FoundList,
              other=(*_UNKNOWN, _NO_SEARCH)),
    Operation(method="GET", path="/figures", name="figures",
              summary="Tasks, tokens, cost and waiting time by day, person, tool or model.",
              right="read", handler=figures, query=s.FiguresQuery, answer=s.FigureList,
              also="text/csv",
              other=((409, "The time zone is unknown."), _NO_SEARCH)),
    Operation(method="GET", path="/tasks/{task_id}", name="get_task",
              summary="A task with its result.", right="read", handler=get_task,
              query=s.TaskFormatQuery, answer=s.TaskOrSnapshot, other=_UNKNOWN),
    Operation(method="DELETE", path="/tasks/{task_id}", name="delete_task",
              summary="Forget a task that does not run, with its events and its files.",
              right="delete", handler=delete_task, status=204, other=(*_UNKNOWN, _LATE)),
    Operation(method="GET", path="/tasks/{task_id}/events", name="task_events",
              summary="A task's events, as server-sent events whose ids are their numbers.",
              right="read", handler=task_events, query=s.EventQuery, media=_EVENTS,
              frames="Event", other=(*_UNKNOWN, (204, "There are no further events."),
                     (503, "Too many streams are open.")), headers=("Last-Event-ID",)),
    Operation(method="GET", path="/tasks/{task_id}/prompts", name="list_prompts",
              summary="A task's model calls: what each was sent, answered, and cost.",
              right="read", handler=list_prompts, query=s.PageQuery, answer=s.PromptList,
              other=_UNKNOWN),
    Operation(method="POST", path="/tasks/{task_id}/cancel", name="cancel_task",
              summary="Stop a task.", right="run", handler=cancel_task, answer=s.Cancelled,
              other=(*_UNKNOWN, _LATE)),
    Operation(method="POST", path="/tasks/{task_id}/resume", name="resume_task",
              summary="Go on with a task whose process is gone.", right="run",
              handler=resume_task, answer=s.Task, status=202, other=(*_UNKNOWN, _LATE)),
    Operation(method="POST", path="/tasks/{task_id}/fork", name="fork_task",
              summary="Do a task again from one of its events on, as a new task.", right="run",
              handler=fork_task, body=s.ForkRequest, answer=s.Task, status=202,
              other=(*_UNKNOWN, _NO_MODEL)),
    Operation(method="GET", path="/tasks/{task_id}/compare/{other_id}", name="compare_tasks",
              summary="Two tasks side by side: figures, scripts, calls, answers.", right="read",
              handler=compare_tasks, answer=s.Comparison, other=_UNKNOWN),
    Operation(method="GET", path="/tasks/{task_id}/files/{name}", name="get_file",
              summary="A file that a task made.", right="read", handler=get_file,
              media="application/octet-stream",
              other=(*_UNKNOWN, (410, "It is not on this machine any more."))),
    Operation(method="POST", path="/files", name="send_file",
              summary="Send a file in, for the tasks that name it.", right="run",
              handler=send_file, query=s.FileQuery, answer=s.Stored, status=201,
              sent="application/octet-stream"),
    Operation(method="GET", path="/files", name="list_files",
              summary="Files that this key has sent in, the newest first.", right="run",
              handler=list_files, query=s.PageQuery, answer=s.StoredList),
    Operation(method="DELETE", path="/files/{file_id}", name="delete_file",
              summary="Remove a file that this key has sent in.", right="run",
              handler=delete_file, status=204, other=_UNKNOWN),
    Operation(method="GET", path="/events", name="changes",
              summary="Tasks as lists show them, as they change: server-sent events.",
              right="read", handler=all_changes, media=_EVENTS,
              frames="Task", other=((503, "Too many streams are open."),)),
    Operation(method="GET", path="/approvals", name="list_approvals",
              summary="Questions that wait for a person.", right="read", handler=list_approvals,
              query=s.RequestQuery, answer=s.RequestList),
    Operation(method="GET", path="/approvals/{request_id}", name="get_approval",
              summary="A question with all that helps to answer it.", right="read",
              handler=get_approval, answer=s.Request, other=_UNKNOWN),
    Operation(method="POST", path="/approvals/{request_id}", name="decide",
              summary="Answer a question: approve, reject, edit or settle.", right="decide",
              handler=decide, body=s.DecisionRequest, answer=s.DecidedView,
              other=(*_UNKNOWN, _LATE)),
    Operation(method="POST", path="/approvals/{request_id}/check", name="check_arguments",
              summary="Check edited arguments as the gate would.", right="read", handler=check,
              body=s.CheckRequest, answer=s.Checked, other=_UNKNOWN),
    Operation(method="GET", path="/remembered", name="list_remembered",
              summary="Decisions that let calls pass without a question until they are revoked.",
              right="read", handler=list_remembered, query=s.PageQuery,
              answer=s.RememberedList),
    Operation(method="DELETE", path="/remembered/{request_id}", name="revoke",
              summary="Make a remembered decision void.", right="decide", handler=revoke,
              answer=s.Remembered, other=_UNKNOWN),
    Operation(method="GET", path="/conversations", name="list_conversations",
              summary="Conversations, the newest first.", right="read",
              handler=list_conversations, query=s.PageQuery, answer=s.ConversationList),
    Operation(method="GET", path="/conversations/{conversation_id}", name="get_conversation",
              summary="What was said in a conversation.", right="read", handler=get_conversation,
              query=s.MessageQuery, answer=s.ConversationDetail, other=_UNKNOWN),
    Operation(method="DELETE", path="/conversations/{conversation_id}", name="delete_conversation",
              summary="Forget a conversation.", right="delete", handler=delete_conversation,
              status=204, other=_UNKNOWN),
    Operation(method="GET", path="/health", name="health", summary="Whether the process runs.",
              right=None, handler=health, answer=s.Health),
    Operation(method="GET", path="/ready", name="ready",
              summary="Whether a task could begin.", right=None, handler=ready,
              answer=s.Health, other=((503, "No task can begin."),)),
    Operation(method="GET", path="/sessions", name="list_sessions",
              summary="Your sessions on the page, with from where they are.", right="read",
              handler=list_sessions, query=s.PageQuery, answer=s.LoginList),
    Operation(method="DELETE", path="/sessions/{session_id}", name="end_session",
              summary="End one of your sessions.", right="read", handler=end_session,
              status=204, other=_UNKNOWN),
    Operation(method="GET", path="/away", name="get_away",
              summary="Who decides in your place while you are away.", right="read",
              handler=get_away, answer=s.Away),
    Operation(method="POST", path="/away", name="set_away",
              summary="Let another person decide in your place for a time.", right="decide",
              handler=set_away, body=s.AwayRequest, answer=s.Away, other=(_NO_PERSON,)),
    Operation(method="DELETE", path="/away", name="end_away",
              summary="Say that you decide again.", right="decide", handler=end_away, status=204,
              other=(_NO_PERSON,)),
    Operation(method="GET", path="/budget", name="budget",
              summary="What is left of the agent's budget, and what took the rest.",
              right="read", handler=budget, answer=s.Budget,
              other=((404, "The agent has no budget."),)),
    Operation(method="GET", path="/metrics", name="metrics", summary="Figures for Prometheus.",
              right="read", handler=metrics, media="text/plain"),
    Operation(method="GET", path="/openapi.json", name="openapi", summary="This document.",
              right="read", handler=openapi),
)  # fmt: skip
"""The operations for programs, which the document describes."""

OF_THE_PAGE: Final = (
    Operation(method="GET", path="/docs", name="docs", summary="The API for people.",
              right="read", handler=docs),
    Operation(method="POST", path="/login", name="login", summary="Begin a session.", right=None,
              handler=login, body=s.LoginRequest, answer=s.Session),
    Operation(method="GET", path=oidc.BEGIN, name="begin_oidc", right=None,
              summary="Log in by OpenID Connect.", handler=begin_oidc, status=303),
    Operation(method="GET", path=oidc.CALLBACK, name="finish_oidc", right=None,
              summary="Come back from the provider of logins.", handler=finish_oidc, status=303),
    Operation(method="POST", path="/logout", name="logout", summary="End a session.", right="read",
              handler=logout, status=204),
    Operation(method="GET", path="/session", name="session", summary="Who is logged in.",
              right=None, handler=session, answer=s.Session),
)  # fmt: skip
"""The operations of the page alone."""
