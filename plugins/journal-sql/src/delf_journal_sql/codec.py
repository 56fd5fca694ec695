"""Events as rows: JSON, with large fields taken out and compressed."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from delf.events import Event, decode, encode
from delf_journal_sql.database import SqlRow
from delf_journal_sql.errors import JournalError

_LEVEL: Final = 1
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Blob:
    """A large value; ``size`` is that of its JSON, ``data`` is compressed."""

    digest: str
    size: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Packed:
    """An event in its stored form.

    Args:
        event: The event itself.
        type: Its class.
        data: Its fields as JSON, except blobs.
        blobs: The digests of the others by field, as JSON.
        parts: The blobs.
    """

    event: Event
    type: str
    data: str
    blobs: str | None = None
    parts: tuple[Blob, ...] = ()


def pack(event: Event, limit: int) -> Packed:
    """Return an event as a row.

    Args:
        event: The event.
        limit: How many characters it may have before its large fields become blobs.
    """
    record = encode(event)
    texts = {name: _dumps(value) for name, value in record["data"].items()}
    is_short = sum(map(len, texts.values())) <= limit
    blobs: dict[str, str] = {}
    parts: dict[str, Blob] = {}
    kept: list[str] = []
    for name, text in texts.items():
        if is_short or len(text) <= limit // 8:
            kept.append(f"{_dumps(name)}:{text}")
            continue
        raw = text.encode()
        digest = blobs[name] = hashlib.sha256(raw).hexdigest()
        parts[digest] = Blob(digest, len(raw), zlib.compress(raw, _LEVEL))
    return Packed(
        event,
        record["type"],
        f"{{{','.join(kept)}}}",
        _dumps(blobs) if blobs else None,
        tuple(parts.values()),
    )


def unpack(task_id: str, row: SqlRow, blob: Callable[[str], bytes]) -> Event:
    """Return the event of a row.

    Args:
        task_id: The task's id.
        row: Has its ``seq``, ``at``, ``type``, ``v``, ``data`` and ``blobs``.
        blob: Gives a blob by its digest.

    Raises:
        JournalError: When the row cannot be read.
        DelfError: When a newer delf wrote it.
    """
    try:
        values: dict[str, Any] = json.loads(row.data)
        if row.blobs:
            for name, digest in json.loads(row.blobs).items():
                values[name] = value_of(digest, blob)
        record = {"type": row.type, "v": row.v, "task_id": task_id, "seq": row.seq, "at": row.at}
        return decode({**record, "data": values})
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
        raise JournalError(
            f"event {row.seq} of task {task_id} is damaged: {type(error).__name__}: {error}"
        ) from error


def value_of(digest: str, blob: Callable[[str], bytes]) -> Any:
    """Return the value of a field that is a blob, as JSON.

    Args:
        digest: The digest of the blob.
        blob: Gives a blob by its digest.
    """
    return json.loads(zlib.decompress(blob(digest)))


def plain_text(text: str) -> str:
    """Return a text that every database takes: without NUL and halves of characters."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _dumps(value: Any) -> str:
    text = _ENCODER.encode(value)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:  # halves of characters, which no database takes
        return json.dumps(value, separators=(",", ":"))
    return text
