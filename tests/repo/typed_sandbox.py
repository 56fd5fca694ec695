"""The sandbox of a plugin's author as a type checker sees it; nothing runs it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_type

from delf.errors import SandboxUnavailableError
from delf.hookspecs import hookimpl
from delf.protocols.context import PluginContext
from delf.protocols.sandbox import (
    Availability,
    Available,
    CallAnswer,
    CallRequest,
    Done,
    Failed,
    LimitReached,
    Outcome,
    Raised,
    Returned,
    SandboxBackend,
    SandboxSession,
    ScriptHost,
    SessionSpec,
    ToolMessage,
    Unavailable,
)
from delf.specs import SandboxSpec
from delf.types import Isolation


class Session:
    """One script after another."""

    def __init__(self, spec: SessionSpec) -> None:
        self._seconds: float = spec.limits.cpu_seconds

    async def execute(self, code: str, host: ScriptHost) -> Outcome:
        """Run a script."""
        if self._seconds <= 0:
            return LimitReached(limit="cpu", message="no processor time is left")
        answer: CallAnswer = await host.call(
            CallRequest(call_id=1, connection=code, method="", args=(), kwargs={})
        )
        match answer:
            case Returned(value):
                return Done(value=value)
            case ToolMessage(message):
                return Done(value=message)
            case Raised(kind, message):
                return Failed(kind=kind, message=message, line=1)

    @property
    def alive(self) -> bool:
        """True while scripts can run."""
        return self._seconds > 0

    async def aclose(self) -> None:
        """End the session."""


class Box:
    """A sandbox."""

    isolation: Isolation = "vm"

    def __init__(self, binary: str) -> None:
        self._binary = binary

    async def available(self) -> Availability:
        """Return whether the sandbox works here."""
        return Available("a machine") if self._binary else Unavailable("there is no binary")

    async def open(self, spec: SessionSpec) -> Session:
        """Open a session."""
        if not self._binary:
            raise SandboxUnavailableError("there is no binary")
        return Session(spec)

    def visible_path(self, path: str) -> str:
        """Return the name of an input file in scripts."""
        return path

    async def aclose(self) -> None:
        """End every session."""


def make(context: PluginContext, binary: str = "box") -> SandboxBackend:
    return Box(context.environ.get("BOX", binary))


async def opened(backend: SandboxBackend, spec: SessionSpec) -> Outcome:
    session = await backend.open(spec)
    assert_type(session, SandboxSession)
    raise NotImplementedError


@hookimpl
def delf_sandbox_backends() -> Iterable[SandboxSpec]:
    yield SandboxSpec(name="box", summary="A box.", factory="delf_box:make", isolation="vm")
