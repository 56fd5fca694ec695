"""Processes that read documents; one that takes too long is killed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from importlib.util import find_spec
from typing import Any, Final

from delf.errors import OptionalDependencyError, ToolExecutionError
from delf_web.document import Document

_AT_ONCE: Final = 4
_IDLE: Final = 1
_LONGEST_ANSWER: Final = 64_000_000
_KEPT_VARIABLES: Final = ("LD_LIBRARY_PATH", "TMPDIR", "LANG")
_PDF: Final = "application/pdf"
_BOOT: Final = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from delf_web.child import main
main(int(sys.argv[2]))
"""


class Readers:
    """Reads documents, within one event loop, in a few processes at once.

    Args:
        seconds: How long one document may take.
        most: The most bytes of a document.
    """

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._most = most
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._idle: list[asyncio.subprocess.Process] = []

    async def read(self, work: str, document: Document) -> Any:
        """Read a document.

        Args:
            work: What is to be read: ``text``, ``links``, ``tables``, ``feeds``, ``feed``.
            document: The document.

        Raises:
            OptionalDependencyError: When pypdf is not installed, and it is a PDF document.
            ToolExecutionError: When it cannot be read, or not within the time.
        """
        if document.kind == _PDF and find_spec("pypdf") is None:
            raise OptionalDependencyError(
                f"{document.url} is a PDF document, and pypdf is not installed",
                package="'delf-plugin-web[pdf]'",
            )
        head = {
            "work": work,
            "url": document.url,
            "kind": document.kind,
            "charset": document.charset,
            "size": len(document.content),
        }
        async with self._turns:
            answer = await self._ask(json.dumps(head).encode() + b"\n", document)
        if "failed" in answer:
            raise ToolExecutionError(str(answer["failed"]))
        return answer["found"]

    async def _ask(self, head: bytes, document: Document) -> dict[str, Any]:
        process = self._idle.pop() if self._idle else await self._start()
        try:
            async with asyncio.timeout(self._seconds):
                answer = await _exchange(process, head, document.content)
        except TimeoutError:
            raise ToolExecutionError(
                f"{document.url} takes longer than {self._seconds:g} s to be read",
                hint="read_timeout in the connection's settings gives it more",
            ) from None
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            raise ToolExecutionError(f"{document.url} cannot be read: its process ended") from None
        else:
            if len(self._idle) < _IDLE:
                self._idle.append(process)
                process = None
            return answer
        finally:
            if process is not None:
                await _end(process)

    async def _start(self) -> asyncio.subprocess.Process:
        paths = [path for path in sys.path if os.path.isabs(path)]  # noqa: PTH117 - text
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-c", _BOOT, json.dumps(paths), str(self._most)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            limit=_LONGEST_ANSWER,
            start_new_session=True,
        )

    async def aclose(self) -> None:
        """End the processes that wait."""
        idle, self._idle = self._idle, []
        for process in idle:
            await _end(process)


async def _exchange(
    process: asyncio.subprocess.Process, head: bytes, content: bytes
) -> dict[str, Any]:
    requests, answers = process.stdin, process.stdout
    if requests is None or answers is None:
        raise EOFError
    requests.write(head)
    requests.write(content)
    await requests.drain()
    return json.loads(await answers.readuntil())


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
