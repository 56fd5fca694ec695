"""Charset labels of mails, pages and responses, with the meaning that they have in practice."""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from typing import Final

_DECLARED: Final = re.compile(
    rb"""
    <!--.*?(?:-->|\Z)
    | <\?xml\s[^>]{0,300}?encoding\s*=\s*["']([A-Za-z0-9_:.-]+)
    | <meta\s[^>]{0,300}?charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]+)
    """,
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_LONGEST_HEAD: Final = 100_000
# Codecs whose encoded texts are often valid UTF-8, too, so that UTF-8 must not be tried first.
_OFTEN_VALID_UTF8: Final = re.compile(r"utf-7|iso2022|hz|utf-16|utf-32")
# Codecs of Python that are not charsets of documents; some take minutes for a long text.
_NO_CHARSETS: Final = frozenset(
    {"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"}
)
# The codec that replaces the one named by a label.
#
# Texts with these labels often contain characters of a larger charset, which the replacement can
# decode.
_SUPERSETS: Final = {
    **dict.fromkeys(("gb2312", "gbk", "euc-cn", "gb-2312-80", "chinese", "cn-gb"), "gb18030"),
    **dict.fromkeys(("shift-jis", "sjis", "ms-kanji", "windows-31j"), "cp932"),
    **dict.fromkeys(("euc-kr", "ks-c-5601-1987", "ksc5601", "ks-c-5601", "windows-949"), "cp949"),
    **dict.fromkeys(("big5", "cn-big5"), "cp950"),
    **dict.fromkeys(("iso-8859-8-i", "iso-8859-8-e", "logical"), "iso-8859-8"),
    **dict.fromkeys(("iso-8859-6-i", "iso-8859-6-e"), "iso-8859-6"),
    **dict.fromkeys(("us-ascii", "ascii", "iso-8859-1", "latin1", "ansi"), "cp1252"),
    **dict.fromkeys(("tis-620", "iso-8859-11", "windows-874"), "cp874"),
    "iso-8859-9": "cp1254",
    "unicode-1-1-utf-7": "utf-7",
    "utf8mb4": "utf-8",
    "mac-roman": "macroman",
}


def codec_of(label: str | None) -> str | None:
    """Return the name of Python's codec for a charset label; None for an unknown label.

    For some labels this is the codec of a larger charset, because texts with such a label often
    contain characters of the larger charset.

    Args:
        label: The charset, as declared by a header or page.
    """
    name = (label or "").strip().lower().replace("_", "-")
    name = _SUPERSETS.get(name.removeprefix("x-"), name)
    try:
        codec = codecs.lookup(name).name
        "".encode(codec)  # raises for a codec that does not encode text, such as "hex"
    except (LookupError, ValueError):
        return None
    return None if codec in _NO_CHARSETS else codec


def label_in_page(page: bytes) -> str | None:
    """Return the charset that an HTML or XML page declares, such as ``utf-8``.

    Args:
        page: The page, in an encoding in which ASCII characters have their usual bytes.

    Returns:
        The charset in lower case; None if the page declares no charset, or UTF-16. A declaration of
        UTF-16 that is found here is wrong, because a page that really is in UTF-16 has two bytes
        for each ASCII character.
    """
    for match in _DECLARED.finditer(page, 0, _LONGEST_HEAD):
        name = match[1] or match[2]  # in <?xml encoding="…"?> or <meta charset="…">
        if not name:  # the match is a comment, and declarations in comments do not count
            continue
        label = name.decode("ascii").lower()
        return None if label.startswith("utf-16") else label
    return None


def decode_charset(data: bytes, label: str | None) -> str | None:
    """Decode a text as UTF-8 if it is valid UTF-8, else by its declared charset.

    UTF-8 comes first, because many programs declare a wrong charset, and hardly any text of another
    charset is valid UTF-8 by chance. The exceptions are charsets like UTF-7 and UTF-16, whose texts
    are often valid UTF-8: such a declared charset is tried before UTF-8.

    Args:
        data: The text.
        label: The charset, if declared.

    Returns:
        The text; None if the data is valid neither in the declared charset nor in UTF-8.
    """
    codec = codec_of(label)
    is_often_valid_utf8 = codec is not None and _OFTEN_VALID_UTF8.match(codec) is not None
    codecs_to_try = (codec, "utf-8") if is_often_valid_utf8 else ("utf-8", codec)
    for name in filter(None, codecs_to_try):
        with suppress(UnicodeError):
            return data.decode(name)
    return None
