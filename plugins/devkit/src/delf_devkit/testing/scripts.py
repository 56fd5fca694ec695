"""The host's end of a script, for tests of sandboxes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from delf.protocols.sandbox import (
    CallAnswer,
    CallRequest,
    Raised,
    Returned,
    ScriptHost,
    SessionSpec,
    ToolMessage,
    ToolNames,
)


@dataclass
class RecordingScriptHost(ScriptHost):
    """Answers a script's calls with functions, and records everything.

    Args:
        tools: Plain or async functions by the name that scripts use: ``add``, ``desk.find``. A
            function returns the result, or an answer such as ``ToolMessage``. An exception of a
            function is raised in the script as ``ToolError``.
        calls: Records the calls, also those of unknown tools.
        cancelled: Records the names of the tools whose calls were cancelled.
        printed_texts: Records the printed texts.
        files: Records the contents of output files by name.
        abandoned: Set when a call is cancelled, for tests that wait for this.
    """

    tools: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])
    calls: list[CallRequest] = field(default_factory=list[CallRequest])
    cancelled: list[str] = field(default_factory=list[str])
    printed_texts: list[str] = field(default_factory=list[str])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    abandoned: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def text(self) -> str:
        """The printed text."""
        return "".join(self.printed_texts)

    @property
    def names(self) -> tuple[ToolNames, ...]:
        """The names of the tools, grouped by connection, as ``SessionSpec.tools`` takes them."""
        grouped: dict[str, list[str]] = {}
        for name in self.tools:
            connection, _, method = name.partition(".")
            methods = grouped.setdefault(connection, [])
            is_function = not method  # a tool without a connection, such as ``add``
            if not is_function:
                methods.append(method)
        return tuple(ToolNames(name=name, methods=tuple(m)) for name, m in grouped.items())

    def spec(self, **options: Any) -> SessionSpec:
        """Make a session spec with the tools of this host.

        Args:
            options: Fields of ``SessionSpec``.
        """
        fields: dict[str, Any] = {"tools": self.names, **options}
        return SessionSpec(**fields)

    async def call(self, request: CallRequest) -> CallAnswer:
        """Call a function."""
        self.calls.append(request)
        name = ".".join(part for part in (request.connection, request.method) if part)
        function = self.tools.get(name)
        if function is None:
            return Raised("ToolNotAllowed", f"there is no tool {name!r}")
        try:
            result = function(*request.args, **request.kwargs)
            result = await result if inspect.isawaitable(result) else result
        except Exception as error:
            return Raised("ToolError", f"{type(error).__name__}: {error}")
        except BaseException:  # the call is cancelled
            self.cancelled.append(name)
            self.abandoned.set()
            raise
        if isinstance(result, (Returned, Raised, ToolMessage)):
            return result
        return Returned(result)

    def printed(self, text: str) -> None:
        """Record printed text."""
        self.printed_texts.append(text)

    def wrote_file(self, name: str, data: bytes) -> None:
        """Record a file."""
        self.files[name] = data

    def wrote_rows(self, name: str, data: bytes) -> None:
        """Record the rows, as tagged JSON, that a script wrote to an output file; write no file."""
        self.files[name] = data
