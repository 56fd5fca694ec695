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
_BLANKS_AROUND_SIGN: Final = re.compile(r"\s*([@.])\s*")
_BLANKS: Final = re.compile(r"\s+")
_SPECIAL: Final = re.compile(r'[()<>\[\]:;@\\,."]')
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


class Mailbox(NamedTuple):
    """A mailbox in an address header such as ``To``.

    Args:
        name: The display name, without quotes. Encoded words (``=?utf-8?…?=``) stay encoded.
        address: The mail address, without blanks and comments; may be invalid.
        text: The original text, to show if the address is invalid.
    """

    name: str
    address: str
    text: str

    @property
    def is_valid(self) -> bool:
        """True if the address has the form ``local@domain``, with a dot in the domain."""
        local, _, domain = self.address.rpartition("@")
        return bool(_LOCAL.fullmatch(local) and _DOMAIN.fullmatch(domain))

    @property
    def local(self) -> str:
        """The part of the address before the last ``@``, without quotes."""
        local = self.address.rpartition("@")[0]
        if local.startswith('"'):
            return _ESCAPED.sub(r"\1", local[1:-1])
        return local

    @property
    def domain(self) -> str:
        """The part of the address after the last ``@``."""
        return self.address.rpartition("@")[2]


def format_mailbox(name: str, address: str) -> str:
    """Return ``name <address>``, with the name in quotes if necessary."""
    if not name:
        return address
    if _SPECIAL.search(name):
        quoted = name.replace("\\", "\\\\").replace('"', '\\"')
        name = f'"{quoted}"'
    return f"{name} <{address}>"


def split(text: str) -> list[Mailbox]:
    """Split an address header into mailboxes, including mailboxes with invalid addresses."""
    mailboxes: list[Mailbox] = []
    builder = _MailboxBuilder()
    for kind, piece in _tokens(text):
        if kind == ",":
            mailboxes += builder.mailboxes()
            builder = _MailboxBuilder()
        elif kind == ":" and not builder.has_address:
            # Drop the words before the colon: they are the name of a group of mailboxes.
            builder = _MailboxBuilder()
        else:
            builder.add_token(kind, piece)
    return [*mailboxes, *builder.mailboxes()]


@dataclass
class _MailboxBuilder:
    """Collects the tokens of one mailbox, such as ``Ada (office) <ada@example.com>``.

    Args:
        outside_brackets: The tokens outside of ``<…>`` and comments.
        name_words: The same tokens without quotes and escapes.
        comments: The comments, without parentheses.
        inside_brackets: The texts inside ``<…>``.
        all_tokens: All tokens in their order.
        is_broken: Whether the mailbox has an unclosed token, or words after its address.
    """

    outside_brackets: list[str] = field(default_factory=list[str])
    name_words: list[str] = field(default_factory=list[str])
    comments: list[str] = field(default_factory=list[str])
    inside_brackets: list[str] = field(default_factory=list[str])
    all_tokens: list[str] = field(default_factory=list[str])
    is_broken: bool = False

    @property
    def has_address(self) -> bool:
        """True if the tokens so far have an address in ``<…>``, or a plain one such as ``a@b``."""
        return bool(self.inside_brackets) or "@" in "".join(self.outside_brackets)

    def add_token(self, kind: str, piece: str) -> None:
        """Add a token of the kinds that ``_tokens`` yields."""
        self.all_tokens.append(piece)
        if kind == "comment":
            self.comments.append(piece[1:-1].strip())
            return
        if kind == "angle":
            self.inside_brackets.append(piece[1:-1])
            return
        is_unbalanced = kind == "unbalanced"
        # Such as "Ada" in "<ada@example.com> Ada"; blanks may follow the address.
        is_word_after_address = bool(self.inside_brackets and piece.strip())
        if is_unbalanced or is_word_after_address:
            self.is_broken = True
            return
        self.outside_brackets.append(piece)
        word = piece[1:-1] if kind == "quoted" else piece
        self.name_words.append(_ESCAPED.sub(r"\1", word))

    def mailboxes(self) -> Iterator[Mailbox]:
        """Yield the mailbox of the tokens; yield nothing if there are only blanks and comments."""
        text = _BLANKS.sub(" ", "".join(self.all_tokens)).strip()
        plain_address = "".join(self.outside_brackets).strip()
        is_blank = not plain_address and not "".join(self.inside_brackets).strip()
        if is_blank and not self.is_broken:
            return
        comment = " ".join(self.comments)
        has_two_addresses = len(self.inside_brackets) > 1
        if self.is_broken or has_two_addresses:
            yield Mailbox(name="", address="", text=text)
        elif self.inside_brackets:
            name = _BLANKS.sub(" ", "".join(self.name_words)).strip()
            address = _address_in_brackets(self.inside_brackets[0])
            yield Mailbox(name=name or comment, address=_join_address(address), text=text)
        else:
            yield Mailbox(name=comment, address=_join_address(plain_address), text=text)


