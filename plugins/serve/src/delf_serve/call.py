"""A request with its context: the person, the body, and the server's objects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from delf_serve import oidc
from delf_serve import schemas as s
from delf_serve.approvals import Approvals
from delf_serve.clients import client_of
from delf_serve.files import Uploads
from delf_serve.hooks import Hooks
from delf_serve.keys import Caller, Keys
from delf_serve.operation import JSON
from delf_serve.plain import json_bytes
from delf_serve.problems import ProblemError
from delf_serve.readiness import Readiness
from delf_serve.routines import Routines
from delf_serve.schedules import ProjectSchedules
from delf_serve.sessions import Sessions
from delf_serve.settings import ServeSettings
from delf_serve.streams import Streams
from delf_serve.tasks.tasks import Tasks

if TYPE_CHECKING:
    from delf import Agent

ModelT = TypeVar("ModelT", bound=BaseModel)
T = TypeVar("T")
# The minimum upload speed in bytes per second, which extends the deadline of large bodies.
_MIN_BYTES_PER_SECOND: Final = 20_000


@dataclass
class Service:
    """The objects that API operations use.

    Args:
        agent: The agent that runs the tasks.
        settings: The server's settings.
        keys: The people and API keys, with their rights.
        tasks: The parts that deal with tasks.
        routines: The project's routines.
        hooks: The incoming webhooks.
        schedules: The project's schedules.
        streams: The open event streams.
        approvals: The approval requests.
        uploads: The uploaded files.
        sessions: The login sessions.
        oidc: The OpenID Connect login provider; None if not configured.
        readiness: The readiness check.
        server_id: A unique id of this server process.
    """

    agent: Agent
    settings: ServeSettings
    keys: Keys
    tasks: Tasks
    routines: Routines
    hooks: Hooks
    schedules: ProjectSchedules
    streams: Streams
    approvals: Approvals
    uploads: Uploads
    sessions: Sessions
    oidc: oidc.OpenIdConnect | None
    readiness: Readiness
    server_id: str


@dataclass(frozen=True)
class Call:
    """An API request together with the authenticated caller.

    Args:
        http: The HTTP request.
        service: The objects of the server that handlers use.
        caller: The person or program that calls.
    """

    http: HttpRequest
    service: Service
    caller: Caller

    @property
    def client(self) -> str:
        """The address of the client."""
        return client_of(self.http.scope.get("client"))

    @property
    def via(self) -> str:
        """The channel and client address of a decision: ``page, ADDRESS`` or ``API, ADDRESS``."""
        # The page authenticates by a cookie or a proxy, other clients by an API key.
        is_page = self.cookie is not None or self.http.scope.get("delf.proxy")
        channel = "page" if is_page else "API"
        return f"{channel}, {self.client}"

    @property
    def cookie(self) -> str | None:
        """The session cookie; None if the request has no session."""
        return self.http.scope.get("delf.cookie")

    async def wait(self, task_id: str, seconds: float) -> Call:
        """Wait until a task ends or needs a person, or until the server shuts down.

        Args:
            task_id: The id of the task, which may run in any process.
            seconds: The maximum time to wait.

        Returns:
            This call with the present rights of its caller, which may have changed meanwhile.

        Raises:
            ProblemError: If the caller's key or session has ended, or if too many requests wait.
        """
        with self.service.sessions.count_open_request(self.caller, self.cookie) as open_request:
            waiting = asyncio.ensure_future(self.service.tasks.waits.wait(task_id, seconds))
            open_request.end = waiting.cancel
            # A change of rights does not end the wait: the response is made after the wait, with
            # the rights that the caller has then.
            open_request.needs_same_rights = False
            try:
                # Raises nothing if open_request.end() cancels ``waiting``.
                await asyncio.wait({waiting})
            finally:
                # If this request is cancelled, asyncio.wait() leaves ``waiting`` running.
                waiting.cancel()
        if not waiting.cancelled():
            waiting.result()  # raises the error of the journal
        caller = self.service.keys.current(self.caller)
        if caller is None or open_request.is_session_over:
            raise ProblemError(401, "the key or the session has ended")
        return replace(self, caller=caller)

    def path_parameter(self, name: str) -> str:
        """Return the value of a path parameter."""
        return str(self.http.path_params[name])

    def query(self, kind: type[ModelT]) -> ModelT:
        """Validate and return the query parameters.

        Raises:
            ProblemError: If a parameter is invalid or repeated.
        """
        parameters: dict[str, str] = {}
        for name, value in self.http.query_params.multi_items():
            if name in parameters:
                raise ProblemError(422, f"{name[:60]}: it comes twice", param=name[:60])
            parameters[name] = value
        return _validate(lambda: kind.model_validate_strings(parameters))

    async def body(self, kind: type[ModelT]) -> ModelT:
        """Parse and validate the JSON body.

        Raises:
            ProblemError: If the body or one of its fields is invalid.
        """
        content_type = self.http.headers.get("content-type", "")
        media_type = content_type.partition(";")[0].strip().lower()
        needs_body = any(field.is_required() for field in kind.model_fields.values())
        if not media_type and not needs_body:
            await self.no_body()
            return _validate(kind)  # with the default of each field
        if media_type != JSON:
            raise ProblemError(415, "the body has to be JSON", f"content-type: {JSON}")
        data = b"".join([chunk async for chunk in self.chunks()])
        # pydantic reports "EOF while parsing" for a blank, but a less clear error for no bytes.
        return _validate(lambda: kind.model_validate_json(data or b" "))

    async def no_body(self) -> None:
        """Check that the request has no body, or an empty JSON object.

        Raises:
            ProblemError: If there is a body.
        """
        if b"".join([chunk async for chunk in self.chunks()]).strip() not in (b"", b"{}"):
            raise ProblemError(422, "the body must be empty", "GET /openapi.json")

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body in chunks.

        Raises:
            ProblemError: If the body is too large or arrives too slowly.
        """
        max_bytes: int = self.http.scope["delf.max_body_bytes"]
        began = time.monotonic()
        size = 0
        more = True
        while more:
            # Each received byte extends the deadline, but too little for a client that is too slow.
            deadline = began + self.service.settings.body_seconds + size / _MIN_BYTES_PER_SECOND
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    message = await self.http.receive()
            except TimeoutError:
                raise ProblemError(408, "the body did not arrive in time") from None
            if message["type"] == "http.disconnect":
                raise ProblemError(400, "the body broke off")
            chunk = message.get("body", b"")
            more = message.get("more_body", False)
            size += len(chunk)
            if size > max_bytes:
                raise ProblemError(413, f"the body is larger than {max_bytes:,} bytes")
            if chunk:
                yield chunk


