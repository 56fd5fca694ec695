"""Schemas as compact types, as ``list[{"id": int, "name": str}]``, never longer than allowed."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol, cast

from delf.errors import DelfError, ToolDefinitionError
from delf.tools.json_schema import clean, resolve_reference
from delf_schemas.names import snake

Role = Literal["parameter", "result"]

CONTENT: Final = "contentSchema"
"""The schema keyword for the data that a text encodes."""
NOTATION: Final = "x-written"
"""The schema keyword for how a text encodes data, if the text is not a single JSON value.

``lines``: JSON lines. ``literal``: a Python literal. ``mixed``: JSON in some results, a Python
literal in others.
"""
SOMETIMES_ENCODED: Final = "x-at-times"
"""The schema keyword for a text that is JSON in some results and plain text in others."""
HAS_OPTIONAL_KEYS: Final = "x-seen"
"""The schema keyword for a record without some of its keys in some results."""

_NOTATIONS: Final = {
    "lines": "a value of JSON on each line, together",
    "literal": "a Python literal, for ast.literal_eval",
    "mixed": "JSON, or a Python literal",
}
_TYPES: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
_DATES: Final = {"date": "date", "date-time": "datetime"}
_OUTER_TYPES: Final = {"list[": "list", "dict[": "dict", "{": "dict", "Literal[": "str"}
_MAX_LITERAL_CHARS: Final = 160
_MAX_DEFAULT: Final = 24
_MAX_MERGE_DEPTH: Final = 40
_MAX_MERGE_VISITS: Final = 400
_MAX_VARIANTS: Final = 20
# The number of properties above which an object's most important properties come first.
_MAX_UNSORTED: Final = 16
# Schemas whose alternatives refer to each other can have exponentially many paths.
_MAX_VISITS: Final = 4000
_STRUCTURE: Final = frozenset(
    {"$ref", "type", "properties", "items", "enum", "const", "allOf", "anyOf", "oneOf"}
)


class Extent(NamedTuple):
    """The limits on how much of a JSON Schema is shown in the type generated from the schema.

    Args:
        properties: The maximum number of properties of an object, for each nesting depth, the
            outermost object first.
        literals: The maximum number of values of an enumeration.
        literal_chars: The maximum number of characters of these values.
        choices: The maximum number of alternatives of a union.
    """

    properties: tuple[int, ...]
    literals: int
    literal_chars: int
    choices: int

    @property
    def depth(self) -> int:
        """The number of levels of nested objects to show; deeper objects become ``dict``.

        The tuple ``properties`` has one item for each level.
        """
        return len(self.properties)


SHORT: Final = Extent((14, 8, 5), 12, _MAX_LITERAL_CHARS, 5)
FULL: Final = Extent((100, 100, 100, 100, 100), 1_000, 20_000, 20)
FULL_CHARS: Final = 6_000
"""The maximum number of characters of one type in full; a longer type is shown less deeply nested.

An enumeration counts as at most 400 characters, and is shown with all its values, so that a search
for tools finds the values that a task names.
"""
_MAX_COUNTED_ENUM: Final = 400
_ENUMERATION: Final = re.compile(r"Literal\[(?:[^\]'\"]|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")*\]")


class Document(Protocol):
    """The document that contains schemas and resolves the references among them."""

    def absolute(self, ref: str) -> str:
        """Return a reference with the address of the other document, if it leads to one."""
        ...

    def resolve(self, node: Any) -> dict[str, Any]:
        """Return the schema that a node's references lead to, without ``$ref``.

        Raises:
            DelfError: If a reference cannot be resolved.
        """
        ...


class RootSchema:
    """A document that is one schema, with internal references only.

    Args:
        root: The whole schema, in which its references are looked up.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def absolute(self, ref: str) -> str:
        """Return a reference as it is, because references point into the schema itself."""
        return ref

    def resolve(self, node: Any) -> dict[str, Any]:
        """Return the schema that a node's references lead to, with the node's other keywords."""
        for _ in range(100):  # more references in a row must be a circle
            if node is False:
                return {"not": {}}  # accepts no value
            if not isinstance(node, Mapping):
                return {}
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


def resolve_or_empty(document: Document, node: Any) -> Mapping[str, Any]:
    """Return the schema that a node's references lead to; empty if a reference is broken."""
    try:
        return document.resolve(node)
    except DelfError:
        return {}


