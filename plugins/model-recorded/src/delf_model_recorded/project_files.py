"""The recordings that a project names as its models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from delf.trust.folders import UntrustedFolder, is_file, texts_in

PREFIX: Final = "recorded:"


def project_files(folder: UntrustedFolder) -> Iterator[Path]:
    """Yield the paths of a project's recordings, which replay the answers of models.

    The configuration names each recording as a model, such as ``recorded:PATH``.
    """
    for text in texts_in(folder.document.get("agent")):
        if text.startswith(PREFIX):
            path = folder.resolve_path(text.removeprefix(PREFIX))
            if path is not None and is_file(path):
                yield path
