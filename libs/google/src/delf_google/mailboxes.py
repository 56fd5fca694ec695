"""Parsing of address headers, the same on every version of Python.

``email.utils.getaddresses`` differs between patch releases of Python: ``boss@corp.example
<stranger@evil.example>`` yields no address, or two, the first chosen by a stranger. Here the words
before ``<…>`` are a name and nothing else. Parts are separated by commas, or by the semicolons of
Outlook and of groups. Comments are ignored, except as the name of a person without another name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_PLAIN: Final = re.compile(r"""[^"()<>,;:\\]+""")
_ATOM: Final = r"[^\s\x00-\x1f\x7f()<>\[\]:;@\\,.\"]+"
_LOCAL: Final = re.compile(rf'{_ATOM}(?:\.{_ATOM})*|"(?:[^"\\\x00-\x1f\x7f]|\\[ -~])+"')
_LABEL: Final = r"[^\W_](?:[\w-]*[^\W_])?"
_DOMAIN: Final = re.compile(rf"(?:{_LABEL}\.)+{_LABEL}\.?|\[[0-9A-Fa-f.:IPv]+\]")
_BESIDE_SIGN: Final = re.compile(r"\s*([@.])\s*")
_BLANKS: Final = re.compile(r"\s+")
_SPECIAL: Final = re.compile(r'[()<>\[\]:;@\\,."]')
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


class Mailbox(NamedTuple):
    """A person in an address header.

    Args:
        name: The display name without quotes, not decoded.
        address: The address without blanks and comments.
        text: The original text, to show if the address is invalid.
    """

    name: str
    address: str
    text: str

    @property
    def is_valid(self) -> bool:
        """True if the address can receive mail: ``local@domain``, the domain with a dot."""
        local, _, domain = self.address.rpartition("@")
        return bool(_LOCAL.fullmatch(local) and _DOMAIN.fullmatch(domain))

    @property
    def local(self) -> str:
        """The part before the last ``@``, without quotes."""
        local = self.address.rpartition("@")[0]
        return _ESCAPED.sub(r"\1", local[1:-1]) if local.startswith('"') else local

    @property
    def domain(self) -> str:
        """The part after the last ``@``."""
        return self.address.rpartition("@")[2]


def format_mailbox(name: str, address: str) -> str:
    """Format a person as ``name <address>``, quoting the name if necessary."""
    if not name:
        return address
    if _SPECIAL.search(name):
        quoted = name.replace("\\", "\\\\").replace('"', '\\"')
        name = f'"{quoted}"'
    return f"{name} <{address}>"


def split(text: str) -> list[Mailbox]:
    """Return the people in a header, including those without a valid address."""
    people: list[Mailbox] = []
    person = _Person()
    for kind, piece in _pieces(text):
        if kind == "," or (kind == ":" and not person.has_sign):
            # A name before a colon names a group, not a person.
            people += person.made() if kind == "," else ()
            person = _Person()
        else:
            person.add(kind, piece)
    return [*people, *person.made()]


@dataclass
class _Person:
    words: list[str] = field(default_factory=list[str])
    bare: list[str] = field(default_factory=list[str])
    comments: list[str] = field(default_factory=list[str])
    angles: list[str] = field(default_factory=list[str])
    texts: list[str] = field(default_factory=list[str])
    is_broken: bool = False

    @property
    def has_sign(self) -> bool:
        return bool(self.angles) or "@" in "".join(self.bare)

    def add(self, kind: str, piece: str) -> None:
        """Add a token of the header."""
        self.texts.append(piece)
        if kind == "comment":
            self.comments.append(piece[1:-1].strip())
        elif kind == "angle":
            self.angles.append(piece[1:-1])
        elif kind == "open" or (self.angles and piece.strip()):
            self.is_broken = True  # an unclosed token, or words after an address
        else:
            self.bare.append(piece)
            self.words.append(_ESCAPED.sub(r"\1", piece[1:-1] if kind == "quoted" else piece))

    def made(self) -> Iterator[Mailbox]:
        """Yield the person read so far; nothing if there were only blanks and comments."""
        text = _BLANKS.sub(" ", "".join(self.texts)).strip()
        plain_address = "".join(self.bare).strip()
        if not self.is_broken and not plain_address and not "".join(self.angles).strip():
            return
        if self.is_broken or len(self.angles) > 1:
            yield Mailbox("", "", text)
        elif self.angles:
            inner = "".join(piece for kind, piece in _pieces(self.angles[0]) if kind != "comment")
            route, colon, address = inner.rpartition(":")
            inner = address if colon and route.lstrip().startswith("@") else inner
            name = _BLANKS.sub(" ", "".join(self.words)).strip()
            yield Mailbox(name or " ".join(self.comments), _join_address(inner), text)
        else:
            yield Mailbox(" ".join(self.comments), _join_address(plain_address), text)


def _join_address(address: str) -> str:
    return _BESIDE_SIGN.sub(r"\1", address.strip())


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Split a header into quoted texts, comments, angle brackets, separators and other texts."""
    place = 0
    while place < len(text):
        sign, start = text[place], place
        if sign in _ENDS:
            kind, end_of = _ENDS[sign]
            place = end_of(text, place)
            if not place:
                # Skip an unclosed comment: rereading a thousand of them would take a minute.
                kind = "open"
                place = len(text) if sign == "(" else start + 1
        elif sign in ",;:":
            kind = ":" if sign == ":" else ","
            place += 1
        elif sign == "\\":
            place, kind = min(place + 2, len(text)), "plain"
        else:
            match = _PLAIN.match(text, place)
            kind = "plain" if match else "open"
            place = match.end() if match else place + 1
        yield kind, text[start:place]


def _end_of_quoted(text: str, place: int) -> int:
    place += 1
    while place < len(text) and text[place] != '"':
        place += 2 if text[place] == "\\" else 1
    return place + 1 if place < len(text) else 0


def _end_of_comment(text: str, place: int) -> int:
    depth = 0
    while place < len(text):
        if text[place] == "\\":
            place += 1
        elif text[place] == "(":
            depth += 1
        elif text[place] == ")":
            depth -= 1
            if not depth:
                return place + 1
        place += 1
    return 0


def _end_of_angle(text: str, place: int) -> int:
    place += 1
    while place < len(text):
        sign = text[place]
        if sign == ">":
            return place + 1
        if sign == "<":
            return 0
        ends = {'"': _end_of_quoted, "(": _end_of_comment}.get(sign)
        place = ends(text, place) if ends else place + (2 if sign == "\\" else 1)
        if not place:
            return 0
    return 0


_ENDS: Final[dict[str, tuple[str, Callable[[str, int], int]]]] = {
    '"': ("quoted", _end_of_quoted),
    "(": ("comment", _end_of_comment),
    "<": ("angle", _end_of_angle),
}
