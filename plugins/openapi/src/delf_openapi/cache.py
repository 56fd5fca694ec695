"""Compiled specifications on disk: entries at once, the specification itself piece by piece."""

from __future__ import annotations

import hashlib
import json
import logging
import marshal
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from delf_openapi.compiler import Argument, Compiled, Entry
from delf_openapi.document import Document, LoadedTrees, Trees
from delf_openapi.failures import SpecError
from delf_openapi.operations import Spot
from delf_openapi.sources import dumps, loads, path_of

FORMAT: Final = 4
"""Raised whenever an older manifest would be wrong."""

_FRESH_SECONDS: Final = 24 * 3600
_KEPT_SECONDS: Final = 30 * 24 * 3600
_DEEP: Final = {"components": 3, "paths": 2, "definitions": 2, "webhooks": 2}
_HEAD: Final = ("openapi", "info", "servers", "security")
# The manifest is in the interpreter's own format, which is read three times as fast as JSON.
# A digest stands before it, so that nothing else than what was written is ever decoded.
_DIGEST: Final = 16

_log = logging.getLogger(__name__)

Stored = tuple[str, Document, Compiled]
"""The mark that tells contents apart, the specification, and its operations."""


class StoredTrees:
    """The parts of a specification in a file, read one by one.

    Args:
        uri: The specification's address.
        path: The file.
        head: What is asked of the specification as a whole.
        again: Reads the specification itself, where the file turns out to be damaged.
    """

    def __init__(
        self, uri: str, path: Path, head: dict[str, Any], again: Callable[[], Trees]
    ) -> None:
        self.uri = uri
        self._path = path
        self._head = head
        self._again = again
        self._instead: Trees | None = None
        self._index: dict[str, list[int]] | None = None
        self._start = 0

    def find(self, uri: str, tokens: list[str]) -> tuple[Any, list[str]]:
        """The part that holds the pointer, and what is left of the pointer."""
        if self._instead is not None:
            return self._instead.find(uri, tokens)
        if not tokens and not uri:
            return self._head, []
        depth = _DEEP.get(tokens[0], 1) if tokens else 0
        if len(tokens) < depth:
            raise SpecError(f"$ref to {'/'.join(tokens)} holds too much")
        try:
            return self._read(_key(uri, tokens[:depth])), tokens[depth:]
        except (OSError, ValueError, TypeError, AttributeError):
            _log.warning("the cache of %s is damaged; the specification is read again", self.uri)
            self._instead = self._again()
            return self._instead.find(uri, tokens)

    def _read(self, key: str) -> Any:
        with self._path.open("rb") as file:
            _check_owner(file)
            if self._index is None:
                size = int.from_bytes(file.read(8), "big")
                self._index = cast("dict[str, list[int]]", loads(file.read(size)))
                self._start = 8 + size
            place = self._index.get(key)
            if place is None:
                raise SpecError(f"$ref {key[:200]!r} leads nowhere")
            file.seek(self._start + place[0])
            return loads(file.read(place[1]))


def _key(uri: str, tokens: list[str]) -> str:
    return json.dumps([uri, *tokens])