class Shapes:
    """Formats the schemas of one document as Python types, such as ``list[int]``.

    Args:
        document: The document, for resolving references.
        max_schemas: The maximum number of schemas to visit; further schemas become ``Any``.
        has_date_objects: Whether results contain ``date`` and ``datetime`` objects instead of text.
        extent: The limits on how much of a schema is shown.
    """

    def __init__(
        self,
        document: Document,
        max_schemas: int | None = None,
        *,
        has_date_objects: bool = False,
        extent: Extent = SHORT,
    ) -> None:
        self._document = document
        self._extent = extent
        self._has_date_objects = has_date_objects
        # The number of schemas that may still be visited.
        self._remaining_schemas = math.inf if max_schemas is None else max_schemas
        # Types as text, by reference, levels left and role.
        self._cache: dict[tuple[str, int, str], str] = {}
        # The names of types that contain themselves, by reference.
        self._recursive_names: dict[str, str] = {}
        # The references whose types are being formatted, the outermost first.
        self._open_refs: list[str] = []
        # The open references that were found again inside their own type. There, only the type's
        # name is shown.
        self._refs_with_name: set[str] = set()
        self._visits_of_current_type = 0

    def text(self, schema: Any, role: Role, limit: int) -> str:
        """Return a schema's type, nested as deeply as the limit allows.

        Args:
            schema: The schema.
            role: Whether the schema is that of a ``parameter`` or of a ``result``.
            limit: The maximum number of characters.

        Raises:
            DelfError: If a reference cannot be resolved.
        """
        type_text = ""
        for levels_left in reversed(range(self._extent.depth + 1)):  # try the deepest type first
            self._open_refs.clear()
            self._refs_with_name.clear()
            self._visits_of_current_type = 0
            type_text = self._type_text(schema, levels_left, role)
            if len(type_text) <= limit or _length_without_long_enums(type_text) <= limit:
                return type_text
        return _outer_type(type_text)

    def _type_text(self, schema: Any, levels_left: int, role: Role) -> str:
        """Return the type of a schema or of a reference, as text.

        Where a type contains itself, the text has only the type's name.
        """
        # The first number limits the work for this type, the second the work for the document.
        self._visits_of_current_type += 1
        self._remaining_schemas -= 1
        if (
            not isinstance(schema, dict)
            or self._visits_of_current_type > _MAX_VISITS
            or self._remaining_schemas < 0
        ):
            return "Any"
        node = cast("dict[str, Any]", schema)
        ref = node.get("$ref")
        if not isinstance(ref, str):
            return self._resolved_type_text(node, levels_left, role)
        return self._text_of_reference(node, self._document.absolute(ref), levels_left, role)

    def _text_of_reference(
        self, node: dict[str, Any], ref: str, levels_left: int, role: Role
    ) -> str:
        """Return the type of a schema with a reference, as text.

        Args:
            node: The schema.
            ref: The reference, with the address of its document if it is in another document.
            levels_left: The number of nested levels of records and dicts to show.
            role: Whether the schema is that of a ``parameter`` or of a ``result``.
        """
        if ref in self._open_refs:  # the type contains itself
            self._refs_with_name.add(ref)
            return self._recursive_name(ref)
        has_other_keywords = len(node) > 1  # beside ``$ref``; they can change the type
        if has_other_keywords:
            return self._text_of_target(node, ref, levels_left, role)
        key = (ref, levels_left, role)
        if key in self._cache:
            return self._cache[key]
        text = self._text_of_target(node, ref, levels_left, role)
        # Do not cache the part ``list[Node]`` of ``(Node := {"next": list[Node]})``: it is valid
        # only there.
        has_name_of_enclosing_type = bool(self._refs_with_name)
        is_complete = self._visits_of_current_type <= _MAX_VISITS
        if is_complete and not has_name_of_enclosing_type:
            self._cache[key] = text
        return text

    def _text_of_target(self, node: dict[str, Any], ref: str, levels_left: int, role: Role) -> str:
        """Return the type that a reference leads to.

        A type that contains itself gets a name: ``(Node := {"id": int, "next": Node})``.
        """
        self._open_refs.append(ref)
        # If the type contains itself, this call adds ``ref`` to self._refs_with_name.
        text = self._resolved_type_text(self._document.resolve(node), levels_left, role)
        self._open_refs.pop()
        if ref not in self._refs_with_name:
            return text
        self._refs_with_name.discard(ref)
        name = self._recursive_name(ref)
        # The part with the name may be missing in a shortened type.
        return f"({name} := {text})" if name in text else text

    def _recursive_name(self, ref: str) -> str:
        """Return the name of a type that contains itself, made from the reference to it."""
        name = self._recursive_names.get(ref)
        if name is None:
            # For ``#/components/schemas/Pet`` and for ``schemas/pet.json#``, the name is Pet.
            last_segment = ref.rstrip("#").rpartition("/")[2]
            words = snake(last_segment.partition(".")[0]).split("_")
            name = "".join(word.capitalize() for word in words if word)[:40]
            if not name or not name[0].isalpha():
                name = f"Model{len(self._recursive_names) + 1}"
            self._recursive_names[ref] = name
        return name

    def _resolved_type_text(self, schema: dict[str, Any], levels_left: int, role: Role) -> str:
        """Return the type of a schema that is not a reference, such as ``int | None``."""
        kind: Any = schema.get("type")
        nullable = schema.get("nullable") is True
        if isinstance(kind, list):
            declared_kinds = [str(k) for k in cast("list[Any]", kind)]
            nullable = nullable or "null" in declared_kinds
            kinds = [k for k in declared_kinds if k != "null"]
            has_several_kinds = len(kinds) > 1
            if has_several_kinds and "enum" not in schema:  # of an enum, only the values are shown
                parts = [
                    self._type_of_kind(k, schema, levels_left, role)
                    for k in kinds[: self._extent.choices]
                ]
                return _union(parts, self._extent.choices, nullable=nullable)
            kind = kinds[0] if kinds else "null"
        text = self._choice_text(schema, levels_left, role)
        if text is None:
            text = self._type_of_kind(kind, schema, levels_left, role)
        return _union([text], self._extent.choices, nullable=nullable)

    def _choice_text(self, schema: dict[str, Any], levels_left: int, role: Role) -> str | None:
        """Format an enumeration, alternatives or ``allOf``; None for a schema without these."""
        if "const" in schema:
            return _literal_type([schema["const"]], self._extent)
        values = schema.get("enum")
        if isinstance(values, list) and values:
            return _literal_type(cast("list[Any]", values), self._extent)
        if "properties" in schema or "allOf" in schema:
            object_text = self._combined_object_text(schema, levels_left, role)
            if object_text is not None:
                return object_text
        if "properties" not in schema:  # else, the alternatives only restrict the object's keys
            alternatives = self._alternatives_text(schema, levels_left, role)
            if alternatives is not None:
                return alternatives
        parts = list_at(schema, "allOf")
        return self._most_informative_text(parts, levels_left, role) if parts else None

    def _alternatives_text(
        self, schema: dict[str, Any], levels_left: int, role: Role
    ) -> str | None:
        """Format ``oneOf`` or ``anyOf`` as a union; None for a schema without these."""
        for keyword in ("oneOf", "anyOf"):
            alternatives = filter(_is_alternative, list_at(schema, keyword))
            types = [self._type_text(choice, levels_left, role) for choice in alternatives]
            says_more_than_any = bool(set(types) - {"Any"})
            if says_more_than_any:
                return _union(types, self._extent.choices, nullable=False)
        return None

    def _combined_object_text(
        self, schema: dict[str, Any], levels_left: int, role: Role
    ) -> str | None:
        """Format an object with ``allOf`` or alternatives as a union of complete objects.

        Properties that all alternatives share are repeated in each object.

        Returns:
            The text; None if the schema is not such an object.
        """
        parts = list_at(schema, "allOf")
        if len(parts) == 1 and not schema.keys() & {"properties", "oneOf", "anyOf"}:
            return None  # the caller shows the part's own type, which may have a name
        reader = _ObjectReader(self._document)
        objects = reader.objects(schema)
        self._visits_of_current_type += reader.visits
        self._remaining_schemas -= reader.visits
        if objects is None:
            return None
        # If nothing was combined, or the result has no properties, this function adds nothing.
        is_single = len(objects) == 1
        is_ordinary_object = is_single and not parts
        has_no_properties = is_single and not objects[0].properties
        if is_ordinary_object or has_no_properties:
            return None
        texts = [self._object_text(o.properties, o.required, levels_left, role) for o in objects]
        return _union(texts, self._extent.choices, nullable=False)

    def _most_informative_text(self, parts: list[Any], levels_left: int, role: Role) -> str:
        """Return the type of the most informative part of ``allOf``; the first of equal parts."""
        texts = [self._type_text(part, levels_left, role) for part in parts]
        # False sorts before True: "Any" says least, then "dict", and a Literal says most.
        return min(
            texts,
            key=lambda text: (text == "Any", text == "dict", not text.startswith("Literal[")),
        )

    def _type_of_kind(self, kind: Any, schema: dict[str, Any], levels_left: int, role: Role) -> str:
        """Return the Python type for a schema with ``kind`` as its only ``type``.

        ``kind`` is None for a schema without ``type``, such as ``{"items": {"type": "integer"}}``.
        """
        if kind == "bytes":  # only in the schemas that delf infers from Python values
            return "bytes"
        if kind == "string":
            return self._type_of_string(schema, levels_left, role)
        if kind in _TYPES:
            return _TYPES[kind]
        if kind == "null":
            return "None"
        if kind == "array" or (kind is None and "items" in schema):
            return f"list[{self._type_text(schema.get('items'), levels_left, role)}]"
        properties = schema.get("properties")
        has_properties = isinstance(properties, dict) and properties != {}
        has_other_properties = isinstance(schema.get("additionalProperties"), dict)
        if kind == "object" or has_properties or has_other_properties:
            return self._type_of_object(schema, levels_left, role)
        if role == "parameter" and is_binary(schema):  # results in JSON cannot contain bytes
            return "bytes"
        return "Any"

    def _type_of_object(self, schema: dict[str, Any], levels_left: int, role: Role) -> str:
        """Return the type of an object: its keys if the schema declares keys, else a ``dict``."""
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            return self._object_text(
                cast("dict[str, Any]", properties),
                _required_names(schema),
                levels_left,
                role,
                marks_optional=schema.get(HAS_OPTIONAL_KEYS) is True,
            )
        additional = schema.get("additionalProperties")
        if isinstance(additional, dict) and additional and levels_left > 0:
            return f"dict[str, {self._type_text(cast('Any', additional), levels_left - 1, role)}]"
        return "dict"

    def _type_of_string(self, schema: dict[str, Any], levels_left: int, role: Role) -> str:
        """Return the type of a string: ``str``, ``bytes``, or the class of a date.

        A result may be encoded data, such as JSON. The returned text then has the type of the data,
        such as ``str (JSON: dict)``. The schema's ``CONTENT`` is the schema of the data, and
        ``NOTATION`` is the encoding. With ``SOMETIMES_ENCODED``, some results are plain text.
        """
        content = schema.get(CONTENT)
        if role == "result" and isinstance(content, dict) and levels_left > 0:
            # The result is a text that the script must decode.
            or_text = ", or plain text" if SOMETIMES_ENCODED in schema else ""
            notation = _NOTATIONS.get(str(schema.get(NOTATION, "")), "JSON")
            decoded_type = self._type_text(cast("Any", content), levels_left, role)
            return f"str ({notation}: {decoded_type}{or_text})"
        if is_binary(schema):
            return "bytes" if role == "parameter" else "str"  # answers in JSON cannot contain bytes
        returns_dates = self._has_date_objects and role == "result"
        if returns_dates and schema.get("format") in _DATES:
            return _DATES[schema["format"]]
        return "str"

    def _object_text(
        self,
        properties: dict[str, Any],
        required: set[str],
        levels_left: int,
        role: Role,
        *,
        marks_optional: bool = False,
    ) -> str:
        """Format an object.

        Optional keys are marked with ``?`` in parameters, and in results if ``marks_optional``.
        """
        if levels_left <= 0:
            return "dict"
        level = self._extent.depth - levels_left  # 0 for the outermost object
        max_properties = self._extent.properties[level]
        order = _order(properties, required, role)
        shows_optional = marks_optional or role == "parameter"
        hidden_mark = "readOnly" if role == "parameter" else "writeOnly"
        lines: list[str] = []
        for name in order:
            part = properties[name]
            if _has_mark(part, hidden_mark) or _has_mark(part, "deprecated"):
                continue
            if len(lines) >= max_properties:
                lines.append("...")
                break
            mark = "?" if shows_optional and name not in required else ""
            lines.append(
                f"{mark}{_quote_name(name)}: {self._type_text(part, levels_left - 1, role)}"
            )
        return f"{{{', '.join(lines)}}}" if lines else "dict"


