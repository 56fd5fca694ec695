"""API operations: the route and documentation come from a handler's signature and docstring."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, get_type_hints

from pydantic import BaseModel
from starlette.responses import Response

from delf.protocols.people import Right
from delf_serve import schemas as s

JSON: Final = "application/json"
Handler = Callable[..., Awaitable[BaseModel | Response | None]]
"""Function that handles an API call, with ``query`` and ``body`` if the operation has them."""
HandlerT = TypeVar("HandlerT", bound=Handler)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An API operation.

    Args:
        method: The HTTP method.
        path: The path with parameters in braces.
        name: The operation id.
        summary: A one-line description.
        right: The required right; None for public operations.
        handler: The handler.
        body: The model of the request body; None for no body.
        query: The model of the query parameters.
        answer: The model of the response body; None for no JSON body.
        status: The HTTP status of success.
        other_responses: Further statuses, each with its meaning.
        media: The media type of the response.
        second_media: An alternative media type of the response, which a query parameter selects.
        frame_schema: For an event stream, the name of the schema of each event's data.
        request_media: The media type of the request body.
        headers: The names of further request headers that the handler reads.
        any_query: Whether arbitrary query parameters are accepted.
    """

    method: str
    path: str
    name: str
    summary: str
    right: Right | None
    handler: Handler
    body: type[BaseModel] | None
    query: type[BaseModel]
    answer: type[BaseModel] | None
    status: int
    other_responses: tuple[tuple[int, str], ...] = ()
    media: str = JSON
    second_media: str | None = None
    frame_schema: str | None = None
    request_media: str = JSON
    headers: tuple[str, ...] = ()
    any_query: bool = False


class Operations(list[Operation]):
    """Operations, in the order in which the documentation of the API lists the operations."""

    def add(
        self,
        method: str,
        path: str,
        *,
        right: Right | None,
        answer: type[BaseModel] | None = None,
        status: int | None = None,
        **more: Any,
    ) -> Callable[[HandlerT], HandlerT]:
        """Return a decorator that adds a handler as an operation.

        The handler's annotations determine the models of the body, the query and the response.

        Args:
            method: The HTTP method.
            path: The path with parameters in braces.
            right: The right that a caller needs; None if no key or login is needed.
            answer: The model of the response, if the handler's annotation does not state it.
            status: The HTTP status of success; by default 204 for handlers that return None, else
                200.
            more: Further fields of :class:`Operation`.
        """

        def decorate(handler: HandlerT) -> HandlerT:
            types: dict[str, Any] = get_type_hints(handler)
            answer_type: Any = types["return"]
            annotated_model: type[BaseModel] | None = None
            if isinstance(answer_type, type) and issubclass(answer_type, BaseModel):
                annotated_model = answer_type
            usual_status = 204 if answer_type is type(None) else 200
            operation = Operation(
                method=method,
                path=path,
                name=handler.__name__,
                summary=(inspect.getdoc(handler) or "").partition("\n")[0],
                right=right,
                handler=handler,
                body=types.get("body"),
                query=types.get("query", s.NoQuery),
                answer=answer or annotated_model,
                status=status or usual_status,
                **more,
            )
            self.append(operation)
            return handler

        return decorate
