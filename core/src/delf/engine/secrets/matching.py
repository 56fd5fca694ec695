"""Finds secrets in texts: as they are, and as they look once something has encoded them.

A text is searched once, whatever the number of secrets: one pattern knows a few characters of
each form of each secret, from the rarest on, and only where these are is the form compared. The
pattern is a tree of characters, as Python's own alternation tries one branch after another.
Where secrets are is looked up in texts that hold one.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from typing import Final, Protocol
from urllib.parse import quote, quote_plus

from delf.secrets import SHORTEST, is_strong

_ANCHOR: Final = 4
_PLACES: Final = 32
"""How far into a form its anchor may be: to look for it takes time, and rare ones come soon."""
_COMMON: Final = " etaoinsrhldcumfpgwybvk0125349678.,-_:/=\"'()xjqzTSAMCINEPBRDOLFHGUWVYKJXZQ"
"""Characters of texts, the common ones first; all others are rarer."""
_RANK: Final = {character: rank for rank, character in enumerate(_COMMON)}

_BEFORE: Final = re.compile(r"(?:(?<!\w)|(?<=\\[abfnrtv])|(?<=%[0-9A-Fa-f]{2}))")
CONTEXT: Final = 3
"""How many characters before a place decide whether a word begins there."""


class Matcher:
    """Knows the forms of secrets.

    Args:
        secrets: The secrets. One that is not strong counts where it stands as a word.
    """

    def __init__(self, secrets: Collection[str]) -> None:
        anywhere: set[str] = set()
        self._words: set[str] = set()
        for secret in secrets:
            (anywhere if is_strong(secret) else self._words).update(_spellings(secret))
            anywhere.update(_encodings(secret))
        self._words -= anywhere
        self._heads: dict[str, list[str]] = {}
        self._starts: dict[str, list[str]] = {}
        forms = sorted(
            (f for f in anywhere | self._words if len(f) >= SHORTEST), key=_longest_first
        )
        for form in forms:
            self._heads.setdefault(form[:SHORTEST], []).append(form)
            self._starts.setdefault(form[0], []).append(form)
        self._characters = frozenset("".join(forms))
        self.longest = max(map(len, forms), default=0)
        """How many characters the longest form of a secret has."""
        self.shortest = min(map(len, forms), default=sys.maxsize)
        """How many characters a text with a secret has at least."""
        self._anchors = _anchors_of(forms)
        self._has_anchor = re.compile(_tree(sorted(self._anchors))).search

    @cached_property
    def _search(self) -> Callable[[str, int], re.Match[str] | None]:
        """Where something begins like a secret."""
        return re.compile(_tree(sorted(self._heads))).search

    def holds(self, text: str) -> bool:
        """Whether a form of a secret is in a text, as a word or not."""
        found = self._has_anchor(text)
        while found is not None:
            at = found.start()
            for form, place in self._anchors[found.group()]:
                if at >= place and text.startswith(form, at - place):
                    return True
            found = self._has_anchor(text, at + 1)
        return False

    def find(self, text: str, start: int) -> tuple[int, int] | None:
        """The first secret in a text, and the longest of those that begin there.

        Args:
            text: The text.
            start: Where to begin.
        """
        while found := self._search(text, start):
            at = found.start()
            for form in self._heads[found.group()]:
                if text.startswith(form, at) and self._counts(form, text, at):
                    return at, at + len(form)
            start = at + 1
        return None

    def _counts(self, form: str, text: str, at: int) -> bool:
        if form not in self._words:
            return True
        end = at + len(form)
        if _is_word(form[0]) and not _BEFORE.match(text, at):
            return False
        return not (_is_word(form[-1]) and end < len(text) and _is_word(text[end]))

    def unfinished(self, text: str, start: int) -> int:
        """Where the end of a text could be the beginning of a secret; its length if nowhere.

        Args:
            text: The text, which goes on.
            start: Where to begin.
        """
        size = len(text)
        if start >= size or text[-1] not in self._characters:
            return size
        start = max(start, size - self.longest)
        while found := self._search(text, start):
            at = found.start()
            if self._may_go_on(self._heads[found.group()], text, at):
                return at
            start = at + 1
        for at in range(max(start, size - SHORTEST + 1), size):
            if self._may_go_on(self._starts.get(text[at], ()), text, at):
                return at
        return size

    def _may_go_on(self, forms: Iterable[str], text: str, at: int) -> bool:
        rest = text[at:]
        size = len(rest)
        return any(
            (len(form) > size or (len(form) == size and form in self._words))
            and form.startswith(rest)
            for form in forms
        )


class KnowsSecrets(Protocol):
    """Who has the matcher of the secrets that are known by now."""

    matcher: Matcher
    knows_any: bool


class StreamMatcher:
    """Replaces secrets in a text that comes in pieces.

    What could be the beginning of a secret is held back until the next piece or the end, so
    that the pieces are together what the whole text would be.

    Args:
        known: Has what knows the secrets by now.
        replacement: What stands in their place.
    """

    def __init__(self, known: KnowsSecrets, replacement: str) -> None:
        self._known = known
        self._replacement = replacement
        self._before = ""
        self._held = ""

    def feed(self, piece: str) -> str:
        """What may be passed on, given the next piece."""
        return self._take(piece, last=False)

    def end(self) -> str:
        """What was held back; the next piece begins another text."""
        rest = self._take("", last=True)
        self._before = ""
        return rest

    def drop(self) -> None:
        """Forget what was held back, as the text comes once more."""
        self._before = self._held = ""

    def _take(self, piece: str, *, last: bool) -> str:
        if not self._known.knows_any and not self._held:
            return piece
        matcher = self._known.matcher
        text = f"{self._before}{self._held}{piece}"
        at = len(self._before)
        parts: list[str] = []
        size = len(text)
        stop = size if last else matcher.unfinished(text, at)
        is_clean = not matcher.holds(text)
        while not is_clean and (found := matcher.find(text, at)) and found[0] < stop:
            parts += (text[at : found[0]], self._replacement)
            at = found[1]
            if at > stop:
                stop = matcher.unfinished(text, at)
        parts.append(text[at:stop])
        self._before = text[max(0, stop - CONTEXT) : stop]
        self._held = text[stop:]
        return "".join(parts)


def _anchors_of(forms: Iterable[str]) -> dict[str, list[tuple[str, int]]]:
    """A few characters of each form, and where in it they are; few begin with the same ones."""
    anchors: dict[str, list[tuple[str, int]]] = {}
    begin: set[str] = set()
    for form in forms:
        places = range(min(len(form) - _ANCHOR + 1, _PLACES))
        known = [place for place in places if form[place] in begin]
        place = max(known or places, key=lambda place: _RANK.get(form[place], len(_RANK)))
        begin.add(form[place])
        anchors.setdefault(form[place : place + _ANCHOR], []).append((form, place))
    return anchors


def _longest_first(form: str) -> tuple[int, str]:
    return -len(form), form


def _is_word(character: str) -> bool:
    return character == "_" or character.isalnum()


def _spellings(secret: str) -> Iterator[str]:
    """A secret as it is and as it stands in URLs, JSON, JSON in JSON, and Python's literals."""
    plain = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret)}
    plain.add(secret.encode("utf-8", "surrogatepass").decode("latin-1"))
    plain |= {_lower_hex(text) for text in plain if "%" in text}
    plain |= {repr(secret)[1:-1], ascii(secret)[1:-1]}
    plain |= {repr(data)[2:-1] for data in _bytes_of(secret)}
    for _ in range(2):
        plain |= {json.dumps(t, ensure_ascii=a)[1:-1] for t in plain for a in (True, False)}
        plain |= {text.replace("/", "\\/") for text in plain if "/" in text}
    yield from plain