def _has_mark(schema: Any, keyword: str) -> bool:
    return isinstance(schema, dict) and cast("dict[str, Any]", schema).get(keyword) is True


def _order(properties: dict[str, Any], required: set[str], role: Role) -> list[str]:
    """Sort an object's properties by importance: a shortened type omits the last properties.

    Required properties come first in parameters, and in a large object of a result that also has
    optional properties. In large objects, enumerations come next, because a script cannot guess
    their values. All others keep their order.
    """
    is_large = len(properties) > _MAX_UNSORTED
    has_optional = not required.issuperset(properties)
    puts_required_first = role == "parameter" or (is_large and has_optional)

    def rank(name: str) -> int:
        if puts_required_first and name in required:
            return 0
        part = properties[name]
        is_enum = isinstance(part, dict) and "enum" in part
        if is_large and is_enum:
            return 1
        return 2

    return sorted(properties, key=rank)


def _is_alternative(choice: Any) -> bool:
    """Return True if a choice of ``oneOf`` or ``anyOf`` describes a value of its own.

    A choice such as ``{"required": ["id"]}`` only adds a constraint. The empty schema counts as an
    alternative, because this schema accepts any value.
    """
    return not isinstance(choice, dict) or not choice or bool(_STRUCTURE & choice.keys())


