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
from delf.tools.json_schema import resolve_reference

_SEPARATORS = (",", ";", "\n")
_Schema = Mapping[str, Any]


def normalised_name(name: str) -> str:
    """Normalise a name, so that ``customerId`` equals ``customer_id``."""
    return name.replace("_", "").replace("-", "").lower()


def with_spelling_of_parameters(
    arguments: Mapping[str, Any], names: Iterable[str]
) -> dict[str, Any]:
    """Rename arguments to the spelling of the parameters, such as ``userId`` to ``user_id``.

    Args:
        arguments: Arguments by name.
        names: The parameter names.
    """
    all_names = list(names)
    if all(name in all_names for name in arguments):
        return dict(arguments)
    by_spelling: dict[str, list[str]] = {}
    for name in all_names:
        by_spelling.setdefault(normalised_name(name), []).append(name)
    renamed: dict[str, Any] = {}
    for name, value in arguments.items():
        candidates = by_spelling.get(normalised_name(name), [])
        free_candidates = [
            candidate
            for candidate in candidates
            if candidate not in arguments and candidate not in renamed
        ]
        is_misspelt = name not in all_names
        is_unambiguous = len(candidates) == len(free_candidates) == 1
        if is_misspelt and is_unambiguous:
            renamed[candidates[0]] = value
        else:
            renamed[name] = value
    return renamed


def validate_arguments(
    action: Action, keywords: Mapping[str, Any]
) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Validate a call's arguments, after converting those whose meaning is unambiguous.

    Args:
        action: The action.
        keywords: The arguments of the script.

    Returns:
        Two mappings with the same values: the script's arguments after conversion, and these
        arguments in the types that the action declares.

    Raises:
        ToolRefusedError: If the arguments are invalid and have no unambiguous conversion.
    """
    try:
        return keywords, action.validate(keywords)
    except ToolRefusedError as error:
        for converted in _conversions(action, keywords):
            try:
                return converted, action.validate(converted)
            except ToolRefusedError:
                continue
        raise error from None


def _conversions(action: Action, keywords: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the arguments converted to the action's schema, in up to three ways.

    - The arguments have the names of parameters: ``f(a="1")`` for an action ``f(a: int)``.
    - The only argument is a dict of the arguments: ``f(x={"a": "1"})`` for the same action.
    - The arguments are the fields of the only parameter: ``f(a="1")`` for an action ``f(record)``.
    """
    schema = action.schema() if action.schema is not None else {}
    names = [parameter.name for parameter in action.parameters]
    readings = (
        dict(keywords),
        _spread_only_dict(keywords, names),
        _gather_into_record(keywords, names, schema),
    )
    for arguments in readings:
        if arguments is not None:
            converted = _Converter(schema).record(arguments, schema)
            if converted != keywords:
                yield converted


def _spread_only_dict(keywords: Mapping[str, Any], names: list[str]) -> dict[str, Any] | None:
    """Return the arguments in a dict that is the only argument of a call.

    For ``f(x={"a": 1})``, which stands for ``f(a=1)``, return ``{"a": 1}``. None for a call with
    other arguments, or if a key of the dict is no parameter.

    Args:
        keywords: The arguments of the call.
        names: The names of the parameters.
    """
    values = list(keywords.values())
    if len(values) != 1 or not isinstance(values[0], dict):
        return None
    inner = cast("dict[Any, Any]", values[0])
    given = {str(key): value for key, value in inner.items()}
    # The keys may be spelled otherwise, such as ``maxResults`` for ``max_results``.
    arguments = with_spelling_of_parameters(given, names)
    if arguments and all(name in names for name in arguments):
        return arguments
    return None


def _gather_into_record(
    keywords: Mapping[str, Any], names: list[str], schema: _Schema
) -> dict[str, Any] | None:
    """Collect keywords into a record: ``name="Ann"`` → ``{"person": {"name": "Ann"}}``.

    None unless the action's only parameter is a record with such fields.
    """
    if len(names) != 1 or names[0] in keywords:
        return None
    parameter_schema = schema.get("properties", {}).get(names[0], {})
    # A parameter such as ``Person | Company`` has several alternatives.
    for alternative in _Converter(schema).alternatives(parameter_schema):
        fields = cast("Mapping[str, Any]", alternative.get("properties", {}))
        arguments = with_spelling_of_parameters(keywords, fields) if fields else {}
        if arguments and all(name in fields for name in arguments):
            return {names[0]: arguments}
    return None