def _validate(make: Callable[[], ModelT]) -> ModelT:
    """Return the model that a function makes, or raise its validation error as a 422."""
    try:
        return make()
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        details: list[str] = []
        for problem in problems[:5]:
            place = _field_name(problem) or "the body"
            text = problem["msg"].removeprefix("Value error, ")
            details.append(f"{place}: {text}")
        message = "; ".join(details)[:1000]
        first_field = _field_name(problems[0])
        raise ProblemError(422, message, "GET /openapi.json", param=first_field) from None


def _field_name(problem: ErrorDetails) -> str | None:
    """Return the name of the invalid field or parameter in a validation error.

    The name of a nested field is a dotted path. If no variant of a union fits, return the name of
    the field that selects the variant, such as ``decision``. Return None if the whole body is
    invalid.
    """
    if problem["type"].startswith("union_tag"):
        return str(problem["ctx"]["discriminator"]).strip("'")  # pyright: ignore[reportTypedDictNotRequiredAccess]
    names = [str(name) for name in problem["loc"]]
    # Pydantic puts the name of a union's variant first, which is no field of the caller's data.
    if names and names[0] in s.VARIANTS:
        del names[0]
    return ".".join(names) or None


def json_response(model: BaseModel, status: int = 200, **headers: str) -> Response:
    """Convert a model to a JSON response."""
    data = json_bytes(model.model_dump(mode="json"))
    return Response(data, status, headers=headers or None, media_type=JSON)


def page_of(items: Sequence[T], query: s.PageQuery | s.FiguresQuery) -> tuple[list[T], bool]:
    """Select the requested page of a list.

    Returns:
        The items of the page, and True if more items follow.
    """
    end = query.offset + query.limit
    return list(items[query.offset : end]), len(items) > end
