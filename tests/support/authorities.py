"""The authority that tests trust over TLS: only one, as clients read all each time (20 ms)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import certifi
import pytest

_VARIABLES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")

OF_THE_MACHINE: Final = {name: os.environ.get(name, "") for name in _VARIABLES}
"""Environment of a program that speaks to a public server: to an index of packages."""


@pytest.fixture(scope="session", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test talks to a public server: neither it nor its programs need all authorities."""
    first, end, _ = Path(certifi.where()).read_text().partition("-----END CERTIFICATE-----\n")
    bundle = tmp_path_factory.mktemp("authorities") / "one.pem"
    bundle.write_text(first + end)
    with pytest.MonkeyPatch.context() as patch:
        for name in _VARIABLES:
            patch.delenv(name, raising=False)
        patch.setattr(certifi, "where", lambda: str(bundle))
        patch.setenv("SSL_CERT_FILE", str(bundle))
        yield