def _required_names(schema: dict[str, Any]) -> set[str]:
    required_names = schema.get("required")
    items = cast("list[Any]", required_names) if isinstance(required_names, list) else []
    return {name for name in items if isinstance(name, str)}


def _length_without_long_enums(text: str) -> int:
    """Return the length of a type, counting at most 400 characters of each enumeration."""
    sizes = (len(match[0]) for match in _ENUMERATION.finditer(text))
    return len(text) - sum(max(0, size - _MAX_COUNTED_ENUM) for size in sizes)


def _quote_name(name: str) -> str:
    return json.dumps(name[:60]).replace("```", "'''")


def _literal_type(values: list[Any], extent: Extent) -> str:
    """Format an enumeration as a ``Literal``, or as ``str`` if a value is too long."""
    # Some enumerations list an empty text for a missing value. The type omits the empty text.
    plain_values = [v for v in values if isinstance(v, (str, int, float, bool)) and v != ""]
    none_part = " | None" if None in values else ""
    texts = [value for value in plain_values if isinstance(value, str)]
    # Types are shown in a code block, which backticks would end.
    if any("```" in text or len(text) > _MAX_LITERAL_CHARS for text in texts):
        return f"str{none_part}"
    if not plain_values:
        return "None" if none_part else "str"
    return f"Literal[{', '.join(_literal_texts(plain_values, extent))}]{none_part}"


