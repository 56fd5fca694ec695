"""``Operation``: one row of the table that routes and the OpenAPI document are made of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel
from starlette.responses import Response

from delf.protocols.people import Right
from delf_serve import schemas as s

JSON: Final = "application/json"
Handler = Callable[[Any], Awaitable[Response]]
"""Takes a :class:`delf_serve.operations.Call`."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation.

    Args:
        method: Of HTTP.
        path: With its parts in braces.
        name: What programs call it.
        summary: What it does.
        right: What a key needs; None where none is needed.
        handler: Does it.
        body: What is sent.
        query: The parameters of the query.
        answer: What is answered.
        status: The usual status.
        other: Further statuses by what they mean.
        media: The type of the answer where it is not JSON.
        also: A further type of the answer, as a text, where the query asks for it.
        frames: Of a stream of events, the schema of each one's data.
        sent: The type of the body where it is not JSON.
        headers: Further headers that are heeded.
    """

    method: str
    path: str
    name: str
    summary: str
    right: Right | None
    handler: Handler
    body: type[BaseModel] | None = None
    query: type[BaseModel] = s.NoQuery
    answer: type[BaseModel] | None = None
    status: int = 200
    other: tuple[tuple[int, str], ...] = ()
    media: str = JSON
    also: str | None = None
    frames: str | None = None
    sent: str = JSON
    headers: tuple[str, ...] = ()
