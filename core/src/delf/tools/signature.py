"""Reads a Python signature: parameters, their types as stub text, and a validator."""

from __future__ import annotations

import copy
import inspect
import keyword
import logging
import re
import typing
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delf.errors import ToolDefinitionError, ToolRefusedError, describe_exception
from delf.records import dataclass
from delf.tools.context import CallContext
from delf.tools.docstrings import read_docstring
from delf.tools.hints import doc_of, notes_of, plain_default, type_text
from delf.tools.type_texts import mentions_no_name, shorten

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from pydantic import BaseModel

# The maximum length of an expected type in an error; the names of keys are never left out.
_MAX_EXPECTED_CHARACTERS = 400
_MAX_DEFAULT_CHARACTERS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of an action, as the prompt describes it.

    Args:
        name: The name.
        type_text: The type in stub notation.
        default_text: The default in stub notation; None for a required parameter.
        doc: The description from the docstring.
        notes: Further text after ``doc`` if a prompt has space, such as the descriptions of the
            value's keys.
    """

    name: str
    type_text: str = "Any"
    default_text: str | None = None
    doc: str = ""
    notes: str = ""

    @property
    def required(self) -> bool:
        """True if a call must pass the parameter."""
        return self.default_text is None

    def __str__(self) -> str:
        text = f"{self.name}: {self.type_text}"
        if self.default_text is None:
            return text
        return f"{text} = {self.default_text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FullTypes:
    """The complete types of an action's parameters and result.

    Args:
        parameters: The parameters, in order.
        returns: The type of the result.
        notes: The descriptions of the result's keys, such as units, shown if a prompt has space.
    """

    parameters: tuple[Parameter, ...]
    returns: str
    notes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The parameters and the result of a function, with texts of its docstring."""

    parameters: tuple[Parameter, ...]
    returns: str
    returns_doc: str
    summary: str
    notes: str
    doc: str
    hints: Mapping[str, Any]
    defaults: Mapping[str, Any]
    context: str | None = None
    """The name of the parameter for the :class:`CallContext`, which scripts do not pass."""


def read_signature(function: Callable[..., Any], *, skip_first: bool = False) -> Signature:
    """Read a function's signature and docstring.

    Args:
        function: A plain or async function with type hints.
        skip_first: Leave out ``self``.

    Raises:
        ToolDefinitionError: If a script cannot call the function by keyword with plain data, or
            cannot get its result.
    """
    function_name = getattr(function, "__qualname__", repr(function))
    try:
        python_signature = inspect.signature(function)
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, ValueError, AttributeError) as error:
        raise ToolDefinitionError(
            f"cannot read the signature of {function_name}: {error}",
            hint="annotate its parameters with types that are importable where it is defined",
        ) from error
    _check_whole_result(function, hints.get("return"), function_name)
    all_parameters = list(python_signature.parameters.values())
    if skip_first:
        _check_self(all_parameters[:1], function_name)
        all_parameters = all_parameters[1:]
    # A parameter for the call's context is filled by delf; scripts and models do not see it.
    contexts = [item.name for item in all_parameters if _is_context(hints.get(item.name))]
    if len(contexts) > 1:
        raise ToolDefinitionError(f"{function_name} takes the call's context twice")
    passed_parameters = [item for item in all_parameters if item.name not in contexts]
    doc = inspect.getdoc(function) or ""
    parsed = read_docstring(doc)
    parameter_hints = {item.name: hints.get(item.name, Any) for item in passed_parameters}
    for item in passed_parameters:
        _check_parameter(item, parameter_hints[item.name], function_name)
    parameters = tuple(
        _make_parameter(item, parameter_hints[item.name], parsed.parameters.get(item.name, ""))
        for item in passed_parameters
    )
    defaults = {
        item.name: item.default for item in passed_parameters if item.default is not item.empty
    }
    result = hints.get("return", Any)
    return Signature(
        parameters=parameters,
        returns=type_text(result),
        returns_doc=_join_texts(parsed.returns, doc_of(result), notes_of(result)),
        summary=parsed.summary,
        notes=parsed.notes,
        doc=doc,
        hints=parameter_hints,
        defaults=defaults,
        context=contexts[0] if contexts else None,
    )


def _make_parameter(item: inspect.Parameter, hint: Any, description: str) -> Parameter:
    """Describe a parameter by its type and default, and its description in the docstring."""
    default_text = None
    if item.default is not item.empty:
        default_text = _default_text(item.default)
    doc = _join_texts(description, doc_of(hint), notes_of(hint, as_input=True))
    return Parameter(
        name=item.name,
        type_text=type_text(hint, as_input=True),
        default_text=default_text,
        doc=doc,
    )


def warn_of_missing_hints(place: str, unannotated: Sequence[str]) -> None:
    """Log a warning about parameters without a type hint, because these accept any value."""
    if unannotated:
        _log.warning(
            "%s does not say what %s must be: a script may give anything; add type hints",
            place,
            ", ".join(map(repr, unannotated)),
        )


