"""Refusal of pages that are slow to parse, before they are parsed.

The parser compares each attribute of a tag with all earlier ones: for 30,000 attributes that takes
a minute.
"""

from __future__ import annotations

import re
from typing import Final

from delf.errors import ToolExecutionError

MAX_NODES: Final = 400_000
MAX_ATTRIBUTES: Final = 1_000_000
MAX_OF_A_TAG: Final = 256
MAX_DEPTH: Final = 10_000
"""The maximum nesting depth; elements whose end tag is often omitted do not count."""

_TAG: Final = re.compile(rb"<(?:!--|(?P<slash>/?)(?P<name>[a-zA-Z][^\s/>]*))")
_ATTRIBUTE: Final = re.compile(
    rb"""[\s/]*[^\s/>][^\s/>=]*(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>]*))?"""
)
# Elements whose content is raw text without tags, with patterns for their end tags.
_RAW_TEXT_ELEMENTS: Final = {
    name: re.compile(b"</" + name, re.IGNORECASE)
    for name in (b"script", b"style", b"textarea", b"title", b"xmp")
}
_OPTIONAL_END_TAGS: Final = frozenset(
    b"area base body br col colgroup dd dt embed head hr html img input li link meta optgroup "
    b"option p param rb rp rt rtc source tbody td tfoot th thead tr track wbr".split()
)


def check_markup(content: bytes, url: str) -> None:
    """Raise an error for an HTML page that would be slow to parse.

    Args:
        content: The bytes of the page.
        url: The address, for the message.

    Raises:
        ToolExecutionError: If the page has too many or too deeply nested tags or attributes; the
            error names the limit.
    """
    nodes = attributes = depth = 0
    position = 0
    while (tag := _TAG.search(content, position)) is not None:
        nodes += 1
        if nodes > MAX_NODES:
            raise _limit_error(url, f"{MAX_NODES:,} tags")
        is_comment = tag["name"] is None
        if is_comment:
            position = _end_of_comment(content, tag.end())
            continue
        name = tag["name"].lower()
        is_end_tag = tag["slash"] == b"/"
        # Do not count elements whose end tag may be missing: without the end tag, such an element
        # would seem to contain the rest of the page.
        if name not in _OPTIONAL_END_TAGS:
            depth = max(0, depth - 1) if is_end_tag else depth + 1
            if depth > MAX_DEPTH:
                raise _limit_error(url, f"{MAX_DEPTH:,} elements inside each other")
        tag_attributes, position = _read_attributes(content, tag.end(), url)
        attributes += tag_attributes
        if attributes > MAX_ATTRIBUTES:
            raise _limit_error(url, f"{MAX_ATTRIBUTES:,} attributes")
        if name in _RAW_TEXT_ELEMENTS and not is_end_tag:
            end_tag = _RAW_TEXT_ELEMENTS[name].search(content, position)
            if end_tag is None:  # the rest of the page is text
                return
            position = end_tag.start()


def _end_of_comment(content: bytes, start: int) -> int:
    """Return the position of the end of a comment whose ``<!--`` ends at ``start``."""
    if content.startswith((b">", b"->"), start):  # ``<!-->`` and ``<!--->`` are complete comments
        return start
    end = content.find(b"-->", start)
    return len(content) if end < 0 else end


def _read_attributes(content: bytes, start: int, url: str) -> tuple[int, int]:
    """Return the number of a tag's attributes, and the position after them."""
    count = 0
    end = start
    while (attribute := _ATTRIBUTE.match(content, end)) is not None:
        count += 1
        end = attribute.end()
        if count > MAX_OF_A_TAG:
            raise _limit_error(url, f"{MAX_OF_A_TAG:,} attributes on one tag")
    return count, end


def _limit_error(url: str, what: str) -> ToolExecutionError:
    return ToolExecutionError(f"{url} has more than {what}, and is not read")
