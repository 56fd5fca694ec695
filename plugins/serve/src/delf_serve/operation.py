"""Operations of the API: a handler's signature and docstring are its route and its document."""

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
"""Takes a :class:`delf_serve.call.Call`, and the request's data as ``query`` and ``body``."""
HandlerT = TypeVar("HandlerT", bound=Handler)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation.

    Args:
        method: Of HTTP.
        path: With its parts in braces.
        name: The name for programs.
        summary: The effect.
        right: The right that a key needs; None for none.
        handler: Does it.
        body: The type of the body.
        query: The parameters of the query.
        answer: The type of the answer.
        status: The usual status.
        other: Further statuses with their meanings.
        media: The type of the answer where it is not JSON.
        also: A further type of the answer, as a text, where the query asks for it.
        frames: Of a stream of events, the schema of each one's data.
        sent: The type of the body where it is not JSON.
        headers: Further headers that are heeded.
        any_query: Whether any query is taken, as those who ask choose it themselves.
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
    other: tuple[tuple[int, str], ...] = ()
    media: str = JSON
    also: str | None = None
    frames: str | None = None
    sent: str = JSON
    headers: tuple[str, ...] = ()
    any_query: bool = False


class Operations(list[Operation]):
    """Operations in display order."""

    def add(
        self,
        method: str,
        path: str,
        right: Right | None,
        *,
        answer: type[BaseModel] | None = None,
        status: int | None = None,
        **more: Any,
    ) -> Callable[[HandlerT], HandlerT]:
        """Make an operation of a handler, with the types of query, body and answer.

        Args:
            method: Of HTTP.
            path: With its parts in braces.
            right: The right that a key needs.
            answer: The type of the answer, if the handler's annotation does not have it.
            status: The usual status; 204 for a handler that gives None, and 200 for others.
            more: Further fields of :class:`Operation`.
        """

        def decorate(handler: HandlerT) -> HandlerT:
            types: dict[str, Any] = get_type_hints(handler)
            given: Any = types["return"]
            model: type[BaseModel] | None = None
            if isinstance(given, type) and issubclass(given, BaseModel):
                model = given
            usual = 204 if given is type(None) else 200
            operation = Operation(
                method=method,
                path=path,
                name=handler.__name__,
                summary=(inspect.getdoc(handler) or "").partition("\n")[0],
                right=right,
                handler=handler,
                body=types.get("body"),
                query=types.get("query", s.NoQuery),
                answer=answer or model,
                status=status or usual,
                **more,
            )
            self.append(operation)
            return handler

        return decorate
