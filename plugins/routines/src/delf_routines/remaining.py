"""Values of parameters that a routine's script still contains, which other runs do not replace."""

from __future__ import annotations

import ast
import re
from typing import Final

from delf_routines.routine import Parameter, Routine
from delf_routines.saving import whole_word

_LONGEST_LINE: Final = 120
# Texts of at most this length must match in case, too: ``AT`` must not match the word ``at``.
_SHORT: Final = 2
_MONTH_NAMES: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_MONTHS: Final = {f"{number:02}": name for number, name in enumerate(_MONTH_NAMES, 1)}


def remaining_values(routine: Routine) -> list[str]:
    """Describe each place of a script that still contains the default value of a parameter.

    A place with the default value does not change with the parameter, so that a run with another
    value may give a wrong answer.
    """
    tree = ast.parse(routine.script)
    ignored: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            ignored.update(ast.walk(node.format_spec))  # such as ``.2f`` in f"{price:.2f}"
        # A bare text is a comment, unless it is the last statement, whose value is the answer.
        elif isinstance(node, ast.Expr) and node is not tree.body[-1]:
            ignored.add(node.value)
    lines = re.split(r"\r\n?|\n", routine.script)
    warnings: list[str] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or node in ignored:
            continue
        for parameter in routine.parameters.values():
            if _contains(node.value, parameter):
                line = lines[node.lineno - 1].strip()
                warnings.append(
                    f"the script still contains the value {parameter.default!r} of "
                    f"{parameter.name}, which stays when {parameter.name} changes: "
                    f"{line[:_LONGEST_LINE]}"
                )
    return list(dict.fromkeys(warnings))


def _contains(literal: object, parameter: Parameter) -> bool:
    """Return True if a literal is, or contains as a word, the default value of a parameter."""
    default = parameter.default
    if not isinstance(literal, str):
        is_number = isinstance(literal, (int, float)) and not isinstance(literal, bool)
        return is_number and literal == default
    text = str(default)
    if parameter.type == "date" and _spells_out(text, literal):
        return True
    # A short text such as ``IN`` would also match a common word.
    flags = re.IGNORECASE if len(text) > _SHORT else re.NOFLAG
    return re.search(whole_word(text), literal, flags) is not None


def _spells_out(date: str, text: str) -> bool:
    """Return True if a text names the month of a date, as ``October`` for ``2026-10-31``."""
    month = _MONTHS.get(date[5:7])  # the "10" of "2026-10-31"
    return month is not None and re.search(whole_word(month), text) is not None
