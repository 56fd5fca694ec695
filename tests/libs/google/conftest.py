from collections.abc import Iterator

import pytest

from support.google import GoogleServer
from support.google.fixtures import connect, credentials, google
from support.google.vendor import Vendor, vendor_client

__all__ = ["connect", "credentials", "google"]


@pytest.fixture
def vendor(google: GoogleServer) -> Iterator[Vendor]:
    with vendor_client(google) as made:
        yield made
