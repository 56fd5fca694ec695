"""Reads a specification: a file, a URL or a mapping; JSON or YAML; within bounds."""

from __future__ import annotations

import gc
import hashlib
import ipaddress
import json
import socket
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote, urljoin, urlsplit

from delf.bodies import ACCEPTED, BodyTooLargeError, Inflater
from delf.errors import ConnectionFileNotFoundError, ConnectionUnavailableError
from delf.tls import trusted
from delf_openapi.failures import SpecError
from delf_openapi.yaml_reader import parse_yaml

if TYPE_CHECKING:
    import httpx

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_FETCH_TIMEOUT: Final = 30.0
_FETCH_SECONDS: Final = 300.0
_MAX_REDIRECTS: Final = 5


@dataclass(frozen=True, slots=True)
class Source:
    """A document as it was found.

    Args:
        uri: Its address: ``file:///…`` or ``https://…``; empty for a mapping.
        data: Its bytes, or None for a mapping.
        tree: The mapping, where it was given as one.
    """

    uri: str
    data: bytes | None = None
    tree: Mapping[str, Any] | None = None

    @property
    def digest(self) -> str:
        """Return a mark that tells one content from another."""
        data = self.data
        if data is None:
            # Statuses are numbers in some mappings, and those cannot be sorted among texts.
            try:
                text = dumps(dict(self.tree or {}))
            except (ValueError, RecursionError):
                raise SpecError(
                    "the specification is nested too deeply, or contains itself"
                ) from None
            data = json.dumps(loads(text), sort_keys=True).encode()
        return hashlib.blake2b(data, digest_size=16).hexdigest()


def uri_of(spec: str) -> str:
    """The address of a specification given as a URL or a path.

    Raises:
        ConnectionFileNotFoundError: When there is no such file.
    """
    scheme = urlsplit(spec).scheme.lower()
    if scheme in ("http", "https"):
        return spec
    path = Path(unquote(urlsplit(spec).path) if scheme == "file" else spec).expanduser()
    if not path.is_file():
        raise ConnectionFileNotFoundError(
            f"there is no specification {spec!r}",
            hint="spec is a path from the current folder, or a URL",
        )
    return path.resolve().as_uri()


def path_of(uri: str) -> Path:
    """The file behind a ``file:`` address."""
    return Path(unquote(urlsplit(uri).path))


def read(uri: str, limit: int) -> Source:
    """Read a document.

    Args:
        uri: Its address.
        limit: The most bytes.

    Raises:
        SpecError: When it is too large.
        ConnectionUnavailableError: When it is not available.
    """
    if uri.startswith("file:"):
        path = path_of(uri)
        try:
            size = path.stat().st_size
            if size > limit:
                raise _too_large(uri, size, limit)
            return Source(uri, path.read_bytes())
        except OSError as error:
            raise ConnectionFileNotFoundError(
                f"the specification {path} cannot be read: {error.strerror or error}"
            ) from None
    return Source(uri, _fetch(uri, limit))


def _too_large(uri: str, size: int | None, limit: int) -> SpecError:
    told = "" if size is None else f"{size:,} bytes, and "
    return SpecError(
        f"the specification {uri} is too large: {told}at most {limit:,} bytes are read",
        hint="set max_spec_bytes to read it anyway",
    )


def _fetch(uri: str, limit: int) -> bytes:
    import httpx

    try:
        headers = {"Accept-Encoding": ACCEPTED}
        with httpx.Client(verify=trusted(), timeout=_FETCH_TIMEOUT, headers=headers) as client:
            place = uri
            for _ in range(_MAX_REDIRECTS + 1):
                with client.stream("GET", place) as response:
                    if not response.has_redirect_location:
                        return _body(response, uri, limit)
                    place = urljoin(place, response.headers["location"])
                if origin_of(place) != origin_of(uri):
                    raise ConnectionUnavailableError(
                        f"the specification {_shown(uri)} was moved to another origin",
                        hint="give its new address",
                    )
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise ConnectionUnavailableError(
            f"the specification {_shown(uri)} is not available: {type(error).__name__}"
        ) from None
    raise ConnectionUnavailableError(f"the specification {_shown(uri)} redirects forever")


def _body(response: httpx.Response, uri: str, limit: int) -> bytes:
    """Read the body, unless it is too large or takes too long."""
    if response.status_code != 200:
        raise ConnectionUnavailableError(
            f"the specification {_shown(uri)} is not available: status {response.status_code}"
        )
    content = bytearray()
    until = time.monotonic() + _FETCH_SECONDS
    try:
        inflater = Inflater(response.headers, limit)
        for data in response.iter_raw():
            for piece in inflater.feed(data):
                content += piece
            if time.monotonic() > until:
                raise ConnectionUnavailableError(
                    f"the specification {_shown(uri)} did not come within {_FETCH_SECONDS:g} s"
                )
    except BodyTooLargeError:
        raise _too_large(_shown(uri), None, limit) from None
    return bytes(content)


def _shown(uri: str) -> str:
    """An address without what may be secret in it."""
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def origin_of(uri: str) -> str:
    """Scheme, host and port."""
    parts = urlsplit(uri)
    scheme = parts.scheme.lower()
    try:
        port = parts.port or {"http": 80, "https": 443}.get(scheme)
    except ValueError:
        port = None
    return f"{scheme}://{(parts.hostname or '').lower()}:{port}"


def is_private(host: str) -> bool:
    """Tell whether a host is, or resolves to, an address that is not of the public internet."""
    try:
        found = {ipaddress.ip_address(host.strip("[]"))}
    except ValueError:
        try:
            found = {ipaddress.ip_address(i[4][0]) for i in socket.getaddrinfo(host, None)}
        except (OSError, ValueError):
            return False
    return any(not _public(address) for address in found)


def _public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Tell whether an address is public, and leads to no private one through a gateway."""
    inner: ipaddress.IPv4Address | None = None
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return inner.is_global if inner is not None else address.is_global


@contextmanager
def without_gc() -> Generator[None]:
    """Millions of new containers, none of them garbage: collecting would only cost time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def parse(source: Source) -> dict[str, Any]:
    """A document as plain data.

    Raises:
        SpecError: When it is not a JSON or YAML mapping, or nested too deeply.
    """
    if source.data is None:
        tree: Any = dict(source.tree or {})
    else:
        data = source.data.removeprefix(b"\xef\xbb\xbf")
        with without_gc():
            tree = _parse_json(data) if data.lstrip()[:1] in (b"{", b"[") else parse_yaml(data)
    if not isinstance(tree, dict):
        raise SpecError(
            f"the specification {_shown(source.uri)} is a {type(tree).__name__}, not a mapping"
        )
    return cast("dict[str, Any]", tree)


def _parse_json(data: bytes) -> Any:
    try:
        return loads(data)
    except RecursionError:
        raise SpecError("the specification is nested too deeply") from None
    except ValueError as error:
        try:  # YAML's flow style begins like JSON
            return parse_yaml(data)
        except SpecError:
            raise SpecError(f"the specification is not valid JSON: {error}") from None


def loads(data: bytes) -> Any:
    """JSON by the quickest parser at hand."""
    fast = _orjson()
    return fast.loads(data) if fast is not None else json.loads(data)


def dumps(value: Any) -> bytes:
    """Compact JSON by the quickest writer at hand."""
    fast = _orjson()
    if fast is not None:
        try:
            return fast.dumps(value, option=fast.OPT_NON_STR_KEYS)
        except TypeError:  # integers of more than 64 bits
            pass
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode()


@cache
def _orjson() -> Any:
    try:
        import orjson
    except ImportError:
        return None
    return orjson
