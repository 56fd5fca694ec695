"""Documents as text and data, parsed in child processes with a time limit."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Final

from delf.errors import OptionalDependencyError
from delf_confined import readers
from delf_confined.limits import Limits
from delf_web.document import Document

_MEMORY: Final = 1_000_000_000
_MEMORY_OF_A_BYTE: Final = 100
_PDF: Final = "application/pdf"
_PRELOADS: Final = ("feedparser", "pypdf", "delf_web.child:warm_up")


class Readers:
    """Reads documents, a few at once.

    Args:
        seconds: The timeout of a document in seconds.
        most: The maximum number of bytes of a document.
    """

    def __init__(self, seconds: float, most: int) -> None:
        self._limits = Limits(
            seconds=seconds,
            memory=_MEMORY + _MEMORY_OF_A_BYTE * most,
            hint="read_timeout in the connection's settings gives it more time",
        )
        self._readers = readers.Readers()

    async def read(self, work: str, document: Document, key: str) -> Any:
        """Read a document.

        Args:
            work: The kind of result, as for :func:`delf_web.child.read`.
            document: The document.
            key: The task that asks.

        Raises:
            OptionalDependencyError: If pypdf is not installed, and it is a PDF document.
            ToolExecutionError: If the document cannot be read within the limits.
        """
        if document.kind == _PDF and find_spec("pypdf") is None:
            raise OptionalDependencyError(
                f"{document.url} is a PDF document, and pypdf is not installed",
                package="'delf-plugin-web[pdf]'",
            )
        return await self._readers.call(
            "delf_web.child:read",
            {
                "work": work,
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
        """End the processes."""
        await self._readers.aclose()
