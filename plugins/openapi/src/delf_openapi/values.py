"""Validation of script values against a specification's schemas before sending."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from delf.errors import DelfError, ToolDefinitionError
from delf.tools import json_schema
from delf.tools.json_schema import Fault
from delf_openapi.bundles import bundled
from delf_openapi.document import Document
from delf_openapi.failures import SpecError
from delf_schemas.plain import numbers_as_text, without_bytes

_log = logging.getLogger(__name__)
_MAX_FAULTS: Final = 8
_MAX_DEPTH: Final = 3


class Checker:
    """Validates the values that scripts send against a specification's schemas.

    Rules that schemas cannot express are left to the remote service.

    Args:
        document: The specification.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        # Each schema with its checker, by the id() of the schema. The checker is None if the schema
        # cannot be used. The schema is kept here so that Python does not free it and give its id()
        # to another object.
        self._checkers: dict[int, tuple[Any, json_schema.Checker | None]] = {}

    def faults(self, schema: Any, value: Any) -> Sequence[Fault]:
        """Return the faults of a value; none if the schema is unusable.

        An unusable schema is logged once.
        """
        checker = self._checker(schema)
        if checker is None:
            return []
        all_faults = checker.faults(without_bytes(value), _MAX_FAULTS)
        # A part that was not checked, as the check would take too long, is left to the service.
        return [fault for fault in all_faults if not fault.unchecked]

    def _checker(self, schema: Any) -> json_schema.Checker | None:
        cached = self._checkers.get(id(schema))
        if cached is None:
            cached = (schema, self._make_checker(schema))
            self._checkers[id(schema)] = cached
        return cached[1]

    def _make_checker(self, schema: Any) -> json_schema.Checker | None:
        try:
            bundle = bundled(self._document, schema, is_request=True)
            root_schema: Any = bundle["schema"]
            if root_schema is False:  # no value is valid
                root_schema = {"not": {}}
            if not isinstance(root_schema, dict):  # True: every value is valid
                return None
            root = {**cast("dict[str, Any]", root_schema), "components": bundle["components"]}
            # A ToolDefinitionError, which is logged below, names "the schema" in its message.
            return json_schema.Checker(root, "the schema")
        except (SpecError, ToolDefinitionError, RecursionError) as error:
            reason = error.message if isinstance(error, DelfError) else "it nests too deeply"
            _log.warning("values are sent unchecked, as a schema cannot be used: %s", reason)
            return None

    def with_numbers_as_text(self, schema: Any, value: Any) -> Any:
        """Convert numbers, such as decimals, to text where the schema expects text."""
        return numbers_as_text(value, schema, self._document.resolve)

    def coerced(self, schema: Any, value: Any, depth: int = 0) -> Any:
        """Convert a parameter's value to its schema's type; in a URL, 5 and "5" look the same.

        A single value becomes a list if the only type is ``array``. A value stays unchanged if the
        schema allows its type, declares no type, or declares only types to which the value cannot
        be converted.
        """
        try:
            resolved = self._document.resolve(schema)
        except SpecError:
            return value
        type_names = _type_names(resolved)
        if not type_names or depth > _MAX_DEPTH:
            return value
        if isinstance(value, list):
            items: Any = resolved.get("items", {})
            listed = cast("list[Any]", value)
            return [self.coerced(items, item, depth + 1) for item in listed]
        if isinstance(value, dict):
            return cast("Any", value)
        if type_names == {"array"}:  # a script may pass the only item without a list
            return [self.coerced(resolved.get("items", {}), value, depth + 1)]
        return _coerced_scalar(value, type_names)


def _coerced_scalar(value: Any, type_names: set[str]) -> Any:
    allows_text = "string" in type_names
    if isinstance(value, bool):  # before int, because bool is an int in Python
        is_text_required = allows_text and "boolean" not in type_names
        return str(value).lower() if is_text_required else value
    if isinstance(value, (int, float)) and type_names == {"string"}:
        return str(value)
    if isinstance(value, str) and not allows_text:
        return _from_text(value, type_names)
    return value


def _type_names(schema: Mapping[str, Any]) -> set[str]:
    kind = schema.get("type")
    if isinstance(kind, list):
        return {str(k) for k in cast("list[Any]", kind)} - {"null"}
    return {kind} if isinstance(kind, str) else set()


def _from_text(text: str, type_names: set[str]) -> Any:
    """Convert a text to a boolean or number if the types allow that; else return the text."""
    if "boolean" in type_names and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if "_" in text:  # Python would read 1_000 as a number
        return text
    if "integer" in type_names:
        with suppress(ValueError):
            return int(text)
    if "number" in type_names:
        with suppress(ValueError):
            number = float(text)
            return number if math.isfinite(number) else text
    return text