def _literal_texts(values: list[Any], extent: Extent) -> Iterator[str]:
    """Yield the values of an enumeration as Python; ``...`` for all values beyond the limits.

    The first value is yielded even if it is too long.
    """
    size = 0
    for index, value in enumerate(values):
        is_printable_text = isinstance(value, str) and value.isprintable()
        text = repr(value) if is_printable_text else ascii(value)
        size += len(text) + len(", ")
        is_too_long = size > extent.literal_chars and index > 0
        if is_too_long or index >= extent.literals:
            yield "..."
            return
        yield text


def _union(parts: list[str], choices: int, *, nullable: bool) -> str:
    """Join types with ``|``.

    Args:
        parts: The types, such as ``int`` and ``list[str]``.
        choices: The maximum number of types besides None; ``...`` stands for the rest.
        nullable: Whether to add None, even if no type is None.
    """
    types = [part for part in dict.fromkeys(parts) if part != "None"]
    if len(types) > choices:
        types = [*types[:choices], "..."]
    if "Any" in types:  # includes all other types
        types = ["Any"]
    has_optional_type = any(part.endswith("| None") for part in types)  # such as ``int | None``
    includes_none = types == ["Any"] or has_optional_type
    needs_none = nullable or "None" in parts
    if needs_none and not includes_none:
        types.append("None")
    return " | ".join(types)


