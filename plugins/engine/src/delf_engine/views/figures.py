"""Statistics of tasks as a spreadsheet table."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Final

from delf.protocols.search import Figures

_PLAIN: Final = re.compile(r"\w")
"""Characters that can start a name without being taken for a formula."""


def figures_csv(by: str, found: Sequence[Figures]) -> str:
    """Format figures as CSV with a header.

    A name that a spreadsheet could take for a formula is prefixed with ``'``.

    Args:
        by: The name of the first column.
        found: The figures.
    """
    names = [one.name for one in fields(Figures) if one.name != "group"]
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([by, *names])
    for one in found:
        group = one.group if not one.group or _PLAIN.match(one.group) else f"'{one.group}"
        writer.writerow([group, *(getattr(one, name) for name in names)])
    return out.getvalue()
