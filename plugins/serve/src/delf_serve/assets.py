"""The files of the page: a request chooses among them, and names no path."""

from __future__ import annotations

import mimetypes
from functools import cache
from importlib.resources import files
from typing import Final

from starlette.responses import Response

from delf_serve.problems import ProblemError

_FOLDER: Final = "page"


def page_file(name: str) -> Response:
    """A file of the page as an answer.

    Raises:
        ProblemError: When the page has none of this name.
    """
    found = _files().get(name)
    if found is None:
        raise ProblemError(404, "there is nothing at this address")
    kind, data = found
    return Response(data, media_type=kind, headers={"cache-control": "no-cache"})


@cache
def _files() -> dict[str, tuple[str, bytes]]:
    """The files by their names, with their types."""
    found: dict[str, tuple[str, bytes]] = {}
    for file in files("delf_serve").joinpath(_FOLDER).iterdir():
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        kind = "text/javascript" if file.name.endswith(".js") else kind
        found[file.name] = (kind, file.read_bytes())
    return found
