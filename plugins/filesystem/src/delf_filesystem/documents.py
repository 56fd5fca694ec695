"""PDF, DOCX and HTML as Markdown, with the package markitdown."""

from __future__ import annotations

import io
from pathlib import PurePosixPath

from delf.errors import OptionalDependencyError, ToolExecutionError
from delf_filesystem.roots import Place


def as_markdown(place: Place, content: bytes) -> str:
    """A document's text as Markdown.

    Args:
        place: Where it is; its suffix says what it is.
        content: Its bytes.

    Raises:
        OptionalDependencyError: When markitdown is not installed.
        ToolExecutionError: When the document cannot be read.
    """
    try:
        from markitdown import MarkItDown, MarkItDownException, StreamInfo
    except ImportError as error:
        raise OptionalDependencyError(
            f"{str(place)!r} is a document, and markitdown is not installed",
            package="'delf-plugin-filesystem[documents]'",
        ) from error
    suffix = PurePosixPath(place.parts[-1]).suffix.lower()
    try:
        converted = MarkItDown(enable_plugins=False).convert_stream(
            io.BytesIO(content), stream_info=StreamInfo(extension=suffix)
        )
    except MarkItDownException as error:
        raise ToolExecutionError(f"{str(place)!r} cannot be read as a {suffix} document") from error
    return converted.markdown
