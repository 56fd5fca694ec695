"""JSON and Python literals in which a duplicate key is an error.

Standard parsers keep the last value. If a model wrote two values, its intention is unknown.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from typing import Any


class DuplicateKeyError(ValueError):
    """A JSON object or dict literal has a key twice."""


def reject_duplicate_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Build a dict from key-value pairs; an ``object_pairs_hook`` for the json module.

    Raises:
        DuplicateKeyError: If a key occurs twice.
    """
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise DuplicateKeyError(f"{json.dumps(key, ensure_ascii=False)} is in it twice")
        result[key] = value
    return result


DECODER = json.JSONDecoder(strict=False, object_pairs_hook=reject_duplicate_keys)
"""A decoder for JSON written by models, which may contain raw line breaks in strings."""


def read_literal(text: str) -> Any:
    """Parse a Python literal.

    Raises:
        DuplicateKeyError: If a key of a dict occurs twice.
        ValueError: If the text is not a literal.
        TypeError: If the text is not a literal.
        SyntaxError: If the text is not a literal.
    """
    tree = ast.parse(text.strip(), mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            # The key is None for ``**other``, which literal_eval() refuses.
            reject_duplicate_keys([(ast.unparse(k), None) for k in node.keys if k is not None])
    return ast.literal_eval(tree)
