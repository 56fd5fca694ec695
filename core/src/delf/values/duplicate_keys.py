"""JSON and Python literals in which a duplicate key is an error.

Readers take the last of two values. If a model wrote both, its intention is unknown.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from typing import Any


class DuplicateKeyError(ValueError):
    """An object has a key twice."""


def reject_duplicate_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object; an ``object_pairs_hook`` of the json module.

    Raises:
        DuplicateKeyError: When a key stands in it twice.
    """
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise DuplicateKeyError(f"{json.dumps(key, ensure_ascii=False)} is in it twice")
        made[key] = value
    return made


DECODER = json.JSONDecoder(strict=False, object_pairs_hook=reject_duplicate_keys)
"""A decoder for JSON of models, whose texts may hold line breaks."""


def read_literal(text: str) -> Any:
    """Read a literal of Python.

    Raises:
        DuplicateKeyError: When a key of a dict stands in it twice.
        ValueError: When it is no literal, as are the next two.
        TypeError: See above.
        SyntaxError: See above.
    """
    tree = ast.parse(text.strip(), mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            reject_duplicate_keys([(ast.unparse(k), None) for k in node.keys if k is not None])
    return ast.literal_eval(tree)
