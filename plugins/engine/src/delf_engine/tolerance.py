"""Tolerant arguments: convert invalid arguments that can only mean one thing.

A name may be spelled differently, one dict may replace keywords, one text may replace a list of
texts. Ambiguous arguments are refused: texts are not split, words are not parsed as numbers, and
other names are not guessed.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from delf.errors import ToolRefusedError
from delf.tools.action import Action

_SEPARATORS = (",", ";", "\n")
_Schema = Mapping[str, Any]


def same_name(name: str) -> str:
    """Normalise a name so that all its spellings are equal: ``customerId`` and ``customer_id``."""
    return name.replace("_", "").replace("-", "").lower()


def respelled(given: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Rename arguments whose names are other spellings of existing names.

    Args:
        given: Arguments by name.
        names: The parameter names.
    """
    known = list(names)
    if all(name in known for name in given):
        return dict(given)
    by_spelling: dict[str, list[str]] = {}
    for name in known:
        by_spelling.setdefault(same_name(name), []).append(name)
    found: dict[str, Any] = {}
    for name, value in given.items():
        candidates = by_spelling.get(same_name(name), ())
        parameter = candidates[0] if name not in known and len(candidates) == 1 else name
        is_taken = parameter in given or parameter in found
        found[name if is_taken else parameter] = value
    return found


def fitting(action: Action, named: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return arguments that fit an action, in both their given and their validated form.

    Args:
        action: The action.
        named: The arguments of the script.

    Raises:
        ToolRefusedError: If the arguments are invalid and have no unambiguous conversion.
    """
    try:
        return named, action.validate(named)
    except ToolRefusedError as error:
        for reading in _other_readings(action, named):
            try:
                return reading, action.validate(reading)
            except ToolRefusedError:
                continue
        raise error from None


def _other_readings(action: Action, named: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    schema = action.schema() if action.schema is not None else {}
    names = [parameter.name for parameter in action.parameters]
    for given in (dict(named), _spread(named, names), _gathered(named, names, schema)):
        if given is not None:
            reading = _Converter(schema).record(given, schema)
            if reading != named:
                yield reading


def _spread(named: Mapping[str, Any], names: list[str]) -> dict[str, Any] | None:
    """Return the content of a single dict that was passed instead of keywords."""
    values = list(named.values())
    if len(values) != 1 or not isinstance(values[0], dict):
        return None
    inner = cast("dict[Any, Any]", values[0])
    found = respelled({str(key): value for key, value in inner.items()}, names)
    return found if found and all(name in names for name in found) else None


def _gathered(named: Mapping[str, Any], names: list[str], schema: _Schema) -> dict[str, Any] | None:
    """Collect keywords into one record, for an action whose only parameter is a record."""
    if len(names) != 1 or names[0] in named:
        return None
    for option in _Converter(schema).options(schema.get("properties", {}).get(names[0], {})):
        fields = cast("Mapping[str, Any]", option.get("properties", {}))
        found = respelled(named, fields) if fields else {}
        if found and all(name in fields for name in found):
            return {names[0]: found}
    return None


class _Converter:
    """Converts values to a schema where only one meaning is possible.

    Args:
        root: The root schema, for resolving references.
    """

    def __init__(self, root: _Schema) -> None:
        self._root = root

    def options(self, schema: _Schema) -> Iterator[_Schema]:
        """Yield the alternatives of a schema, with references resolved."""
        reference = schema.get("$ref")
        if isinstance(reference, str):
            found: _Schema = self._root
            for part in reference.removeprefix("#/").split("/"):
                found = found.get(part, {})
            yield from self.options(found)
            return
        alternatives = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
        for option in alternatives:
            yield from self.options(option)
        if not alternatives:
            yield schema

    def record(self, given: Mapping[str, Any], schema: _Schema) -> dict[str, Any]:
        """Convert the fields of a record to a schema."""
        fields = cast("Mapping[str, Any]", schema.get("properties", {}))
        named = respelled(given, fields) if fields else given
        return {name: self.value(value, fields.get(name, {})) for name, value in named.items()}

    def value(self, given: Any, schema: _Schema) -> Any:
        """Convert a value to a schema."""
        options = list(self.options(schema))
        match given:
            case str():
                return self._text(given, options)
            case dict():
                records = [option for option in options if option.get("properties")]
                record = cast("dict[str, Any]", given)
                return self.record(record, records[0]) if len(records) == 1 else record
            case dt.datetime() if any(option.get("format") == "date" for option in options):
                return given.date()  # a datetime for a date
            case list():
                lists = [option["items"] for option in options if option.get("items")]
                items = cast("list[Any]", given)
                return [self.value(item, lists[0]) for item in items] if lists else items
            case _:
                return given

    def _text(self, given: str, options: list[_Schema]) -> Any:
        words = [word for option in options for word in _words(option)]
        similar = [word for word in words if word.casefold() == given.strip().casefold()]
        if given in words or len(similar) == 1:
            return given if given in words else similar[0]
        if any(option.get("format") == "date" for option in options):
            return _day_of(given)
        if any(option.get("type") == "string" and not _words(option) for option in options):
            return given
        kinds = {option.get("type"): option for option in options}
        for kind, mark, python_type in (("array", "[", list), ("object", "{", dict)):
            if kind in kinds and given.lstrip().startswith(mark):
                return _from_json(given, python_type, given)
        items = kinds.get("array", {}).get("items")
        if not items or any(mark in given for mark in _SEPARATORS):
            return given
        takes_text = any(option.get("type") == "string" for option in self.options(items))
        return [self.value(given, items)] if takes_text else given


def _day_of(text: str) -> Any:
    """Return the date part of a datetime text; other texts unchanged."""
    try:
        return dt.datetime.fromisoformat(text).date()
    except ValueError:
        return text


def _words(schema: _Schema) -> list[str]:
    """Return the strings that a schema allows."""
    listed = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return [word for word in listed if isinstance(word, str)]


def _from_json(text: str, kind: type, otherwise: Any) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return otherwise
    return found if isinstance(found, kind) else otherwise
