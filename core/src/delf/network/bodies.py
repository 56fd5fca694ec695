"""HTTP response bodies, decompressed within a size limit.

A compressed kilobyte may become a megabyte, and a doubly compressed kilobyte a gigabyte. Therefore
plugins send the header ``Accept-Encoding`` with :data:`ACCEPTED`, and read bodies with this module.
"""

from __future__ import annotations

import asyncio
import itertools
import zlib
from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import httpx

ACCEPTED: Final = "gzip, deflate"
"""The encodings that a request may send as ``Accept-Encoding``."""

_PIECE: Final = 64 * 1024
_PIECES_PER_TURN: Final = 16
_GZIP: Final = zlib.MAX_WBITS | 16  # expect a gzip header; a negative value expects no header
_RAW: Final = -zlib.MAX_WBITS
_GZIP_MAGIC: Final = b"\x1f\x8b"
# Servers send "deflate" with zlib's header or without; the first byte of the data shows which.
_METHOD: Final = 0x0F
_DEFLATED: Final = 8


class BodyError(ValueError):
    """A response body could not be read to its end."""


class BodyTooLargeError(BodyError):
    """A body exceeds the limit in bytes, as received or inflated."""


class BodyEncodingError(BodyError):
    """A body is corrupt, or is compressed with an encoding that was not requested."""


class BodyTruncatedError(BodyEncodingError):
    """The compressed data of a body ends early, as after a lost connection."""


async def read_body(response: httpx.Response, max_bytes: int) -> bytes:
    """Read and decompress a whole response body.

    Args:
        response: The response, whose body was not read yet.
        max_bytes: The maximum number of bytes of the body, both as received and decompressed.

    Raises:
        BodyTooLargeError: If the body exceeds the limit.
        BodyTruncatedError: If the compressed data of the body is incomplete.
        BodyEncodingError: If the body cannot be decompressed.
    """
    return b"".join([piece async for piece in pieces(response, max_bytes)])


async def pieces(response: httpx.Response, max_bytes: int) -> AsyncGenerator[bytes]:
    """Yield a response body in decompressed chunks as it arrives; see :func:`read_body`."""
    inflater = Inflater(response.headers, max_bytes)
    async for data in response.aiter_raw():
        for piece_count, piece in enumerate(inflater.feed(data), 1):
            yield piece
            if piece_count % _PIECES_PER_TURN == 0:
                await asyncio.sleep(0)  # decompressing must not block the event loop for long
    inflater.finish()


class Inflater:
    """A streaming decompressor with a size limit, which yields chunks of at most 64 KiB.

    Args:
        headers: The response headers, as httpx has them.
        max_bytes: The maximum number of bytes of the body, both as received and decompressed.

    Raises:
        BodyEncodingError: If the encoding is not in :data:`ACCEPTED`.
    """

    def __init__(self, headers: Any, max_bytes: int) -> None:
        encodings = headers.get_list("content-encoding", split_commas=True)
        names = [name.strip().lower().removeprefix("x-") for name in encodings]
        names = [name for name in names if name not in ("", "identity")]
        if len(names) > 1:
            all_names = ", ".join(names)
            raise BodyEncodingError(
                f"it is compressed several times ({all_names[:100]}), which delf did not request"
            )
        encoding = names[0] if names else None
        if encoding is not None and encoding not in ("gzip", "deflate"):
            raise BodyEncodingError(f"it is compressed as {encoding[:40]}, which was not asked for")
        self._encoding = encoding
        self._decompressor: Any = None
        self._start_of_member = b""  # the first bytes after the end of a gzip member
        self._max_bytes = max_bytes
        self._received_bytes = self._inflated_bytes = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompress received bytes, yielding chunks lazily.

        Args:
            data: The next bytes of the body as received.

        Raises:
            BodyTooLargeError: If the body exceeds the limit.
            BodyEncodingError: If the compressed data is corrupt.
        """
        self._received_bytes += len(data)
        # Split the data, because zlib copies all remaining bytes at the end of each gzip member.
        # Many small members in one long ``data`` would take quadratic time.
        parts = (data[start : start + _PIECE] for start in range(0, len(data), _PIECE))
        for piece in itertools.chain.from_iterable(map(self._inflate, parts)):
            self._inflated_bytes += len(piece)
            if self._inflated_bytes > self._max_bytes:
                break
            yield piece
        # The received bytes are limited, too, because empty gzip members inflate to nothing.
        if max(self._received_bytes, self._inflated_bytes) > self._max_bytes:
            raise BodyTooLargeError(f"it has more than {self._max_bytes:,} bytes")

    def finish(self) -> None:
        """Check at the end of the body that its compressed data is complete.

        Raises:
            BodyTruncatedError: If the compressed data is incomplete.
        """
        if self._decompressor is not None and not self._decompressor.eof:
            raise BodyTruncatedError("its compressed data is truncated")

    def _inflate(self, data: bytes) -> Iterator[bytes]:
        """Decompress received bytes, yielding chunks of at most 64 KiB.

        Args:
            data: At least one byte.
        """
        if self._encoding is None:
            yield data
            return
        if self._decompressor is None:
            self._decompressor = zlib.decompressobj(self._window_bits(data[0]))
        while data:
            if self._decompressor.eof and not self._try_begin_member(data):
                return
            # Earlier data may have ended with the first byte of this member.
            data = self._start_of_member + data
            self._start_of_member = b""
            yield from self._inflate_member(data)
            data = self._decompressor.unused_data

    def _try_begin_member(self, data: bytes) -> bool:
        """Begin the next member of a gzip body; return False if no member follows so far.

        If ``data`` is only the first byte of a member's two-byte magic number, the byte is kept,
        because the second byte may come with the next data.
        """
        # The first byte of the magic number may have come with earlier data.
        start = (self._start_of_member + data)[: len(_GZIP_MAGIC)]
        if self._encoding == "gzip" and start == _GZIP_MAGIC:
            self._decompressor = zlib.decompressobj(_GZIP)
            return True
        # Other bytes after a member are ignored, as other clients do.
        self._start_of_member = start
        return False

    def _inflate_member(self, data: bytes) -> Iterator[bytes]:
        """Decompress bytes up to the end of the compressed stream."""
        may_have_output = True
        while may_have_output and not self._decompressor.eof:
            try:
                piece = self._decompressor.decompress(data, _PIECE)
            except zlib.error:
                raise BodyEncodingError("its compression is broken") from None
            if piece:
                yield piece
            data = self._decompressor.unconsumed_tail
            # After a full piece, the decompressor may hold output although all data is consumed.
            may_have_output = data != b"" or len(piece) == _PIECE

    def _window_bits(self, first_byte: int) -> int:
        """Return the ``wbits`` for zlib.

        Some servers send ``deflate`` without the zlib header. The first byte tells the forms apart.
        """
        if self._encoding == "gzip":
            return _GZIP
        has_zlib_header = first_byte & _METHOD == _DEFLATED
        return zlib.MAX_WBITS if has_zlib_header else _RAW
