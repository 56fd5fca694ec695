"""Documents as text and data, parsed in child processes with a time limit."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Final

from delf.errors import OptionalDependencyError
from delf_confined import readers
from delf_confined.limits import Limits
from delf_web.document import Document

_BASE_MEMORY_BYTES: Final = 1_000_000_000
_MEMORY_PER_DOCUMENT_BYTE: Final = 100
_PDF: Final = "application/pdf"
_PRELOADS: Final = ("feedparser", "pypdf", "delf_web.child:warm_up")


class DocumentParser:
    """Parses documents in child processes with limits on time and memory.

    Args:
        seconds: The maximum time for parsing one document, in seconds.
        max_bytes: The maximum number of bytes of a document.
    """

    def __init__(self, seconds: float, max_bytes: int) -> None:
        self._limits = Limits(
            seconds=seconds,
            memory=_BASE_MEMORY_BYTES + _MEMORY_PER_DOCUMENT_BYTE * max_bytes,
            hint="a larger read_timeout in the connection's settings gives the parser more time",
        )
        self._processes = readers.Readers()

    async def read(self, output: str, document: Document, key: str) -> Any:
        """Parse a document in a child process.

        Args:
            output: The requested kind of data, as for :func:`delf_web.child.read`.
            document: The document.
            key: The id of the calling task.

        Raises:
            OptionalDependencyError: If the document is a PDF and pypdf is not installed.
            ToolExecutionError: If the document cannot be parsed within the limits.
        """
        if document.kind == _PDF and find_spec("pypdf") is None:
            raise OptionalDependencyError(
                f"{document.url} is a PDF document, and pypdf is not installed",
                package="'delf-plugin-web[pdf]'",
            )
        return await self._processes.call(
            "delf_web.child:read",
            {
                "output": output,
                "url": document.url,
                "kind": document.kind,
                "charset": document.charset,
                "content": document.content,
            },
            about=f"reading {document.url}",
            key=key,
            limits=self._limits,
            preload=_PRELOADS,
        )

    async def aclose(self) -> None:
        """Stop the child processes."""
        await self._processes.aclose()
