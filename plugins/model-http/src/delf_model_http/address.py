"""Addresses: a configured root plus the path of a protocol."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit, urlunsplit

_VERSION: Final = re.compile(r"/v\d+(?:(?:alpha|beta)\d*)?$")


def joined(root: str, path: str, *, version: str = "") -> str:
    """Return an address below a root; the root's own query stays.

    Args:
        root: As the user gave it.
        path: Below it, without a slash in front; it may end in a query.
        version: Of the protocol, where the root does not end in one.
    """
    parts = urlsplit(root)
    base = parts.path.rstrip("/")
    if version and not _VERSION.search(base):
        base = f"{base}/{version}"
    path, _, query = path.partition("?")
    queries = "&".join(each for each in (parts.query, query) if each)
    return urlunsplit(parts._replace(path=f"{base}/{path}", query=queries))
