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
from delf_confined.documents import note_textless_pages
from delf_confined.limits import Limits
from delf_confined.office import with_usual_part_names
from delf_confined.readers import Readers
from delf_confined.text import decode_declared
from delf_filesystem.roots import Place

_ARCHIVE: Final = b"PK"
_MARKUP: Final = (".html", ".htm", ".xhtml", ".xml", ".rss", ".atom")
_PLAIN: Final = (".csv", ".tsv", ".txt", ".text", ".md", ".markdown", ".json", ".jsonl")
_ENCRYPTED_STREAM: Final = "EncryptedPackage".encode("utf-16-le")
_LIMITS: Final = Limits(seconds=30.0, memory=1_000_000_000)


async def as_markdown(readers: Readers, place: Place, content: bytes, task_id: str) -> str:
    """Convert a document to Markdown, in a child process.

    Args:
        readers: The child processes that read documents.
        place: The path of the document, whose suffix is its type.
        content: The content of the document.
        task_id: The id of the task; tasks share the child processes fairly.

    Raises:
        OptionalDependencyError: If markitdown is not installed.
        ToolExecutionError: If the document cannot be read within the limits of time and memory.
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
        key=task_id,
        limits=_LIMITS,
        preload=("markitdown",),
    )


def convert(content: bytes, name: str, suffix: str) -> str:
    """Convert a document to Markdown; this function runs in the child process.

    Args:
        content: The content of the document.
        name: The path of the document, for messages.
        suffix: The suffix of the document's name, such as ``.docx``.

    Raises:
        ToolExecutionError: If the document cannot be read.
    """
    from markitdown import MarkItDown, MarkItDownException, StreamInfo

    # Texts are decoded here, because markitdown silently guesses their charset. It also guesses the
    # separator of a table, so plain texts are not converted.
    if suffix in _PLAIN:
        return decode_declared(content, None, name, is_markup=False)
    stream: Any = io.BytesIO(content)
    charset: str | None = None
    if suffix in _MARKUP:
        text = decode_declared(content, None, name, is_markup=True)
        stream = io.BytesIO(text.encode("utf-8", "replace"))
        charset = "utf-8"
    if content.startswith(_ARCHIVE):
        with contextlib.suppress(zipfile.BadZipFile, OSError):
            # markitdown finds the parts of an Office document, a zip archive, only by usual names.
            stream = with_usual_part_names(stream)
    try:
        converted = MarkItDown(enable_plugins=False).convert_stream(
            stream, stream_info=StreamInfo(extension=suffix, charset=charset)
        )
    except MarkItDownException as error:
        # markitdown wraps each error of a converter. Unwrap a MemoryError, for which the parent
        # process reports the memory limit of this process.
        if "MemoryError" in str(error):
            raise MemoryError from None
        password_note = "; it has a password" if _is_locked(content) else ""
        raise ToolExecutionError(
            f"{name!r} cannot be read as a {suffix} document{password_note}"
        ) from error
    if suffix == ".pdf":
        _note_pages_without_text(content, name)
    elif not converted.markdown.strip():
        note(f"{name} holds no text")
    return converted.markdown


def _note_pages_without_text(content: bytes, name: str) -> None:
    """Add a note to the call's result that says how many pages of a PDF have no text.

    The conversion to Markdown leaves these pages out.
    """
    import pdfplumber

    try:
        with pdfplumber.open(io.BytesIO(content)) as document:
            total = pages_without_text = 0
            for page in document.pages:
                total += 1
                if all(char["text"].isspace() for char in page.chars):
                    pages_without_text += 1
                page.close()
    except Exception:  # a damaged document, which markitdown may still read
        note(f"{name}: it is not known whether all of its pages hold text")
    else:
        note_textless_pages(name, pages_without_text, total)


def _is_locked(content: bytes) -> bool:
    return b"/Encrypt" in content or _ENCRYPTED_STREAM in content
