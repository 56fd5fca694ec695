"""Whom connections over TLS trust: read once, as that takes longer than most requests."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


def trusted() -> ssl.SSLContext:
    """What httpx takes as ``verify`` by itself, shared by all its clients; nobody may change it."""
    return _trusted(*map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")))


@lru_cache(4)
def _trusted(*_variables: str | None) -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context()
