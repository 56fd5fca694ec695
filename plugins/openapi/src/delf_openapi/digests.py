"""Digests of operations as the specification has them, with all that they refer to.

The digests are of the specification's own text, and not of what delf makes of it: delf shortens
texts and leaves out details, and another version of delf may do so differently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from delf_openapi.document import Document
from delf_openapi.failures import SpecError
from delf_openapi.operations import Endpoint, locate_operation
from delf_schemas.effects import description_digest

# In JSON, a quote within a string has a backslash before it, so that only keys match.
_REFERENCE: Final = re.compile(r'"\$ref": ("(?:[^"\\]|\\.)*")')
_FIELDS: Final = ("summary", "description", "parameters", "requestBody")


class _Part(NamedTuple):
    """A part of the specification.

    Args:
        text: The part as JSON; None if it cannot be written.
        refs: The absolute references in the part.
    """

    text: str | None
    refs: frozenset[str]


class OperationDigests:
    """The digests of a specification's operations.

    References may form circles, as in a tree whose nodes refer to nodes. So each group of targets
    that refer to each other has one digest, which covers the group and all that it refers to. Each
    target is visited only once (Tarjan's algorithm).

    Args:
        document: The specification.
        has_base_url: Whether the settings override the servers of the specification.
    """

    def __init__(self, document: Document, *, has_base_url: bool) -> None:
        self._document = document
        self._has_base_url = has_base_url
        self._parts: dict[str, _Part] = {}
        # The digest of the group of each target; None if a part of it cannot be written.
        self._digests: dict[str, str | None] = {}
        # The number of each target in the order of visits.
        self._numbers: dict[str, int] = {}
        # The lowest number of an open target that each target leads to.
        self._lowest: dict[str, int] = {}
        # The targets whose group is not complete yet, in the order of visits.
        self._open: list[str] = []

    def digest(self, endpoint: Endpoint) -> str | None:
        """Return a digest of what decides the effect of an operation.

        That is all that describes its request. The responses are left out, because services often
        add fields to their results.

        Returns:
            The digest; None if the operation cannot be written as JSON.
        """
        part = self._part_of(self._request_of(endpoint))
        for ref in part.refs:
            if ref not in self._digests:
                self._digest_all_from(ref)
        return self._digest_of([part], part.refs)

    def _request_of(self, endpoint: Endpoint) -> list[Any]:
        """Return all that describes the request of an operation, as the specification has it."""
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

    def _digest_all_from(self, first_ref: str) -> None:
        """Set the digests of a target and of all targets that it leads to."""
        # A list and no recursion: a chain of references may be longer than the interpreter's stack.
        visits = [self._visit(first_ref)]
        path = [first_ref]
        while visits:
            next_ref = next(visits[-1], None)
            if next_ref is not None:
                visits.append(self._visit(next_ref))
                path.append(next_ref)
                continue
            visits.pop()
            ref = path.pop()
            if self._lowest[ref] == self._numbers[ref]:
                self._complete_group(ref)
            elif path:
                self._lowest[path[-1]] = min(self._lowest[path[-1]], self._lowest[ref])

    def _visit(self, ref: str) -> Iterator[str]:
        """Yield each target that a target refers to and that has not been visited yet."""
        self._numbers[ref] = self._lowest[ref] = len(self._numbers)
        self._open.append(ref)
        self._parts[ref] = self._part_at(ref)
        for target in self._parts[ref].refs:
            if target not in self._numbers:
                yield target
            elif target not in self._digests:  # it is open
                self._lowest[ref] = min(self._lowest[ref], self._numbers[target])

    def _complete_group(self, first_ref: str) -> None:
        """Set the digest of the open targets from the first one that was visited."""
        members: set[str] = set()
        while first_ref not in members:
            members.add(self._open.pop())
        parts = [self._parts[ref] for ref in sorted(members)]
        targets = frozenset[str]().union(*(part.refs for part in parts)) - members
        digest = self._digest_of([*sorted(members), *parts], targets)
        self._digests.update(dict.fromkeys(members, digest))

    def _digest_of(self, parts: list[str | _Part], targets: frozenset[str]) -> str | None:
        """Return a digest of parts and of the groups of targets that they refer to."""
        texts = [part if isinstance(part, str) else part.text for part in parts]
        digests = [self._digests[target] for target in sorted(targets)]
        if None in texts or None in digests:
            return None
        return description_digest([texts, sorted(targets), digests])

    def _part_at(self, ref: str) -> _Part:
        try:
            return self._part_of(self._document.at(ref))
        except SpecError:
            return _Part("a broken reference", frozenset())

    def _part_of(self, node: Any) -> _Part:
        try:
            try:
                text = json.dumps(node, sort_keys=True, default=str)
            except TypeError:  # YAML may mix texts and numbers as keys, which have no order
                text = json.dumps(node, default=str)
        except (TypeError, ValueError, RecursionError):
            return _Part(None, frozenset())
        refs: list[str] = json.loads(f"[{','.join(set(_REFERENCE.findall(text)))}]")
        return _Part(text, frozenset(map(self._absolute, refs)))

    def _absolute(self, ref: str) -> str:
        try:
            return self._document.absolute(ref)
        except ValueError:  # not a URL
            return ref


def _request_fields(holder: dict[str, Any]) -> list[Any]:
    """Return the fields of an operation or path item that describe requests."""
    return [holder.get(field) for field in _FIELDS]