def _lower_hex(text: str) -> str:
    return re.sub("%[0-9A-F]{2}", lambda found: found.group().lower(), text)


def _encodings(secret: str) -> Iterator[str]:
    """A secret in hexadecimal digits and in base64, wherever it begins in that."""
    for data in _bytes_of(secret):
        yield data.hex()
        yield data.hex().upper()
        yield from _base64_of(data)


def _base64_of(data: bytes) -> Iterator[str]:
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data)
        whole = encoded[(0, 2, 3)[before] : (before + len(data)) * 8 // 6].decode()
        yield whole
        yield whole.replace("+", "-").replace("/", "_")


def _bytes_of(secret: str) -> set[bytes]:
    found = {secret.encode("utf-8", "surrogatepass")}
    if all(ord(character) < 256 for character in secret):
        found.add(secret.encode("latin-1"))
    return found


def _tree(heads: list[str]) -> str:
    """A pattern of sorted texts of one length, each character in it once where they agree."""
    if not heads:
        return "(?!)"
    if len(heads) == 1:
        return re.escape(heads[0])
    branches: list[str] = []
    start = 0
    for end in range(1, len(heads) + 1):
        if end == len(heads) or heads[end][0] != heads[start][0]:
            rest = _tree([head[1:] for head in heads[start:end]]) if heads[start][1:] else ""
            branches.append(re.escape(heads[start][0]) + rest)
            start = end
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
