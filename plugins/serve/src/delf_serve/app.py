"""The ASGI application: API operations, web page, and the lifecycle of the agent."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, Router
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from delf.errors import ConfigurationError, DelfError
from delf.machine.contexts import shared_task
from delf.machine.folders import expand_home, user_folder
from delf_engine.agent import keep_cancelled_tasks_resumable
from delf_serve.approvals import Approvals
from delf_serve.assets import page_file
from delf_serve.call import Call, Service, json_response
from delf_serve.files import Uploads
from delf_serve.guard import Guard, Receive, Scope, Send, path_of
from delf_serve.history import keep_indexing
from delf_serve.hooks import Hooks
from delf_serve.journal import ServerJournal
from delf_serve.keys import ANYBODY, Caller, Keys
from delf_serve.oidc import OpenIdConnect
from delf_serve.operation import JSON, Operation
from delf_serve.operations import OPERATIONS
from delf_serve.page_operations import PAGE_OPERATIONS
from delf_serve.problems import ProblemError, shutting_down
from delf_serve.readiness import Readiness
from delf_serve.routines import Routines
from delf_serve.schedules import ProjectSchedules
from delf_serve.schemas import NoQuery, RunRequest
from delf_serve.sessions import Sessions
from delf_serve.settings import ServeSettings, settings_of
from delf_serve.standards import STANDARDS
from delf_serve.streams import Streams
from delf_serve.tasks.tasks import Tasks

if TYPE_CHECKING:
    from delf import Agent

_log = logging.getLogger(__name__)
_NOBODY: Final = Caller("", frozenset(), b"")
# The path parameters whose values may contain slashes, because people choose the names.
_FREE_NAMES: Final = ("name", "conversation_id", "schedule")


class Application:
    """delf as an ASGI application.

    The ASGI lifespan starts and stops the agent. If delf is mounted in another application that
    does not forward lifespan events, the first request starts the agent.

    Args:
        agent: The agent that runs the tasks. If the agent is not started yet, and its configuration
            names no journal, the agent gets a journal in a database.
        settings: The server's settings.
        environ: The environment variables, of which ``DELF_API_KEY`` is read.

    Raises:
        ConfigurationError: If an API key is invalid, or if the settings allow ``*`` as host or
            origin although there are no API keys.
    """

    def __init__(self, agent: Agent, settings: ServeSettings, environ: Mapping[str, str]) -> None:
        self.keys = Keys.of(settings, environ)
        _refuse_wildcards_without_keys(settings, has_keys=bool(self.keys))
        self.agent = agent
        self.settings = settings
        if not agent.started:
            agent.set_default_journal("sql")
        uploads = Uploads(_files_folder(settings), settings)
        self._journal = journal = ServerJournal(agent)
        self.tasks = tasks = Tasks(agent, journal, settings, uploads, self.keys)
        self.streams = Streams(journal, tasks.pending_requests, tasks.views)
        self.sessions = Sessions(self.keys, journal, settings)
        routines = Routines(agent, tasks.views, tasks.budgets)
        self.service = Service(
            agent=agent,
            settings=settings,
            keys=self.keys,
            tasks=tasks,
            routines=routines,
            schedules=ProjectSchedules(agent),
            hooks=Hooks(settings.hooks, self.keys, tasks.submissions, routines),
            streams=self.streams,
            sessions=self.sessions,
            oidc=OpenIdConnect(settings) if settings.oidc_issuer else None,
            approvals=Approvals(agent, journal, tasks.pending_requests, tasks.views, self.keys),
            uploads=uploads,
            readiness=Readiness(agent, journal),
            server_id=secrets.token_hex(8),
        )
        self.first_tasks: tuple[str, ...] = ()
        """Task texts to submit when the server starts."""
        self._lock = asyncio.Lock()  # held by start(), which each early request calls
        self._started = False
        # The time.monotonic() at which the shutdown began; None before.
        self._grace_start: float | None = None
        # True once the server is shutting down. Requests then no longer start the agent.
        self._is_shutting_down = False
        self._background_tasks: set[asyncio.Task[None]] = set()
        self._loop_end_watcher: _LoopEndWatcher | None = None
        self._was_agent_started_by_caller = agent.started
        routes: list[BaseRoute] = [
            _route(item, self.service) for item in (*OPERATIONS, *PAGE_OPERATIONS, *STANDARDS)
        ]
        routes += [
            Route("/", _page, methods=["GET"]),
            Route("/page/{name}", _page, methods=["GET"]),
            Route("/page/{version}/{name}", _page, methods=["GET"]),
        ]
        self._app = Router(routes, lifespan=self._lifespan, redirect_slashes=False)
        self._guard = Guard(
            self._serve,
            settings,
            self.keys,
            self.sessions.caller_of,
            self._prepare,
        )
        self._outermost: Any = self._guard
        if settings.trusted_proxies:
            self._outermost = ProxyHeadersMiddleware(
                cast("Any", self._guard), trusted_hosts=settings.trusted_proxies
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        scope["delf.peer"] = scope.get("client")  # before proxy headers replace it
        await self._outermost(scope, receive, send)

    async def start(self) -> None:
        """Start the agent and the server's background tasks. Idempotent."""
        async with self._lock:
            if self._started:
                return
            await self.agent.astart()
            journal = self._journal.look_up()
            await self.keys.reload(journal, at_once=True)
            # Checked again: __init__() did not know the people of the journal.
            _refuse_wildcards_without_keys(self.settings, has_keys=bool(self.keys))
            self.tasks.start()
            for work in (
                self.sessions.end_invalid_streams(),
                self.service.uploads.keep_removing_old(),
                keep_indexing(journal),
            ):
                self._background_tasks.add(shared_task(work))
            self._loop_end_watcher = _LoopEndWatcher(self.agent)
            # When the event loop is closed, asyncio cancels this background task. The task awaits
            # the watcher, so the watcher is cancelled too, and marks the agent's tasks resumable.
            self._background_tasks.add(shared_task(self._loop_end_watcher.wait()))
            self._started = True
            for task in self.first_tasks:
                await self.tasks.submissions.submit(RunRequest(task=task), ANYBODY)

    def begin_stop(self) -> None:
        """End event streams and waiting requests, so that the server can shut down gracefully."""
        self._is_shutting_down = True
        self._begin_grace()
        self.sessions.end_all()
        self.streams.stop()
        self.tasks.waits.end()

    def _begin_grace(self) -> float:
        """Return the time at which the shutdown began: now, unless it has begun before."""
        if self._grace_start is None:
            self._grace_start = time.monotonic()
        return self._grace_start

    async def stop(self) -> None:
        """End event streams, wait for running tasks, and stop the agent. Idempotent.

        Tasks that do not end within the grace period stay resumable.
        """
        self.begin_stop()
        if self._loop_end_watcher is not None:
            # The watcher would make the tasks resumable as soon as its own task is cancelled below.
            # This method does so itself, after the grace period.
            self._loop_end_watcher.is_armed = False
        for background_task in self._background_tasks:
            background_task.cancel()
        if self.service.oidc is not None:
            await self.service.oidc.aclose()
        await self.service.schedules.aclose()
        if not self._started:
            return
        self._started = False
        grace_end = self._begin_grace() + self.settings.grace_seconds
        self._grace_start = None  # a later start() and stop() get a grace period of their own
        await self.tasks.stop(max(0.0, grace_end - time.monotonic()))
        if not self._was_agent_started_by_caller:
            await self.agent.astop(keep_resumable=True)

    @asynccontextmanager
    async def _lifespan(self, _app: Router) -> AsyncGenerator[None]:
        self._is_shutting_down = False
        await self.start()
        try:
            yield
        finally:
            await self.stop()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route a request that the guard has admitted."""
        scope["app"] = self  # makes the router raise its errors instead of sending them
        if scope["type"] == "http":
            scope["delf.guard"] = self._guard
            # The guard does not start the agent for the probes /health and /ready. Start the agent
            # for /ready, because a mounted server may get no other requests before.
            if path_of(scope) == "/ready" and not self._started:
                await self._start_for_request()
        try:
            await self._app(scope, receive, send)
        except HTTPException as error:
            raise _router_problem(error, self._app.routes, scope) from None
        except Exception as error:
            self._raise_if_shutting_down(error)
            raise

    async def _start_for_request(self) -> None:
        if self._is_shutting_down:
            raise shutting_down()
        await self.start()

    def _raise_if_shutting_down(self, error: Exception) -> None:
        """Raise a 503 if a request failed because the server is shutting down.

        Resources that the request needs, such as the journal's threads, may already be closed.
        """
        if self._is_shutting_down and not isinstance(error, (ProblemError, DelfError)):
            _log.info("a request failed while the server ended: %r", error)
            raise shutting_down() from error

    async def _prepare(self) -> None:
        """Reload users that changed, and start the agent if no lifespan event has started it."""
        if not self._started:
            await self._start_for_request()
        try:
            await self.keys.reload(self._journal())
        except Exception as error:
            self._raise_if_shutting_down(error)
            raise


class _LoopEndWatcher(asyncio.Future[None]):
    """A future that leaves the agent's tasks resumable when the event loop cancels this future.

    A mounted application gets no lifespan event before its event loop is closed. The loop then
    cancels all its futures, and so calls ``cancel`` of this future.

    Args:
        agent: The agent that runs the tasks.
    """

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self._agent = agent
        self.is_armed = True
        """False once the agent's tasks are resumable, or an orderly shutdown looks after them."""

    def cancel(self, msg: Any | None = None) -> bool:
        """Mark the agent's tasks as resumable, then cancel this future.

        asyncio calls this method when the event loop ends, before the agent's tasks notice their
        own cancellation. A resumable task ends without an entry in the journal, so that another
        process can resume the task.
        """
        if self.is_armed:
            self.is_armed = False
            keep_cancelled_tasks_resumable(self._agent)
        return super().cancel(msg)

    async def wait(self) -> None:
        """Wait until the loop cancels this future."""
        await self


