"""Validation and conversion of responses by their declared schemas, with openapi-core."""

from __future__ import annotations

import contextvars
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
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
    from openapi_core.unmarshalling.schemas.unmarshallers import SchemaUnmarshaller

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
        """Return a body of a declared type that is not converted, with a fault of the whole body.

        Args:
            value: The body.
            reason: The reason why the body is not validated.
        """
        # The fault has no place. As its kind, the reason lets each reason be reported once.
        return cls(value, (Fault(reason, kind=reason),))


class Responses:
    """Validates the responses of one API, and converts them to their declared types.

    Args:
        document: The specification.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        # The unmarshaller of each declared response, by the name of the action and the declared
        # status, such as ``("list_pets", "2XX")``. If the schema of a response is unusable, a text
        # with the reason is in the place of the unmarshaller.
        self._unmarshallers: dict[tuple[str, str], SchemaUnmarshaller | str] = {}

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
        unmarshaller = self._unmarshallers.get(key)
        if unmarshaller is None:
            unmarshaller = self._unmarshallers[key] = self._make_unmarshaller(schema)
        if isinstance(unmarshaller, str):  # the fault of an unusable schema
            return Typed.unchecked(body, unmarshaller)
        _deadline.set(time.monotonic() + SECONDS)
        try:
            faults = tuple(_faults(unmarshaller, body))
            return Typed(_without_validation(unmarshaller).unmarshal(body), faults)
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
        """Return the declared status of a response and its schema; None without a schema."""
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

    def _make_unmarshaller(self, schema: Any) -> SchemaUnmarshaller | str:
        """Return an unmarshaller for a schema; the fault as text if the schema is unusable."""
        try:
            # The library reads a schema only as a part of a specification, whose version it
            # ignores. Values are converted by the rules of ``self._document.version``.
            spec = {"openapi": "3.1.0", **bundled(self._document, schema)}
            return _unmarshaller(spec, self._document.version)
        except SpecError as error:
            return f"its schema cannot be read: {clean(error.message, _MAX_FAULT_CHARS)}"
        except Exception as error:  # an invalid schema
            return f"its schema cannot be used: {type(error).__name__}"


def _schema_for_media(content: Any, media: str, document: Document) -> Any:
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
        if kind_of(str(name).partition(";")[0].strip().lower()) == "json":
            return document.resolve_reference(spec).get("schema")
    return None


def _unmarshaller(spec: dict[str, Any], version: tuple[int, int]) -> SchemaUnmarshaller:
    from jsonschema_path import SchemaPath
    from openapi_core.unmarshalling.schemas.unmarshallers import (
        FormatsUnmarshaller,
        SchemaUnmarshaller,
    )

    is_old = version < (3, 1)
    root = SchemaPath.from_dict(spec)
    schema = root / "schema"
    formats = FormatsUnmarshaller({"date": date.fromisoformat, "date-time": _parse_date_time})
    validator = _validators(is_old).create(root, schema)
    return SchemaUnmarshaller(schema, validator, _converters(is_old), formats)


@lru_cache
def _validators(is_old: bool) -> Any:
    """Return the library's factory of validators, changed so that validation has a deadline.

    Args:
        is_old: Whether the specification is of OpenAPI 3.0, not of a later version.
    """
    from openapi_core.validation.schemas.factories import SchemaValidatorsFactory

    library: Any = import_module("openapi_schema_validator")
    extend: Any = import_module("jsonschema.validators").extend
    validator = library.OAS30ReadValidator if is_old else library.OAS31Validator
    follow_reference = validator.VALIDATORS["$ref"]

    # Only references can make validation endless, so they check the deadline.
    def follow_until_deadline(current: Any, ref: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if time.monotonic() > _deadline.get():
            raise _TooLongError
        yield from follow_reference(current, ref, instance, schema) or ()

    keywords = {"$ref": follow_until_deadline, "pattern": _pattern_faults}
    # The formats of OpenAPI 3.0 are checked in all versions.
    format_checker = library.OAS30ReadValidator.FORMAT_CHECKER
    return SchemaValidatorsFactory(extend(validator, keywords), format_checker)


def _pattern_faults(_validator: Any, regex: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    """Yield a fault if a text does not match the keyword ``pattern`` of its schema.

    Patterns are matched in linear time; Python's ``re`` can take exponential time.
    """
    from jsonschema.exceptions import ValidationError

    if isinstance(instance, str) and isinstance(regex, str) and not matches(regex, instance):
        yield ValidationError(f"{clean(instance, 60)!r} does not match {clean(regex, 60)!r}")


@lru_cache
def _converters(is_old: bool) -> Any:
    """Return the library's converters of values, changed to keep values of the wrong type.

    Args:
        is_old: Whether the specification is of OpenAPI 3.0, not of a later version.
    """
    from openapi_core.unmarshalling import schemas
    from openapi_core.unmarshalling.schemas.unmarshallers import (
        ArrayUnmarshaller,
        ObjectUnmarshaller,
        TypesUnmarshaller,
    )

    class Items(ArrayUnmarshaller):
        """Converts the items of a list."""

        def __call__(self, value: Any) -> Any:
            return super().__call__(value) if isinstance(value, list) else value

    class Properties(ObjectUnmarshaller):
        """Converts the properties of an object; adds no defaults, generates no classes."""

        def __call__(self, value: Any) -> Any:
            if not isinstance(value, dict):
                return value
            properties = cast("dict[str, Any]", value)
            converted = self._unmarshal_properties(properties)  # with defaults for missing ones
            return {name: converted.get(name, item) for name, item in properties.items()}

    library = schemas.oas30_types_unmarshaller if is_old else schemas.oas31_types_unmarshaller
    converters = {**library.unmarshallers, "array": Items, "object": Properties}
    return TypesUnmarshaller(converters, library.default, library.multi)


@lru_cache
def _accepting_validator_class() -> Any:
    from openapi_core.validation.schemas.validators import SchemaValidator

    class AcceptingValidator(SchemaValidator):
        """Accepts every value, so that a response with faults is converted, too."""

        def validate(self, value: Any) -> None:
            """Accept the value: _faults() reports its faults."""

    return AcceptingValidator


def _without_validation(unmarshaller: SchemaUnmarshaller) -> SchemaUnmarshaller:
    """Return a copy of an unmarshaller that also converts values with faults."""
    from openapi_core.unmarshalling.schemas.unmarshallers import SchemaUnmarshaller

    validator = unmarshaller.schema_validator
    return SchemaUnmarshaller(
        unmarshaller.schema,
        _accepting_validator_class()(validator.schema, validator.validator),
        unmarshaller.types_unmarshaller,
        unmarshaller.formats_unmarshaller,
    )


def _faults(unmarshaller: SchemaUnmarshaller, body: Any) -> Iterator[Fault]:
    """Yield the faults of a body, but each kind of fault only once per path."""
    errors: Any = unmarshaller.schema_validator.validator.iter_errors(body)
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

    Python represents microseconds, so that digits after the sixth must be zeros, and are removed.

    Raises:
        ValueError: If Python cannot represent the time exactly; the value then stays text.
    """
    if not _DATE_TIME.fullmatch(text):
        raise ValueError(text)
    return datetime.fromisoformat(re.sub(r"(\.\d{6})0+", r"\1", text.upper()))
