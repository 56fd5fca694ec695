"""Runs scripts in the real local sandbox for tests, with a host that only takes notes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from delf.protocols.sandbox import (
    CallAnswer,
    CallRequest,
    Limits,
    Outcome,
    Returned,
    ScriptHost,
    ScriptStart,
    SessionSpec,
    ToolNames,
)
from delf_sandbox.session import WireSession
from delf_sandbox_local.backend import LocalBackend

Tool = Callable[..., Awaitable[Any]]


@dataclass
class NotingHost(ScriptHost):
    """Notes what a script does.

    Args:
        tools: What answers calls, by ``connection.method`` or the bare name; a tool may give
            a :class:`CallAnswer` or a plain value. Unknown names give the arguments back.
    """

    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    calls: list[CallRequest] = field(default_factory=list[CallRequest])
    pieces: list[str] = field(default_factory=list[str])
    order: list[str] = field(default_factory=list[str])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    turns: list[int] = field(default_factory=list[int])
    script_start: ScriptStart | None = field(default_factory=ScriptStart)
    called: asyncio.Event = field(default_factory=asyncio.Event)
    spoke: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def text(self) -> str:
        """Everything printed."""
        return "".join(self.pieces)

    async def call(self, request: CallRequest) -> CallAnswer:
        """Answer a call."""
        self.calls.append(request)
        name = f"{request.connection}.{request.method}".rstrip(".")
        self.order.append(name)
        self.called.set()
        tool = self.tools.get(name)
        if tool is None:
            return Returned([*request.args, dict(request.kwargs)])
        result = await tool(*request.args, **request.kwargs)
        return result if isinstance(result, CallAnswer) else Returned(result)

    def printed(self, text: str) -> None:
        """Note a print."""
        self.pieces.append(text)
        self.order.append(f"print {text}")
        self.spoke.set()

    def turns_taken(self, turns: Sequence[int]) -> None:
        """Note when the script got its answers."""
        self.turns += turns

    def wrote_file(self, name: str, data: bytes) -> None:
        """Note a file."""
        self.files[name] = data

    def wrote_rows(self, name: str, data: bytes) -> None:
        """Note the rows of a file that the host makes."""
        self.files[name] = data


TOOLS = (
    ToolNames(name="shop", methods=("find", "wait", "send")),
    ToolNames(name="echo"),
    ToolNames(name="add"),
)


def session_spec(
    tools: tuple[ToolNames, ...] = TOOLS, files: tuple[str, ...] = (), **limits: Any
) -> SessionSpec:
    """A session's specification with the default modules."""
    return SessionSpec(tools=tools, limits=Limits(**limits), files=files)


@asynccontextmanager
async def local_session(spec: SessionSpec | None = None) -> AsyncIterator[WireSession]:
    """A session of its own backend, without a warm pool."""
    backend = LocalBackend(pool_size=0)
    try:
        session = await backend.open(spec or session_spec())
        yield session
        await session.aclose()
    finally:
        await backend.aclose()


async def run_script(
    code: str, host: NotingHost | None = None, **limits: Any
) -> tuple[Outcome, NotingHost]:
    """Run one script in a session of its own."""
    host = host or NotingHost()
    async with local_session(session_spec(**limits)) as session:
        return await session.execute(code, host), host
