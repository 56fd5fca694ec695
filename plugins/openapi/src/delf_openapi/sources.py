"""Reads a specification: a file, a URL or a mapping; JSON or YAML; within bounds."""

from __future__ import annotations

import gc
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote, urljoin, urlsplit

from delf.errors import (
    ConnectionConfigurationError,
    ConnectionFileNotFoundError,
    ConnectionUnavailableError,
)
from delf.machine.folders import expand_home
from delf.network.bodies import ACCEPTED, BodyTooLargeError, Inflater
from delf.network.proxies import transport
from delf.network.tls import default_context
from delf.network.urls import split_url
from delf_openapi.failures import SpecError
from delf_openapi.yaml_reader import parse_yaml

if TYPE_CHECKING:
    import httpx

_REQUEST_SECONDS: Final = 30.0
_TOTAL_SECONDS: Final = 300.0
_MAX_REDIRECTS: Final = 5


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed JSON or YAML document.

    Args:
        uri: The address, ``file:///…`` or ``https://…``; empty for a document given as a dict.
        tree: The content as plain data.
        digest: A digest of the content; empty if the content cannot be written as JSON.
    """

    uri: str
    tree: dict[str, Any]
    digest: str


def of_mapping(tree: Mapping[str, Any]) -> Source:
    """Make a document without an address from a mapping.

    The digest is empty if the mapping cannot be written as JSON.
    """
    try:
        # JSON has only text keys: numeric keys, such as statuses, cannot be sorted among text keys.
        tree_with_text_keys = json.loads(dumps(dict(tree)))
        text = json.dumps(tree_with_text_keys, sort_keys=True)
    except (ValueError, RecursionError):
        return Source(uri="", tree=dict(tree), digest="")
    return Source(uri="", tree=dict(tree), digest=digest_of(text.encode()))


def digest_of(data: bytes) -> str:
    """Return a digest of a document's bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def uri_of(spec: str) -> str:
    """Return a specification's URL, which is a ``file:`` URL for a path.

    Raises:
        ConnectionConfigurationError: If the URL has an invalid host or port.
        ConnectionFileNotFoundError: If the file does not exist.
    """
    parts = split_url(spec)
    if parts is None:
        raise ConnectionConfigurationError("spec is a URL with an invalid host or port")
    if parts.scheme in ("http", "https"):
        return spec
    path = expand_home(unquote(parts.path) if parts.scheme == "file" else spec)
    if not path.is_file():
        raise ConnectionFileNotFoundError(
            f"there is no specification {spec!r}",
            hint="spec is a URL or a path; in delf.toml a path starts at the file's folder",
        )
    return path.resolve().as_uri()


def path_of(uri: str) -> Path:
    """Return the path of a ``file:`` URL."""
    return Path(unquote(urlsplit(uri).path))


def read(uri: str, max_bytes: int) -> Source:
    """Read a JSON or YAML document.

    Args:
        uri: The address.
        max_bytes: The maximum number of bytes.

    Raises:
        SpecError: If the document is too large, not a mapping, or nested too deeply.
        ConnectionUnavailableError: If the document is unavailable.
    """
    data = _data(uri, max_bytes)
    return Source(uri, _parse(uri, data), digest_of(data))


def _data(uri: str, max_bytes: int) -> bytes:
    """Read the file or the web document at an address; raise if it is larger than ``max_bytes``."""
    if uri.startswith("file:"):
        path = path_of(uri)
        try:
            size = path.stat().st_size
            if size > max_bytes:
                raise _too_large(uri, size, max_bytes)
            return path.read_bytes()
        except OSError as error:
            raise ConnectionFileNotFoundError(
                f"the specification {path} cannot be read: {error.strerror or error}"
            ) from None
    return _fetch(uri, max_bytes)


def _too_large(uri: str, size: int | None, max_bytes: int) -> SpecError:
    measured = "" if size is None else f"{size:,} bytes, and "
    return SpecError(
        f"the specification {uri} is too large: {measured}at most {max_bytes:,} bytes are read",
        hint="set max_spec_bytes to read it anyway",
    )


