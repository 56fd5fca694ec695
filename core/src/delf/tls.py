"""Whom connections over TLS trust: read once, as that takes longer than most requests."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ssl

_VARIABLES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")


def trusted() -> ssl.SSLContext:
    """What httpx takes as ``verify`` by itself, shared by all clients of this process.

    It trusts certifi's authorities, or those that ``SSL_CERT_FILE`` or ``SSL_CERT_DIR`` name.
    Nobody may change it. Its caller has httpx.
    """
    return _trusted(*map(os.environ.get, _VARIABLES))


@lru_cache(4)
def _trusted(*_variables: str | None) -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context()