def check_hints(place: str, unannotated: Sequence[str]) -> None:
    """Raise for parameters without a type hint."""
    if unannotated:
        kind = "CallContext" if unannotated[0] in ("context", "ctx") else "str"
        raise ToolDefinitionError(
            f"{place} does not say what {', '.join(map(repr, unannotated))} must be",
            hint=f"add a type hint, as {unannotated[0]}: {kind} "
            "(typing.Any where anything will do)",
        )


def _is_context(hint: Any) -> bool:
    return hint is CallContext or CallContext in typing.get_args(hint)


def _check_self(first_parameters: Sequence[inspect.Parameter], place: str) -> None:
    """Raise for a method whose first parameter has a type, and so is not ``self``."""
    # An untyped first parameter of another name, such as ``this``, counts as ``self``.
    has_self = any(
        item.name == "self" or item.annotation is inspect.Parameter.empty
        for item in first_parameters
    )
    if not has_self:
        raise ToolDefinitionError(
            f"{place} has no parameter self", hint="add self, or @staticmethod above @action"
        )


def _check_whole_result(function: Callable[..., Any], returns: Any, place: str) -> None:
    """Raise for a generator, and for a function whose declared result is an iterator."""
    plain_function = inspect.unwrap(function)
    is_generator = inspect.isgeneratorfunction(plain_function) or inspect.isasyncgenfunction(
        plain_function
    )
    result_type = typing.get_origin(returns) or returns
    returns_iterator = isinstance(result_type, type) and issubclass(
        result_type, (Iterator, AsyncIterator)
    )
    if is_generator or returns_iterator:
        raise ToolDefinitionError(
            f"{place} returns its result in pieces, and a script needs a whole result",
            hint="return a list",
        )


def _has_callable(hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if hint is Callable or origin is Callable:
        return True
    if origin is typing.Literal:  # its arguments are values, not types
        return False
    return any(map(_has_callable, typing.get_args(hint)))


def _check_parameter(item: inspect.Parameter, hint: Any, place: str) -> None:
    if item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD):
        raise ToolDefinitionError(
            f"{place} takes {'*' if item.kind is item.VAR_POSITIONAL else '**'}{item.name}",
            hint="name every parameter, or take one list or dict",
        )
    if item.kind is item.POSITIONAL_ONLY:
        raise ToolDefinitionError(
            f"{place} has the positional-only parameter {item.name!r}",
            hint="remove the '/' so that it can be given by name",
        )
    if type(item.default).__name__ == "FieldInfo":  # by name: pydantic may not be imported yet
        raise ToolDefinitionError(
            f"{place}: the default of {item.name!r} is a Field, which only a model replaces",
            hint=f"{item.name}: Annotated[int, Field(…)] = 3",
        )
    if _has_callable(hint):
        raise ToolDefinitionError(
            f"{place} takes a function as {item.name!r}, and a script cannot pass one",
            hint="take its name or its data instead",
        )


def _join_texts(*texts: str) -> str:
    """Join texts to one line, leaving out repeated texts."""
    unique_texts = list(dict.fromkeys(filter(None, texts)))
    if not unique_texts:
        return ""
    *first_texts, last_text = unique_texts
    without_full_stops = [text.rstrip(".") for text in first_texts]
    return "; ".join([*without_full_stops, last_text])


def _default_text(value: Any) -> str:
    text = repr(plain_default(value))
    is_expression = "<" not in text  # unlike ``<object at 0x7f…>``
    if is_expression and len(text) <= _MAX_DEFAULT_CHARACTERS:
        return text
    return "..."


