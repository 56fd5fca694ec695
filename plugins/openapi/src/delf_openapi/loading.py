"""Loading of specifications, up to compiled operations."""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from delf.errors import ConnectionConfigurationError
from delf.types import Permission
from delf_openapi.cache import Cache
from delf_openapi.compiler import Entry, compile_endpoints
from delf_openapi.document import Document, Read
from delf_openapi.failures import SpecError
from delf_openapi.opening import open_document
from delf_openapi.operations import Endpoint, find_operations
from delf_openapi.selection import choose, selectors_of
from delf_openapi.settings import OpenAPISettings
from delf_openapi.sources import Source, of_mapping, read, uri_of
from delf_schemas.shapes import FULL, Shapes

_MAX_LOGGED: Final = 20
_MIN_OPERATIONS: Final = 5

_log = logging.getLogger(__name__)


@dataclass
class API:
    """A loaded specification with the compiled entries of the chosen operations.

    Args:
        document: The specification.
        endpoints: All operations.
        entries: A mapping from action name to the entry of a chosen operation.
        warnings: A line for each operation that cannot be used, with the reason.
        left_out: The number of operations omitted because of the limit.
        version: The digest of the specification; None if unknown.
        common_headers: The place and name of each optional header that most operations have, such
            as the API's version. Stubs omit these headers, but scripts may pass them.
    """

    document: Document
    endpoints: list[Endpoint]
    entries: dict[str, Entry]
    warnings: list[str]
    left_out: int
    version: str | None
    common_headers: frozenset[tuple[str, str]] = frozenset()

    @functools.cached_property
    def full_shapes(self) -> Shapes:
        """The formatter that writes the specification's types without truncating them."""
        return Shapes(self.document, has_date_objects=self.document.converts_dates, extent=FULL)

    @property
    def info(self) -> Mapping[str, Any]:
        """The section ``info`` of the specification, about the whole API."""
        info = self.document.at("#").get("info")
        return cast("dict[str, Any]", info) if isinstance(info, dict) else {}


def load_api(
    name: str, settings: OpenAPISettings, tree: Mapping[str, Any] | None, allow: Permission
) -> API:
    """Load and compile a specification.

    Args:
        name: The connection's name, for messages.
        settings: The address of the specification, and limits.
        tree: The specification as a mapping; None to read it from the address.
        allow: The operations that become actions.

    Raises:
        ConnectionConfigurationError: If the specification is invalid.
        ConnectionUnavailableError: If the specification is unavailable.
    """
    if tree is None and not settings.spec:
        raise ConnectionConfigurationError(
            f"{name}: setting 'spec' is missing (or set DELF_{name.upper()}_SPEC)",
            hint="spec is the file or URL of an OpenAPI specification",
        )
    source, read_document = _source(settings, tree)
    converts_dates = settings.validate != "off"  # "off" neither validates nor converts responses
    document = open_document(source, settings.refs, read_document, converts_dates=converts_dates)
    warnings: list[str] = []
    endpoints = find_operations(document, warnings)
    chosen, left_out = _choose(name, endpoints, allow, settings)
    entries = compile_endpoints(document, chosen, warnings)
    # Enrichments are stored by the digest of the specification. A specification that cannot be
    # written as JSON has no digest.
    if settings.enrich and not source.digest:
        raise SpecError("the specification is nested too deeply, or contains itself")
    api = API(
        document,
        endpoints,
        entries,
        warnings,
        left_out,
        version=source.digest or None,
        common_headers=_common_headers(entries),
    )
    _report(name, api, allow)
    return api


def _common_headers(entries: Mapping[str, Entry]) -> frozenset[tuple[str, str]]:
    """Return the optional headers of most operations as (place, name); none for a small API."""
    if len(entries) < _MIN_OPERATIONS:
        return frozenset()
    counts: Counter[tuple[str, str]] = Counter()
    for entry in entries.values():
        for argument in entry.arguments:
            if argument.place == "header" and argument.default is not None:
                counts[argument.place, argument.name] += 1
    min_count = len(entries) // 2 + 1  # most operations have the header
    return frozenset(key for key, count in counts.items() if count >= min_count)


def _source(settings: OpenAPISettings, tree: Mapping[str, Any] | None) -> tuple[Source, Read]:
    """Return the specification, and a function that reads documents to which it refers."""
    max_bytes = settings.max_spec_bytes
    cache = Cache(settings.cache_dir) if settings.cache else None

    def read_document(uri: str) -> Source:
        if cache is None:
            return read(uri, max_bytes)
        return cache.document(uri, max_bytes)

    if tree is not None:
        return of_mapping(tree), read_document
    return read_document(uri_of(settings.spec or "")), read_document


def _choose(
    name: str, operations: list[Endpoint], allow: Permission, settings: OpenAPISettings
) -> tuple[list[Endpoint], int]:
    """Return the allowed operations, and how many operations the setting ``operations`` omits."""
    patterns = selectors_of(allow)
    if patterns is not None:
        return choose(operations, patterns, "allow", name), 0
    if allow is True:
        return operations, 0
    limit = settings.operations
    return operations[:limit], max(0, len(operations) - limit)


def _report(name: str, api: API, allow: Permission) -> None:
    for warning in api.warnings[:_MAX_LOGGED]:
        _log.warning("%s: %s", name, warning)
    if len(api.warnings) > _MAX_LOGGED:
        _log.warning("%s: and %d more", name, len(api.warnings) - _MAX_LOGGED)
    if api.left_out and allow is None:
        _log.warning(
            "%s: the first %d operations are used and %d left out; allow=… chooses others",
            name,
            len(api.entries),
            api.left_out,
        )
