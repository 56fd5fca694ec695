"""Texts as facts: read from files, and split into paragraphs and sentences."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from delf.errors import MemorySetupError

_LONGEST_PATH: Final = 1000
# Matches a path, or a few words that end with the suffix of a file.
_PATH_LIKE: Final = re.compile(
    r"(?:~|\.{1,2})?[/\\]\S+|\S+[/\\]\S*|\S+\.[A-Za-z]\w{0,7}"
    r"|[^.!?:;]+\.(?:md|markdown|txt|rst|pdf|docx|html?|csv|json)",
    re.IGNORECASE,
)
# The maximum number of characters of a piece.
#
# Small embedding models read about this much text, 256 tokens.
_MAX_PIECE_CHARS: Final = 800
_TEXTS: Final = (".txt", ".md", ".markdown", ".rst")
_PARAGRAPH: Final = re.compile(r"\n\s*\n")
_SENTENCE: Final = re.compile(r"(?<=[.!?…])\s+|\n")


def is_file_name(text: str) -> bool:
    """Return True if a text is probably the name of a file with facts, and no fact itself.

    The file need not exist.
    """
    text = text.strip()
    if not text or "\n" in text or len(text) > _LONGEST_PATH:
        return False
    if os.path.exists(text):  # noqa: PTH110 - no error for odd names
        # A single word, such as "README", may be meant as a fact although there is such a file.
        return bool(Path(text).suffix) or os.sep in text
    # A text that looks like a path is taken for the name of a missing file, not for a sentence.
    return _PATH_LIKE.fullmatch(text) is not None


def read_file(path: Path) -> str:
    """Return the text of a file.

    Raises:
        MemorySetupError: If the file does not exist, cannot be read, or has an unknown type.
    """
    if not path.exists():
        raise MemorySetupError(
            f"there is no file {str(path)!r}",
            hint="check the path (it is taken from the working directory); Memory.save takes "
            "any text",
        )
    if path.suffix.lower() not in _TEXTS:
        raise MemorySetupError(
            f"{path} has an unknown file type", hint=f"supported types: {' '.join(_TEXTS)}"
        )
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise MemorySetupError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise MemorySetupError(f"{path} is not UTF-8 text") from error


def split_into_pieces(text: str, longest: int = _MAX_PIECE_CHARS) -> list[str]:
    """Split a text into pieces that are stored as facts.

    Each piece is a paragraph; long paragraphs are split into sentences. A heading is repeated in
    each piece below it.

    Args:
        text: The text, plain or in Markdown.
        longest: The maximum number of characters of a piece.
    """
    pieces: list[str] = []
    prefix = ""  # the last heading
    for paragraph in (part.strip() for part in _PARAGRAPH.split(text)):
        # A heading is repeated in each piece below it, so a long one is stored as a paragraph.
        is_short_line = "\n" not in paragraph and len(paragraph) <= longest // 2
        if paragraph.startswith("#") and is_short_line:
            heading = paragraph.lstrip("# ")
            prefix = f"{heading}: " if heading else ""
        elif paragraph:
            pieces += [prefix + piece for piece in _split(paragraph, longest - len(prefix))]
    return pieces


def _split(paragraph: str, longest: int) -> Iterator[str]:
    """Yield a paragraph in pieces of whole sentences; cut a sentence longer than ``longest``."""
    if len(paragraph) <= longest:
        yield paragraph
        return
    piece = ""
    for sentence in _SENTENCE.split(paragraph):
        if piece and len(piece) + len(sentence) + 1 > longest:
            yield piece
            piece = ""
        piece = f"{piece} {sentence}".strip()
        while len(piece) > longest:
            cut = piece.rfind(" ", 0, longest)
            if cut <= 0:  # a word that is too long
                cut = longest
            yield piece[:cut]
            piece = piece[cut:].strip()
    if piece:
        yield piece
