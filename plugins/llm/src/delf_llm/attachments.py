"""Attachments of a script's prompt for a model: images, documents, texts."""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

from delf.errors import ToolExecutionError, did_you_mean
from delf.messages import FilePart, ImagePart, Part

MAX_ITEMS: Final = 20
MAX_BYTES: Final = 20 * 1024 * 1024
"""The maximum number of bytes of all attachments of one call together."""

IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_SIGNATURES: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": "application/pdf",
}
_TEXTS: Final = ("application/json", "application/xml", "application/yaml")


class Attachments:
    """Converts the argument ``file_data`` to parts of a message.

    Args:
        files: A mapping whose keys are the paths and names that scripts may use, and whose values
            are the names of the input files.
        read: Returns the content of an input file, up to a number of bytes. If a person approved
            the file, the content is the one that the person approved.
    """

    def __init__(self, files: Mapping[str, str], read: Callable[[str, int], bytes]) -> None:
        self._input_file_by_name = dict(files)
        self._read = read

    async def parts(self, items: Sequence[Any]) -> tuple[Part, ...]:
        """Convert items to the parts of a message.

        Args:
            items: The attachments. Each is the name of an input file, bytes, ``(name, bytes)``, or
                a mapping with ``name`` and ``data``, which is the form in which calls return files.

        Raises:
            ToolExecutionError: If an item is invalid, a name is unknown, or the items are too many
                or too large.
        """
        if len(items) > MAX_ITEMS:
            raise ToolExecutionError(
                f"file_data has {len(items)} items, and at most {MAX_ITEMS} fit"
            )
        parts: list[Part] = []
        remaining_bytes = MAX_BYTES
        for number, item in enumerate(items, 1):
            name, data = await self._load(item, number)
            remaining_bytes -= len(data)
            if remaining_bytes < 0:
                raise _too_large()
            parts.append(_part(name, data))
        return tuple(parts)

    async def _load(self, item: Any, number: int) -> tuple[str, bytes]:
        """Return the name and the content of an attachment."""
        name, data = _name_and_bytes(item, number)
        if data is not None:
            return name, data
        file = self._input_file_by_name.get(name)
        if file is None:
            # A file may be under several keys, because scripts may use its name or its path.
            names = sorted({*self._input_file_by_name.values()})
            listed = ", ".join(names[:20]) or "none"
            raise ToolExecutionError(
                f"file_data: there is no input file {name[:200]!r}; input files: {listed}; the "
                f"content of another file can be given as bytes{did_you_mean(name, names)}"
            )
        try:
            data = await asyncio.to_thread(self._read, file, MAX_BYTES)
        except OSError as error:
            raise ToolExecutionError(
                f"file_data: {name!r} cannot be read: {error.strerror}"
            ) from error
        return PurePath(file).name, data


def _too_large() -> ToolExecutionError:
    return ToolExecutionError(
        f"file_data is larger than {MAX_BYTES // 2**20} MB in all; make the images smaller, or "
        "ask about fewer at once"
    )


def _name_and_bytes(item: Any, number: int) -> tuple[str, bytes | None]:
    """Return an attachment's name and bytes; for a path instead of content, the path and None."""
    match item:
        case str() | PurePath():
            return str(item), None
        case bytes():
            return f"file-{number}", item
        case [str() as name_text, bytes() as data]:
            return name_text, data
        # Calls return files in this form, such as a mail's attachments.
        case {"name": str() as name_text, "data": bytes() as data}:
            return name_text, data
        case _:
            raise ToolExecutionError(
                f"file_data: item {number} must be the name of an input file, bytes, or "
                "(name, bytes)"
            )


def _part(name: str, data: bytes) -> Part:
    media_type = _media_type(name, data)
    if media_type is None:
        raise ToolExecutionError(
            f"file_data: the type of {name!r} is unknown; give (name, bytes) with "
            "a file name extension, such as .pdf"
        )
    if not data:
        raise ToolExecutionError(f"file_data: {name!r} is empty")
    if media_type in IMAGES:
        return ImagePart(data, media_type)
    return FilePart(name, data, media_type)


def _media_type(name: str, data: bytes) -> str | None:
    """Return the media type of a file from its content and its name; None if unknown."""
    # The content decides first: providers refuse an image of a wrong type, and the extension of a
    # file name is often wrong.
    for signature, kind in _SIGNATURES.items():
        if data.startswith(signature):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    guessed_type = mimetypes.guess_type(name)[0] or ""
    is_named_as_text = guessed_type.startswith("text/")
    if _is_text(data):
        if is_named_as_text or guessed_type in _TEXTS:
            return guessed_type
        return "text/plain"
    # The name must be wrong: these bytes are neither text nor an image.
    if is_named_as_text or guessed_type in IMAGES:
        return None
    return guessed_type or None


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode("utf-8")
    except UnicodeDecodeError:
        return False