class _Converter:
    """Converts values to the types of a JSON Schema, if only one conversion is possible.

    Args:
        root: The root schema, in which references are resolved.
    """

    def __init__(self, root: _Schema) -> None:
        self._root = root

    def alternatives(self, schema: Any) -> Iterator[_Schema]:
        """Yield the alternatives of a schema: for ``string | integer``, a schema of each type.

        References are followed.
        """
        if not isinstance(schema, Mapping):
            return  # a schema such as True names no type to convert a value to
        schema = cast("_Schema", schema)
        reference = schema.get("$ref")
        if isinstance(reference, str):
            yield from self._alternatives_of_target(reference)
            return
        members_of_union = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
        if members_of_union:
            for member in members_of_union:
                yield from self.alternatives(member)
            return
        kinds = schema.get("type")
        if isinstance(kinds, list):
            for kind in cast("list[Any]", kinds):
                yield {**schema, "type": kind}
        else:
            yield schema

    def _alternatives_of_target(self, reference: str) -> Iterator[_Schema]:
        try:
            target: Any = resolve_reference(self._root, reference)
        except ValueError:
            return  # the action's schema does not have the definition
        yield from self.alternatives(target)

    def record(self, values: Mapping[str, Any], schema: _Schema) -> dict[str, Any]:
        """Convert the fields of a record to the types of a schema."""
        fields = cast("Mapping[str, Any]", schema.get("properties", {}))
        arguments = with_spelling_of_parameters(values, fields) if fields else values
        return {name: self.value(value, fields.get(name, {})) for name, value in arguments.items()}

    def value(self, argument: Any, schema: Any) -> Any:
        """Convert an argument to a schema's type; return an unfitting argument unchanged."""
        alternatives = list(self.alternatives(schema))
        match argument:
            case str():
                return self._text(argument, alternatives)
            case dict():
                record = cast("dict[str, Any]", argument)
                record_schemas = [each for each in alternatives if _is_record(each)]
                if len(record_schemas) == 1:
                    return self.record(record, record_schemas[0])
                return record
            case dt.datetime() if any(each.get("format") == "date" for each in alternatives):
                return argument.date()  # the parameter takes a date without a time
            case list():
                items = cast("list[Any]", argument)
                for each in alternatives:
                    if each.get("items"):
                        return [self.value(item, each["items"]) for item in items]
                return items
            case _:
                return argument

    def _text(self, text: str, alternatives: list[_Schema]) -> Any:
        """Convert a text to a value that one of the schemas in ``alternatives`` accepts.

        The first of these applies:

        - a text that a schema lists, whatever the case of its letters
        - a date, if a schema has the format ``date``
        - the text itself, if a schema accepts any text
        - the parsed data of a text that is a list or an object in JSON
        - a list with the text as its only item

        A text that cannot be converted is returned as it is.
        """
        listed_text = _matching_listed_text(text, alternatives)
        if listed_text is not None:
            return listed_text
        if any(schema.get("format") == "date" for schema in alternatives):
            return _parse_date(text)
        if any(_accepts_any_text(schema) for schema in alternatives):
            return text
        schema_by_type = {schema.get("type"): schema for schema in alternatives}
        first_character = text.lstrip()[:1]
        if first_character == "[" and "array" in schema_by_type:
            return _from_json(text, list, fallback=text)
        if first_character == "{" and "object" in schema_by_type:
            return _from_json(text, dict, fallback=text)
        if "array" in schema_by_type:
            return self._text_or_list(text, schema_by_type["array"].get("items", {}))
        return text

    def _text_or_list(self, text: str, item_schema: Any) -> Any:
        """Return a list with a text as its only item, if the item's schema accepts texts.

        Otherwise, and for a text such as "a, b", return the text itself.
        """
        # A text such as "a, b" may mean several items.
        if any(separator in text for separator in _SEPARATORS):
            return text
        for alternative in self.alternatives(item_schema):
            if alternative.get("type") == "string":
                return [self.value(text, item_schema)]
        return text


def _is_record(schema: _Schema) -> bool:
    return bool(schema.get("properties")) and schema.get("type", "object") == "object"


def _accepts_any_text(schema: _Schema) -> bool:
    return schema.get("type") == "string" and not _listed_texts(schema)


def _parse_date(text: str) -> Any:
    """Parse a date, or the date of a datetime; return other texts unchanged."""
    try:
        return dt.datetime.fromisoformat(text).date()
    except ValueError:
        return text


def _matching_listed_text(text: str, alternatives: list[_Schema]) -> str | None:
    """Return the listed text that a text means, whatever the case of its letters; None if unclear.

    Args:
        text: The text.
        alternatives: The schemas, some of which may list the accepted texts.
    """
    listed_texts: set[str] = set()
    for schema in alternatives:
        listed_texts |= _listed_texts(schema)
    if text in listed_texts:
        return text
    folded_text = text.strip().casefold()
    similar = [each for each in listed_texts if each.casefold() == folded_text]
    return similar[0] if len(similar) == 1 else None


def _listed_texts(schema: _Schema) -> set[str]:
    """Return the texts among the values that a schema lists."""
    values: Iterable[Any] = ()
    if "enum" in schema:
        values = schema["enum"]
    elif "const" in schema:
        values = (schema["const"],)
    return {value for value in values if isinstance(value, str)}


def _from_json(text: str, kind: type, fallback: Any) -> Any:
    """Parse a text as JSON; return the fallback if the value is not of the type."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return fallback
    return parsed if isinstance(parsed, kind) else fallback
