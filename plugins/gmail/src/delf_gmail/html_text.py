"""HTML as readable text: paragraphs, lists and links, without invisible elements.

HTML is parsed here, because the standard library's parser takes quadratic time for tags that do
not end.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Final

_BLOCK_TAGS: Final = re.compile(
    r"address|article|aside|blockquote|center|d[dlt]|div|fieldset|figure|footer|form|h[1-6]|header"
    r"|hr|li|main|nav|ol|p|pre|section|table|tbody|thead|tr|ul"
)
_INVISIBLE_TAGS: Final = re.compile(r"noscript|object|script|style|svg|template|title")
# Elements whose content is plain text up to the end tag, without other tags or comments.
_RAW_TEXT_END_TAGS: Final = {
    name: re.compile(f"</{name}(?=[\\s/>])", re.IGNORECASE) for name in ("script", "style", "title")
}
_VOID_TAGS: Final = re.compile(r"area|base|br|col|embed|hr|img|input|link|meta|source|wbr")
_HIDDEN: Final = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?![.\d])", re.IGNORECASE
)
_TAG: Final = re.compile(r"""<(?:[^<>"']++|"[^"]*+"|'[^']*+')*+>""")
_NAME: Final = re.compile(r"</?([a-zA-Z][\w:-]*)")
_ATTRIBUTE: Final = re.compile(r"""([^\s"'=<>/]+)(?:\s*+=\s*+(?:"([^"]*)"|'([^']*)'|([^\s>]+)))?""")
_MAX_SOURCE_LENGTH: Final = 2_000_000
_MAX_TAG_LENGTH: Final = 2000


def text_of(source: str) -> str:
    """Return the visible text of an HTML document.

    Args:
        source: The HTML, which may be malformed. Only the first two million characters are read.
    """
    pieces: list[str] = []
    # The URL of the open link, and the number of pieces before the link.
    link = ""
    link_start = 0
    for tag, piece in _visible_pieces(source[:_MAX_SOURCE_LENGTH]):
        is_end_tag = piece.startswith("</")
        if tag is None:
            pieces.append(re.sub(r"\s+", " ", html.unescape(piece)))
        elif tag == "a" and is_end_tag:
            if link:  # else the end tag has no start tag
                pieces.append(_link_suffix(link, "".join(pieces[link_start:]).strip()))
            link = ""
        elif tag == "a":
            link = _attributes(piece).get("href", "")
            link_start = len(pieces)
        elif not is_end_tag:
            pieces.append(_text_of_start_tag(tag, piece))
        elif _BLOCK_TAGS.fullmatch(tag):
            pieces.append("\n\n" if tag in ("p", "table", "ul", "ol") else "\n")
    text = re.sub(r"[ \t\xa0]+", " ", "".join(pieces))
    return re.sub(r"\n{3,}", "\n\n", re.sub(r" ?\n ?", "\n", text)).strip()


def _visible_pieces(source: str) -> Iterator[tuple[str | None, str]]:
    """Yield the visible parts of HTML: pairs of a tag's name and the tag, or of None and a text.

    Tags without a name, such as ``<!doctype html>``, are left out.
    """
    # The tag of the open invisible element, and the number of open elements with this tag.
    invisible_tag = ""
    depth = 0
    for piece in _pieces(source):
        if not piece.startswith("<"):
            if not depth:
                yield None, piece
            continue
        name_match = _NAME.match(piece)
        if name_match is None:
            continue
        tag = name_match[1].lower()
        is_end_tag = piece.startswith("</")
        if depth:
            if tag == invisible_tag and not _is_empty_element(tag, piece):
                depth += -1 if is_end_tag else 1
        elif not is_end_tag and _hides_content(tag, piece):
            invisible_tag = tag
            depth = 1
        else:
            yield tag, piece


def _hides_content(tag: str, piece: str) -> bool:
    """Return whether the content of an element is invisible.

    Args:
        tag: The name of the element. A void element, such as ``img``, has no content to hide.
        piece: The start tag as written, with its attributes.
    """
    if _is_empty_element(tag, piece):
        return False
    if _INVISIBLE_TAGS.fullmatch(tag):
        return True
    attributes = _attributes(piece)
    return "hidden" in attributes or _HIDDEN.search(attributes.get("style", "")) is not None


def _is_empty_element(tag: str, piece: str) -> bool:
    """Return True if a tag is a whole element without content, as ``<img>`` and ``<svg/>`` are."""
    return _VOID_TAGS.fullmatch(tag) is not None or (tag == "svg" and piece.endswith("/>"))


def _pieces(source: str) -> Iterator[str]:
    """Yield the tags and the texts between them, without comments.

    A ``<`` that begins no tag is yielded as ``&lt;``. A tag that does not end is left out, with all
    that follows. The content of scripts, styles and titles is left out, too.
    """
    position = 0
    while position < len(source):
        begin = source.find("<", position)
        if begin < 0:
            yield source[position:]
            return
        if begin > position:
            yield source[position:begin]
        if source.startswith("<!--", begin):
            end = source.find("-->", begin)
            if end < 0:
                return
            position = end + 3
        elif not _begins_tag(source[begin + 1 : begin + 2]):
            yield "&lt;"
            position = begin + 1
        else:
            tag_end = _end_of_tag(source, begin)
            if tag_end is None:
                return
            tag = source[begin:tag_end]
            yield tag
            position = _end_of_raw_text(source, tag, tag_end)


def _end_of_tag(source: str, begin: int) -> int | None:
    """Return the position after the tag that begins at ``begin``; None if the tag does not end."""
    tag = _TAG.match(source, begin, begin + _MAX_TAG_LENGTH)
    if tag is not None:
        return tag.end()
    # The tag is malformed or very long: take the next ">" for its end.
    last = source.find(">", begin)
    return None if last < 0 else last + 1


def _end_of_raw_text(source: str, tag: str, tag_end: int) -> int:
    """Return the position of the end tag of a script, style or title.

    For any other tag, return ``tag_end``. Without an end tag, return the end of the source.
    """
    name = _NAME.match(tag)
    is_end_tag = tag.startswith("</")
    if name is None or is_end_tag:
        return tag_end
    end_tag = _RAW_TEXT_END_TAGS.get(name[1].lower())
    if end_tag is None:
        return tag_end
    found = end_tag.search(source, tag_end)
    return len(source) if found is None else found.start()


def _begins_tag(next_char: str) -> bool:
    """Return True if a ``<`` begins a tag.

    Args:
        next_char: The character after the ``<``; empty if the text ends with the ``<``.
    """
    return next_char.isalpha() or next_char in ("", "/", "!", "?")


def _text_of_start_tag(tag: str, piece: str) -> str:
    if tag == "br":
        return "\n"
    if tag in ("td", "th"):
        return "\t"
    if tag == "li":
        return "\n- "
    if tag == "img":
        return _attributes(piece).get("alt", "")
    return "\n" if _BLOCK_TAGS.fullmatch(tag) else ""


def _link_suffix(link: str, link_text: str) -> str:
    """Return the text that shows a link's URL after the link's text.

    Links other than web and mail addresses, and URLs equal to the link's text, are not shown.
    """
    if not link.lower().startswith(("http://", "https://", "mailto:")) or link == link_text:
        return ""
    return f" ({link})" if link_text else link


def _attributes(piece: str) -> dict[str, str]:
    """Return the values of a tag's attributes by lower-case name; the first if a name repeats."""
    attributes: dict[str, str] = {}
    name = _NAME.match(piece)
    name_end = 0 if name is None else name.end()
    for match in _ATTRIBUTE.finditer(piece[:_MAX_TAG_LENGTH], name_end):
        name_part, *values = match.groups()  # a value for each kind of quotes, and without quotes
        value = next(filter(None, values), "")
        attributes.setdefault(name_part.lower(), html.unescape(value))
    return attributes
