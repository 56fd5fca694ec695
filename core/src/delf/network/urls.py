"""Parsing of URLs that people, servers and documents give."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

# Matches the scheme of a URL, if any, and the login after the scheme.
_LOGIN: Final = re.compile(r"^([^/?#]*?://)?[^/?#]*@")
# The same for a URL with an invalid host or port: its password may contain "?" or "#".
_LOGIN_OF_INVALID_URL: Final = re.compile(r"^([^/]*?://)?[^/]*@")


def split_url(url: str) -> SplitResult | None:
    """Split a URL; None if its host or port is invalid, as in ``http://[::1`` or ``http://a:99999``.

    ``urllib`` raises for an invalid port only when the port is read, so this function reads it.
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


def without_login(url: str) -> str:
    """Return a URL without user name, password, query and fragment, to show it to people.

    For ``https://name:key@host/v1?version=2``, this is ``https://host/v1``.
    """
    # The login of a valid URL ends before "?": a request to ``https://host?@other`` goes to
    # ``host``, and people must see that host. The password of an invalid URL may contain "?".
    is_valid = split_url(url if "://" in url else f"//{url}") is not None
    login = _LOGIN if is_valid else _LOGIN_OF_INVALID_URL
    address = login.sub(r"\1", url)  # keeps the scheme, if any
    return re.split("[?#]", address, maxsplit=1)[0]


def join_url(base: str, url: str) -> str | None:
    """Join a base URL and a URL that may be relative; None if the host or port is invalid."""
    try:
        joined = urljoin(base, url)
    except ValueError:
        return None
    return None if split_url(joined) is None else joined