class ArgumentValidator:
    """Checks and converts a call's arguments with pydantic; its model is built on first use.

    Args:
        action_name: The action's name with the name of its connection, for messages.
        signature: The parameters.
    """

    def __init__(self, action_name: str, signature: Signature) -> None:
        self._action = action_name
        self._signature = signature
        self._model: type[BaseModel] | None = None
        self._field_and_parameter_names: tuple[tuple[str, str], ...] = ()
        self._schema: dict[str, Any] | None = None

    def build(self) -> type[BaseModel]:
        """Return the pydantic model behind the validator.

        Raises:
            ToolDefinitionError: If a parameter's type cannot be validated.
        """
        if self._model is None:
            self._model = self._make_model()
            # The fields of the model are called p0, p1, … in _make_model(), too.
            self._field_and_parameter_names = tuple(
                (f"p{i}", name) for i, name in enumerate(self._signature.hints)
            )
        return self._model

    def check_defaults(self) -> None:
        """Check that the defaults of all parameters match their types.

        A default of None is accepted for any type.

        Raises:
            ToolDefinitionError: If a default does not fit its type.
        """
        from pydantic import TypeAdapter, ValidationError

        from delf.tools.typeddicts import validatable

        for name, value in self._signature.defaults.items():
            if value is None:
                continue  # `limit: int = None` is common, and harmless
            try:
                TypeAdapter(validatable(self._signature.hints[name])).validate_python(value)
            except ValidationError as error:
                problem = error.errors(include_url=False, include_input=False)[0]["msg"]
                raise ToolDefinitionError(
                    f"{self._action}: the default of {name!r}, {repr(value)[:40]}, does not fit "
                    f"its type: {problem}",
                    hint=f"give {name!r} a type that allows its default, as `int | None = None`",
                ) from None

    def json_schema(self) -> dict[str, Any]:
        """Return a JSON Schema of the arguments, which is computed on the first call.

        A parameter whose type JSON cannot express, such as ``type[int]``, has an empty schema. If
        pydantic cannot describe a type at all, such as ``type``, the result is only
        ``{"type": "object"}``.
        """
        if self._schema is None:
            from pydantic.errors import PydanticInvalidForJsonSchema
            from pydantic.json_schema import GenerateJsonSchema

            class Generator(GenerateJsonSchema):
                # A default such as object() is left out; pydantic's warning would not help.
                ignored_warning_kinds = {  # noqa: RUF012 - a declared attribute of pydantic's
                    *GenerateJsonSchema.ignored_warning_kinds,
                    "non-serializable-default",
                }

            try:
                model = self.build()
                self._schema = model.model_json_schema(by_alias=True, schema_generator=Generator)
            except PydanticInvalidForJsonSchema:
                self._schema = {"type": "object"}
        return copy.deepcopy(self._schema)

    def __call__(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate and convert a call's arguments.

        Omitted arguments are not added, so the function's own defaults apply.

        Raises:
            ToolRefusedError: If arguments are invalid; the error names them and shows the
                signature.
        """
        validator = self.build().__pydantic_validator__
        try:
            checked = validator.validate_python(dict(arguments))
        except (Exception, SystemExit) as error:  # a validator of the tool's author may raise any
            from pydantic import ValidationError

            if isinstance(error, ValidationError):
                raise ToolRefusedError(self._explain(error)) from None
            raise ToolRefusedError(
                f"{self._action}: an argument cannot be checked: {describe_exception(error)}"
            ) from error
        passed_names = checked.__pydantic_fields_set__
        values = checked.__dict__
        # Keep the order of the signature, because people read the arguments in this order.
        return {
            name: values[key]
            for key, name in self._field_and_parameter_names
            if key in passed_names
        }

    def _make_model(self) -> type[BaseModel]:
        from pydantic import ConfigDict, Field, create_model
        from pydantic.errors import PydanticUserError
        from pydantic_core import SchemaError

        from delf.tools.typeddicts import validatable

        fields: dict[str, Any] = {}
        for index, (name, hint) in enumerate(self._signature.hints.items()):
            default = self._signature.defaults.get(name, ...)
            # The fields have numbered names, because a parameter's name, such as model_config or
            # json, may have a meaning in pydantic.
            fields[f"p{index}"] = (validatable(hint), Field(default=default, alias=name))
        config = ConfigDict(extra="forbid", hide_input_in_errors=True)
        try:
            return create_model(self._action.replace(".", "_"), __config__=config, **fields)
        except (PydanticUserError, SchemaError, TypeError, NameError) as error:
            reason = str(error).split("\n", 1)[0]
            unsupported = re.match(r"Unable to generate pydantic-core schema for (.+?)\. ", reason)
            if unsupported is not None:
                reason = f"a script cannot pass {unsupported[1]}; use plain data or a dataclass"
            raise ToolDefinitionError(f"{self._action}: {reason}") from error

    def _explain(self, error: Any) -> str:
        """Return a message with all problems of a call's arguments and the expected signature."""
        problems: list[str] = []
        for item in error.errors(include_url=False, include_input=False):
            place = ".".join(str(part) for part in item["loc"])
            if item["type"] == "extra_forbidden":
                problems.append(f"unknown argument {place!r}")
            elif item["type"] == "missing" and len(item["loc"]) == 1:
                problems.append(f"missing argument {place!r}")
            else:
                problem = item["msg"].removeprefix("Value error, ")
                problems.append(f"argument {place!r}: {problem}")
        expected_values = ", ".join(map(_expected_value, self._signature.parameters))
        return f"{self._action}: {'; '.join(problems)}. Expected {self._action}({expected_values})"


def _expected_value(parameter: Parameter) -> str:
    """Format a parameter for an error message, with its type shortened."""
    type_text = shorten(parameter.type_text, _MAX_EXPECTED_CHARACTERS, mentions_no_name)
    return str(replace(parameter, type_text=type_text))


def check_name(name: str, what: str) -> str:
    """Return the name if scripts can call it; raise otherwise.

    Raises:
        ToolDefinitionError: If the name is not a Python identifier, is a keyword, or begins with
            an underscore.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise ToolDefinitionError(
            f"{what} {name!r} cannot be called from a script",
            hint="use letters, digits and underscores, not starting with an underscore or digit",
        )
    return name
