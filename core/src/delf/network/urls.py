"""Parsing of URLs that people, servers and documents give."""

from __future__ import annotations

from urllib.parse import SplitResult, urljoin, urlsplit


def split_url(url: str) -> SplitResult | None:
    """Split a URL; None if its host or port is invalid, as in ``http://[::1`` or ``http://a:99999``.

    ``urllib`` raises only when the port is read, which may be much later than here.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for an invalid port
    except ValueError:
        return None
    return parts


def split_http_url(url: str) -> SplitResult | None:
    """Split an ``http`` or ``https`` URL; None for any other text and for an invalid URL."""
    parts = split_url(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    return parts


def join_url(base: str, url: str) -> str | None:
    """Join a base URL and a URL that may be relative; None if the host or port is invalid."""
    try:
        joined = urljoin(base, url)
    except ValueError:
        return None
    return None if split_url(joined) is None else joined
