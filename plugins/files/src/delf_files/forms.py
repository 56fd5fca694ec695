"""Detection of a file's format by its first bytes."""

from __future__ import annotations

import re
from typing import Final

DETECTION_BYTES: Final = 4096

_HTML_PAGE: Final = re.compile(
    rb"\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body|table)[\s>]",
    re.IGNORECASE | re.DOTALL,
)
_FORMATS: Final = (
    (b"\x1f\x8b", "an archive of gzip (gzip.open reads it)"),
    (b"BZh", "an archive of bzip2 (bz2.open reads it)"),
    (b"\xfd7zXZ\x00", "an archive of xz (lzma.open reads it)"),
    (b"\x28\xb5\x2f\xfd", "an archive of zstd"),
    (b"PK\x03\x04", "an archive of ZIP, as workbooks are (.xlsx) and documents (.docx, .ods)"),
    (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        "a file of an old Office program, or one with a password",
    ),
    (b"%PDF-", "a PDF"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "a file of Arrow"),
    (b"SQLite format 3\x00", "a database of SQLite"),
    (b"\x89PNG", "a picture (PNG)"),
    (b"\xff\xd8\xff", "a picture (JPEG)"),
    (b"{\\rtf", "a text document (RTF)"),
)


def find_format(head: bytes) -> str | None:
    """Return the format of a file as a phrase; None for text and unknown formats.

    Args:
        head: The first :data:`DETECTION_BYTES` of the file.
    """
    for first_bytes, known_format in _FORMATS:
        if head.startswith(first_bytes):
            return known_format
    return "a page of HTML (a login, an error, or a table)" if is_html_page(head) else None


def is_html_page(head: bytes) -> bool:
    """Return whether a file is an HTML page, by its first :data:`DETECTION_BYTES`."""
    return _HTML_PAGE.match(head.removeprefix(b"\xef\xbb\xbf")) is not None


def refuse_other_format(head: bytes) -> None:
    """Check that the first bytes of a file may belong to a text, such as a table or JSON.

    Args:
        head: The first :data:`DETECTION_BYTES` of the file.

    Raises:
        ValueError: If the bytes have a known other format; the message names the format.
    """
    known_format = find_format(head)
    if known_format is not None:
        raise ValueError(f"it is {known_format}; open() it in the script")
