"""Tests of the detection of a file's encoding."""

from pathlib import Path

import pytest

from delf.notes import notes_of_call
from delf_confined.text import encoding_of_file

CHUNK_BYTES = 4 * 1024 * 1024
LINES = b"x\n" * (CHUNK_BYTES // 2)


@pytest.mark.parametrize(
    ("content", "encoding", "note"),
    [
        ("Müller\n".encode() + LINES, "utf-8", None),
        (LINES[:-1] + "é\n".encode(), "utf-8", None),
        (b"name\ncaf\xe9", "cp1252", "a.txt is not UTF-8 (byte 0xe9 on line 2)"),
        (LINES[:-4] + b"caf\xe9 au lait", "cp1252", "(byte 0xe9 on line 2097151)"),
        (LINES[:-1] + "é".encode() + LINES + b"\xff", "cp1252", "(byte 0xff on line 4194304)"),
        (
            LINES[:-1] + "é".encode() * 9 + b"\n\xff\n",
            "utf-8-sig",
            "a.txt has bytes that are not UTF-8, the first on line 2097153",
        ),
    ],
    ids=[
        "valid",
        "valid-across-chunks",
        "last-byte",
        "last-byte-of-chunk",
        "chunk-begins-in-character",
        "few-invalid-bytes",
    ],
)
def test_encoding_of_file_is_detected_at_ends_of_chunks(
    content: bytes, encoding: str, note: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with notes_of_call() as notes:
        assert encoding_of_file(str(path), "a.txt") == encoding
    assert (note or "") in "".join(notes)
    assert bool(notes) == (note is not None)
