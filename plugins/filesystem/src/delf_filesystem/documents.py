"""PDF, DOCX and HTML as Markdown, with the package markitdown, in a child process."""

from __future__ import annotations

import contextlib
import io
import zipfile
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import Any, Final

from delf.errors import OptionalDependencyError, ToolExecutionError
from delf.notes import note
from delf_confined.documents import tell_bare
from delf_confined.limits import Limits
from delf_confined.office import usual_form
from delf_confined.readers import Readers
from delf_confined.text import decode_declared
from delf_filesystem.roots import Place

_ARCHIVE: Final = b"PK"
_MARKUP: Final = (".html", ".htm", ".xhtml", ".xml", ".rss", ".atom")
_PLAIN: Final = (".csv", ".tsv", ".txt", ".text", ".md", ".markdown", ".json", ".jsonl")
_LOCKED: Final = "EncryptedPackage".encode("utf-16-le")
_LIMITS: Final = Limits(seconds=30.0, memory=1_000_000_000)


async def as_markdown(readers: Readers, place: Place, content: bytes, key: str) -> str:
    """Return a document's text as Markdown.

    Args:
        readers: The readers.
        place: The document, whose suffix gives its type.
        content: The bytes.
        key: The task that asks.

    Raises:
        OptionalDependencyError: If markitdown is not installed.
        ToolExecutionError: If the document cannot be read, or not within its limits.
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
        name: The path, for messages.
        suffix: The kind of document, such as ``.docx``.

    Raises:
        ToolExecutionError: If the document cannot be read.
    """
    from markitdown import MarkItDown, MarkItDownException, StreamInfo

    stream: Any = io.BytesIO(content)
    charset: str | None = None
    # markitdown silently guesses a text's charset and table separator.
    if suffix in _PLAIN:
        return decode_declared(content, None, name, is_markup=False)
    if suffix in _MARKUP:
        text = decode_declared(content, None, name, is_markup=True)
        stream, charset = io.BytesIO(text.encode("utf-8", "replace")), "utf-8"
    if content.startswith(_ARCHIVE):
        with contextlib.suppress(zipfile.BadZipFile, OSError):
            stream = usual_form(stream)
    try:
        converted = MarkItDown(enable_plugins=False).convert_stream(
            stream, stream_info=StreamInfo(extension=suffix, charset=charset)
        )
    except MarkItDownException as error:
        if "MemoryError" in str(error):
            raise MemoryError from None
        locked = "; it has a password" if _is_locked(content) else ""
        raise ToolExecutionError(
            f"{name!r} cannot be read as a {suffix} document{locked}"
        ) from error
    if suffix == ".pdf":
        _tell_bare_pages(content, name)
    elif not converted.markdown.strip():
        note(f"{name} holds no text")
    return converted.markdown


def _tell_bare_pages(content: bytes, name: str) -> None:
    """Add a note on pages of a PDF that have no text and are missing in the Markdown."""
    import pdfplumber

    try:
        with pdfplumber.open(io.BytesIO(content)) as document:
            total = bare = 0
            for page in document.pages:
                total += 1
                bare += all(char["text"].isspace() for char in page.chars)
                page.close()
    except Exception:  # a damaged document, which markitdown may still read
        note(f"{name}: it is not known whether all of its pages hold text")
    else:
        tell_bare(name, bare, total)


def _is_locked(content: bytes) -> bool:
    return b"/Encrypt" in content or _LOCKED in content
