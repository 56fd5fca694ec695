"""Actions from JSON schemas, for services that describe their parameters so."""

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
from delf.tools.json_schema import Checker, Fault, clean, resolve_reference
from delf.tools.signature import FullTypes, Parameter
from delf.tools.type_texts import with_types
from delf.types import Effect
from delf_schemas.hints import hints_of
from delf_schemas.names import argument_name, method_name, split_text, unique
from delf_schemas.notes import notes_of
from delf_schemas.plain import Misfit, plain, with_decimals, without_bytes
from delf_schemas.samples import Found
from delf_schemas.shapes import (
    FULL,
    FULL_CHARS,
    SHORT,
    Extent,
    Shapes,
    default_text,
    merge_object,
    safe_text,
)

_SUMMARY: Final = 280
_RETURNS_DOC: Final = 400
_DESCRIPTION: Final = 2_000
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_RETURNS: Final = 420
_VISITS: Final = 20_000
_MAX: Final = 500
_WHOLE: Final = "arguments"
"""The single argument of an action whose schema is not a list of properties."""


class _Room(NamedTuple):
    """The limits on a parameter in a stub.

    Args:
        argument: The maximum characters of its type.
        doc: The maximum characters of the line about the parameter.
        extent: The parts of its schema to show.
        depth: The number of nested records whose limits are shown.
        has_notes: Whether the keys of records are described.
    """

    argument: int
    doc: int
    extent: Extent
    depth: int
    has_notes: bool = False


_SHORT_ROOM: Final = _Room(260, 160, SHORT, 0)
_FULL_ROOM: Final = _Room(FULL_CHARS, 240, FULL, 4, has_notes=True)

Seen = tuple[str | None, frozenset[Found]]
"""The type of observed results, and undeclared types in them."""

Send = Callable[[dict[str, Any]], Awaitable[Any]]
"""Makes a call, with arguments under the names of the schema, as plain JSON data."""


def action_from_schema(
    name: str,
    send: Send,
    arguments: Mapping[str, Any],
    *,
    description: str = "",
    result: Mapping[str, Any] | None = None,
    effect: Effect = "irreversible",
    learned_shapes: Callable[[], Seen] | None = None,
    unknown: str = "Any",
) -> Action:
    """Make an action whose parameters are the properties of a JSON schema.

    The schema's properties become keywords, renamed if they are not Python names. Arguments are
    checked before the call is made; results are passed on unchanged.

    Args:
        name: The service's name of the action, from which the action's name is made.
        send: Sends the call to the service.
        arguments: The schema of the arguments, as an object. ``$ref`` stay within it.
        description: The description; its first sentences are shown to the model.
        result: The schema of the result, if known.
        effect: The effect of a call.
        learned_shapes: Returns what earlier results have shown.
        unknown: The type of results without a schema before any was seen.

    Raises:
        ToolDefinitionError: If the schema cannot be used.
    """
    if effect not in EFFECTS:
        raise ToolDefinitionError(f"unknown effect {effect!r}; one of: {', '.join(EFFECTS)}")
    final = method_name(name)
    docs = read_docstring(inspect.cleandoc(description))
    argument_schema = _Arguments(final, arguments, docs.parameters)

    async def call(**keywords: Any) -> Any:
        return await send(argument_schema.named(keywords))

    @functools.cache
    def full() -> FullTypes:
        returns = unknown if result is None else result_text(result)
        notes = "" if result is None else notes_of(_Schema(result), result, "out")
        return FullTypes(
            parameters=argument_schema.parameters_in(_FULL_ROOM), returns=returns, notes=notes
        )

    def full_types() -> FullTypes:
        full_document = full()
        returns = full_document.returns
        learned, found_places = (
            (None, frozenset[Found]()) if learned_shapes is None else learned_shapes()
        )
        if result is None and learned is not None:
            returns = learned
        return replace(full_document, returns=with_types(returns, found_places))

    text = "\n\n".join(filter(None, [docs.summary, docs.notes]))
    summary, notes = split_text(text, _SUMMARY, _DESCRIPTION)
    return Action(
        name=final,
        permission=final,
        effect=effect,
        summary=summary or final.replace("_", " "),
        parameters=argument_schema.parameters,
        returns=unknown if result is None else result_text(result, SHORT, _RETURNS),
        validate=argument_schema.validate,
        call=call,
        schema=argument_schema.schema,
        full_types=full_types,
        returns_doc=clean(docs.returns, _RETURNS_DOC),
        notes=notes,
        description=clean(description, _DESCRIPTION),
    )


def result_text(schema: Mapping[str, Any], extent: Extent = FULL, limit: int = FULL_CHARS) -> str:
    """Return the type of an action's result.

    Args:
        schema: The schema of the result.
        extent: The parts of the schema to show.
        limit: The maximum number of characters.
    """
    return safe_text(Shapes(_Schema(schema), _VISITS, extent=extent), schema, "out", limit)


