"""PDF, DOCX and HTML as Markdown, with the package markitdown, in a child process."""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import Final

from delf.errors import OptionalDependencyError, ToolExecutionError
from delf_confined.limits import Limits
from delf_confined.readers import Readers
from delf_filesystem.roots import Place

_LIMITS: Final = Limits(seconds=30.0, memory=1_000_000_000)


async def as_markdown(readers: Readers, place: Place, content: bytes, key: str) -> str:
    """A document's text as Markdown.

    Args:
        readers: Have it read.
        place: Where it is; its suffix says what it is.
        content: Its bytes.
        key: The task that asks.

    Raises:
        OptionalDependencyError: When markitdown is not installed.
        ToolExecutionError: When the document cannot be read, or not within its limits.
    """
    if find_spec("markitdown") is None:
        raise OptionalDependencyError(
            f"{str(place)!r} is a document, and markitdown is not installed",
            package="'delf-plugin-filesystem[documents]'",
        )
    suffix = PurePosixPath(place.parts[-1]).suffix.lower()
    return await readers.call(
        f"{__name__}:convert",
        {"content": content, "name": str(place), "suffix": suffix},
        about=f"reading {place}",
        key=key,
        limits=_LIMITS,
        preload=("markitdown",),
    )


def convert(content: bytes, name: str, suffix: str) -> str:
    """Convert a document, in a child process.

    Args:
        content: The document.
        name: Its path, for messages.
        suffix: The kind of document, as ``.docx``.

    Raises:
        ToolExecutionError: When the document cannot be read.
    """
    from markitdown import MarkItDown, MarkItDownException, StreamInfo

    try:
        converted = MarkItDown(enable_plugins=False).convert_stream(
            io.BytesIO(content), stream_info=StreamInfo(extension=suffix)
        )
    except MarkItDownException as error:
        if "MemoryError" in str(error):
            raise MemoryError from None
        raise ToolExecutionError(f"{name!r} cannot be read as a {suffix} document") from error
    return converted.markdown
