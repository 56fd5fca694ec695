"""The static files of the page, looked up by name, so that a request cannot read other files.

The URLs of scripts and styles contain the version of all files, so that browsers cache them and a
later page load requests only the page.
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
from functools import cache
from importlib.resources import files
from typing import Final

from starlette.responses import Response

from delf.events import DECISION_WORDS, EXPIRY_REASONS, LIMIT_CODES
from delf.protocols.journal import filterable_fields
from delf.types import (
    EFFECT_WORDS,
    STATE_WORDS,
    WAITING_FOR_OTHERS_WORDS,
    TaskState,
    can_be_undone,
    effect_words,
)
from delf_serve.problems import ProblemError

_FOLDER: Final = "page"
_PAGES: Final = ("index.html", "docs.html")
_CACHE_FOREVER: Final = "public, max-age=31536000, immutable"


def page_file(name: str, if_none_match: str = "", version: str = "") -> Response:
    """Return a file of the web page; a 304 without content if the browser has the file.

    Args:
        name: The name of the file.
        if_none_match: The header ``If-None-Match`` of the request.
        version: The version in the URL, if any. Browsers may cache the response forever only if the
            URL has the version of this server.

    Raises:
        ProblemError: If the page has no such file.
    """
    file = _files().get(name)
    if file is None:
        raise ProblemError(404, "there is nothing at this address")
    kind, data, tag = file
    is_current = version == _version()
    headers = {"cache-control": _CACHE_FOREVER if is_current else "no-cache", "etag": tag}
    # A proxy that compresses a response marks its tag as weak, by the prefix W/.
    tags_of_browser = [text.strip().removeprefix("W/") for text in if_none_match.split(",")]
    if tag in tags_of_browser:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=kind, headers=headers)


@cache
def _files() -> dict[str, tuple[str, bytes, str]]:
    """Load the page's files, as a mapping from name to content type, content and entity tag.

    In the HTML pages, each link to a file gets the version of all files in its URL, so that
    browsers load changed files anew.
    """
    sources = _sources()
    for name in _PAGES:
        kind, data = sources[name]
        versioned_link = f'="{_FOLDER}/{_version()}/'
        sources[name] = kind, data.replace(f'="{_FOLDER}/'.encode(), versioned_link.encode())
    return {name: (kind, data, _tag(data)) for name, (kind, data) in sources.items()}


@cache
def _version() -> str:
    """Return a digest of all files of the web page, which identifies the version of the page."""
    data = json.dumps([(name, _tag(data)) for name, (_, data) in sorted(_sources().items())])
    return hashlib.sha256(data.encode()).hexdigest()[:16]


def _sources() -> dict[str, tuple[str, bytes]]:
    """Read and generate the page's files, as a mapping from name to content type and content."""
    sources: dict[str, tuple[str, bytes]] = {}
    for file in files("delf_serve").joinpath(_FOLDER).iterdir():
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        if file.name.endswith(".js"):
            # Browsers refuse modules of another type, and mimetypes reads the system's tables,
            # which may have another type.
            kind = "text/javascript"
        sources[file.name] = (kind, file.read_bytes())
    fields = f"export const FIELDS = {json.dumps(filterable_fields())};\n"
    generated = {
        "decisions.js": _decisions(),
        "effects.js": _effects(),
        "fields.js": fields,
        "states.js": _states(),
    }
    for name, module in generated.items():
        sources[name] = ("text/javascript", module.encode())
    return sources


def _tag(data: bytes) -> str:
    return f'"{hashlib.sha256(data).hexdigest()[:32]}"'


def _decisions() -> str:
    """Generate a JavaScript module with the labels of decisions, as the core defines them."""
    return (
        f"export const DECISIONS = {json.dumps(dict(DECISION_WORDS))};\n"
        f"export const EXPIRIES = {json.dumps(dict(EXPIRY_REASONS))};\n"
    )


def _effects() -> str:
    """Generate a JavaScript module with the labels of effects, as the core defines them."""
    labels = {name: [words.mark, words.text] for name, words in EFFECT_WORDS.items()}
    undoable = [name for name in EFFECT_WORDS if can_be_undone(name)]
    return (
        f"export const EFFECTS = {json.dumps(labels)};\n"
        f"export const UNKNOWN_EFFECT_MARK = {json.dumps(effect_words('').mark)};\n"
        f"export const UNDOABLE = {json.dumps(undoable)};\n"
    )


def _states() -> str:
    """Generate a JavaScript module with the labels of task states, as the core defines them."""
    labels = {state: [words.mark, words.text] for state, words in STATE_WORDS.items()}
    constants = {
        "STATE": {state.name: state for state in TaskState},
        "STATES": labels,
        "OTHERS_WAIT": [WAITING_FOR_OTHERS_WORDS.mark, WAITING_FOR_OTHERS_WORDS.text],
        "OVER": [state for state in TaskState if state.is_terminal],
        "AT_WORK": [state for state in TaskState if state.is_at_work],
        "LIMIT_CODES": sorted(LIMIT_CODES),
    }
    lines = [f"export const {name} = {json.dumps(value)};\n" for name, value in constants.items()]
    return "".join(lines)
