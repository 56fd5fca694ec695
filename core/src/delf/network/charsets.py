"""Charset labels of mails, pages and responses, with the meaning that they have in practice."""

from __future__ import annotations

import codecs
import re
from typing import Final

_DECLARED: Final = re.compile(
    rb"""
    <!--.*?-->
    | <\?xml\s[^>]{0,300}?encoding\s*=\s*["']([A-Za-z0-9_:.-]+)
    | <meta\s[^>]{0,300}?charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]+)
    """,
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_LONGEST_HEAD: Final = 100_000
_SHIFTING: Final = re.compile(r"utf-7|iso2022|hz|utf-16|utf-32")
"""Codecs in which a text may have the same bytes as another text in UTF-8."""
_NO_CHARSETS: Final = frozenset(
    {"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"}
)
"""Codecs of text that no program names in a label; some take minutes."""
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
"""Python's codec by label, for labels whose texts use a larger charset than the label names."""


def codec_of(label: str | None) -> str | None:
    """Return Python's codec for a charset label, or for its superset; None for other labels.

    Args:
        label: The charset, as declared by a header or page.
    """
    name = (label or "").strip().lower().replace("_", "-")
    name = _SUPERSETS.get(name.removeprefix("x-"), name)
    try:
        codec = codecs.lookup(name).name
        "".encode(codec)  # raises for a codec of bytes, such as "hex"
    except (LookupError, ValueError):
        return None
    return None if codec in _NO_CHARSETS else codec


def label_in_page(page: bytes) -> str | None:
    """Return the charset that an HTML or XML page declares; None for UTF-16.

    Args:
        page: The page, in an encoding in which ASCII characters have their usual bytes.
    """
    for declaration in _DECLARED.finditer(page, 0, _LONGEST_HEAD):
        if name := declaration[1] or declaration[2]:
            label = name.decode("ascii").lower()
            return None if label.startswith("utf-16") else label
    return None


def decode_charset(data: bytes, label: str | None) -> str | None:
    """Decode a text by its declared charset; valid UTF-8 is decoded as UTF-8.

    Hardly any text of another charset is UTF-8 by chance, while many programs declare a wrong one.

    Args:
        data: The text.
        label: The charset, if declared.

    Returns:
        The text; None if the data is valid in neither charset.
    """
    codec = codec_of(label)
    try_first = codec is not None and _SHIFTING.match(codec) is not None
    for name in (codec, "utf-8") if try_first else ("utf-8", codec):
        try:
            if name is not None:
                return data.decode(name)
        except UnicodeError:
            continue
    return None
