"""Events as rows: JSON, with large fields taken out and compressed."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from delf.events import Event, content_of, decode, encode, size_of
from delf.values.encoding import UnsupportedValueError, dumps, to_jsonable
from delf.values.sizes import LARGE, apart
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
    """An event as it is stored.

    Args:
        event: The event itself.
        type: Its class.
        data: Its fields as JSON, without those that are blobs.
        blobs: The digests of the others by field, as JSON.
        values: Its fields as JSON-ready data; let go when they were written.
        parts: The blobs.
    """

    event: Event
    type: str
    data: str
    values: Mapping[str, Any]
    blobs: str | None = None
    parts: tuple[Blob, ...] = ()


def pack(event: Event) -> Packed:
    """An event as a row, whole."""
    record = encode(event)
    return Packed(event, record["type"], _dumps(record["data"]), record["data"])


def take_out(packed: Packed, limit: int) -> Packed:
    """A row without its large fields, which become blobs.

    Args:
        packed: The row, whole.
        limit: How many characters it may have before a field is taken out.
    """
    if len(packed.data) <= limit:
        return packed
    texts = {name: _dumps(value).encode() for name, value in packed.values.items()}
    return put_together(packed.event, texts, limit)


async def encode_large(event: Event) -> dict[str, bytes] | None:
    """The fields of an event with large ones as JSON, made in a thread.

    None for an event that is not large, and for one that :func:`pack` has to find words for. A
    cancellation waits until all is done.
    """
    if size_of(event) <= LARGE:
        return None
    try:
        return await apart(_texts_of, content_of(event))
    except UnsupportedValueError:
        return None


def put_together(event: Event, texts: Mapping[str, bytes], limit: int) -> Packed:
    """The row of an event, without its large fields.

    Args:
        event: The event.
        texts: Its fields as JSON.
        limit: As for :func:`take_out`.
    """
    blobs: dict[str, str] = {}
    parts: dict[str, Blob] = {}
    kept: list[str] = []
    is_short = sum(map(len, texts.values())) <= limit
    for name, raw in texts.items():
        if is_short or len(raw) <= limit // 8:
            kept.append(f"{_dumps(name)}:{raw.decode()}")
            continue
        digest = hashlib.sha256(raw).hexdigest()
        blobs[name] = digest
        parts[digest] = Blob(digest, len(raw), zlib.compress(raw, _LEVEL))
    return Packed(
        event,
        type(event).__name__,
        f"{{{','.join(kept)}}}",
        {},
        _dumps(blobs) if blobs else None,
        tuple(parts.values()),
    )


def unpack(
    task_id: str, row: tuple[int, float, str, int, str, str | None], blob: Callable[[str], bytes]
) -> Event:
    """The event of a row.

    Args:
        task_id: Whose it is.
        row: Its ``seq``, ``at``, ``type``, ``v``, ``data`` and ``blobs``.
        blob: Gives a blob by its digest.

    Raises:
        JournalError: When the row cannot be read.
        DelfError: When a newer delf wrote it.
    """
    seq, at, kind, version, data, blobs = row
    try:
        values: dict[str, Any] = json.loads(data)
        if blobs:
            for name, digest in json.loads(blobs).items():
                values[name] = value_of(digest, blob)
        record = {"type": kind, "v": version, "task_id": task_id, "seq": seq, "at": at}
        return decode({**record, "data": values})
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
        raise JournalError(
            f"event {seq} of task {task_id} is damaged: {type(error).__name__}: {error}"
        ) from error


def value_of(digest: str, blob: Callable[[str], bytes]) -> Any:
    """The value of a field that is a blob, as JSON.

    Args:
        digest: The digest of the blob.
        blob: Gives a blob by its digest.
    """
    return json.loads(zlib.decompress(blob(digest)))


def plain_text(text: str) -> str:
    """A text that every database takes: without NUL and halves of characters."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _texts_of(fields: Mapping[str, Any]) -> dict[str, bytes]:
    return {name: _utf8(value) for name, value in fields.items()}


def _utf8(value: Any) -> bytes:
    raw = dumps(value)
    try:
        if b"\xed" in raw:
            raw.decode()
    except UnicodeDecodeError:  # halves of characters, which no database takes
        return json.dumps(to_jsonable(value), separators=(",", ":")).encode()
    return raw


def _dumps(value: Any) -> str:
    text = _ENCODER.encode(value)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:  # halves of characters, which no database takes
        return json.dumps(value, separators=(",", ":"))
    return text
