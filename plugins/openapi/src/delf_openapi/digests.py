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
    that refer to each other has one digest, which covers the group and all that it refers to.

    Args:
        document: The specification.
        has_base_url: Whether the settings override the servers of the specification.
    """

    def __init__(self, document: Document, *, has_base_url: bool) -> None:
        self._document = document
        self._has_base_url = has_base_url
        self._parts: dict[str, _Part] = {}
        # The digest of each target's group; None if a part of the group cannot be written.
        self._digests: dict[str, str | None] = {}
        # The state of Tarjan's algorithm: index and low-link of each target, and the stack of the
        # targets whose group is not complete.
        self._indexes: dict[str, int] = {}
        self._low_links: dict[str, int] = {}
        self._stack: list[str] = []

    def digest(self, endpoint: Endpoint) -> str | None:
        """Return a digest of an operation's request; None if it cannot be written as JSON.

        The responses do not count, because services often add fields to their results.
        """
        part = self._part_of(self._request_of(endpoint))
        for ref in part.refs:
            if ref not in self._digests:
                self._set_digests_from(ref)
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

    def _set_digests_from(self, first_ref: str) -> None:
        """Set the digests of a target of references, and of all targets that the target leads to.

        A group is a strongly connected component, which Tarjan's algorithm finds.
        """
        # A list and no recursion: a chain of references may be longer than the interpreter's stack.
        path = [(first_ref, self._visit(first_ref))]
        while path:
            ref, unvisited_targets = path[-1]
            target = next(unvisited_targets, None)
            if target is not None:
                path.append((target, self._visit(target)))
                continue
            path.pop()
            is_first_of_group = self._low_links[ref] == self._indexes[ref]
            if is_first_of_group:
                self._complete_group(ref)
            elif path:
                parent, _ = path[-1]
                self._low_links[parent] = min(self._low_links[parent], self._low_links[ref])

    def _visit(self, ref: str) -> Iterator[str]:
        """Yield the unvisited targets that a target refers to (a step of Tarjan's algorithm)."""
        self._indexes[ref] = self._low_links[ref] = len(self._indexes)
        self._stack.append(ref)
        self._parts[ref] = self._part_at(ref)
        for target in self._parts[ref].refs:
            if target not in self._indexes:
                yield target
            elif target not in self._digests:  # it is on the stack
                self._low_links[ref] = min(self._low_links[ref], self._indexes[target])

    def _complete_group(self, first_ref: str) -> None:
        """Take a group from the stack, down to its first target, and set the group's digest."""
        members: set[str] = set()
        while first_ref not in members:
            members.add(self._stack.pop())
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
            text = _json_of(node)
        except (TypeError, ValueError, RecursionError):
            return _Part(None, frozenset())
        quoted_refs = set(_REFERENCE.findall(text))
        refs = frozenset(self._absolute(json.loads(quoted)) for quoted in quoted_refs)
        return _Part(text, refs)

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
    """Return the fields of an operation or path item that describe requests."""
    return [holder.get(field) for field in _FIELDS]
