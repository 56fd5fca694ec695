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

_READ_BYTES: Final = 65_536
_PROGRESS_SECONDS: Final = 0.1


class ShellResult(TypedDict):
    """The output of a command, and the exit status of its last program.

    ``truncated`` is True if the output exceeded the limit.
    """

    status: int
    stdout: str
    stderr: str
    truncated: bool


def _discard(_text: str) -> None:
    """Do nothing with the output."""


class _ProgressReporter:
    """Reports output while a command runs, in batches.

    Args:
        tell: A callback that gets the text of each batch.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unreported: list[str] = []
        self._flush_timer: asyncio.TimerHandle | None = None

    def add(self, piece: bytes) -> None:
        """Add a piece of output to the next batch."""
        self._unreported.append(self._decoder.decode(piece))
        if self._flush_timer is None:
            self._flush_timer = asyncio.get_running_loop().call_later(
                _PROGRESS_SECONDS, self._flush
            )

    def end(self) -> None:
        """Report the output that was not reported yet."""
        self._unreported.append(self._decoder.decode(b"", final=True))
        self._flush()

    def _flush(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        text = "".join(self._unreported)
        self._unreported.clear()
        if text:
            self._tell(text)


@dataclass
class _BoundedOutput:
    """Collects the output of a command up to a limit, and discards the rest."""

    remaining_bytes: int
    parts: dict[str, bytearray] = field(
        default_factory=lambda: {"out": bytearray(), "err": bytearray()}
    )
    truncated: bool = False
    tell: Callable[[str], None] = _discard

    async def read(self, stream: asyncio.StreamReader | None, name: str) -> None:
        """Collect a stream to its end, as ``out`` or ``err``, and report the output meanwhile."""
        reporter = _ProgressReporter(self.tell)
        try:
            while stream is not None and (piece := await stream.read(_READ_BYTES)):
                part = piece[: self.remaining_bytes]
                self.parts[name] += part
                self.remaining_bytes -= len(part)
                self.truncated |= len(part) < len(piece)
                reporter.add(part)
        finally:  # also if the command is killed: report nothing after its end
            reporter.end()

    def text(self, name: str) -> str:
        return self.parts[name].decode(errors="replace")


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Runs parsed commands without a shell.

    Args:
        folder: The working folder.
        environment: The environment variables of the programs.
        timeout: The maximum number of seconds for all programs of a command together.
        max_output_bytes: The maximum number of bytes of output to return.
        tell: A callback that gets the output while a command runs.
    """

    folder: Path
    environment: Mapping[str, str]
    timeout: float
    max_output_bytes: int
    tell: Callable[[str], None] = _discard

    async def run(self, pipelines: Sequence[Pipeline]) -> ShellResult:
        """Run pipelines one after another, as their operators require.

        Raises:
            ToolExecutionError: If a program is missing, or the timeout is exceeded.
        """
        output = _BoundedOutput(self.max_output_bytes, tell=self.tell)
        status = 0
        try:
            async with asyncio.timeout(self.timeout):
                for pipeline in pipelines:
                    # After "" or ";", the pipeline runs regardless of the previous status.
                    if pipeline.operator == "&&" and status != 0:
                        continue
                    if pipeline.operator == "||" and status == 0:
                        continue
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

    async def _pipeline(self, commands: Sequence[Words], output: _BoundedOutput) -> int:
        """Run commands that are connected by pipes; return the status of the last command."""
        processes: list[asyncio.subprocess.Process] = []
        readers: list[asyncio.Future[None]] = []
        # The pipe end from which the next command reads the output of the command before.
        stdin: int = asyncio.subprocess.DEVNULL
        try:
            for number, words in enumerate(commands, 1):
                if number < len(commands):
                    next_stdin, stdout = os.pipe()
                else:
                    next_stdin, stdout = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
                try:
                    process = await self._start(words, stdin, stdout)
                finally:
                    # The program has copies of its two pipe ends. If ours stayed open, the reader
                    # of a pipe would wait forever.
                    _close_pipe_ends(stdin, stdout)
                    stdin = next_stdin
                processes.append(process)
                readers.append(asyncio.ensure_future(output.read(process.stderr, "err")))
            readers.append(asyncio.ensure_future(output.read(processes[-1].stdout, "out")))
            await asyncio.gather(*readers)
            statuses = [await process.wait() for process in processes]
            return statuses[-1]
        finally:
            _close_pipe_ends(stdin)  # still open if a command could not be started
            # Kill the process groups even if all programs have ended, because the programs may have
            # left others in these groups.
            await _kill_and_wait(processes, readers)

    async def _start(self, words: Words, stdin: int, stdout: int) -> asyncio.subprocess.Process:
        """Start the program that the first word names, with the further words as arguments.

        Raises:
            ToolExecutionError: If the program does not exist or cannot be run.
        """
        if "/" in words[0]:  # a path could name a file written by a script
            raise ToolExecutionError(
                f"there is no program {words[0]!r}; a program is named without its folder"
            )
        program = shutil.which(words[0], path=_search_path(self.environment))
        if program is None:
            raise ToolExecutionError(f"there is no program {words[0]!r}")
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
    """Return ``PATH`` without its relative folders, into which a script may have put programs."""
    folders = environment.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if folder.startswith("/"))


def _close_pipe_ends(*descriptors: int) -> None:
    for descriptor in descriptors:
        if descriptor >= 0:  # PIPE and DEVNULL are negative constants, not pipe ends
            os.close(descriptor)


async def _kill_and_wait(
    processes: Sequence[asyncio.subprocess.Process], readers: Sequence[asyncio.Future[None]]
) -> None:
    """Kill all programs with their process groups, and wait for their ends."""
    for reader in readers:
        reader.cancel()
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
