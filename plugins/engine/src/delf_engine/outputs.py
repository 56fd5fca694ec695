"""Typed answers: the declared type of an answer, and validation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, cast

from delf.errors import ConfigurationError, ToolDefinitionError, ToolRefusedError
from delf.events import ANSWER
from delf.tools.action import Action
from delf.tools.json_schema import Checker
from delf.tools.signature import Parameter

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:  # only type checkers need the defaults
    from typing import TypeVar

    T = TypeVar("T")

_FENCE: Final = re.compile(r"\s*```(?:json)?[ \t]*\n(.*?)\n?```\s*", re.DOTALL)
# The keywords of a JSON Schema whose values are data and no schemas.
_VALUE_KEYWORDS: Final = frozenset({"enum", "const", "default", "examples"})
_MAX_LISTED: Final = 5
_MAX_FAULT_LENGTH: Final = 300


class Output(Generic[T]):
    """The declared type of a task's answer.

    Args:
        kind: A type that pydantic supports, such as a model, a dataclass or a TypedDict; or a JSON
            Schema.

    Raises:
        ConfigurationError: If the type is not supported.
    """

    def __init__(self, kind: type[T] | Mapping[str, Any]) -> None:
        self.schema: dict[str, Any]
        self._adapter: Any = None
        self._checker: Any = None
        if isinstance(kind, Mapping):
            self._checker = _checker(kind)
            self.schema = dict(kind)
            return
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError
        from pydantic_core import SchemaError

        from delf.tools.typeddicts import validatable

        try:
            self._adapter = TypeAdapter(validatable(kind))
            if self._adapter.core_schema["type"] == "call":  # a function's arguments, not data
                raise TypeError("it is a function")  # noqa: TRY301 - explained below, as the others
            self.schema = self._adapter.json_schema()
        except (PydanticUserError, SchemaError, NameError, TypeError) as error:
            raise ConfigurationError(
                f"output: {kind!r} is not a type of an answer: {_line(error)}",
                hint="give a pydantic model, a dataclass, a TypedDict or a JSON Schema",
            ) from None

    def from_plain(self, plain_value: Any) -> T:
        """Convert plain data to an object of the declared type.

        Args:
            plain_value: The result of :meth:`to_plain`.
        """
        if self._adapter is None:
            return plain_value
        from pydantic import ValidationError

        try:
            return cast("T", self._adapter.validate_python(plain_value))
        except ValidationError:
            # A strict type accepts a date as text only when it validates JSON.
            return cast("T", self._adapter.validate_json(json.dumps(plain_value)))

    def to_plain(self, value: Any) -> Any:
        """Validate a script's value and convert it to plain JSON data.

        Raises:
            ToolRefusedError: If the value is invalid, with the location and reason.
        """
        from pydantic import ValidationError

        try:
            plain_value = self._to_json_data(value)
        except ValidationError as error:
            raise ToolRefusedError(f"the answer does not fit: {_describe_faults(error)}") from None
        except ValueError as error:  # such as bytes that are not UTF-8
            raise ToolRefusedError(
                f"the answer cannot be JSON: {_line(error)}; "
                "give plain data, in less than 250 levels"
            ) from None
        if self._checker is not None:
            faults = self._checker.faults(plain_value, _MAX_LISTED)
            if faults:
                raise ToolRefusedError(f"the answer does not fit: {'; '.join(map(str, faults))}")
        return plain_value

    def _to_json_data(self, value: Any) -> Any:
        """Convert a script's value to JSON data, by way of the declared type if there is one.

        Raises:
            ValueError: If the value is invalid, or JSON cannot express the value.
        """
        if self._adapter is None:
            from pydantic_core import to_jsonable_python

            return to_jsonable_python(value)
        typed_value = self._adapter.validate_python(value)
        return self._restorable(value, typed_value)

    def _restorable(self, value: Any, typed_value: Any) -> Any:
        """Return the JSON data from which :meth:`from_plain` makes the typed value again.

        Several forms of JSON data are tried, because a field may be computed, may have another name
        in JSON, or may have a serializer or validator of its own. The first form from which
        :meth:`from_plain` makes an equal object is returned, or else the first form from which
        :meth:`from_plain` makes any object.

        Args:
            value: The script's value.
            typed_value: The object made of the value.

        Raises:
            ValueError: If no form can be read again.
        """
        from pydantic import ValidationError
        from pydantic_core import to_jsonable_python

        forms: tuple[Callable[[], Any], ...] = (
            lambda: self._adapter.dump_python(typed_value, mode="json"),
            lambda: self._adapter.dump_python(
                typed_value, mode="json", by_alias=True, round_trip=True
            ),
            lambda: to_jsonable_python(value),
        )
        readable_forms: list[Any] = []
        for form in forms:
            plain_value = form()
            with suppress(ValidationError):
                if self.from_plain(plain_value) == typed_value:
                    return plain_value
                readable_forms.append(plain_value)
        if not readable_forms:
            raise ValueError("its type cannot be made of its JSON")
        return readable_forms[0]

    def parse_text(self, text: str) -> Any:
        """Parse and validate a printed answer: as JSON, or else as text, such as ``2026-01-31``.

        Raises:
            ToolRefusedError: If the declared type accepts neither the JSON data nor the text.
        """
        fenced = _FENCE.fullmatch(text)
        json_text = text if fenced is None else fenced[1]
        try:
            return self.to_plain(json.loads(json_text))
        except ToolRefusedError as error:
            refusal = error.message
        except (ValueError, RecursionError):
            refusal = f"it is not one JSON value; call {ANSWER}(value), or print nothing else"
        try:
            return self.to_plain(text.strip())  # such as 2026-01-31 for a date
        except ToolRefusedError:
            raise ToolRefusedError(refusal) from None

    def prompt_text(self) -> str:
        """Describe the type for a model's prompt."""
        schema = json.dumps(_without_titles(self.schema), ensure_ascii=False, separators=(",", ":"))
        return (
            f"The answer is data: end with {ANSWER}(value), whose value is plain data of this JSON "
            f"Schema:\n{schema}"
        )

    def action(self) -> Action:
        """Build the action ``answer``, which a script calls to give the task's answer."""
        return Action(
            name=ANSWER,
            permission=ANSWER,
            effect="read",
            summary="Give the whole answer of the task; call it once, at the end of the script.",
            parameters=(Parameter(name="value"),),
            returns="None",
            validate=self._validated,
            call=_return_value,
            schema=lambda: {
                "type": "object",
                "properties": {"value": self.schema},
                "required": ["value"],
            },
        )

    def _validated(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate an answer: one value, or the fields of a record as keyword arguments."""
        record = dict(arguments)
        is_single_value = list(record) == ["value"]
        if not is_single_value:  # as in answer(name="Ada", age=36)
            return {"value": self.to_plain(record)}
        try:
            return {"value": self.to_plain(record["value"])}
        except ToolRefusedError:
            # In answer(value=3), "value" may also be the only field of a record.
            if "value" not in self.schema.get("properties", ()):
                raise
            return {"value": self.to_plain(record)}


class AnswerTool:
    """A connection with the action ``answer``, through which a script gives a typed answer.

    Args:
        output: The declared type of the answer.
    """

    is_function = True
    name = ANSWER
    summary = "The task's answer."
    allow = None
    confirm = False

    def __init__(self, output: Output[Any]) -> None:
        self._action = output.action()

    async def actions(self) -> tuple[Action, ...]:
        """Return the action ``answer``."""
        return (self._action,)


async def _return_value(value: Any) -> Any:
    return value


def _checker(schema: Mapping[str, Any]) -> Checker:
    try:
        return Checker(schema, "output")
    except ToolDefinitionError as error:
        raise ConfigurationError(error.message) from None


def _without_titles(schema: Any) -> Any:
    """Remove ``$schema`` and all titles from a schema, at any depth."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", schema).items():
        if name in _VALUE_KEYWORDS:
            kept[name] = value
            continue
        # The schema of a field that is itself named ``title`` is a dict, and stays.
        is_left_out = name in ("title", "$schema") and isinstance(value, str)
        if not is_left_out:
            kept[name] = _without_titles(value)
    return kept


def _describe_faults(error: Any) -> str:
    """Describe pydantic's validation errors for the author of the value."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    parts: list[str] = []
    for fault in faults[:_MAX_LISTED]:
        description = str(fault["msg"])
        if fault["loc"]:
            place = ".".join(map(str, fault["loc"]))
            description = f"{place}: {description}"
        parts.append(description[:_MAX_FAULT_LENGTH])
    unlisted_count = len(faults) - len(parts)
    if unlisted_count > 0:
        parts.append(f"and {unlisted_count} more")
    return "; ".join(parts)


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]
