"""Safe display of text on a terminal, a page or in a mail.

Invisible characters, and characters that reverse a line, are escaped as in Python. A host's name
with letters of several scripts is shown in its machine form, ``xn--…``. The web page follows the
same rules in ``visible.js``; tests check both with the same table of cases.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator
from typing import Final, TextIO

# The patterns below are strings, compiled when a text first needs them: most runs show only ASCII.

# Invisible characters that Unicode classifies as letters, marks or spaces.
_INVISIBLE: Final = (
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2000-\u200a\u205f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U0001d159\U000e0100-\U000e01ef]"
)
# No-break and wide spaces of French and Japanese texts, which are shown as ordinary spaces.
_SPACES: Final = "\xa0\u202f\u3000"
_JOINERS: Final = "\u200c\u200d"
# Letters of scripts in which an invisible joiner is part of the spelling.
_LETTERS_WITH_JOINERS: Final = "[\u0600-\u0dff\u1000-\u109f]"
_EMOJI_STYLES: Final = "\ufe0e\ufe0f"
_SKIN_TONES: Final = "[\U0001f3fb-\U0001f3ff]"

# Matches the characters of a host name's label, and their look-alikes.
_HOST_CHARACTERS: Final = (
    "0-9A-Za-z_\\-\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u1fff\u2100-\u218f\u2460-\u24ff\u2c00-\u2fdf"
    "\u3040-\ud7ff\uf900-\ufdff\ufe70-\ufefe\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uffdc"
    "\U00010000-\U0001efff\U00020000-\U0003ffff"
)
_DOTS: Final = ".\u3002\uff0e\uff61"
_ADDRESS_OR_HOST: Final = (
    f"(?P<before>(?P<user>[{_HOST_CHARACTERS}.+'%]{{0,64}})@|://(?:[^\\s/@]{{0,200}}@)?|domain:|)"
    f"(?P<host>[{_HOST_CHARACTERS}]+(?:[{_DOTS}][{_HOST_CHARACTERS}]+)*)"
)
# Matches a host name that is recognisable without a scheme, such as ``www.…`` or ``….com``.
_BARE_HOST: Final = f"(?i:^www[{_DOTS}]|[{_DOTS}](?:com|net|org|biz|edu|gov|mil|io|eu)$)"
# Matches letters that never look like a plain Latin letter: accented Latin, Chinese, Japanese and
# Korean.
_DISTINCT_LETTERS: Final = (
    "[\u00c0-\u0130\u0132-\u0137\u0139-\u0148\u014a-\u017e\u01a0\u01a1\u01af\u01b0\u01cd-\u01dc"
    "\u0218-\u021b\u0300-\u036f\u1e00-\u1eff\u1100-\u11ff\u3040-\u312f\u3400-\u9fff\uac00-\ud7ff"
    "\uf900-\ufaff\U00020000-\U0003ffff]"
)
# Letters of other scripts of which some look like plain Latin letters.
_LOOKALIKE_LETTERS: Final = (
    "[\u0131\u0138\u0149\u017f-\u019f\u01a2-\u01ae\u01b1-\u01cc\u01dd-\u0217\u021c-\u02ff"
    "\u0370-\u058f\u10a0-\u10ff\u13a0-\u167f\u1c80-\u1dbf\u1f00-\u1fff\u2100-\u218f\u2460-\u24ff"
    "\u2c00-\u2dff\ua4d0-\ua4ff\ua640-\ua69f\ua720-\ua7ff\uab30-\uabbf\uff10-\uff5a"
    "\U00010100-\U000107ff\U0001d400-\U0001d7ff]"
)


_LETTER_RUNS: Final = f"(?:[A-Za-z]|{_DISTINCT_LETTERS}|{_LOOKALIKE_LETTERS})+"
_TOP_LEVEL_DOMAIN: Final = f"[{_DOTS}][A-Za-z]{{2,24}}$"
# Matches more than four combining marks on one letter, which would cover other lines.
#
# The first group has the four allowed marks, the second group all further marks.
_EXCESS_MARKS: Final = "(?P<allowed>[{0}]{{4}})(?P<excess>[{0}]+)".format(
    "\u0300-\u036f\u0483-\u0489\u0610-\u061a\u064b-\u065f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
)


def visible(text: str) -> str:
    """Return a text with control, invisible and look-alike characters escaped.

    Line breaks and tabs are not escaped, and other spaces become plain spaces. Look-alike letters
    are escaped only in addresses and host names. Of many combining marks on one letter, the fifth
    and further ones are escaped.
    """
    if text.isascii():
        return text if text.isprintable() else _escape_hidden(text)
    text = _escape_hidden(text)
    text = re.sub(_EXCESS_MARKS, _escape_marks, text)
    return re.sub(_ADDRESS_OR_HOST, _display_address, text)


def hidden_characters(text: str) -> Iterator[str]:
    """Yield the parts of a text that :func:`visible` escapes.

    A part is one character, or a name in letters of several scripts that looks like another name.
    """
    if text.isascii() and text.isprintable():
        return
    text = text.replace("\r\n", "\n")
    if not _is_all_visible(text):
        for at, character in enumerate(text):
            # A no-break space is shown as a space: it hides nothing.
            if character not in _SPACES and _escape_at(text, at) != character:
                yield character
    if not text.isascii():
        for marks in re.finditer(_EXCESS_MARKS, text):
            first_excess_mark = marks["excess"][0]
            yield first_excess_mark
        for address in re.finditer(_ADDRESS_OR_HOST, text):
            if _display_address(address) != address[0]:
                yield address[0]


def is_visible(character: str) -> bool:
    """Return True if a character takes its place on a line; False for line breaks and tabs, too."""
    return character.isprintable() and not re.match(_INVISIBLE, character)


def _is_all_visible(text: str) -> bool:
    """Return True if each character is visible, a line break or a tab."""
    text_without_breaks = text.replace("\n", "").replace("\t", "")
    if not text_without_breaks.isprintable():
        return False
    return text_without_breaks.isascii() or not re.search(_INVISIBLE, text_without_breaks)


def _escape_marks(marks: re.Match[str]) -> str:
    """Keep four combining marks on a letter; escape further marks, which may cover other lines."""
    return marks["allowed"] + "".join(map(_escape, marks["excess"]))


def _escape_hidden(text: str) -> str:
    """Escape each invisible or misleading character; spaces of any kind become plain spaces."""
    # Lines of Windows files end with "\r\n". The "\r" is dropped, and not shown escaped.
    text = text.replace("\r\n", "\n")
    if _is_all_visible(text):
        return text
    return "".join(_escape_at(text, at) for at in range(len(text)))


def _escape_at(text: str, at: int) -> str:
    """Return the character at an index, escaped if it is invisible or misleading."""
    character = text[at]
    if character in _SPACES:
        return " "
    if is_visible(character) or character in "\n\t":
        return character
    before = text[at - 1 : at]  # empty at the start of the text
    after = text[at + 1 : at + 2]
    if character in _JOINERS and _is_part_of_spelling(before, after):
        return character
    is_after_symbol = before != "" and unicodedata.category(before) == "So"
    if character in _EMOJI_STYLES and is_after_symbol:
        return character
    return _escape(character)


def _is_part_of_spelling(before: str, after: str) -> bool:
    """Return True if an invisible joiner between two characters is part of a word or an emoji."""
    # The spelling of words in Arabic, Indic and related scripts has joiners.
    if re.match(_LETTERS_WITH_JOINERS, before) and re.match(_LETTERS_WITH_JOINERS, after):
        return True
    is_emoji_after = after != "" and unicodedata.category(after) == "So"
    if before == "" or not is_emoji_after:
        return False
    if unicodedata.category(before) == "So":
        return True
    # The last character of an emoji may choose its style or skin tone.
    return before in _EMOJI_STYLES or re.match(_SKIN_TONES, before) is not None


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _display_address(match: re.Match[str]) -> str:
    """Return the display form of an address or host name, with look-alike letters escaped.

    Args:
        match: A match with the groups ``host``, ``user`` (the text before an ``@``) and ``before``
            (all text before the host, such as ``://`` or the user part with its ``@``).
    """
    before = match["before"]
    host = match["host"]
    has_scheme_or_user = before != ""
    is_bare_host = re.search(_BARE_HOST, host) is not None  # such as www.example or example.com
    is_address = has_scheme_or_user or is_bare_host or _mixes_letters(host)
    if not is_address:  # an ordinary word
        return match[0]
    # A Cyrillic user part before a Latin host is misleading: test them together, as two labels.
    if match["user"] and _is_lookalike(f"{match['user']}.{host}"):
        before = "".join(map(_escape_letter, before))
    return before + _display_host(host)


def _display_host(host: str) -> str:
    """Return a host name, in its ASCII form (``xn--…``) if it has look-alike letters."""
    if not _is_lookalike(host):
        return host
    labels = re.split(f"([{_DOTS}])", host)
    return "".join(label if label.isascii() else _encode_label(label) for label in labels)


def _mixes_letters(host: str) -> bool:
    """Return True for a host name with plain Latin letters and look-alikes in one label.

    Return False for a word that does not end with a top-level domain (such as ``.com``), because
    the word is no host name.
    """
    if re.search(_TOP_LEVEL_DOMAIN, host) is None:
        return False
    for run in re.findall(_LETTER_RUNS, host):
        has_latin_letter = re.search("[A-Za-z]", run) is not None
        if has_latin_letter and re.search(_LOOKALIKE_LETTERS, run):
            return True
    return False


def _escape_letter(letter: str) -> str:
    """Escape a letter, unless it is ASCII or never looks like a plain Latin letter."""
    if letter.isascii() or re.match(_DISTINCT_LETTERS, letter):
        return letter
    return _escape(letter)


def _encode_label(label: str) -> str:
    """Return the ASCII form (``xn--…``) of a label of a host name that is not ASCII.

    A separator of labels, such as the ideographic full stop, becomes an ordinary dot.
    """
    if label in _DOTS:
        return "."
    return f"xn--{label.encode('punycode').decode('ascii')}"


def _is_lookalike(name: str) -> bool:
    """Return True if a name mixes plain Latin letters with similar letters of other scripts."""
    has_latin_letter = re.search("[A-Za-z]", name) is not None
    if name.isascii() or not has_latin_letter:
        return False
    if re.search(_LOOKALIKE_LETTERS, name):  # such as Cyrillic
        return True
    # Other letters, such as Arabic ones, are suspicious only beside Latin letters in the same label
    # (the part between two dots). Letters such as "é" and "漢" are never suspicious.
    labels = re.split(f"[{_DOTS}]", re.sub(_DISTINCT_LETTERS, "", name))
    return any(not label.isascii() and re.search("[A-Za-z]", label) for label in labels)


def wrap_text(text: str, *, indent: int = 0, head: int = 0, stream: TextIO | None = None) -> str:
    """Wrap the lines that are too long for a terminal, without breaking words.

    Args:
        text: The text; its line breaks are kept.
        indent: The number of spaces before each line but the first, so that no line of the text
            looks like a line of the program.
        head: The number of columns in front of the first line that are in use already, such as by
            a label.
        stream: The output stream; stdout when omitted.

    Returns:
        The wrapped text; the text is only indented if the stream is no terminal.
    """
    next_line = f"\n{' ' * indent}"
    if not (stream or sys.stdout).isatty():
        return text.replace("\n", next_line)
    import shutil

    width = max(20, shutil.get_terminal_size().columns - indent)
    first_line, *further_lines = text.split("\n")
    lines = _wrap_line(first_line, width, columns_in_use=head)
    for line in further_lines:
        lines += _wrap_line(line, width)
    return next_line.join(lines)


def _wrap_line(line: str, width: int, columns_in_use: int = 0) -> list[str]:
    """Wrap a line to a width; the first line loses the columns that are already in use."""
    import textwrap

    if columns_in_use + len(line) <= width:
        return [line]
    placeholder = " " * columns_in_use
    wrapped_lines = textwrap.wrap(
        line,
        width,
        initial_indent=placeholder,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
    if not wrapped_lines:  # the line has only blanks
        return [""]
    first_line, *further_lines = wrapped_lines
    return [first_line.removeprefix(placeholder), *further_lines]
