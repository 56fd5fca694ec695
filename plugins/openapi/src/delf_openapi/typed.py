"""Validation of responses by their declared schemas, and conversion of their dates."""

from __future__ import annotations

import contextvars
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache, partial
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Self, cast

from delf.tools.json_schema import clean
from delf_openapi.bodies import kind_of
from delf_openapi.bundles import bundled
from delf_openapi.compiler import responses_of
from delf_openapi.failures import SpecError
from delf_openapi.patterns import matches
from delf_schemas.samples import Place, kind_of_value, place_of

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

    from delf_openapi.answers import Answer
    from delf_openapi.document import Document
    from delf_openapi.operations import Operation

MAX_BYTES: Final = 2_000_000
"""The maximum number of bytes of a response that is validated and converted."""

SECONDS: Final = 5.0
_MAX_FAULTS: Final = 50
_MAX_ERRORS: Final = 1_000
_MAX_FAULT_CHARS: Final = 200
_DATE_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,6}0*)?(?:[Zz]|[+-]\d\d:\d\d)"
)

# A context variable, because responses are validated in several threads at the same time.
_deadline: contextvars.ContextVar[float] = contextvars.ContextVar("deadline")


class _TooLongError(Exception):
    """A response took longer to validate than allowed."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A mismatch between a response and its schema.

    Args:
        text: A one-line description with the path of the value.
        place: The path of the value, with ``*`` for each list index.
        kind: The violated schema keyword.
        value_type: The name of the value's type, such as ``None``; empty if the whole response is
            at fault.
    """

    text: str
    place: Place = ()
    kind: str = ""
    value_type: str = ""


@dataclass(frozen=True, slots=True)
class Typed:
    """A response body converted to its declared types.

    Args:
        value: The body; values that do not match the schema are not converted.
        faults: The faults, one for each path and kind.
        declared: Whether the specification declares a type for this response.
    """

    value: Any
    faults: tuple[Fault, ...] = ()
    declared: bool = True

    @classmethod
    def unchecked(cls, value: Any, reason: str) -> Self:
        """Return a body that is not converted, although its type is declared.

        Args:
            value: The body.
            reason: Why the body is not validated. The reason becomes the only fault of the result.
        """
        # Each kind of fault is reported only once. So each reason is a kind of its own.
        return cls(value, (Fault(reason, kind=reason),))