def _address_in_brackets(text: str) -> str:
    """Return the address in the text of ``<…>``, without comments."""
    address = "".join(piece for kind, piece in _tokens(text) if kind != "comment")
    # An obsolete route, such as ``@relay:`` in ``<@relay:ada@example.com>``, is dropped.
    if ":" in address and address.lstrip().startswith("@"):
        return address.rpartition(":")[2]
    return address


def _join_address(address: str) -> str:
    """Remove the blanks around ``@`` and dots, which a header may have in an address."""
    return _BLANKS_AROUND_SIGN.sub(r"\1", address.strip())


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield the tokens of a header as (kind, text) pairs.

    Kinds are ``quoted``, ``comment``, ``angle`` (``<…>``), ``,``, ``:``, ``plain``, and
    ``unbalanced`` for a quote or bracket without its counterpart.
    """
    start = 0
    while start < len(text):
        kind, end = _token_at(text, start)
        yield kind, text[start:end]
        start = end


def _token_at(text: str, start: int) -> tuple[str, int]:
    """Return the kind of the token at a position, and the position after the token."""
    char = text[start]
    if char in _END_FINDERS:
        return _delimited_token_at(text, start)
    if char == ":":
        return ":", start + 1
    if char in ",;":
        return ",", start + 1
    if char == "\\":  # escapes the next character
        return "plain", min(start + 2, len(text))
    if match := _PLAIN.match(text, start):
        return "plain", match.end()
    return "unbalanced", start + 1  # a closing bracket without an opening one


def _delimited_token_at(text: str, start: int) -> tuple[str, int]:
    """Return the kind and the end of a token that begins with an opening sign, such as ``(``."""
    kind, find_end = _END_FINDERS[text[start]]
    end = find_end(text, start)
    if end:
        return kind, end
    if kind == "comment":
        # The rest of the text becomes one token, because the search for the end of a comment reads
        # all of the text: a thousand unclosed comments would take a minute.
        return "unbalanced", len(text)
    return "unbalanced", start + 1


def _end_of_quoted(text: str, position: int) -> int:
    """Return the position after the quoted text that begins at a position; 0 if it is unclosed."""
    position += 1  # after the opening quote
    while position < len(text):
        char = text[position]
        if char == '"':
            return position + 1
        position += 2 if char == "\\" else 1  # a backslash escapes the next character
    return 0


def _end_of_comment(text: str, position: int) -> int:
    """Return the position after the comment that begins at a position; 0 if it is unclosed.

    A comment may contain comments.
    """
    depth = 0
    while position < len(text):
        if text[position] == "\\":
            position += 1  # the escaped character is skipped, too
        elif text[position] == "(":
            depth += 1
        elif text[position] == ")":
            depth -= 1
            if not depth:
                return position + 1
        position += 1
    return 0


def _end_of_angle(text: str, position: int) -> int:
    """Return the position after the angle brackets that begin at a position; 0 if unclosed."""
    position += 1  # after the opening bracket
    while position < len(text):
        char = text[position]
        if char == ">":
            return position + 1
        if char == "<":
            return 0
        find_end = {'"': _end_of_quoted, "(": _end_of_comment}.get(char)
        if find_end is None:
            position += 2 if char == "\\" else 1  # a backslash escapes the next character
            continue
        position = find_end(text, position)
        if not position:  # the inner token is unclosed
            return 0
    return 0


_END_FINDERS: Final[dict[str, tuple[str, Callable[[str, int], int]]]] = {
    '"': ("quoted", _end_of_quoted),
    "(": ("comment", _end_of_comment),
    "<": ("angle", _end_of_angle),
}
