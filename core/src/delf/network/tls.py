"""The TLS context for HTTP clients, loaded once because loading takes longer than most requests."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


class CertificatesError(OSError):
    """``SSL_CERT_FILE`` or ``SSL_CERT_DIR`` names a path without certificates."""


def default_context() -> ssl.SSLContext:
    """Return httpx's default TLS context. All clients share it, so callers must not change it.

    Raises:
        CertificatesError: If ``SSL_CERT_FILE`` or ``SSL_CERT_DIR`` names a path without
            certificates.
    """
    return _context_for(*map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")))


# Cached, because loading the certificates takes 20 ms. The variables are the key of the cache: a
# process may change them, as tests do.
@lru_cache(4)
def _context_for(*_cache_key: str | None) -> ssl.SSLContext:
    """Return a context with the certificates that environment variables name.

    Args:
        _cache_key: The values of these variables, so that the cache returns another context if a
            variable changes.
    """
    import httpx

    try:
        return httpx.create_ssl_context()
    except OSError as error:
        name = "SSL_CERT_FILE" if os.environ.get("SSL_CERT_FILE") else "SSL_CERT_DIR"
        path = os.environ.get(name)
        if not path:
            raise
        cause = error.strerror or str(error)
        raise CertificatesError(f"{name} ({path}) is not a file of certificates: {cause}") from None
