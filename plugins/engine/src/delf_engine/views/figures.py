"""Statistics of tasks as a spreadsheet table."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Final

from delf.protocols.search import Figures

# A name that begins with a letter, a digit or ``_`` is safe: no spreadsheet takes it for a formula.
_SAFE_START: Final = re.compile(r"\w")


def figures_csv(by: str, figures: Sequence[Figures]) -> str:
    """Format figures as CSV with a header.

    A name that a spreadsheet could take for a formula is prefixed with ``'``.

    Args:
        by: The name of the first column.
        figures: The figures.
    """
    names = [field.name for field in fields(Figures) if field.name != "group"]
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([by, *names])
    for row in figures:
        group = row.group
        if group and not _SAFE_START.match(group):
            group = f"'{group}"
        values = [getattr(row, name) for name in names]
        writer.writerow([group, *values])
    return out.getvalue()
