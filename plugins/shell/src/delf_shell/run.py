"""Runs parsed commands: no shell, process groups of their own, bounded time and output."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypedDict

from delf.errors import ToolExecutionError
from delf_shell.parse import Pipeline, Words

_PIECE: Final = 65_536
_PROGRESS_SECONDS: Final = 0.1


class ShellResult(TypedDict):
    """The result of a command: the status of its last program, and its output.

    ``truncated`` is true if the output exceeded the limit.
    """

    status: int
    stdout: str
    stderr: str
    truncated: bool


def _nobody(_text: str) -> None:
    """Discard output."""


class _Telling:
    """Reports output as it comes, in batches.

    Args:
        tell: Called with each batch as text.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting: list[str] = []
        self._soon: asyncio.TimerHandle | None = None

    def add(self, piece: bytes) -> None:
        """Add a piece of output."""
        self._waiting.append(self._decoder.decode(piece))
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(_PROGRESS_SECONDS, self._flush)

    def end(self) -> None:
        """Report the remaining output."""
        self._waiting.append(self._decoder.decode(b"", final=True))
        self._flush()

    def _flush(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        text = "".join(self._waiting)
        self._waiting.clear()
        if text:
            self._tell(text)


@dataclass
class _Kept:
    """The beginning of an output up to a limit; the rest is read and discarded."""

    left: int
    parts: dict[str, bytearray] = field(
        default_factory=lambda: {"out": bytearray(), "err": bytearray()}
    )
    truncated: bool = False
    tell: Callable[[str], None] = _nobody

    async def read(self, stream: asyncio.StreamReader | None, name: str) -> None:
        telling = _Telling(self.tell)
        while stream is not None and (piece := await stream.read(_PIECE)):
            part = piece[: self.left]
            self.parts[name] += part
            self.left -= len(part)
            self.truncated |= len(part) < len(piece)
            telling.add(part)
        telling.end()

    def text(self, name: str) -> str:
        return self.parts[name].decode(errors="replace")


@dataclass(frozen=True, kw_only=True)
class Runner:
    """A runner of commands.

    Args:
        folder: The working directory.
        environment: The environment variables.
        timeout: The timeout of all programs together.
        max_output_bytes: The maximum number of bytes of output to keep.
        tell: Called with output as it arrives.
    """

    folder: Path
    environment: Mapping[str, str]
    timeout: float
    max_output_bytes: int
    tell: Callable[[str], None] = _nobody

    async def run(self, pipelines: Sequence[Pipeline]) -> ShellResult:
        """Run pipelines one after another, by their operators.

        Raises:
            ToolExecutionError: If a program is missing, or the timeout is exceeded.
        """
        output, status = _Kept(self.max_output_bytes, tell=self.tell), 0
        try:
            async with asyncio.timeout(self.timeout):
                for pipeline in pipelines:
                    skipped = (pipeline.joint == "&&" and status) or (
                        pipeline.joint == "||" and not status
                    )
                    if not skipped:
                        status = await self._pipeline(pipeline.commands, output)
        except TimeoutError:
            raise ToolExecutionError(
                f"the command was killed after {self.timeout:g} seconds; it had written: "
                f"{output.text('out')[-500:]}{output.text('err')[-500:]}"
            ) from None
        return ShellResult(
            status=status,
            stdout=output.text("out"),
            stderr=output.text("err"),
            truncated=output.truncated,
        )

    async def _pipeline(self, commands: Sequence[Words], output: _Kept) -> int:
        processes: list[asyncio.subprocess.Process] = []
        readers: list[asyncio.Future[None]] = []
        stdin: int = asyncio.subprocess.DEVNULL
        try:
            for words in commands:
                last = len(processes) == len(commands) - 1
                onward, stdout = (None, asyncio.subprocess.PIPE) if last else os.pipe()
                try:
                    process = await self._start(words, stdin, stdout)
                finally:
                    # The program has copies of these pipe ends; if ours stayed open, a reader
                    # would wait forever.
                    for end in (stdin, stdout):
                        if end >= 0:
                            os.close(end)
                    stdin = asyncio.subprocess.DEVNULL if onward is None else onward
                processes.append(process)
                readers.append(asyncio.ensure_future(output.read(process.stderr, "err")))
            readers.append(asyncio.ensure_future(output.read(processes[-1].stdout, "out")))
            await asyncio.gather(*readers)
            return [await process.wait() for process in processes][-1]
        finally:
            if stdin >= 0:
                os.close(stdin)
            await _end(processes, readers)

    async def _start(self, words: Words, stdin: int, stdout: int) -> asyncio.subprocess.Process:
        program = shutil.which(words[0], path=_search_path(self.environment))
        # Refuse paths, which could name a file written by a script.
        if program is None or "/" in words[0]:
            raise ToolExecutionError(
                f"there is no program {words[0]!r}"
                + ("; a program is named without its folder" if "/" in words[0] else "")
            )
        try:
            return await asyncio.create_subprocess_exec(
                program,
                *words[1:],
                stdin=stdin,
                stdout=stdout,
                stderr=asyncio.subprocess.PIPE,
                cwd=self.folder,
                env=dict(self.environment),
                process_group=0,
            )
        except OSError as error:
            raise ToolExecutionError(f"{words[0]!r} cannot be run: {error.strerror}") from error


def _search_path(environment: Mapping[str, str]) -> str:
    """Return the search path without relative folders, where a script may have put programs."""
    folders = environment.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if folder.startswith("/"))


async def _end(
    processes: Sequence[asyncio.subprocess.Process], readers: Sequence[asyncio.Future[None]]
) -> None:
    """Kill all programs and their children, and wait."""
    for reader in readers:
        reader.cancel()
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
