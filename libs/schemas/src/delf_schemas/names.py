"""Python names and clean text from untrusted descriptions of services."""

from __future__ import annotations

import hashlib
import keyword
import re
import unicodedata
from collections.abc import Container
from functools import lru_cache
from typing import Final

from delf.tools.json_schema import clean
from delf.values.unicode import normalized

_MAX_NAME: Final = 64
_WORDS: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+\d*|[A-Z]+\d*|\d+|[^\W\d_a-zA-Z]+")
_CODE_BLOCK: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_MAX_LEAD: Final = 200
_SYMBOLS: Final = {
    "<": " lt ", ">": " gt ", "+": " plus ", "=": " eq ", "!": " not ", "*": " star "
}  # fmt: skip
# The end of a sentence. Two letters before the full stop exclude abbreviations such as "e.g.".
_SENTENCE_END: Final = re.compile(r"(?<=[^.\s][^.\s])[.!?](?=\s|$)")


def sentence(text: object, limit: int = 120) -> str:
    """Return the first sentence of a description; cut a long sentence, with an ellipsis."""
    if not isinstance(text, str) or not text:
        return ""
    # For speed, only the beginning is cleaned. The beginning is much longer than the limit, because
    # most of it may be markup, which clean() removes.
    head = text.strip()[: limit * 8].split("\n\n", 1)[0]
    line = clean(head, limit * 3)
    end = _SENTENCE_END.search(line)
    if end:
        line = line[: end.end()]
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def split_text(text: object, max_head: int, max_total: int) -> tuple[str, str]:
    """Split a description into the first sentences that fit into ``max_head``, and the rest.

    Args:
        text: The description.
        max_head: The maximum number of characters of the first part. If not even one sentence fits,
            the first part is the beginning of this sentence.
        max_total: The maximum number of characters of both parts together.
    """
    line = clean(text, max_total)
    if len(line) <= max_head:
        return line, ""
    head = sentences(line, max_head)
    # If not even one sentence fits, sentences() cuts the sentence and appends an ellipsis.
    has_added_ellipsis = head.endswith("…") and not line.startswith(head)
    if has_added_ellipsis:
        beginning = head.removesuffix("…")
        whole_words = beginning.rpartition(" ")[0]
        head = whole_words or beginning
    return head, line[len(head) :].strip()


def sentences(text: object, limit: int = 120) -> str:
    """Return the first sentences of a description, as many as fit within the limit.

    A first sentence that does not fit is cut and ends with an ellipsis.
    """
    first = sentence(text, limit)
    if not isinstance(text, str) or first.endswith("…"):
        return first
    # For speed, only the beginning is cleaned. The beginning is much longer than the limit, because
    # most of it may be markup, which clean() removes.
    line = clean(text.strip()[: limit * 8], limit * 3)
    if len(line) <= limit:
        return line
    end_of_fitting = 0  # the end of the last sentence within the limit
    for match in _SENTENCE_END.finditer(line):
        if match.end() <= limit:
            end_of_fitting = match.end()
    return line[:end_of_fitting] or first


def shorten_description(text: object, limit: int) -> str:
    """Return a whole description if it fits, else the first sentences of its paragraphs.

    Code blocks and tables are always omitted. Headings are omitted only from a description that
    does not fit.
    """
    if not isinstance(text, str):
        return ""
    without_code = _CODE_BLOCK.sub("", text)
    parts = [clean(part, limit) for part in re.split(r"\n\s*\n", without_code)]
    parts = [part for part in parts if part and not part.startswith("|")]
    full_text = " ".join(parts)
    if len(full_text) <= limit:
        return full_text
    lead_sentences: list[str] = []
    for part in parts:
        lead = sentence(part, _MAX_LEAD)
        is_heading = part.startswith("#")
        if not is_heading and len(" ".join([*lead_sentences, lead])) <= limit:
            lead_sentences.append(lead)
    return " ".join(lead_sentences)


def snake(text: str) -> str:
    """Convert a text to snake case; empty if the text has no letter or digit."""
    if not text.isascii():
        # NFKD separates a letter from its accent, so that the accent can be removed. NFKD does
        # not change ß.
        parts = normalized(text.replace("ß", "ss"), "NFKD")
        text = "".join(c for c in parts if not unicodedata.combining(c))
    # Python itself normalizes the names in scripts to NFKC.
    return normalized("_".join(_WORDS.findall(text)).lower(), "NFKC")


@lru_cache(4096)
def action_name(name: str) -> str:
    """Convert the name of an operation or tool, as its service spells it, to an action's name.

    Several names may be converted to the same action name.
    """
    return _python_name(snake(name), "call")


def _python_name(name: str, prefix: str) -> str:
    """Convert a name to a valid Python name.

    A name that is too long, or that is no identifier in the end, gets a hash, so that different
    names stay different.
    """
    name = name.strip("_")
    if not name:
        name = prefix
    elif not name[0].isalpha():  # such as "2fa_code"
        name = f"{prefix}_{name}"
    if len(name) > _MAX_NAME:
        ending = f"_{short_hash(name, digest_size=2)}"
        beginning = name[: _MAX_NAME - len(ending)].rstrip("_")
        name = f"{beginning}{ending}"
    if keyword.iskeyword(name):
        return f"{name}_"
    return name if name.isidentifier() else f"{prefix}_{short_hash(name)}"


def short_hash(text: str, digest_size: int = 4) -> str:
    """Return a short stable hash of a text as hexadecimal digits, for a unique name.

    Args:
        text: The text.
        digest_size: The number of bytes; each byte is written as two digits.
    """
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=digest_size).hexdigest()


def unique(name: str, used_names: Container[str], *suffixes: str) -> str:
    """Return the first unused name: ``name``, ``name_suffix``, or ``name_2`` and so on."""
    if name not in used_names:
        return name
    for suffix in suffixes:
        if f"{name}_{suffix}" not in used_names:
            return f"{name}_{suffix}"
    number = 2
    while f"{name}_{number}" in used_names:
        number += 1
    return f"{name}_{number}"


@lru_cache(8192)
def argument_name(name: str) -> str:
    """Convert a property's name to the name of a keyword argument.

    A valid Python name stays unchanged.
    """
    plain_name = normalized(name, "NFKC")
    if plain_name.isidentifier() and len(plain_name) <= _MAX_NAME:
        if keyword.iskeyword(plain_name):
            return f"{plain_name}_"
        return plain_name
    words = snake("".join(_SYMBOLS.get(c, c) for c in plain_name))
    if words:
        return _python_name(words, "p")
    return f"p_{short_hash(name)}"
