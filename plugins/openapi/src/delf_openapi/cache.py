"""Compiled specifications on disk: entries at once, the specification itself piece by piece."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from delf_openapi.compiler import Argument, Compiled, Entry
from delf_openapi.document import Document, LoadedTrees
from delf_openapi.failures import SpecError
from delf_openapi.operations import Spot
from delf_openapi.sources import dumps, loads, path_of

FORMAT: Final = 1
"""Raised whenever an older manifest would be wrong."""

_FRESH_SECONDS: Final = 24 * 3600
_DEEP: Final = {"components": 3, "paths": 2, "definitions": 2, "webhooks": 2}

_log = logging.getLogger(__name__)


class StoredTrees:
    """The parts of a specification in a file, read one by one.

    Args:
        uri: The specification's address.
        path: The file.
    """

    def __init__(self, uri: str, path: Path) -> None:
        self.uri = uri
        self._path = path
        self._index: dict[str, list[int]] | None = None
        self._start = 0

    def find(self, uri: str, tokens: list[str]) -> tuple[Any, list[str]]:
        """The part that holds the pointer, and what is left of the pointer."""
        depth = _DEEP.get(tokens[0], 1) if tokens else 0
        if not tokens:
            return self._head(uri), []
        if len(tokens) < depth:
            raise SpecError(f"$ref to {'/'.join(tokens)} holds too much")
        return self._read(_key(uri, tokens[:depth])), tokens[depth:]

    def _head(self, uri: str) -> Any:
        """The whole document but for its large parts; a small document is stored whole."""
        return self._read(_key(uri, []))

    def _read(self, key: str) -> Any:
        with self._path.open("rb") as file:
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
    head: dict[str, Any] = {}
    for name, part in tree.items():
        depth = _DEEP.get(name, 1)
        if depth > 1 and isinstance(part, dict):
            for key, inner in cast("dict[str, Any]", part).items():
                if depth == 3 and isinstance(inner, dict):
                    for last, value in cast("dict[str, Any]", inner).items():
                        yield _key(uri, [name, key, str(last)]), value
                    if key == "securitySchemes":
                        head[name] = {key: inner}
                else:
                    yield _key(uri, [name, str(key)]), inner
        else:
            yield _key(uri, [str(name)]), part
            head[name] = part
    # External documents may be plain schemas: theirs is the whole.
    yield _key(uri, []), tree if uri else head


class Cache:
    """The compiled specifications in a folder.

    Args:
        folder: The folder; the user's cache folder when None.
    """

    def __init__(self, folder: str | None) -> None:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        self._folder = Path(folder or f"{base}/delf/openapi").expanduser()

    def load(self, uri: str, *, stale: bool = False) -> tuple[str, Document, Compiled] | None:
        """What is stored of a specification, if it is still as it was.

        Args:
            uri: Its address.
            stale: Take it although a day is over (for URLs).
        """
        try:
            note = loads((self._folder / f"{_digest(uri)}.note").read_bytes())
            if note["format"] != FORMAT or not (_unchanged(note["files"], stale=stale)):
                return None
            return self._open(note["key"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _open(self, key: str) -> tuple[str, Document, Compiled]:
        manifest = loads((self._folder / f"{key}.manifest").read_bytes())
        parts = self._folder / f"{key}.parts"
        parts.stat()
        document = Document(StoredTrees(manifest["uri"], parts), tuple(manifest["version"]))
        rows = manifest["entries"]
        entries = {row[0][0]: _entry(row) for row in rows}
        compiled = Compiled(
            entries,
            manifest["warnings"],
            [_spot(row) for row in manifest["spots"]],
            manifest["unseen"],
        )
        return key, document, compiled

    def store(self, uri: str, digest: str, document: Document, compiled: Compiled) -> str:
        """Write what was compiled. A folder that cannot be written costs a warning.

        Args:
            uri: The specification's address.
            digest: Of its content.
            document: The specification.
            compiled: All of its operations.
        """
        trees = cast("LoadedTrees", document.trees)
        key = _digest(f"{FORMAT} {uri} {digest}")
        manifest = {
            "uri": uri,
            "version": document.version,
            "entries": [_row(entry) for entry in compiled.entries.values()],
            "spots": [_spot_row(s) for s in compiled.spots if s.name not in compiled.entries],
            "warnings": compiled.warnings,
            "unseen": compiled.unseen,
        }
        files = {place or uri: _state(place or uri) for place in trees.documents}
        note = {"format": FORMAT, "key": key, "files": files}
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._write(f"{key}.parts", _packed(trees))
            self._write(f"{key}.manifest", dumps(manifest))
            self._write(f"{_digest(uri)}.note", dumps(note))
        except (OSError, ValueError, RecursionError) as error:
            _log.warning("the compiled specification cannot be kept: %s", error)
        return key

    def read(self, name: str) -> Any:
        """A further file of the cache, or None."""
        try:
            return loads((self._folder / name).read_bytes())
        except (OSError, ValueError):
            return None

    def write(self, name: str, value: Any) -> None:
        """Keep a further file."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._write(name, dumps(value))
        except OSError as error:
            _log.warning("%s cannot be kept: %s", name, error)

    def _write(self, name: str, data: bytes) -> None:
        """Whole or not at all, whoever else writes."""
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
            file.write(data)
        Path(file.name).replace(self._folder / name)


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


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _state(uri: str) -> list[float]:
    """What tells whether a document is still the same: time and size; for URLs when it was had."""
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


def _spot_row(spot: Spot) -> list[Any]:
    return [spot.name, spot.method, spot.path, spot.tokens, spot.operation_id, spot.tags]


def _row(entry: Entry) -> list[Any]:
    arguments = [[a.arg, a.name, a.place, a.type, a.default, a.doc] for a in entry.arguments]
    head = _spot_row(entry.spot)
    return [head, entry.effect, entry.summary, entry.returns, arguments, entry.undeclared]


def _spot(row: list[Any]) -> Spot:
    name, method, path, tokens, operation_id, tags = row
    return Spot(name, method, path, tuple(tokens), operation_id, tuple(tags))


def _entry(row: list[Any]) -> Entry:
    spot, effect, summary, returns, arguments, undeclared = row
    made = tuple(map(Argument._make, arguments))
    return Entry(_spot(spot), effect, summary, returns, made, undeclared)
