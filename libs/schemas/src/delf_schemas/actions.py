"""Actions whose parameters are described by JSON schemas of a service."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from delf.errors import (
    DelfError,
    ToolDefinitionError,
    ToolRefusedError,
    did_you_mean,
)
from delf.tools.action import EFFECTS, Action
from delf.tools.docstrings import read_docstring
from delf.tools.json_schema import Checker, Fault, clean
from delf.tools.signature import FullTypes, Parameter
from delf.tools.type_texts import with_types
from delf.types import Effect
from delf_schemas.hints import hints_of
from delf_schemas.names import action_name, argument_name, split_text, unique
from delf_schemas.notes import notes_of
from delf_schemas.plain import Misfit, numbers_as_text, plain, without_bytes
from delf_schemas.samples import Found
from delf_schemas.shapes import (
    FULL,
    FULL_CHARS,
    SHORT,
    Extent,
    RootSchema,
    Shapes,
    default_text,
    merge_object,
    resolve_or_empty,
    safe_text,
)

_MAX_SUMMARY: Final = 280
_MAX_RETURNS_DOC: Final = 400
_MAX_DESCRIPTION: Final = 2_000
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_MAX_RETURNS: Final = 420
_MAX_VISITS: Final = 20_000
_MAX_ARGUMENTS: Final = 500
# The argument's name if an action's schema does not describe an object with properties.
_NAMELESS_ARGUMENT: Final = "arguments"


class _StubLimits(NamedTuple):
    """The limits on the text of a parameter in a stub.

    Args:
        type_chars: The maximum number of characters of the parameter's type.
        doc_chars: The maximum number of characters of the parameter's description.
        extent: The limits on how much of the parameter's schema its type shows.
        hint_depth: The number of nested record levels whose constraints are shown.
        has_notes: Whether the keys of records are described.
    """

    type_chars: int
    doc_chars: int
    extent: Extent
    hint_depth: int
    has_notes: bool = False


_SHORT_LIMITS: Final = _StubLimits(260, 160, SHORT, 0)
_FULL_LIMITS: Final = _StubLimits(FULL_CHARS, 240, FULL, 4, has_notes=True)


class ObservedTypes(NamedTuple):
    """The types that the earlier results of an action had.

    Args:
        results: The type of whole results; None without results.
        undeclared: The types that values in these results had, although the schema does not declare
            these types.
    """

    results: str | None
    undeclared: frozenset[Found]


Send = Callable[[dict[str, Any]], Awaitable[Any]]
"""Sends a call to the service; its JSON arguments have the names of the service's schema."""


def action_from_schema(
    name: str,
    send: Send,
    arguments: Mapping[str, Any],
    *,
    description: str = "",
    result: Mapping[str, Any] | None = None,
    effect: Effect = "irreversible",
    observed_types: Callable[[], ObservedTypes] | None = None,
    unknown_result_type: str = "Any",
) -> Action:
    """Make an action whose parameters are the properties of a JSON schema.

    The schema's properties become keywords, renamed if they are not Python names. Arguments are
    checked before the call is made; results are passed on unchanged.

    Args:
        name: The service's name for the action, which is converted to a Python name.
        send: Sends the call to the service.
        arguments: The schema of the object with all arguments; every ``$ref`` is internal.
        description: The description; its first sentences are shown to the model.
        result: The schema of the result, if known.
        effect: The effect of a call.
        observed_types: Returns the types of earlier results.
        unknown_result_type: The result type to show if neither a schema nor an earlier result is
            known.

    Raises:
        ToolDefinitionError: If the schema cannot be used.
    """
    if effect not in EFFECTS:
        raise ToolDefinitionError(f"unknown effect {effect!r}; one of: {', '.join(EFFECTS)}")
    python_name = action_name(name)
    docs = read_docstring(inspect.cleandoc(description))
    argument_schema = _Arguments(python_name, arguments, docs.parameters)

    async def call(**keywords: Any) -> Any:
        return await send(argument_schema.named(keywords))

    declared_types = functools.cache(
        lambda: _declared_types(argument_schema, result, unknown_result_type)
    )

    def full_types() -> FullTypes:
        """Return the declared types, completed by the types that earlier results had."""
        types = declared_types()
        if observed_types is None:
            return types
        observed = observed_types()
        returns = types.returns
        if result is None and observed.results is not None:  # no schema, but an earlier result
            returns = observed.results
        # If a result had None where the schema has only ``int``, the type becomes ``int | None``.
        return replace(types, returns=with_types(returns, observed.undeclared))

    text = "\n\n".join(filter(None, [docs.summary, docs.notes]))
    summary, notes = split_text(text, _MAX_SUMMARY, _MAX_SUMMARY + _MAX_DESCRIPTION)
    return Action(
        name=python_name,
        permission=python_name,
        effect=effect,
        summary=summary or python_name.replace("_", " "),
        parameters=argument_schema.parameters,
        returns=(
            unknown_result_type if result is None else result_text(result, SHORT, _MAX_RETURNS)
        ),
        validate=argument_schema.validate,
        call=call,
        schema=argument_schema.schema,
        full_types=full_types,
        returns_doc=clean(docs.returns, _MAX_RETURNS_DOC),
        notes=notes,
        description=clean(description, _MAX_DESCRIPTION),
    )