def _pieces(uri: str, tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, part in tree.items():
        depth = _DEEP.get(name, 1)
        if depth > 1 and isinstance(part, dict):
            for key, inner in cast("dict[str, Any]", part).items():
                if depth == 3 and isinstance(inner, dict):
                    for last, value in cast("dict[str, Any]", inner).items():
                        yield _key(uri, [name, key, str(last)]), value
                else:
                    yield _key(uri, [name, str(key)]), inner
        else:
            yield _key(uri, [str(name)]), part
    if uri:  # other documents may be plain schemas: theirs is the whole
        yield _key(uri, []), tree


def _head_of(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document's parts about the whole; extensions may be as large as all the rest."""
    head = {k: tree[k] for k in _HEAD if k in tree}
    components: Any = tree.get("components")
    if isinstance(components, dict) and "securitySchemes" in components:
        head["components"] = {"securitySchemes": components["securitySchemes"]}
    return head


class Cache:
    """The compiled specifications in a folder.

    Args:
        folder: The folder; the user's cache folder when None.
    """

    def __init__(self, folder: str | None) -> None:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        self._folder = Path(folder or f"{base}/delf/openapi").expanduser()

    def load(
        self,
        uri: str,
        terms: Sequence[str],
        again: Callable[[], Document],
        *,
        stale: bool = False,
    ) -> Stored | None:
        """Load a stored specification, if it is whole and still as it was.

        Args:
            uri: Its address.
            terms: What else the result depends on.
            again: Reads the specification itself, where what is stored is damaged.
            stale: Take it although a day is over (for URLs).
        """
        note = self.read(_note_name(uri, terms))
        try:
            if note["format"] != FORMAT or not _unchanged(note["files"], stale=stale):
                return None
            document, compiled = self._open(note["key"], again)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, EOFError):
            return None
        return note["version"], document, compiled

    def _open(self, key: str, again: Callable[[], Document]) -> tuple[Document, Compiled]:
        data = self._bytes(f"{key}.manifest")
        if _mark(data[_DIGEST:]) != data[:_DIGEST]:
            raise ValueError
        manifest = marshal.loads(memoryview(data)[_DIGEST:])  # noqa: S302 - its digest is right
        parts = self._folder / f"{key}.parts"
        if parts.stat().st_size != manifest["size"]:
            raise ValueError
        trees = StoredTrees(manifest["uri"], parts, loads(manifest["head"]), lambda: again().trees)
        arguments = [Argument(*row) for row in manifest["arguments"]]
        entries = {row[0][0]: _entry(row, arguments) for row in manifest["entries"]}
        spots = [Spot(*row) for row in manifest["spots"]]
        compiled = Compiled(entries, list(manifest["warnings"]), spots, manifest["unseen"])
        return Document(trees, manifest["version"]), compiled

    def store(
        self,
        uri: str,
        terms: Sequence[str],
        version: str,
        document: Document,
        compiled: Compiled,
    ) -> None:
        """Write what was compiled. A folder that cannot be written costs a warning.

        Args:
            uri: The specification's address.
            terms: What else the result depends on.
            version: What tells its content from others.
            document: The specification.
            compiled: All of its operations.
        """
        trees = cast("LoadedTrees", document.trees)
        files = {place or uri: _state(place or uri) for place in trees.documents}
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            parts = _packed(trees)
            # By its content with all documents that it refers to, for the sake of programs which
            # still read what was there before one of those changed.
            terms_of_all = [FORMAT, sys.implementation.cache_tag, uri, version, sorted(terms)]
            key = _digest(f"{terms_of_all} {_mark(parts).hex()}")
            note = {"format": FORMAT, "key": key, "version": version, "files": files}
            manifest = marshal.dumps(_manifest(document, compiled, len(parts)))
            self._write(f"{key}.parts", parts)
            self._write(f"{key}.manifest", _mark(manifest) + manifest)
            self._write(_note_name(uri, terms), dumps(note))
            self._prune()
        except (OSError, ValueError, RecursionError) as error:
            _log.warning("the compiled specification cannot be kept: %s", error)

    def read(self, name: str) -> Any:
        """A further file of the cache, or None."""
        try:
            return loads(self._bytes(name))
        except (OSError, ValueError, RecursionError):
            return None

    def _bytes(self, name: str) -> bytes:
        with (self._folder / name).open("rb") as file:
            _check_owner(file)
            return file.read()

    def write(self, name: str, value: Any) -> None:
        """Keep a further file."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._write(name, dumps(value))
        except OSError as error:
            _log.warning("%s cannot be kept: %s", name, error)

    def _write(self, name: str, data: bytes) -> None:
        """Whole or not at all, whoever else writes."""
        with tempfile.NamedTemporaryFile(dir=self._folder, suffix=".new", delete=False) as file:
            try:
                file.write(data)
                file.close()
                Path(file.name).replace(self._folder / name)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise

    def _prune(self) -> None:
        """Take away what was compiled long ago; a program that still reads it reads on without."""
        before = time.time() - _KEPT_SECONDS
        for path in self._folder.iterdir():
            if path.suffix in (".parts", ".manifest", ".note", ".new"):
                with suppress(OSError):
                    if path.stat().st_mtime < before:
                        path.unlink()


def _manifest(document: Document, compiled: Compiled, size: int) -> dict[str, Any]:
    places: dict[Argument, int] = {}
    entries: list[Any] = []
    for entry in compiled.entries.values():
        # Many operations share an argument: each is written once.
        numbers = tuple([places.setdefault(a, len(places)) for a in entry.arguments])
        head = (tuple(entry.spot), entry.effect, entry.summary)
        entries.append((*head, entry.returns, numbers, entry.undeclared))
    return {
        "uri": document.trees.uri,
        "version": document.version,
        "head": dumps(_head_of(document.at("#"))),
        "arguments": [tuple(a) for a in places],
        "entries": entries,
        "spots": [tuple(s) for s in compiled.spots if s.name not in compiled.entries],
        "warnings": compiled.warnings,
        "unseen": compiled.unseen,
        "size": size,
    }


def _entry(row: tuple[Any, ...], arguments: list[Argument]) -> Entry:
    spot, effect, summary, returns, numbers, undeclared = row
    made = tuple([arguments[number] for number in cast("tuple[int, ...]", numbers)])
    return Entry(Spot(*spot), effect, summary, returns, made, undeclared)


def _packed(trees: LoadedTrees) -> bytes:
    index: dict[str, tuple[int, int]] = {}
    parts: list[bytes] = []
    place = 0
    for uri, tree in trees.documents.items():
        for key, value in _pieces(uri, tree):
            data = dumps(value)
            index[key] = (place, len(data))
            parts.append(data)
            place += len(data)
    head = dumps(index)
    return b"".join([len(head).to_bytes(8, "big"), head, *parts])


def _check_owner(file: BinaryIO) -> None:
    """Refuse a file that others may have written, even in a folder that all can write to.

    Raises:
        OSError: When it is not this user's own, or can be written by others.
    """
    if not hasattr(os, "geteuid"):  # Windows: the folder is the user's own
        return
    found = os.fstat(file.fileno())
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
        _log.warning("%s is not used: others may have written it", file.name)
        raise PermissionError(f"{file.name} may have been written by others")


def _note_name(uri: str, terms: Sequence[str]) -> str:
    return f"{_digest(json.dumps([uri, *sorted(terms)]))}.note"


def _mark(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST).digest()


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _state(uri: str) -> list[float]:
    """Return the time and size of a document, to notice changes; of a URL the time of loading."""
    if not uri.startswith("file:"):
        return [time.time()]
    found = path_of(uri).stat()
    return [found.st_mtime_ns, found.st_size]


def _unchanged(files: Mapping[str, list[float]], *, stale: bool) -> bool:
    for uri, state in files.items():
        if uri.startswith("file:"):
            if _state(uri) != state:
                return False
        elif not stale and time.time() - state[0] > _FRESH_SECONDS:
            return False
    return True