def _fetch(uri: str, max_bytes: int) -> bytes:
    """Download a document; follow redirects within its origin."""
    import httpx

    try:
        headers = {"Accept-Encoding": ACCEPTED}
        http = transport(httpx, verify=default_context())
        with httpx.Client(transport=http, timeout=_REQUEST_SECONDS, headers=headers) as client:
            return _follow_redirects(client, uri, max_bytes)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise ConnectionUnavailableError(
            f"the specification {_safe_uri(uri)} is not available: {type(error).__name__}"
        ) from None


def _follow_redirects(client: httpx.Client, uri: str, max_bytes: int) -> bytes:
    """Request a document, and return the body of the first response that is no redirect."""
    url = uri
    for _ in range(_MAX_REDIRECTS + 1):
        with client.stream("GET", url) as response:
            if not response.has_redirect_location:
                return _read_body(response, uri, max_bytes)
            url = urljoin(url, response.headers["location"])
        if origin_of(url) != origin_of(uri):
            raise ConnectionUnavailableError(
                f"the specification {_safe_uri(uri)} was moved to another origin",
                hint="give its new address",
            )
    raise ConnectionUnavailableError(f"the specification {_safe_uri(uri)} redirects forever")


def _read_body(response: httpx.Response, uri: str, max_bytes: int) -> bytes:
    """Read the body of a response; raise if the body is too large or arrives too slowly."""
    if response.status_code != 200:
        raise ConnectionUnavailableError(
            f"the specification {_safe_uri(uri)} is not available: status {response.status_code}"
        )
    content = bytearray()
    deadline = time.monotonic() + _TOTAL_SECONDS
    try:
        inflater = Inflater(response.headers, max_bytes)
        for data in response.iter_raw():
            for piece in inflater.feed(data):
                content += piece
            if time.monotonic() > deadline:
                raise ConnectionUnavailableError(
                    f"the specification {_safe_uri(uri)} did not come within {_TOTAL_SECONDS:g} s"
                )
        inflater.finish()
    except BodyTooLargeError:
        raise _too_large(_safe_uri(uri), None, max_bytes) from None
    return bytes(content)


def _safe_uri(uri: str) -> str:
    """Remove the credentials and the query, which may contain secrets, from a URL."""
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def is_web_address(uri: str) -> bool:
    """Return True for an ``http`` or ``https`` URL."""
    return urlsplit(uri).scheme.lower() in ("http", "https")


def origin_of(uri: str) -> str:
    """Return the scheme, host and port of a URL, in lower case."""
    parts = urlsplit(uri)
    scheme = parts.scheme.lower()
    try:
        port = parts.port
    except ValueError:  # an invalid port
        port = None
    else:
        if port is None:
            port = {"http": 80, "https": 443}.get(scheme)
    return f"{scheme}://{(parts.hostname or '').lower()}:{port}"


def _parse(uri: str, data: bytes) -> dict[str, Any]:
    """Parse a document as JSON or, if it does not begin like JSON, as YAML."""
    data = data.removeprefix(b"\xef\xbb\xbf")  # the byte order mark
    was_gc_enabled = gc.isenabled()
    gc.disable()  # parsing makes no garbage, and collecting doubles its time
    try:
        tree = _parse_json(data) if data.lstrip()[:1] in (b"{", b"[") else parse_yaml(data)
    finally:
        if was_gc_enabled:
            gc.enable()
    if not isinstance(tree, dict):
        raise SpecError(
            f"the specification {_safe_uri(uri)} is a {type(tree).__name__}, not a mapping"
        )
    return cast("dict[str, Any]", tree)


def _parse_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except RecursionError:
        raise SpecError("the specification is nested too deeply") from None
    except ValueError as error:
        try:  # YAML's flow style begins like JSON
            return parse_yaml(data)
        except SpecError:
            raise SpecError(f"the specification is not valid JSON: {error}") from None


def dumps(value: Any) -> bytes:
    """Encode a value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode()
