"""Reads a specification: a file, a URL or a mapping; JSON or YAML; within bounds."""

from __future__ import annotations

import gc
import hashlib
import ipaddress
import json
import re
import socket
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote, urljoin, urlsplit

from delf.errors import ConnectionFileNotFoundError, ConnectionUnavailableError
from delf_openapi.failures import SpecError

if TYPE_CHECKING:
    import httpx

MAX_DEPTH: Final = 400
_MAX_NODES: Final = 30_000_000
_FETCH_TIMEOUT: Final = 30.0
_FETCH_SECONDS: Final = 300.0
_MAX_REDIRECTS: Final = 5
_ANCHOR = re.compile(rb"(?:^|[\s\[{,:-])&([^\s,\[\]{}]+)")
_ALIAS = re.compile(rb"(?:^|[\s\[{,:-])\*([^\s,\[\]{}]+)")


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
        """What tells one content from another."""
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
        ConnectionUnavailableError: When it cannot be had.
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


def _too_large(uri: str, size: int, limit: int) -> SpecError:
    return SpecError(
        f"the specification {uri} is too large: {size:,} bytes, and at most {limit:,} are read",
        hint="set max_spec_bytes to read it nevertheless",
    )


def _fetch(uri: str, limit: int) -> bytes:
    import httpx

    try:
        with httpx.Client(timeout=_FETCH_TIMEOUT) as client:
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
            f"the specification {_shown(uri)} cannot be had: {type(error).__name__}"
        ) from None
    raise ConnectionUnavailableError(f"the specification {_shown(uri)} redirects for ever")


def _body(response: httpx.Response, uri: str, limit: int) -> bytes:
    """What came, unless it is too much or takes too long."""
    if response.status_code != 200:
        raise ConnectionUnavailableError(
            f"the specification {_shown(uri)} cannot be had: status {response.status_code}"
        )
    parts: list[bytes] = []
    size = 0
    until = time.monotonic() + _FETCH_SECONDS
    for part in response.iter_bytes():
        size += len(part)
        if size > limit:
            raise _too_large(_shown(uri), size, limit)
        if time.monotonic() > until:
            raise ConnectionUnavailableError(
                f"the specification {_shown(uri)} did not come within {_FETCH_SECONDS:g} s"
            )
        parts.append(part)
    return b"".join(parts)


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
    """Whether a host is, or resolves to, an address that is not of the public internet."""
    try:
        found = {ipaddress.ip_address(host.strip("[]"))}
    except ValueError:
        try:
            found = {ipaddress.ip_address(i[4][0]) for i in socket.getaddrinfo(host, None)}
        except (OSError, ValueError):
            return False
    return any(not address.is_global for address in found)


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
        SpecError: When it is no JSON or YAML mapping, or nested too deeply.
    """
    if source.data is None:
        tree: Any = dict(source.tree or {})
    else:
        data = source.data.removeprefix(b"\xef\xbb\xbf")
        with without_gc():
            tree = _parse_json(data) if data.lstrip()[:1] in (b"{", b"[") else _parse_yaml(data)
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
            return _parse_yaml(data)
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


def _parse_yaml(data: bytes) -> Any:
    import yaml

    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SpecError(f"the specification is not UTF-8: {error.reason}") from None
    _check_nesting(text)
    # A tree of shared parts ("billion laughs") stays small only while they are shared, and
    # only PyYAML shares them.
    shared = not set(_ANCHOR.findall(data)).isdisjoint(_ALIAS.findall(data))
    tree = None if shared else _parse_yaml12(text)
    if tree is not None:
        return tree
    try:
        tree = yaml.load(text, Loader=_yaml_loader())  # noqa: S506 - made from the safe loader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not valid YAML"
        raise SpecError(f"the specification is neither JSON nor YAML: {problem}{place}") from None
    except (RecursionError, ValueError) as error:
        raise SpecError(f"the specification cannot be read as YAML: {error}") from None
    if shared and _expanded(tree, {}, 0) > _MAX_NODES:
        raise SpecError("the specification's YAML aliases expand to too many values")
    return tree


def _check_nesting(text: str) -> None:
    """Refuse what would exhaust the stack of a parser written in C."""
    depth = deepest = 0
    for match in re.finditer(r"[\[{]{2,}|[\]}]{2,}|[\[{\]}]", text):
        piece = match.group()
        depth = max(0, depth + (len(piece) if piece[0] in "[{" else -len(piece)))
        deepest = max(deepest, depth)
    dashes = max((len(m.group()) // 2 for m in re.finditer(r"(?:- ){100,}", text)), default=0)
    indent = max((len(m.group()) for m in re.finditer(r"(?m)^ {800,}", text)), default=0)
    # Braces in texts count, too, so what looks deep is measured before it is refused.
    if max(deepest, dashes, indent // 2) > 2 * MAX_DEPTH and _is_deep(text):
        raise SpecError("the specification is nested too deeply")


def _is_deep(text: str) -> bool:
    """Whether YAML is nested too deeply; its events come one by one, without a stack."""
    import yaml

    depth = 0
    try:
        for event in cast("Any", yaml).parse(text, Loader=_yaml_loader()):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > 2 * MAX_DEPTH:
                    return True
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except yaml.YAMLError:
        return True  # deep or not, it cannot be read
    return False


def _parse_yaml12(text: str) -> Any:
    """YAML by the quick parser where it is installed; None where it is not, or fails."""
    try:
        import yaml12
    except ImportError:
        return None
    try:
        return cast("Any", yaml12).parse_yaml(text)
    except Exception:
        return None  # PyYAML has the last word, and the better message


@cache
def _yaml_loader() -> Any:
    """The safe loader in C, reading as YAML 1.2 does: dates and ``on`` stay text."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader: Any = type("_Loader", (base,), {})
    resolvers: dict[Any, list[tuple[str, Any]]] = {}
    for first, pairs in base.yaml_implicit_resolvers.items():
        kept = [p for p in pairs if p[0] not in _YAML_1_1]
        resolvers[first] = kept
    loader.yaml_implicit_resolvers = resolvers
    boolean = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
    loader.add_implicit_resolver("tag:yaml.org,2002:bool", boolean, list("tTfF"))
    return loader


_YAML_1_1: Final = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool")


def _expanded(node: Any, known: dict[int, int], depth: int) -> int:
    """How many values a tree would have if nothing in it were shared.

    Raises:
        SpecError: When it is nested too deeply, or contains itself.
    """
    if not isinstance(node, (dict, list)):
        return 1
    if depth > MAX_DEPTH:
        raise SpecError("the specification is nested too deeply, or contains itself")
    found = known.get(id(cast("object", node)))
    if found is None:
        tree = cast("dict[str, Any] | list[Any]", node)
        parts = tree.values() if isinstance(tree, dict) else tree
        found = 1 + sum(_expanded(part, known, depth + 1) for part in parts)
        known[id(cast("object", node))] = found
    return found
