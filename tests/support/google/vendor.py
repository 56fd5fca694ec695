"""The vendor's own client, pointed at the loopback server."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from typing import Any

from support.google.discovery import document
from support.google.fixtures import ALL, USER
from support.google.server import GoogleServer


class Vendor:
    """Makes services of the vendor's client, and closes them."""

    def __init__(self, google: GoogleServer) -> None:
        self._google = google
        self._made: list[Any] = []

    def __call__(self, name: str, scopes: Any = tuple(ALL), credentials: Any = None) -> Any:
        from googleapiclient.discovery import build_from_document

        url = self._google.url
        told = copy.deepcopy(document(name))
        # `api_endpoint` alone does not reach uploads and batches.
        told["rootUrl"] = f"{url}/"
        told["baseUrl"] = f"{url}/{told['servicePath']}"
        told.pop("mtlsRootUrl", None)
        service = build_from_document(
            json.dumps(told), credentials=credentials or self._credentials(scopes)
        )
        self._made.append(service)
        return service

    def _credentials(self, scopes: Any) -> Any:
        from google.oauth2.credentials import Credentials

        info = self._google.logins.authorized_user(self._google.url, USER, scopes)
        return Credentials(
            None,
            refresh_token=info["refresh_token"],
            client_id=info["client_id"],
            client_secret=info["client_secret"],
            token_uri=info["token_uri"],
        )

    def close(self) -> None:
        for service in self._made:
            http = service._http
            service.close()
            # what refreshes tokens is another client
            with contextlib.suppress(AttributeError):
                http.http.close()


@contextlib.contextmanager
def vendor_client(google: GoogleServer) -> Iterator[Vendor]:
    vendor = Vendor(google)
    try:
        yield vendor
    finally:
        vendor.close()
