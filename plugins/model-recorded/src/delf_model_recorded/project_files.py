"""The recordings that a project names as its models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from delf.trust.folders import UntrustedFolder, is_file, texts_in

PREFIX: Final = "recorded:"
_END_OF_NAME: Final = re.compile(r"""["',}\]]""")


def project_files(folder: UntrustedFolder) -> Iterator[Path]:
    """Yield the paths of a project's recordings, which replay the answers of models.

    The configuration names each recording as a model, such as ``recorded:PATH``.
    """
    for text in texts_in((folder.document, folder.variables)):
        for rest in text.split(PREFIX)[1:]:
            # The rest of the text may be the name. But if the text is a variable with a list, as
            # ``["recorded:a.jsonl", "gpt-4o"]``, the name ends at the quote. Try both.
            name_in_list = _END_OF_NAME.split(rest)[0]
            for name in dict.fromkeys((rest, name_in_list)):
                path = folder.resolve_path(name)
                if path is not None and is_file(path):
                    yield path
