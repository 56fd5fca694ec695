"""The publication date that a page states explicitly.

Dates are not guessed: names of images, versions and copyright notices look like dates, too, and a
list of articles has the dates of all of them.
"""

from __future__ import annotations

import copy
import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

from delf_web.document import lxml_html

_DATE_IN_URL: Final = re.compile(r"/((?:19|20)\d\d)/(\d\d?)/(\d\d?)/[^/]*[^\W\d_]")
# Matches the names of ``meta`` elements with the date of publication or creation.
_DATE_NAMES: Final = re.compile(
    r"publi(sh(ed)?|cation)[._ -]?(date|time|on)|pub-?date|^pdate$"
    r"|date[._ -]?(publi|creat|issued|posted)"
    r"|(^|[.:_-])(date|created|issued)$|date[._-]?time|(article|post|story|display)[._-]?date",
    re.IGNORECASE,
)
_OTHER_DATE_NAMES: Final = re.compile(
    r"modif|updat|revis|expir|valid|copyright|event|last", re.IGNORECASE
)
# The name of a ``meta`` element in which the service Parse.ly puts JSON about the page.
_PARSELY_META: Final = "parsely-page"
_DATE_KEYS: Final = ("datePublished", "dateCreated", "pub_date", "datePosted")
_DATE_IN_MALFORMED_JSON: Final = re.compile(r'"(?:datePublished|pub_date)"\s*:\s*"([^"]{6,40})"')
_NESTED_KEYS: Final = ("@graph", "mainEntity", "mainEntityOfPage")
# The maximum number of lists and objects around a JSON-LD object.
_MAX_NESTING: Final = 3
# Matches JSON-LD types of things other than pages, whose dates are not the page's date.
_OTHER_TYPES: Final = re.compile(
    "image|video|audio|comment|review|event|organization|person|list|website|rating", re.IGNORECASE
)
_IN_MAIN_CONTENT: Final = (
    "[not(ancestor::aside or ancestor::footer or ancestor::nav)]"
    '[not(ancestor::*[contains(@class, "comment") or contains(@id, "comment")])]'
)
_DATE_ELEMENTS: Final = (
    '//*[contains(@itemprop, "datePublished") or (self::time and @pubdate)'
    ' or ((self::abbr or self::time) and contains(@class, "publish"))'
    f' or (self::time and contains(@class, "entry-date"))]{_IN_MAIN_CONTENT}'
)
_TIME_ELEMENTS: Final = f"//time[@datetime]{_IN_MAIN_CONTENT}"
_WITH_SLASHES: Final = re.compile(r"\s*(\d\d?)/(\d\d?)/(\d{4})")
_MONTHS: Final = 12


def stated_date(tree: Any, url: str) -> str | None:
    """Return the publication date that a page states explicitly, or None.

    Args:
        tree: The parsed HTML of the page.
        url: The page's URL, in which a path such as ``/2026/01/31/title`` states a date.
    """
    declared_date = next(filter(None, _declared_dates(tree)), None)
    if declared_date is not None:
        return declared_date
    for xpath in (_DATE_ELEMENTS, _TIME_ELEMENTS):
        dates = {_date_of_element(element) for element in tree.xpath(xpath)} - {None}
        if len(dates) == 1:  # several dates are ambiguous
            return dates.pop()
    url_match = _DATE_IN_URL.search(urlsplit(url).path)
    if url_match is None:
        return None
    try:
        return dt.date(*map(int, url_match.groups())).isoformat()
    except ValueError:  # such as month 13
        return None


def _declared_dates(tree: Any) -> Iterator[str | None]:
    """Yield the publication dates in the ``meta`` elements and JSON-LD of a page.

    Yield None for a date that is invalid or ambiguous.
    """
    for element in tree.xpath("//meta[@content]"):
        name = str(element.get("property") or element.get("name") or element.get("itemprop") or "")
        if name == _PARSELY_META:
            yield from map(_parse_date, _dates_in_json(str(element.get("content"))))
        elif _DATE_NAMES.search(name) and not _OTHER_DATE_NAMES.search(name):
            yield _parse_date(str(element.get("content")))
    for element in tree.xpath('//script[contains(@type, "ld+json")]'):
        yield from map(_parse_date, _dates_in_json(str(element.text_content())))


def _dates_in_json(text: str) -> Iterator[str]:
    """Yield the publication dates in a page's JSON-LD, even if its JSON is malformed."""
    try:
        data = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        if (match := _DATE_IN_MALFORMED_JSON.search(text)) is not None:
            yield match[1]
        return
    nodes = list(_page_objects(data))
    for key in _DATE_KEYS:
        for node in nodes:
            if isinstance(value := node.get(key), str):
                yield value


def _page_objects(data: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON-LD objects that describe the page itself."""
    if isinstance(data, list) and depth < _MAX_NESTING:
        for item in cast("list[Any]", data):
            yield from _page_objects(item, depth + 1)
    elif isinstance(data, dict):
        node = cast("dict[str, Any]", data)
        type_name: Any = node.get("@type")
        kinds = cast("list[Any]", type_name if isinstance(type_name, list) else [type_name])
        is_about_other = kinds and all(_OTHER_TYPES.search(str(kind)) for kind in kinds)
        if is_about_other:  # such as a comment
            return
        yield node
        if depth < _MAX_NESTING:
            for key in _NESTED_KEYS:
                yield from _page_objects(node.get(key), depth + 1)


def _date_of_element(element: Any) -> str | None:
    """Return the date in an element's attributes or text; None if missing or ambiguous."""
    values = [element.get(name) for name in ("datetime", "content", "title")]
    date = next((_parse_date(str(value)) for value in values if value), None)
    if date is not None:
        return date
    if _is_ambiguous(str(element.text_content())):
        return None  # the search below would guess whether the day or the month comes first
    # The search reads the element as a page of its own, without the text that follows it.
    copied = copy.deepcopy(element)
    copied.tail = None
    return _find_date("body", copied)


def _parse_date(text: str) -> str | None:
    """Return a date in any format as ``YYYY-MM-DD``; None if it is invalid or ambiguous."""
    if not text.strip() or _is_ambiguous(text):
        return None
    match = _WITH_SLASHES.match(text)
    if match is not None:
        first, second, year = match.groups()
        if int(second) > _MONTHS:  # the second number is the day, as in ``01/31/2026``
            text = f"{year}-{first:0>2}-{second}"
    # htmldate parses dates only in elements of a page, so the text becomes a ``meta`` element.
    meta: Any = lxml_html().Element("meta")
    meta.set("property", "article:published_time")
    meta.set("content", "".join(c for c in text if c.isprintable()))
    return _find_date("head", meta)


def _is_ambiguous(text: str) -> bool:
    """Return True if a date such as ``03/04/2026`` may have the month or the day first."""
    match = _WITH_SLASHES.match(text)
    if match is None:
        return False
    first = int(match[1])
    second = int(match[2])
    can_both_be_month = first <= _MONTHS and second <= _MONTHS
    return can_both_be_month and first != second


def _find_date(parent_tag: Literal["head", "body"], element: Any) -> str | None:
    """Put an HTML element into an empty page, and return the date that htmldate finds in the page.

    Args:
        parent_tag: The part of the page into which the element is put.
        element: The element.
    """
    from htmldate import find_date

    page: Any = lxml_html().document_fromstring("<html><head></head><body></body></html>")
    page.find(parent_tag).append(element)
    date = find_date(page, extensive_search=False, original_date=True)
    return str(date) if date else None
