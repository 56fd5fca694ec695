"""Addresses: a configured root plus the path of a protocol."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit, urlunsplit

_VERSION: Final = re.compile(r"/v\d+(?:(?:alpha|beta)\d*)?$")


def joined(root: str, path: str, *, version: str = "") -> str:
    """Join an API's root URL and a path; the root's query stays.

    Args:
        root: The root URL, configured or the provider's.
        path: The path without a leading slash, optionally with a query.
        version: The API's version, such as ``v1``, inserted if the root does not end in a version.
    """
    parts = urlsplit(root)
    base = parts.path.rstrip("/")
    if version and not _VERSION.search(base):
        base = f"{base}/{version}"
    path, _, query = path.partition("?")
    queries = "&".join(each for each in (parts.query, query) if each)
    return urlunsplit(parts._replace(path=f"{base}/{path}", query=queries))
