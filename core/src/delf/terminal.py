"""Text for a terminal."""

from __future__ import annotations


def visible(text: str) -> str:
    """A text without characters that steer a terminal; line breaks and tabs stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else _escape(c) for c in text)


def _escape(character: str) -> str:
    if character == "\r":
        return ""
    return " " if character.isspace() else character.encode("unicode_escape").decode("ascii")
