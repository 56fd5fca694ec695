"""Records every exchange with a model in a file, for replay."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from delf.errors import ModelConfigurationError
from delf.machine.folders import expand_home
from delf.messages import ModelDelta, ModelReply, ModelRequest
from delf.protocols.model import Model, SupportsTools
from delf_model_recorded import recording


class RecordingModel:
    """A model that records the answers of another model in a file.

    Each exchange is one line, which is appended in one write. Several models, tasks and processes
    may therefore share the file. Failed calls and unfinished streams are not recorded.

    Args:
        inner: The model that answers.
        path: The path of the file. Only its owner can read a new file, because prompts are private.
        clean: Redacts recorded texts.

    Raises:
        ModelConfigurationError: If the file cannot be written.
    """

    def __init__(
        self, inner: Model, path: str | os.PathLike[str], clean: Callable[[str], str] = str
    ) -> None:
        self._inner = inner
        self._clean = clean  # applied to the text and the arguments of each recorded reply
        self._path = expand_home(path)
        self._write(b"")  # raises now, and not at the first reply, if the file cannot be written

    def __repr__(self) -> str:
        return f"RecordingModel({self._inner!r}, {str(self._path)!r})"

    @property
    def takes_tools(self) -> bool:
        """True if the inner model supports tools."""
        return isinstance(self._inner, SupportsTools) and self._inner.takes_tools

    async def warm_up(self) -> None:
        """Prepare the inner model for its first call, if the inner model supports that."""
        warm_up: Any = getattr(self._inner, "warm_up", None)
        if warm_up is not None:
            await warm_up()

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the inner model's answer, and record it."""
        reply = await self._inner.complete(request)
        self._append(request, reply)
        return reply

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """Yield the inner model's answer in pieces, and record the complete reply."""
        pieces: Any = self._inner.stream(request)
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, ModelReply):
                    self._append(request, piece)
                yield piece

    async def aclose(self) -> None:
        """Close the inner model. Idempotent."""
        await self._inner.aclose()

    def _append(self, request: ModelRequest, reply: ModelReply) -> None:
        calls = tuple(replace(c, arguments=self._clean(c.arguments)) for c in reply.calls)
        reply = replace(reply, text=self._clean(reply.text), calls=calls)
        entry = {
            "request": recording.describe_request(request),
            "reply": recording.describe_reply(reply),
        }
        text = json.dumps(entry, ensure_ascii=False)
        self._write(text.encode("utf-8", "backslashreplace") + b"\n")

    def _write(self, line: bytes) -> None:
        """Append a line in one write, so that lines of other processes cannot get into it."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path, flags, 0o600)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise ModelConfigurationError(
                f"the recording {self._path} cannot be written: {error.strerror}",
                hint="name a file in a folder that exists and has room",
            ) from error
