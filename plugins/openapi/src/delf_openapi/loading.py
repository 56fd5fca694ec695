"""From a specification's address to compiled operations, with or without the cache."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from delf.errors import ConnectionConfigurationError, ConnectionUnavailableError
from delf.types import Permission
from delf_openapi.cache import Cache, Stored
from delf_openapi.compiler import Compiled, Entry, compile_spots
from delf_openapi.document import Document
from delf_openapi.failures import SpecError
from delf_openapi.opening import open_document
from delf_openapi.operations import Spot, find_operations
from delf_openapi.selection import as_words, choose
from delf_openapi.settings import OpenAPISettings
from delf_openapi.sources import Source, read, uri_of, without_gc

_LOGGED: Final = 20

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class API:
    """A specification that was loaded and compiled as far as it is needed.

    Args:
        document: The specification.
        spots: All of its operations.
        entries: The chosen ones, compiled.
        warnings: What was left out, and why.
        left_out: How many operations are not among the chosen only for their number.
        version: What tells its content from others; None where it cannot be written.
    """

    document: Document
    spots: list[Spot]
    entries: dict[str, Entry]
    warnings: list[str]
    left_out: int
    version: str | None
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def info(self) -> Mapping[str, Any]:
        """Return the specification's data about the API as a whole."""
        found = self.document.at("#").get("info")
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def load_api(
    name: str, settings: OpenAPISettings, tree: Mapping[str, Any] | None, allow: Permission
) -> API:
    """Load and compile.

    Args:
        name: The connection's name, for messages.
        settings: Where the specification is, and limits.
        tree: The specification, where it was given as a mapping.
        allow: Which operations are wanted.

    Raises:
        ConnectionConfigurationError: When the specification cannot be used.
        ConnectionUnavailableError: When it is not available.
    """
    if tree is None and not settings.spec:
        raise ConnectionConfigurationError(
            f"{name}: setting 'spec' is missing (or set DELF_{name.upper()}_SPEC)",
            hint="spec is the file or URL of an OpenAPI specification",
        )
    with without_gc():
        if settings.cache and tree is None:
            return _load_cached(name, settings, allow)
        source = Source("", tree=tree) if tree is not None else _read(settings)
        document = _open(source, settings)
        warnings: list[str] = []
        spots, unseen = find_operations(document, warnings)
        chosen, left_out = _choose(name, spots, allow, settings)
        entries = compile_spots(document, chosen, warnings)
    version = _version_of(source, settings)
    api = API(document, spots, entries, warnings, left_out + unseen, version)
    _report(name, api, allow)
    return api


def _version_of(source: Source, settings: OpenAPISettings) -> str | None:
    """Return the version of a specification; one that cannot be written may do without."""
    try:
        return source.digest
    except SpecError:
        if settings.enrich:
            raise
        return None


def _open(source: Source, settings: OpenAPISettings) -> Document:
    dates = settings.validate != "off"
    return open_document(
        source, settings.refs, settings.max_spec_bytes, settings.prefer, dates=dates
    )


def _read(settings: OpenAPISettings) -> Source:
    return read(uri_of(settings.spec or ""), settings.max_spec_bytes)


def _load_cached(name: str, settings: OpenAPISettings, allow: Permission) -> API:
    cache = Cache(settings.cache_dir)
    uri = uri_of(settings.spec or "")

    def again() -> Document:
        return _open(_read(settings), settings)

    # What else the result depends on.
    terms = (*settings.refs, f"prefer {list(settings.prefer)}", f"validate {settings.validate}")
    stored = cache.load(uri, terms, again)
    if stored is None:
        try:
            source = read(uri, settings.max_spec_bytes)
        except ConnectionUnavailableError:
            stored = cache.load(uri, terms, again, stale=True)
            if stored is None:
                raise
            _log.warning("%s: the specification is not available; what is kept of it is used", name)
        else:
            stored = _compile_all(source, settings)
            cache.store(uri, terms, *stored)
    version, document, compiled = stored
    document.prefer = settings.prefer
    document.dates = settings.validate != "off"
    spots = [entry.spot for entry in compiled.entries.values()]
    chosen, left_out = _choose(name, spots, allow, settings)
    entries = {spot.name: compiled.entries[spot.name] for spot in chosen}
    api = API(document, spots, entries, compiled.warnings, left_out + compiled.unseen, version)
    _report(name, api, allow)
    return api


def _compile_all(source: Source, settings: OpenAPISettings) -> Stored:
    document = _open(source, settings)
    warnings: list[str] = []
    spots, unseen = find_operations(document, warnings)
    compiled = Compiled(compile_spots(document, spots, warnings), warnings, spots, unseen)
    return source.digest, document, compiled


def _choose(
    name: str, spots: list[Spot], allow: Permission, settings: OpenAPISettings
) -> tuple[list[Spot], int]:
    words = as_words(allow)
    if words is not None:
        return choose(spots, words, "allow", name), 0
    if allow is True:
        return spots, 0
    most = settings.operations
    return spots[:most], max(0, len(spots) - most)


def _report(name: str, api: API, allow: Permission) -> None:
    for warning in api.warnings[:_LOGGED]:
        _log.warning("%s: %s", name, warning)
    if len(api.warnings) > _LOGGED:
        _log.warning("%s: and %d more", name, len(api.warnings) - _LOGGED)
    if api.left_out and allow is None:
        _log.warning(
            "%s: the first %d operations are used and %d left out; allow=… chooses others",
            name,
            len(api.entries),
            api.left_out,
        )