def _outer_type(text: str) -> str:
    """Return only the outermost type of a type's text, as ``list`` for ``list[int]``."""
    for start, outer_type in _OUTER_TYPES.items():
        if text.startswith(start):
            return outer_type
    return "Any"


def safe_text(shapes: Shapes, schema: Any, role: Role, limit: int) -> str:
    """Return a schema's type as text; ``Any`` if the schema or a reference in it is invalid.

    Args:
        shapes: The shapes of the document that contains the schema.
        schema: The schema.
        role: Whether the schema is that of a ``parameter`` or of a ``result``.
        limit: The highest number of characters in the text.
    """
    try:
        return shapes.text(schema, role, limit)
    except (DelfError, RecursionError, TypeError, ValueError):
        return "Any"


def default_text(schema: Mapping[str, Any]) -> str:
    """Return a schema's default value as Python; ``...`` if the default is long or missing."""
    value: Any = schema.get("default")
    is_printable_text = isinstance(value, str) and value.isprintable()
    if is_printable_text or isinstance(value, (bool, int, float)):
        text = repr(value)
        # A backtick could end the code block in which the model sees the default.
        if len(text) <= _MAX_DEFAULT and "`" not in text:
            return text
    return "..."


def is_binary(schema: Mapping[str, Any]) -> bool:
    """Return True if a schema describes bytes."""
    if schema.get("format") == "binary":
        return True
    kind: Any = schema.get("type", "string")
    may_be_string = "string" in kind if isinstance(kind, list) else kind == "string"
    return may_be_string and "contentMediaType" in schema and "contentEncoding" not in schema


@dataclass(slots=True)
class Merged:
    """An object schema with its ``allOf`` merged.

    Args:
        properties: The properties by name.
        required: The names of required properties.
        additional: Whether the schema declares that other properties are allowed.
        nullable: Whether None is allowed.
        has_type: Whether the schema declares the type ``object``.
    """

    properties: dict[str, Any]
    required: set[str]
    additional: bool
    nullable: bool
    has_type: bool = False

    @property
    def is_object(self) -> bool:
        """False for a schema that may describe values of any type."""
        return self.has_type or bool(self.properties) or self.additional


def merge_object(document: Document, schema: Any) -> Merged | None:
    """Merge an object schema and its ``allOf`` into one object.

    Args:
        document: The document with the schema.
        schema: The schema.

    Returns:
        The merged object; None if the schema describes another type, any type, or a choice of
        objects.

    Raises:
        DelfError: If a reference cannot be resolved.
    """
    objects = _ObjectReader(document).objects(schema)
    if objects is None or len(objects) != 1 or not objects[0].is_object:
        return None
    return objects[0]


