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
from typing import Any, Final, cast
from urllib.parse import urlsplit

from delf_web.document import lxml_html

_IN_URL: Final = re.compile(r"/((?:19|20)\d\d)/(\d\d?)/(\d\d?)/[^/]*[^\W\d_]")
_NAMES: Final = re.compile(
    r"publi(sh(ed)?|cation)[._ -]?(date|time|on)|pub-?date|^pdate$"
    r"|date[._ -]?(publi|creat|issued|posted)"
    r"|(^|[.:_-])(date|created|issued)$|date[._-]?time|(article|post|story|display)[._-]?date",
    re.IGNORECASE,
)
"""Names of declarations that state when a page was published or written."""
_OTHER_NAMES: Final = re.compile(
    r"modif|updat|revis|expir|valid|copyright|event|last", re.IGNORECASE
)
_PARSELY: Final = "parsely-page"
_KEYS: Final = ("datePublished", "dateCreated", "pub_date", "datePosted")
_IN_BROKEN: Final = re.compile(r'"(?:datePublished|pub_date)"\s*:\s*"([^"]{6,40})"')
_PARTS: Final = ("@graph", "mainEntity", "mainEntityOfPage")
_NO_PAGES: Final = re.compile(
    "image|video|audio|comment|review|event|organization|person|list|website|rating", re.IGNORECASE
)
"""Types of structured data that describe other things than the page."""
_NOT_BESIDE: Final = (
    "[not(ancestor::aside or ancestor::footer or ancestor::nav)]"
    '[not(ancestor::*[contains(@class, "comment") or contains(@id, "comment")])]'
)
_MARKED: Final = (
    '//*[contains(@itemprop, "datePublished") or (self::time and @pubdate)'
    ' or ((self::abbr or self::time) and contains(@class, "publish"))'
    f' or (self::time and contains(@class, "entry-date"))]{_NOT_BESIDE}'
)
_TIMES: Final = f"//time[@datetime]{_NOT_BESIDE}"
_WITH_SLASHES: Final = re.compile(r"\s*(\d\d?)/(\d\d?)/(\d{4})")
_MONTHS: Final = 12


def stated_date(tree: Any, url: str) -> str | None:
    """Return the publication date that a page states, or None.

    Args:
        tree: The page.
        url: The address, which states a date as ``/2026/01/31/title``.
    """
    for date in filter(None, _declared_dates(tree)):
        return date
    for places in (_MARKED, _TIMES):
        dates = {_date_of_element(element) for element in tree.xpath(places)} - {None}
        if len(dates) == 1:  # several dates are ambiguous
            return dates.pop()
    in_url = _IN_URL.search(urlsplit(url).path)
    try:
        return dt.date(*map(int, in_url.groups())).isoformat() if in_url else None
    except ValueError:
        return None


def _declared_dates(tree: Any) -> Iterator[str | None]:
    """Yield the dates that a page declares for programs."""
    for element in tree.xpath("//meta[@content]"):
        name = next(
            (str(element.get(key)) for key in ("property", "name", "itemprop") if element.get(key)),
            "",
        )
        if name == _PARSELY:
            yield from map(_date, _dates_in_json(str(element.get("content"))))
        elif _NAMES.search(name) and not _OTHER_NAMES.search(name):
            yield _date(str(element.get("content")))
    for element in tree.xpath('//script[contains(@type, "ld+json")]'):
        yield from map(_date, _dates_in_json(str(element.text_content())))


def _dates_in_json(text: str) -> Iterator[str]:
    """Yield the dates of publication in data about a page, which is often broken."""
    try:
        data = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        if (match := _IN_BROKEN.search(text)) is not None:
            yield match[1]
        return
    nodes = list(_nodes(data))
    for key in _KEYS:
        for node in nodes:
            if isinstance(value := node.get(key), str):
                yield value


def _nodes(data: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the structured data about the page itself."""
    if isinstance(data, list) and depth < len(_PARTS):
        for item in cast("list[Any]", data):
            yield from _nodes(item, depth + 1)
    elif isinstance(data, dict):
        node = cast("dict[str, Any]", data)
        type_name: Any = node.get("@type")
        kinds = cast("list[Any]", type_name if isinstance(type_name, list) else [type_name])
        if kinds and all(_NO_PAGES.search(str(kind)) for kind in kinds):
            return
        yield node
        for part in _PARTS:
            if depth < len(_PARTS):
                yield from _nodes(node.get(part), depth + 1)


def _date_of_element(element: Any) -> str | None:
    """Return the date that an element of a page states."""
    written = [element.get(name) for name in ("datetime", "content", "title")]
    date = next((_date(str(text)) for text in written if text), None)
    if date is not None or _is_ambiguous(str(element.text_content())):
        return date
    copied = copy.deepcopy(element)
    copied.tail = None
    return _find(body=copied)


def _date(written: str) -> str | None:
    """Parse a date in any format; None for an ambiguous one."""
    if not written.strip() or _is_ambiguous(written):
        return None
    if (match := _WITH_SLASHES.match(written)) is not None and int(match[2]) > _MONTHS:
        written = f"{match[3]}-{match[1]:0>2}-{match[2]}"
    meta: Any = lxml_html().Element("meta")
    meta.set("property", "article:published_time")
    meta.set("content", "".join(c for c in written if c.isprintable()))
    return _find(head=meta)


def _is_ambiguous(written: str) -> bool:
    """Return True if day and month of a date may be swapped."""
    match = _WITH_SLASHES.match(written)
    return (
        match is not None and match[1] != match[2] and max(map(int, match.groups()[:2])) <= _MONTHS
    )


def _find(**parts: Any) -> str | None:
    from htmldate import find_date

    page: Any = lxml_html().document_fromstring("<html><head></head><body></body></html>")
    for place, element in parts.items():
        page.find(place).append(element)
    date = find_date(page, extensive_search=False, original_date=True)
    return str(date) if date else None