class _Endpoint:
    """The ASGI application of one API operation.

    An exception passes to the middleware :class:`Guard`, which sends an error response.

    Args:
        operation: The operation.
        service: The agent and the other objects of the server that handlers use.
    """

    def __init__(self, operation: Operation, service: Service) -> None:
        self._operation = operation
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the operation, and send its result."""
        operation = self._operation
        caller = scope.get("delf.caller") or _NOBODY
        if operation.right is not None and operation.right not in caller.rights:
            raise ProblemError(403, f"you have no right to {operation.right}")
        call = Call(Request(scope, receive, send), self._service, caller)
        result = await operation.handler(call, **await _arguments(operation, call))
        if result is None:
            result = Response(status_code=operation.status)
        elif not isinstance(result, Response):
            result = json_response(result, operation.status)
        await result(scope, receive, send)


async def _arguments(operation: Operation, call: Call) -> dict[str, BaseModel]:
    """Validate a request's query and body, and return them as the handler's keyword arguments.

    Refuse a query or a body that the operation does not declare.
    """
    arguments: dict[str, BaseModel] = {}
    if operation.query is not NoQuery:
        arguments["query"] = call.query(operation.query)
    elif not operation.any_query and call.http.scope["query_string"]:
        call.query(NoQuery)  # raises: the model has no fields
    if operation.body is not None:
        arguments["body"] = await call.body(operation.body)
    elif operation.method != "GET" and operation.request_media == JSON:
        await call.no_body()
    return arguments


def _route(operation: Operation, service: Service) -> Route:
    """Create the route of an operation.

    A name that people chose, such as that of a routine, may contain slashes. A name with a line
    break is passed on, too: the operation then answers, as for any other unknown name.
    """
    path = operation.path
    for parameter in _FREE_NAMES:
        path = path.replace(f"{{{parameter}}}", f"{{{parameter}:path}}")
    endpoint = _Endpoint(operation, service)
    route = Route(path, endpoint, methods=[operation.method], name=operation.name)
    route.path_regex = re.compile(route.path_regex.pattern, re.DOTALL)
    return route


def _router_problem(
    error: HTTPException, routes: Sequence[BaseRoute], scope: Scope
) -> ProblemError:
    """Convert the router's error to an error response.

    For a 405, the ``Allow`` header names the methods of all routes that share the path.
    """
    messages = {
        404: "no operation has this path",
        405: "the path does not support this method",
    }
    headers = error.headers
    if error.status_code == 405:  # several routes may share the path
        allowed: set[str] = set()
        for route in routes:
            if isinstance(route, Route) and route.matches(scope)[0] != Match.NONE:
                allowed.update(route.methods or ())
        headers = {"allow": ", ".join(sorted(allowed))}
    return ProblemError(
        error.status_code,
        messages.get(error.status_code, "the request cannot be answered"),
        "GET /openapi.json",
        headers=headers,
    )


async def _page(request: Request) -> Response:
    known_tag = request.headers.get("if-none-match", "")
    version = request.path_params.get("version", "")
    return page_file(request.path_params.get("name", "index.html"), known_tag, version)


def _refuse_wildcards_without_keys(settings: ServeSettings, *, has_keys: bool) -> None:
    """Raise an error for ``*`` as host or origin without keys: any website could use the server."""
    for name in ("hosts", "allow_origins"):
        if not has_keys and "*" in getattr(settings, name):
            raise ConfigurationError(
                f"{name} = * without an API key lets every page that somebody opens on this "
                "machine use the server",
                hint="set DELF_API_KEY, or name them",
            )


def _files_folder(settings: ServeSettings) -> Path:
    if settings.files_folder is not None:
        # Use an absolute path, because it is compared with the paths of files that tasks record.
        return expand_home(settings.files_folder).absolute()
    return user_folder("data") / "files"


def make_app(agent: Agent, options: Mapping[str, Any], environ: Mapping[str, str]) -> Application:
    """Create an application from the options of ``agent.asgi_app()``."""
    return Application(agent, settings_of(options), environ)