class Responses:
    """Validates the responses of one API, and converts them to their declared types.

    Args:
        document: The specification.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        # The validator of each declared response, by the name of the action and the declared
        # status, such as ``("list_pets", "2XX")``. If the schema of a response is unusable, a text
        # with the reason is in the place of the validator.
        self._validators: dict[tuple[str, str], Validator | str] = {}

    def typed(self, operation: Operation, answer: Answer, body: Any) -> Typed:
        """Validate a body and convert it to its declared type."""
        if kind_of(answer.media or "application/json") != "json" or isinstance(body, bytes):
            return Typed(body)
        declared = self._schema(operation, answer)
        if declared is None:
            return Typed(body, declared=False)
        if len(answer.content) > MAX_BYTES:
            size = f"{len(answer.content):,} bytes"
            return Typed.unchecked(body, f"its {size} are neither validated nor typed")
        status, schema = declared
        key = (operation.endpoint.name, status)
        validator = self._validators.get(key)
        if validator is None:
            validator = self._validators[key] = self._make_validator(schema)
        if isinstance(validator, str):  # the fault of an unusable schema
            return Typed.unchecked(body, validator)
        _deadline.set(time.monotonic() + SECONDS)
        try:
            faults = tuple(_faults(validator, body))
            return Typed(_Dates(validator).converted(body, validator.schema), faults)
        except _TooLongError:
            return Typed.unchecked(body, f"it was not validated within {SECONDS:g} s")
        except Exception as error:  # an invalid schema
            return Typed.unchecked(body, f"its schema cannot be used: {type(error).__name__}")

    def untyped(self, operation: Operation, answer: Answer, body: Any) -> Typed:
        """Return a body without validation or conversion."""
        # The type of text or bytes is known without a schema.
        is_json = kind_of(answer.media or "application/json") == "json"
        return Typed(body, declared=not is_json or self._schema(operation, answer) is not None)

    def _schema(self, operation: Operation, answer: Answer) -> tuple[str, Any] | None:
        """Return the declared status, such as ``2XX``, and the schema for a response.

        None if the schema is missing or allows any object.
        """
        responses = responses_of(operation.raw)
        for status in (str(answer.status), f"{str(answer.status)[0]}XX", "DEFAULT"):
            if status not in responses:
                continue
            try:
                content: Any = self._document.resolve_reference(responses[status]).get("content")
                schema = _schema_for_media(content, answer.media, self._document)
            except (SpecError, AttributeError, TypeError):
                return None
            if schema in (None, {}, {"type": "object"}):
                return None
            return (status, schema)
        return None

    def _make_validator(self, schema: Any) -> Validator | str:
        """Return a validator for a schema; if the schema is unusable, the reason as text."""
        try:
            bundle = bundled(self._document, schema)
            components = bundle["components"]
            # Within ``allOf``, because the schema may also be True or False.
            root = {"allOf": [bundle["schema"]], "components": components}
            return _validator_class(is_old=self._document.version < (3, 1))(root)
        except SpecError as error:
            return f"its schema cannot be read: {clean(error.message, _MAX_FAULT_CHARS)}"
        except Exception as error:  # an invalid schema
            return f"its schema cannot be used: {type(error).__name__}"


def _schema_for_media(content: Any, media: str, document: Document) -> Any:
    """Return the schema declared for a media type, else for any JSON type, else None."""
    listed: Mapping[str, Any] = {}
    if isinstance(content, Mapping):
        listed = cast("Mapping[str, Any]", content)
    accepted_types = {media or "application/json", "*/*", "application/*"}
    for name, spec in listed.items():
        declared_type = str(name).partition(";")[0].strip().lower()
        if declared_type in accepted_types:
            return document.resolve_reference(spec).get("schema")
    # Many services declare one JSON media type and send another.
    for name, spec in listed.items():
        if kind_of(str(name)) == "json":
            return document.resolve_reference(spec).get("schema")
    return None


@lru_cache
def _validator_class(*, is_old: bool) -> Any:
    """Return the library's validator class, changed so that validation has a deadline.

    Args:
        is_old: Whether the specification is of OpenAPI 3.0, not of a later version.
    """
    library: Any = import_module("openapi_schema_validator")
    extend: Any = import_module("jsonschema.validators").extend
    validator = library.OAS30ReadValidator if is_old else library.OAS31Validator
    follow_reference = validator.VALIDATORS["$ref"]

    # Only references can make validation endless, so they check the deadline.
    def follow_until_deadline(current: Any, ref: Any, instance: Any, schema: Any) -> Iterator[Any]:
        _check_deadline()
        yield from follow_reference(current, ref, instance, schema) or ()

    keywords = {"$ref": follow_until_deadline, "pattern": _pattern_faults}
    # The formats of OpenAPI 3.0 are checked in all versions.
    format_checker = library.OAS30ReadValidator.FORMAT_CHECKER
    return partial(extend(validator, keywords), format_checker=format_checker)


def _check_deadline() -> None:
    if time.monotonic() > _deadline.get():
        raise _TooLongError


def _pattern_faults(_validator: Any, regex: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    """Yield a fault if a text does not match the keyword ``pattern`` of its schema.

    Patterns are matched in linear time; Python's ``re`` can take exponential time.
    """
    from jsonschema.exceptions import ValidationError

    if isinstance(instance, str) and isinstance(regex, str) and not matches(regex, instance):
        yield ValidationError(f"{clean(instance, 60)!r} does not match {clean(regex, 60)!r}")


class _Dates:
    """Converts the texts that schemas declare as dates or times, and keeps all other values.

    Args:
        validator: A validator. All references in its schema lead to its ``components/schemas``.
    """

    def __init__(self, validator: Validator) -> None:
        self._validator: Any = validator
        # The schemas by the last part of a reference to them.
        self._schemas: Mapping[str, Any] = self._validator.schema["components"]["schemas"]

    def converted(self, value: Any, schema: Any) -> Any:
        """Convert the dates in a value, even if the value does not match the schema."""
        result = value
        for part in self._parts(schema, value):
            result = self._converted_by(result, part)
        return result

    def _parts(self, schema: Any, value: Any) -> Iterator[Mapping[str, Any]]:
        """Yield a schema, and all schemas that it combines or refers to.

        Of alternatives, such as the schemas of ``anyOf``, only the matching schemas are yielded. If
        the value matches none of the alternatives, all are yielded.
        """
        _check_deadline()
        if not isinstance(schema, dict):
            return
        node = cast("dict[str, Any]", schema)
        yield node
        if "$ref" in node:
            yield from self._parts(self._schemas[node["$ref"].rpartition("/")[2]], value)
        alternatives = [*(node.get("anyOf") or ()), *(node.get("oneOf") or ())]
        matching = [each for each in alternatives if self._matches(each, value)]
        for part in [*(node.get("allOf") or ()), *(matching or alternatives)]:
            yield from self._parts(part, value)

    def _matches(self, schema: Any, value: Any) -> bool:
        return self._validator.evolve(schema=schema).is_valid(value)

    def _converted_by(self, value: Any, part: Mapping[str, Any]) -> Any:
        """Convert a value by the own keywords of a schema, without the schemas in ``allOf``."""
        if isinstance(value, str):
            parse = _DATE_PARSERS.get(str(part.get("format")))
            # ``type`` is "string" or a list with "string"; ``in`` is True for both.
            if parse is not None and "string" in part.get("type", "string"):
                with suppress(ValueError):
                    return parse(value)
            return value
        if isinstance(value, list) and "items" in part:
            return [self.converted(item, part["items"]) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            properties: Any = part.get("properties") or {}
            others = part.get("additionalProperties")
            items = cast("dict[str, Any]", value).items()
            return {key: self.converted(each, properties.get(key, others)) for key, each in items}
        return cast("Any", value)


def _faults(validator: Validator, body: Any) -> Iterator[Fault]:
    """Yield the faults of a body, but only the first of several faults of one kind at one path."""
    errors: Any = validator.iter_errors(body)
    reported: set[tuple[Place, str]] = set()
    for error in islice(errors, _MAX_ERRORS):
        is_null = error.instance is None
        place = place_of(error.absolute_path)
        kind = "null" if is_null else str(error.validator)
        if (place, kind) in reported:
            continue
        reported.add((place, kind))
        path = ".".join(clean(str(part), 60) for part in error.absolute_path) or "the body"
        if is_null:
            message = "None, where the schema has no null"
        else:
            message = clean(error.message, _MAX_FAULT_CHARS)
        yield Fault(f"{path}: {message}", place, kind, kind_of_value(error.instance))
        if len(reported) >= _MAX_FAULTS:
            return


def _parse_date_time(text: str) -> datetime:
    """Parse a date and time.

    Python represents microseconds, so a seventh decimal and all later decimals must be zeros.

    Raises:
        ValueError: If Python cannot represent the time exactly; the value then stays text.
    """
    if not _DATE_TIME.fullmatch(text):
        raise ValueError(text)
    return datetime.fromisoformat(re.sub(r"(\.\d{6})0+", r"\1", text.upper()))


_DATE_PARSERS: Final[Mapping[str, Callable[[str], date]]] = {
    "date": date.fromisoformat,
    "date-time": _parse_date_time,
}
