"""Digests of operations, and of all parts of the specification to which an operation refers.

A digest covers the specification's own text, and not the shorter text in delf's list of actions,
which another version of delf may write differently.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from delf_openapi.document import Document
from delf_openapi.failures import SpecError
from delf_openapi.operations import Endpoint, locate_operation
from delf_schemas.effects import description_digest

# Matches only keys: JSON puts a backslash before a quote within a string.
_REFERENCE: Final = re.compile(r'"\$ref": ("(?:[^"\\]|\\.)*")')
_FIELDS: Final = ("summary", "description", "parameters", "requestBody")


class _Part(NamedTuple):
    """A part of the specification.

    Args:
        digest: The digest of the part as JSON; None if the part cannot be written as JSON.
        refs: The absolute references in the part.
    """

    digest: str | None
    refs: frozenset[str]


class OperationDigests:
    """The digests of a specification's operations.

    Args:
        document: The specification.
        has_base_url: Whether the settings override the servers of the specification.
    """

    def __init__(self, document: Document, *, has_base_url: bool) -> None:
        self._document = document
        self._has_base_url = has_base_url
        self._targets: dict[str, _Part] = {}  # by reference
        # An operation's references lead to schemas with further references. The digest of all
        # these targets is cached twice. First, by the references in the operation itself, which
        # are the same for many operations.
        self._digests_by_own_references: dict[frozenset[str], str | None] = {}
        # Then by all references that are reached, which are often the same for operations that
        # have different references of their own.
        self._digests_by_all_references: dict[frozenset[str], str | None] = {}

    def digest(self, endpoint: Endpoint) -> str | None:
        """Return a digest of an operation's request; None if the request cannot be written as JSON.

        The responses do not count, because services often add fields to their results.
        """
        part = self._part_of(self._request_of(endpoint))
        if part.refs not in self._digests_by_own_references:
            self._digests_by_own_references[part.refs] = self._digest_of_reachable(part.refs)
        digests = [part.digest, self._digests_by_own_references[part.refs]]
        return None if None in digests else description_digest(digests)

    def _request_of(self, endpoint: Endpoint) -> list[Any]:
        """Return the parts of the specification that describe an operation's request."""
        operation = locate_operation(self._document, endpoint)
        root: dict[str, Any] = self._document.at("#")
        servers = None
        if not self._has_base_url:
            servers = [holder.get("servers") for holder in (root, operation.item, operation.raw)]
        return [
            endpoint.method,
            endpoint.path,
            [_request_fields(operation.item), _request_fields(operation.raw)],
            operation.raw.get("security", root.get("security")),
            servers,
        ]

    def _digest_of_reachable(self, refs: frozenset[str]) -> str | None:
        """Return a digest of everything to which references lead, directly or by other references.

        None if a target cannot be written as JSON.
        """
        reachable: frozenset[str] = frozenset()
        while refs:
            self._targets |= {ref: self._part_at(ref) for ref in refs if ref not in self._targets}
            reachable |= refs
            refs_in_targets = {inner for ref in refs for inner in self._targets[ref].refs}
            refs = frozenset(refs_in_targets) - reachable
        if reachable not in self._digests_by_all_references:
            digests = {ref: self._targets[ref].digest for ref in reachable}
            digest = None if None in digests.values() else description_digest(digests)
            self._digests_by_all_references[reachable] = digest
        return self._digests_by_all_references[reachable]

    def _part_at(self, ref: str) -> _Part:
        try:
            return self._part_of(self._document.at(ref))
        except SpecError:
            return _Part("a broken reference", frozenset())

    def _part_of(self, node: Any) -> _Part:
        """Return the digest of a node, and the references in the node."""
        try:
            text = _json_of(node)
        except (TypeError, ValueError, RecursionError):
            return _Part(None, frozenset())
        quoted_refs = set(_REFERENCE.findall(text))
        refs = frozenset(self._absolute(json.loads(quoted)) for quoted in quoted_refs)
        return _Part(description_digest(text), refs)

    def _absolute(self, ref: str) -> str:
        try:
            return self._document.absolute(ref)
        except ValueError:  # not a URL
            return ref


def _json_of(node: Any) -> str:
    try:
        return json.dumps(node, sort_keys=True, default=str)
    except TypeError:  # YAML may mix texts and numbers as keys, which have no order
        return json.dumps(node, default=str)


def _request_fields(holder: dict[str, Any]) -> list[Any]:
    """Return those values in an operation or path item that describe requests."""
    return [holder.get(field) for field in _FIELDS]