class _Arguments:
    """Shows and checks the arguments of an action, and renames them to those of its schema.

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
        self._whole = dict(schema)
        self._checker = Checker(self._whole, action)
        document = self._document = _Schema(self._whole)
        try:
            merged_object = merge_object(document, self._whole)
        except DelfError as error:
            raise ToolDefinitionError(f"{action}: {error.message}") from error
        self._names: dict[str, str] = {}
        self._schemas: dict[str, Any] = {}
        self._more = merged_object is not None and merged_object.additional
        self._is_whole = merged_object is None
        required = {_WHOLE} if merged_object is None else merged_object.required
        properties = {_WHOLE: self._whole} if merged_object is None else merged_object.properties
        if len(properties) > _MAX:
            raise ToolDefinitionError(
                f"{action} takes {len(properties):,} arguments, and at most {_MAX} are read"
            )
        for name in sorted(properties, key=lambda name: name not in required):
            arg = unique(argument_name(name), self._names)
            self._names[arg], self._schemas[arg] = name, properties[name]
        self._required = required
        self.parameters = self.parameters_in(_SHORT_ROOM)

    def parameters_in(self, room: _Room) -> tuple[Parameter, ...]:
        """Return the parameters with types and descriptions within some limits."""
        shapes = Shapes(self._document, _VISITS, extent=room.extent)
        parameters: list[Parameter] = []
        for arg, schema in self._schemas.items():
            resolved = _resolve_schema(self._document, schema)
            text = resolved.get("description") or self._docs.get(arg)
            about, rest = split_text(text, room.doc, _DESCRIPTION)
            hints = hints_of(self._document, schema, room.doc, room.depth)
            parameters.append(
                Parameter(
                    name=arg,
                    type_text=safe_text(shapes, schema, "in", room.argument),
                    default_text=None
                    if self._names[arg] in self._required
                    else default_text(resolved),
                    doc="; ".join(filter(None, [hints, about])),
                    notes=notes_of(self._document, schema, "in", rest) if room.has_notes else "",
                )
            )
        return tuple(parameters)

    def schema(self) -> dict[str, Any]:
        """Return the arguments as a JSON schema, under the names that scripts use."""
        kept_keys = ("$schema", "$defs", "definitions")
        definitions = {key: self._whole[key] for key in kept_keys if key in self._whole}
        return {
            "type": "object",
            "properties": dict(self._schemas),
            "required": [item.name for item in self.parameters if item.required],
            "additionalProperties": self._more,
            **definitions,
        }

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate arguments and return them as plain data.

        Raises:
            ToolRefusedError: If the arguments are invalid.
        """
        unknown = [name for name in arguments if name not in self._names]
        if unknown and not self._more:
            raise self._refusal(
                f"there is no argument {unknown[0]!r}{did_you_mean(unknown[0], self._names)}"
            )
        optional = {item.name for item in self.parameters if not item.required}
        checked: dict[str, Any] = {}
        for name, value in arguments.items():
            try:
                converted = with_decimals(
                    value, self._schemas.get(name, {}), self._document.resolve
                )
                checked[name] = without_bytes(plain(converted, name))
            except Misfit as misfit:
                raise self._refusal(str(misfit)) from None
        fault = self._checker.fault(self._to_wire(checked))
        while fault is not None and (left_out := self._left_out(fault, checked)) in optional:
            del checked[left_out]
            fault = self._checker.fault(self._to_wire(checked))
        if fault is not None:
            place = tuple(map(self._arg, fault.path))
            raise self._refusal(str(fault._replace(path=place)))
        return checked

    def _left_out(self, fault: Fault, arguments: Mapping[str, Any]) -> str | None:
        """Return the argument that a fault is about, if its value was an invalid None."""
        arg = self._arg(fault.path[0]) if fault.path else ""
        return arg if arg in arguments and arguments[arg] is None else None

    def named(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Rename validated arguments to the names in the schema."""
        return cast("dict[str, Any]", self._to_wire(arguments))

    def _to_wire(self, arguments: Mapping[str, Any]) -> Any:
        if self._is_whole:
            return arguments.get(_WHOLE)
        return {self._names.get(name, name): value for name, value in arguments.items()}

    def _arg(self, part: str | int) -> str:
        return next((arg for arg, name in self._names.items() if name == part), str(part))

    def _refusal(self, problem: str) -> ToolRefusedError:
        parameter_names = ", ".join(map(str, self.parameters))
        return ToolRefusedError(
            f"{self._action}: {problem}. Expected {self._action}({parameter_names})"
        )


class _Schema:
    """A schema with internal references only.

    Args:
        root: The schema.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def absolute(self, ref: str) -> str:
        """Return a reference unchanged, because a schema has internal references only."""
        return ref

    def resolve(self, node: Any) -> dict[str, Any]:
        """Return a schema with its references followed."""
        for _ in range(100):
            if not isinstance(node, Mapping):
                return {} if node is not False else {"not": {}}
            mapping = cast("Mapping[str, Any]", node)
            ref = mapping.get("$ref")
            if not isinstance(ref, str):
                return dict(mapping)
            try:
                target = resolve_reference(self._root, ref)
            except ValueError as error:
                raise ToolDefinitionError(str(error)) from None
            rest = {key: value for key, value in mapping.items() if key != "$ref"}
            node = {**cast("Any", target), **rest} if isinstance(target, Mapping) else target
        raise ToolDefinitionError(f"the reference {clean(str(node))} goes in a circle")


def _resolve_schema(document: _Schema, schema: Any) -> Mapping[str, Any]:
    try:
        return document.resolve(schema)
    except ToolDefinitionError:
        return {}
