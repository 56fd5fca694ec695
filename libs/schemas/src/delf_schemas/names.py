"""Python names and clean text out of whatever a service says of itself."""

from __future__ import annotations

import hashlib
import keyword
import re
import unicodedata
from collections.abc import Container
from functools import lru_cache
from typing import Final

_MAX_NAME: Final = 64
_WORDS: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+\d*|[A-Z]+\d*|\d+|[^\W\d_a-zA-Z]+")
_TAGS: Final = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_LINKS: Final = re.compile(r"!?\[([^\[\]]{0,200})\]\([^()\s]{0,500}\)")
_SYMBOLS: Final = {
    "<": " lt ", ">": " gt ", "+": " plus ", "=": " eq ", "!": " not ", "*": " star "
}  # fmt: skip


def clean(text: object, limit: int = 120) -> str:
    """Text of a service as one short line that cannot pretend to be anything else."""
    if not isinstance(text, str):
        return ""
    text = text[: limit * 8]
    if not text.isascii():
        text = "".join(c if unicodedata.category(c)[0] != "C" else " " for c in text)
    elif not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    tagged = "<" in text
    if tagged:
        text = _TAGS.sub(" ", text)
    if "](" in text:
        text = _LINKS.sub(r"\1", text)
    text = " ".join(text.split())
    if tagged:
        text = re.sub(r" ([.,;:!?])", r"\1", text)
    if "```" in text or '"""' in text:
        text = text.replace("```", "'''").replace('"""', "'''")
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def sentence(text: object, limit: int = 120) -> str:
    """The first sentence of a description."""
    if not isinstance(text, str) or not text:
        return ""
    head = text.strip()[: limit * 8].split("\n\n", 1)[0]
    line = clean(head, limit * 3)
    end = re.search(r"(?<=[^.\s][^.\s])[.!?](?=\s|$)", line)
    if end:
        line = line[: end.end()]
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def snake(text: str) -> str:
    """Words joined by underscores, in lower case; empty when there is no letter or digit."""
    if not text.isascii():
        parts = unicodedata.normalize("NFKD", text.replace("ß", "ss"))
        text = "".join(c for c in parts if not unicodedata.combining(c))
    return unicodedata.normalize("NFKC", "_".join(_WORDS.findall(text)).lower())


@lru_cache(4096)
def method_name(name: str) -> str:
    """A readable name for a method, not unique yet.

    Args:
        name: What a service calls it.
    """
    return _callable(snake(name), "call")


def _callable(name: str, prefix: str) -> str:
    name = name.strip("_")
    if not name or not (name[0].isalpha()):
        name = f"{prefix}_{name}".rstrip("_")
    if len(name) > _MAX_NAME:
        mark = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=2).hexdigest()
        name = f"{name[: _MAX_NAME - 5].rstrip('_')}_{mark}"
    if keyword.iskeyword(name) or not name.isidentifier():
        name = f"{name}_" if keyword.iskeyword(name) else f"{prefix}_{mark_of(name)}"
    return name


def mark_of(text: str) -> str:
    """A short stable mark of a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def unique(name: str, taken: Container[str], *more: str) -> str:
    """The name, or with the first addition, or a number, that makes it unique."""
    if name not in taken:
        return name
    for addition in more:
        if f"{name}_{addition}" not in taken:
            return f"{name}_{addition}"
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


@lru_cache(8192)
def argument_name(name: str) -> str:
    """A parameter's or property's name as a keyword; kept as it is where Python takes it."""
    plain = unicodedata.normalize("NFKC", name)
    if plain.isidentifier() and len(plain) <= _MAX_NAME:
        return f"{plain}_" if keyword.iskeyword(plain) else plain
    if any(c in _SYMBOLS for c in plain):
        plain = "".join(_SYMBOLS.get(c, c) for c in plain)
    return _callable(snake(plain), "p") if snake(plain) else f"p_{mark_of(name)}"