def _declared_types(
    arguments: _Arguments, result: Mapping[str, Any] | None, unknown_result_type: str
) -> FullTypes:
    """Return the types that the schemas declare for parameters and result, without shortening."""
    return FullTypes(
        parameters=arguments.parameters_in(_FULL_LIMITS),
        returns=unknown_result_type if result is None else result_text(result),
        notes="" if result is None else notes_of(RootSchema(result), result, "result"),
    )


def result_text(schema: Mapping[str, Any], extent: Extent = FULL, limit: int = FULL_CHARS) -> str:
    """Format the type of an action's result.

    Args:
        schema: The schema of the result.
        extent: The limits on how much of the schema is shown.
        limit: The maximum number of characters.
    """
    return safe_text(
        Shapes(RootSchema(schema), _MAX_VISITS, extent=extent), schema, "result", limit
    )


class _Arguments:
    """The arguments of an action, declared by a JSON schema.

    Formats arguments for prompts, validates them, and renames them to the schema's names.

    Args:
        action: The action's name, for messages.
        schema: The schema of all arguments.
        docs: Descriptions of arguments that the schema does not describe.
    """

    def __init__(
        self, action: str, schema: Mapping[str, Any], docs: Mapping[str, str] = _NONE
    ) -> None:
        self._docs = docs
        self._action = action
        self._root_schema = dict(schema)
        self._checker = Checker(self._root_schema, action)
        document = self._document = RootSchema(self._root_schema)
        try:
            merged_object = merge_object(document, self._root_schema)
        except DelfError as error:
            raise ToolDefinitionError(f"{action}: {error.message}") from error
        self._has_one_nameless_argument = merged_object is None
        if merged_object is None:  # the schema is not an object, so its value is the only argument
            properties = {_NAMELESS_ARGUMENT: self._root_schema}
            self._required = {_NAMELESS_ARGUMENT}
            self._accepts_unknown_arguments = False
        else:
            properties = merged_object.properties
            self._required = merged_object.required
            self._accepts_unknown_arguments = merged_object.additional
        if len(properties) > _MAX_ARGUMENTS:
            raise ToolDefinitionError(
                f"{action} takes {len(properties):,} arguments; at most {_MAX_ARGUMENTS} are read"
            )
        # The names of the schema's properties, and their schemas, by keyword argument: scripts use
        # ``to_address`` for a property ``to-address``.
        self._schema_names: dict[str, str] = {}
        self._schemas: dict[str, Any] = {}
        required_first = sorted(properties, key=lambda name: name not in self._required)
        for name in required_first:
            arg = unique(argument_name(name), self._schema_names)
            self._schema_names[arg] = name
            self._schemas[arg] = properties[name]
        self.parameters = self.parameters_in(_SHORT_LIMITS)

    def parameters_in(self, limits: _StubLimits) -> tuple[Parameter, ...]:
        """Return the parameters, with types and descriptions that fit the limits."""
        shapes = Shapes(self._document, _MAX_VISITS, extent=limits.extent)
        parameters: list[Parameter] = []
        for arg, schema in self._schemas.items():
            resolved = resolve_or_empty(self._document, schema)
            text = resolved.get("description") or self._docs.get(arg)
            max_chars = limits.doc_chars + _MAX_DESCRIPTION  # of the first sentences and the rest
            first_sentences, rest = split_text(text, limits.doc_chars, max_chars)
            hints = hints_of(self._document, schema, limits.doc_chars, limits.hint_depth)
            is_required = self._schema_names[arg] in self._required
            notes = ""
            if limits.has_notes:
                notes = notes_of(self._document, schema, "parameter", rest)
            parameters.append(
                Parameter(
                    name=arg,
                    type_text=safe_text(shapes, schema, "parameter", limits.type_chars),
                    default_text=None if is_required else default_text(resolved),
                    doc="; ".join(filter(None, [hints, first_sentences])),
                    notes=notes,
                )
            )
        return tuple(parameters)

    def schema(self) -> dict[str, Any]:
        """Return a JSON schema of the arguments, with the names that scripts use."""
        definition_keys = ("$schema", "$defs", "definitions")
        definitions = {
            key: self._root_schema[key] for key in definition_keys if key in self._root_schema
        }
        return {
            "type": "object",
            "properties": dict(self._schemas),
            "required": [item.name for item in self.parameters if item.required],
            "additionalProperties": self._accepts_unknown_arguments,
            **definitions,
        }

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate arguments and return them as plain data.

        Raises:
            ToolRefusedError: If the arguments are invalid.
        """
        unknown = [name for name in arguments if name not in self._schema_names]
        if unknown and not self._accepts_unknown_arguments:
            raise self._refusal(
                f"there is no argument {unknown[0]!r}{did_you_mean(unknown[0], self._schema_names)}"
            )
        optional = {item.name for item in self.parameters if not item.required}
        checked: dict[str, Any] = {}
        for name, value in arguments.items():
            try:
                converted = numbers_as_text(
                    value, self._schemas.get(name, {}), self._document.resolve
                )
                checked[name] = without_bytes(plain(converted, name))
            except Misfit as misfit:
                raise self._refusal(str(misfit)) from None
        fault = self._checker.fault(self._with_schema_names(checked))
        # Models write None for optional arguments that they leave out: remove each None that the
        # schema does not allow, and check again.
        while fault is not None:
            null_argument = self._argument_with_invalid_none(fault, checked)
            if null_argument is None or null_argument not in optional:
                path = tuple(map(self._argument_name, fault.path))
                raise self._refusal(str(fault._replace(path=path)))
            del checked[null_argument]
            fault = self._checker.fault(self._with_schema_names(checked))
        return checked

    def _argument_with_invalid_none(self, fault: Fault, arguments: Mapping[str, Any]) -> str | None:
        """Return the name of the argument that is faulty because its value is None, if any."""
        arg = self._argument_name(fault.path[0]) if fault.path else ""
        if arg in arguments and arguments[arg] is None:
            return arg
        return None

    def named(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Rename validated arguments to the schema's names."""
        return cast("dict[str, Any]", self._with_schema_names(arguments))

    def _with_schema_names(self, arguments: Mapping[str, Any]) -> Any:
        """Convert a script's keyword arguments to the value that the schema describes.

        For the schema of an object, this is a dict with the schema's property names, such as
        ``to-address`` for the argument ``to_address``. For another schema, such as that of a list,
        this is the value of the only argument, ``arguments``.
        """
        if self._has_one_nameless_argument:
            return arguments.get(_NAMELESS_ARGUMENT)
        return {self._schema_names.get(name, name): value for name, value in arguments.items()}

    def _argument_name(self, part: str | int) -> str:
        """Return the keyword argument for a property of the schema; any other text unchanged.

        Args:
            part: A part of a fault's path: the name of a property, or the index of an item.
        """
        return next((arg for arg, name in self._schema_names.items() if name == part), str(part))

    def _refusal(self, problem: str) -> ToolRefusedError:
        parameter_names = ", ".join(map(str, self.parameters))
        return ToolRefusedError(
            f"{self._action}: {problem}. Expected {self._action}({parameter_names})"
        )