class _ObjectReader:
    """Reads an object schema with ``allOf``, ``oneOf`` or ``anyOf`` as merged objects.

    Args:
        document: The document, for resolving references.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self.visits = 0

    def objects(self, schema: Any, depth: int = 0) -> list[Merged] | None:
        """Return one object per combination of alternatives, each with the common properties.

        For ``{"allOf": [A, B], "oneOf": [C, D]}``, there are two objects: one merged from A, B and
        C, and one merged from A, B and D.

        Args:
            schema: The schema, or a part of a schema at any depth.
            depth: The number of schemas around the part.

        Returns:
            The objects; None if the schema does not describe objects, or has too many combinations.
        """
        # Schemas may be recursive, and may have twice as many parts at each level.
        self.visits += 1
        if depth > _MAX_MERGE_DEPTH or self.visits > _MAX_MERGE_VISITS:
            return None
        resolved = self._document.resolve(schema)
        kind, allows_null = _type_beside_null(resolved.get("type"))
        if kind not in (None, "object"):
            return None
        objects = [_object_without_parts(resolved, kind, allows_null=allows_null)]
        for part in list_at(resolved, "allOf"):
            part_objects = self.objects(part, depth + 1)
            if part_objects is not None:
                objects = _combinations(objects, part_objects, _merge_two)
                continue
            # Ignore a part that describes no objects, if the schema describes objects without it.
            if not all(each.is_object for each in objects):
                return None
        for keyword in ("oneOf", "anyOf"):
            if alternatives := _alternatives(resolved, keyword):
                choices = self._choices(alternatives, depth + 1)
                if choices is None:
                    return None
                objects = _combinations(objects, choices, _refined)
        if resolved.get("additionalProperties") is False:  # even if a part allows other properties
            for each in objects:
                each.additional = False
        return objects if len(objects) <= _MAX_VARIANTS else None

    def _choices(self, alternatives: list[Any], depth: int) -> list[Merged] | None:
        """Return the objects of all alternatives; None if one of them describes no objects."""
        choices: list[Merged] = []
        for alternative in alternatives:
            objects = self.objects(alternative, depth)
            if objects is None:
                return None
            choices += objects
        return choices


def _object_without_parts(resolved: dict[str, Any], kind: Any, *, allows_null: bool) -> Merged:
    """Return the object that a schema describes, ignoring the schema's ``allOf``."""
    properties: Any = resolved.get("properties")
    additional: Any = resolved.get("additionalProperties")
    # The schema ``{"not": {}}`` accepts no value, which forbids other properties. Any schema with
    # ``not`` is taken for one that forbids them.
    has_additional_schema = isinstance(additional, dict) and "not" not in additional
    return Merged(
        properties=dict(cast("dict[str, Any]", properties)) if isinstance(properties, dict) else {},
        required=_required_names(resolved),
        additional=additional is True or has_additional_schema,
        nullable=allows_null or resolved.get("nullable") is True,
        has_type=kind == "object",
    )


def _type_beside_null(declared: Any) -> tuple[Any, bool]:
    """Return the type that a schema's ``type`` declares, and whether ``null`` is declared, too.

    The type is None if the schema declares no other type than ``null``. Several other types are
    returned as a list.
    """
    if not isinstance(declared, list):
        return declared, False
    types = cast("list[Any]", declared)
    allows_null = "null" in types
    types_beside_null = [each for each in types if each != "null"]
    if len(types_beside_null) > 1:
        return types_beside_null, allows_null
    return next(iter(types_beside_null), None), allows_null


def _combinations(
    objects: list[Merged], others: list[Merged], merge: Callable[[Merged, Merged], Merged]
) -> list[Merged]:
    """Merge each object with each of the others.

    Stop at one combination more than the limit, so that the caller can see the excess.
    """
    pairs = itertools.product(objects, others)
    return [merge(*pair) for pair in itertools.islice(pairs, _MAX_VARIANTS + 1)]


def _merge_two(first: Merged, second: Merged) -> Merged:
    """Merge two object schemas for a value that has to match both schemas.

    The merged schema allows other properties if one of the schemas declares this.
    """
    properties = dict(first.properties)
    for name, value in second.properties.items():
        known = properties.get(name)
        properties[name] = value if known is None else {"allOf": [known, value]}
    return Merged(
        properties,
        first.required | second.required,
        first.additional or second.additional,
        nullable=first.nullable,  # ``first`` is the outer schema, where people write ``nullable``
        has_type=first.has_type or second.has_type,
    )


def _refined(common: Merged, choice: Merged) -> Merged:
    """Merge an object with one of its alternatives.

    If both have a property, take that of the alternative, which is more precise.
    """
    merged = _merge_two(common, choice)
    merged.properties |= choice.properties
    return merged


def list_at(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    """Return the list at a keyword of a schema; an empty list if there is no list."""
    items = schema.get(keyword)
    return cast("list[Any]", items) if isinstance(items, list) else []


def _alternatives(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    """Return the alternatives of ``oneOf`` or ``anyOf``.

    The list is empty if the alternatives only require different properties of one object.
    """
    alternatives = list_at(schema, keyword)
    return [] if all(map(_only_requires, alternatives)) else alternatives


def _only_requires(choice: Any) -> bool:
    """Return True if an alternative adds no property, as ``{"required": ["name"]}``."""
    if not isinstance(choice, dict):
        return False
    # ``not`` excludes values, and adds no property that the merged object would have to show.
    keywords = cast("dict[str, Any]", choice).keys()
    return keywords <= {"required", "title", "description", "not"}
