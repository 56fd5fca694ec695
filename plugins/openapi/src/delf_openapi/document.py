"""A specification whose references are followed lazily and never inlined."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from delf.machine.folders import expand_home
from delf.network.addresses import is_private
from delf.values.numbers import parse_count
from delf_openapi.failures import SpecError
from delf_openapi.sources import Source, is_web_address, origin_of, path_of

Read = Callable[[str], Source]
"""Reads and parses the document at an address."""

_MAX_CHAINED_REFS: Final = 50
_MAX_DOCUMENTS: Final = 3000
_MAX_ADDRESS_CHARS: Final = 4096  # also the longest path on Linux
# Annotations of a reference; any other key beside ``$ref`` is part of a schema.
_ANNOTATIONS: Final = frozenset(
    {"description", "summary", "title", "deprecated", "example", "examples", "default"}
    | {"nullable", "readOnly", "writeOnly", "externalDocs", "xml", "$comment"}
)


MAIN: Final = ""
"""The key of the main document in :attr:`Trees.documents`."""


class Trees:
    """The parsed documents of a specification; referenced documents are loaded lazily.

    Args:
        uri: The address of the specification's main document.
        tree: The content of the main document.
        allowed_roots: The folders and origins that references may lead to, in addition to the
            folder or origin of the main document.
        read: Reads a document.
    """

    def __init__(
        self, uri: str, tree: dict[str, Any], allowed_roots: Iterable[str], read: Read
    ) -> None:
        self.uri = uri
        # The documents read so far, by address.
        self.documents: dict[str, dict[str, Any]] = {MAIN: tree}
        self._allowed_roots = tuple(allowed_roots)
        self._read = read
        # The documents that could not be loaded: the error's reason and hint, by address.
        self._failures: dict[str, tuple[str, str | None]] = {}

    @property
    def are_from_web(self) -> bool:
        """True if the main document, or a document that it refers to, is from a URL."""
        return any(map(is_web_address, [self.uri, *self.documents]))

    def document(self, uri: str) -> dict[str, Any]:
        """Return the parsed document at an address; load it on the first call.

        Raises:
            SpecError: If the document is unreadable or not allowed.
        """
        if uri not in self.documents:
            self._load(uri)
        return self.documents[uri]

    def _load(self, uri: str) -> None:
        """Load a document. If loading fails, later calls raise the same error."""
        # Do not try a failed document again: each of hundreds of references could wait for a
        # timeout.
        if uri in self._failures:
            reason, hint = self._failures[uri]
            raise SpecError(reason, hint=hint)
        if len(self.documents) >= _MAX_DOCUMENTS:
            raise SpecError(f"the specification refers to over {_MAX_DOCUMENTS} documents")
        try:
            self._check_allowed(uri)
            tree = self._read(uri).tree
            _make_absolute(tree, uri, self.uri)
        except SpecError as error:
            self._failures[uri] = error.reason, error.hint
            raise
        except Exception as error:
            reason = f"$ref to {uri}: {getattr(error, 'message', error)}"
            self._failures[uri] = reason, None
            raise SpecError(reason) from None
        self.documents[uri] = tree

    def _check_allowed(self, uri: str) -> None:
        """Check that references may lead to the document at ``uri``.

        Raises:
            SpecError: If the document is not in the folder or origin of the main document, or in
                one of ``_allowed_roots``.
        """
        if not self.uri:
            raise SpecError(f"$ref to {uri}: the specification itself has no address")
        if len(uri) > _MAX_ADDRESS_CHARS:  # pathlib takes minutes for some long paths
            raise SpecError(f"$ref to {uri[:200]}… is longer than {_MAX_ADDRESS_CHARS} characters")
        is_local_file = uri.startswith("file:") and urlsplit(uri).netloc in ("", "localhost")
        is_from_web = uri.startswith(("http://", "https://"))
        if is_local_file and self._allows_file(path_of(uri).resolve()):
            return
        if is_from_web and self._allows_origin(origin_of(uri)):
            return
        if is_from_web and is_private(urlsplit(uri).hostname or ""):
            raise SpecError(f"$ref to {uri} leads to a private address")
        raise SpecError(
            f"$ref to {uri} leaves the folder or origin of the specification",
            hint="allow it with refs=[…], if you trust it",
        )

    def _allows_file(self, path: Path) -> bool:
        folders: list[Path] = []
        if self.uri.startswith("file:"):
            folders.append(path_of(self.uri).resolve().parent)
        for root in self._allowed_roots:
            if root.startswith("file:"):
                folders.append(path_of(root))
            elif "://" not in root:  # a path
                folders.append(Path(root))
        return any(path.is_relative_to(expand_home(folder).resolve()) for folder in folders)

    def _allows_origin(self, origin: str) -> bool:
        allowed_urls = [root for root in self._allowed_roots if "://" in root]  # no plain paths
        return origin in {origin_of(url) for url in (*allowed_urls, self.uri)}


def _make_absolute(tree: Any, base: str, main_uri: str) -> None:
    """Make the references in a referenced document absolute, in place.

    Args:
        tree: The content of the referenced document.
        base: The address of the referenced document.
        main_uri: The address of the main document; references to this document become ``#/…``.
    """
    # Use a list, not recursion: a hostile document may nest deeper than the interpreter's stack.
    pending: list[Any] = [tree]
    visited: set[int] = set()  # YAML's aliases share nodes
    while pending:
        node = pending.pop()
        if id(node) in visited:
            continue
        if isinstance(node, dict):
            visited.add(id(cast("object", node)))
            mapping = cast("dict[str, Any]", node)
            ref = mapping.get("$ref")
            if isinstance(ref, str):
                address, fragment = urldefrag(urljoin(base, ref))
                mapping["$ref"] = f"{'' if address == main_uri else address}#{fragment}"
            pending.extend(mapping.values())
        elif isinstance(node, list):
            visited.add(id(cast("object", node)))
            pending.extend(cast("list[Any]", node))


class Document:
    """A specification, with functions to resolve its references.

    Args:
        trees: The parsed documents by address.
        version: The OpenAPI version, such as ``(3, 1)``.
        converts_dates: Whether dates in responses become date objects.
    """

    def __init__(
        self,
        trees: Trees,
        version: tuple[int, int],
        *,
        converts_dates: bool = False,
    ) -> None:
        self.trees = trees
        self.version = version
        self.converts_dates = converts_dates
        self._targets: dict[str, Any] = {}

    def at(self, ref: str) -> Any:
        """Return the target of a reference, which may be another reference.

        Raises:
            SpecError: If the target is missing or not allowed.
        """
        node = self._targets.get(ref)
        if node is None:
            try:
                node = self._load_target(ref)
            except ValueError:  # not a URL
                raise SpecError(f"$ref {ref[:200]!r} is not an address") from None
            self._targets[ref] = node
        return node

    def absolute(self, ref: str) -> str:
        """Return a reference in absolute form: ``#/…`` or ``URI#/…``."""
        if ref.startswith("#"):
            return ref
        address, fragment = urldefrag(ref)
        main_uri = self.trees.uri
        if not urlsplit(address).scheme:
            address = urljoin(main_uri, address)
        return f"{'' if address == main_uri else address}#{fragment}"

    def _load_target(self, ref: str) -> Any:
        """Return the node that a reference points to, loading its document if necessary.

        Raises:
            SpecError: If the reference is broken.
        """
        address, _, fragment = self.absolute(ref).partition("#")
        if address and not urlsplit(address).scheme:
            raise SpecError(f"$ref to {ref!r}: the specification itself has no address")
        if fragment and not fragment.startswith("/"):
            raise SpecError(f"$ref {ref!r} is not a JSON pointer")
        # Replace ~1 first: in the other order, ~01 would become a slash.
        tokens = [t.replace("~1", "/").replace("~0", "~") for t in unquote(fragment).split("/")[1:]]
        node: Any = self.trees.document(address)
        for token in tokens:
            node = _step(node, token)
            if node is None:
                raise SpecError(f"$ref {ref[:200]!r} leads nowhere")
        return node

    def resolve(self, node: Any) -> dict[str, Any]:
        """Return the mapping that a node's references lead to, without ``$ref``.

        Annotations next to a reference, such as a description, override those of the target. Schema
        keywords next to a reference are combined with the target (3.1) or ignored (3.0).

        Raises:
            SpecError: If a reference is broken, circular, or does not lead to a mapping.
        """
        if isinstance(node, dict):
            mapping = cast("dict[str, Any]", node)
            # A schema may have a property of the name ``$ref``; its value is then a mapping.
            if not isinstance(mapping.get("$ref"), str):
                return mapping
            return self._follow(mapping)
        if node is True:
            return {}
        if node is False:
            return {"not": {}}
        raise SpecError(f"a {type(node).__name__} stands where a mapping must be")

    def resolve_or_empty(self, node: Any) -> dict[str, Any]:
        """Resolve a node like :meth:`resolve`; return an empty mapping if that is impossible."""
        try:
            return self.resolve(node)
        except SpecError:
            return {}

    def resolve_reference(self, node: Any) -> dict[str, Any]:
        """Resolve a parameter, body or response like :meth:`resolve` resolves a schema.

        Fields next to a reference are ignored in every version, except annotations. A boolean is an
        error, because only schemas can be True or False.
        """
        if isinstance(node, bool):
            raise SpecError("a bool stands where a mapping must be")
        if isinstance(node, dict):
            mapping = cast("dict[str, Any]", node)
            if isinstance(mapping.get("$ref"), str) and len(mapping) > 1:
                kept = {k: v for k, v in mapping.items() if k == "$ref" or k in _ANNOTATIONS}
                return self.resolve(kept)
        return self.resolve(node)

    def is_read_only(self, schema: Any) -> bool:
        """Return whether a schema is marked as read-only."""
        try:
            return isinstance(schema, dict) and self.resolve(schema).get("readOnly") is True
        except SpecError:
            return False

    def path_item(self, node: Any) -> dict[str, Any]:
        """Resolve a path item that may be a reference.

        Fields next to the reference override those of the target, except ``parameters``, which are
        added to those of the target.
        """
        item = self.resolve_reference(node)
        if not isinstance(node, dict) or item is node:  # no reference
            return item
        siblings = {k: v for k, v in cast("dict[str, Any]", node).items() if k != "$ref"}
        target_parameters = item.get("parameters")
        parameters = siblings.get("parameters")
        if isinstance(target_parameters, list) and isinstance(parameters, list):
            siblings["parameters"] = [
                *cast("list[Any]", target_parameters),
                *cast("list[Any]", parameters),
            ]
        return {**item, **siblings} if siblings else item

    def _follow(self, node: dict[str, Any]) -> dict[str, Any]:
        """Follow a chain of ``$ref``, and add the keywords beside each ``$ref`` to the target.

        An annotation beside a ``$ref`` replaces the same annotation of the target. Other keywords
        beside a ``$ref`` count only from OpenAPI 3.1 on: the result is then an ``allOf`` of the
        target and these keywords.
        """
        links, target = self._chain_from(node)
        annotations: dict[str, Any] = {}
        siblings: list[dict[str, Any]] = []
        for link in links:
            if len(link) == 1:
                continue  # nothing beside the $ref
            own_annotations = {k: v for k, v in link.items() if k in _ANNOTATIONS}
            annotations = own_annotations | annotations  # the annotation of an earlier link wins
            keywords = {
                k: v
                for k, v in link.items()
                if k != "$ref" and k not in _ANNOTATIONS and not k.startswith("x-")
            }
            if keywords and self.version >= (3, 1):
                siblings.append(keywords)
        if siblings:
            return {**annotations, "allOf": [target, *siblings]}
        return {**target, **annotations} if annotations else target

    def _chain_from(self, node: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Follow a chain of ``$ref``; return the mappings on the way, and the chain's target."""
        links: list[dict[str, Any]] = []
        refs: list[str] = []  # the ``$ref`` of each link
        current: Any = node
        while isinstance(current, dict):
            mapping = cast("dict[str, Any]", current)
            ref = mapping.get("$ref")
            if not isinstance(ref, str):
                break
            if ref in refs:
                raise SpecError(f"$ref {ref[:200]!r} leads back to itself")
            if len(refs) > _MAX_CHAINED_REFS:
                raise SpecError(
                    f"$ref {refs[0][:200]!r} leads to a chain of more than "
                    f"{_MAX_CHAINED_REFS} others"
                )
            refs.append(ref)
            links.append(mapping)
            current = self.at(ref)
        if isinstance(current, bool):  # a schema for all or no values
            current = self.resolve(current)  # True becomes {}, to which keywords can be added
        if not isinstance(current, dict):
            raise SpecError(f"$ref {refs[-1][:200]!r} leads to a {type(current).__name__}")
        return links, cast("dict[str, Any]", current)


def _step(node: Any, token: str) -> Any:
    """Return the value to which one step of a JSON pointer leads; None if there is none."""
    number = parse_count(token)
    if isinstance(node, dict):
        mapping = cast("dict[Any, Any]", node)
        if token in mapping:
            return mapping[token]
        # YAML reads an unquoted key, such as the status 200, as a number.
        return None if number is None else mapping.get(number)
    if isinstance(node, list) and number is not None:
        items = cast("list[Any]", node)
        return items[number] if number < len(items) else None
    return None
