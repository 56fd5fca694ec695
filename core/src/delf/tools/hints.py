"""Python types in stub notation, such as ``list[{"id": int, ?"name": str}]``."""

from __future__ import annotations

import collections
import dataclasses
import enum
import inspect
import itertools
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from delf.tools.class_docs import class_doc, field_docs

_DEEPEST: Final = 6
# The maximum length of a type's text. In a longer type, nested records become ``dict``.
_MAX_CHARACTERS: Final = 6_000
_MAX_NOTES: Final = 40
# The maximum number of fields written for a type, including the fields of nested records.
_MAX_FIELDS: Final = 400
# Type qualifiers are known by name, because typing and typing_extensions have different objects.
_QUALIFIERS: Final = frozenset({"Required", "NotRequired", "ReadOnly", "Final", "ClassVar"})
# Collection types, mapped to the type that scripts get in place of each.
_NAMES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("Sequence", "MutableSequence", "Iterable", "Collection", "deque"), "list"),
    **dict.fromkeys(("Mapping", "MutableMapping", "OrderedDict", "defaultdict"), "dict"),
    **dict.fromkeys(("Set", "MutableSet"), "set"),
}
_TABLES: Final = frozenset({"DataFrame", "LazyFrame", "Table", "RecordBatch", "RecordBatchReader"})
_COLUMNS: Final = frozenset({"Series", "ndarray", "ChunkedArray", "Index"})
_LIBRARIES: Final = frozenset({"numpy", "pandas", "polars", "pyarrow"})
# Attributes of constraints in pydantic and annotated_types, with the text for each.
_LIMITS: Final = (
    ("gt", "> {}"),
    ("ge", "≥ {}"),
    ("lt", "< {}"),
    ("le", "≤ {}"),
    ("multiple_of", "a multiple of {}"),
    ("min_length", "at least {} long"),
    ("max_length", "at most {} long"),
    ("pattern", "matches {}"),
)


class _TooManyFieldsError(Exception):
    """A type has more fields than its description for the model may show."""


class RecordField(NamedTuple):
    """A field of a record.

    Args:
        name: The key that scripts use.
        hint: The type.
        required: Whether scripts must pass the field or, in a result, the field is always present.
        doc: The description in the field's own definition.
        attribute: The name of the Python attribute, if it differs from ``name``.
    """

    name: str
    hint: Any
    required: bool
    doc: str = ""
    attribute: str = ""


class _Context(NamedTuple):
    """Options and state of formatting a type.

    Args:
        as_input: Whether scripts pass values of the type, so fields with defaults are optional.
        depth: The number of nested record levels to spell out.
        enclosing: The enclosing records, to detect recursion.
        enclosing_aliases: The aliases between the innermost record and the type, to detect
            recursion.
        field_budget: An iterator with one item for each field that may still be written, shared by
            all nested records. When no item is left, formatting stops with ``_TooManyFieldsError``.
    """

    as_input: bool
    depth: int = _DEEPEST
    enclosing: tuple[Any, ...] = ()
    enclosing_aliases: tuple[Any, ...] = ()
    field_budget: Iterator[int] = iter(())

    def enter_record(self, record: Any) -> _Context:
        """Return a copy for the fields of a record."""
        # Forget the aliases around the record. With ``type Tree = Node``, the field ``left: Tree``
        # of ``Node`` is then a record inside itself, written as ``dict``. As an alias inside
        # itself, the field would be written as ``Tree``, a name that scripts do not know.
        return self._replace(enclosing=(*self.enclosing, record), enclosing_aliases=())

    def enter_alias(self, alias: Any) -> _Context:
        """Return a copy of the context for the type that an alias stands for.

        Args:
            alias: The alias, with its arguments if it is generic.
        """
        return self._replace(enclosing_aliases=(*self.enclosing_aliases, alias))

    def is_too_deep(self, record: Any) -> bool:
        """Return True if a record is recursive or too deeply nested to write its fields."""
        return record in self.enclosing or len(self.enclosing) >= self.depth


def type_text(hint: Any, *, as_input: bool = False) -> str:
    """Format a type in compact stub notation, such as ``list[{"id": int, ?"name": str}]``.

    Records (TypedDict, named tuple, dataclass, pydantic model, attrs class) are written as their
    fields. If the text is too long, inner records become ``dict``. Enums are written as the Literal
    of their values.

    Args:
        hint: The type.
        as_input: Whether scripts pass values of the type, so fields with defaults are optional.
    """
    # Take the largest depth at which the text is short enough, or else depth 1.
    for depth in range(_DEEPEST, 1, -1):
        try:
            # The shared iterator counts the fields: a field at any depth consumes one item.
            field_budget = iter(range(_MAX_FIELDS))
            text = _hint_text(hint, _Context(as_input, depth, field_budget=field_budget))
        except _TooManyFieldsError:
            continue
        if len(text) <= _MAX_CHARACTERS:
            return text
    return _hint_text(hint, _Context(as_input, 1, field_budget=itertools.count()))


def doc_of(hint: Any) -> str:
    """Return the description and the constraints of a type, from ``Annotated`` or from its class.

    Args:
        hint: A type such as ``Annotated[int, "the number of rows", Field(le=100)]``.
    """
    texts: list[str] = []
    while typing.get_origin(hint) is typing.Annotated:
        for item in hint.__metadata__:
            texts += _texts_of(item)
        hint = typing.get_args(hint)[0]
    # ``Ticket | None`` has the description of ``Ticket``.
    if _is_union(typing.get_origin(hint)):
        members = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        if len(members) == 1:
            texts.append(doc_of(members[0]))
    owner = typing.get_origin(hint) or hint
    if isinstance(owner, type) and _is_described(owner):
        texts.append(class_doc(owner).rstrip("."))
    return "; ".join(dict.fromkeys(filter(None, texts)))


def _is_described(owner: type[Any]) -> bool:
    """Return True for record types and enums, whose docstrings describe their values."""
    is_record_type = _field_reader_of(owner) is not None
    return is_record_type or issubclass(owner, enum.Enum)


def notes_of(hint: Any, *, as_input: bool = False) -> str:
    """Return the descriptions of a type's fields: ``items.price: in cents; note: optional``.

    Args:
        hint: The type.
        as_input: Whether scripts pass values of the type.
    """
    fields = itertools.islice(_notes(hint, _Context(as_input), ""), _MAX_FIELDS)
    field_notes = (f"{path}: {text}" for path, text in fields if text)
    return "; ".join(itertools.islice(field_notes, _MAX_NOTES))


def plain_default(value: Any) -> Any:
    """Convert a default value to the form that a script would write.

    Enums become their values, also inside lists and dicts.
    """
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {plain_default(key): plain_default(item) for key, item in items}
    if type(value) in (list, tuple, set):
        return type(value)(map(plain_default, value))
    return value


def _fields_of(hint: Any, *, as_input: bool) -> list[RecordField] | None:
    """Return the fields of a record type; None for any other type.

    The type variables in the types of the fields are replaced: the annotation ``list[T]`` of
    ``Page`` becomes ``list[int]`` for ``Page[int]``.

    Args:
        hint: A class, or a generic class with its arguments.
        as_input: Whether scripts pass values of the type.
    """
    owner = typing.get_origin(hint) or hint
    reader = _field_reader_of(owner)
    if reader is None:
        return None
    bindings = _bindings(hint)
    fields = reader(owner, as_input)
    return [field._replace(hint=_substitute(field.hint, bindings)) for field in fields]


def _field_reader_of(owner: Any) -> Callable[[Any, bool], list[RecordField]] | None:
    """Return the function that reads the fields of a record type; None for other types."""
    if hasattr(owner, "__required_keys__"):  # a TypedDict of typing or typing_extensions
        return _typed_dict_fields
    if isinstance(owner, type) and tuple in owner.__mro__ and hasattr(owner, "_fields"):
        return _named_tuple_fields
    if dataclasses.is_dataclass(owner):
        return _dataclass_fields
    fields: Any = getattr(cast("Any", owner), "model_fields", None)
    if isinstance(fields, dict):
        return _model_fields
    return _attribute_fields if _attribute_names(owner) else None


def _dataclass_fields(hint: Any, as_input: bool) -> list[RecordField]:
    """Return the fields of a dataclass; with ``as_input`` only those that its constructor takes."""
    hints = _hints_of(hint)
    record_fields: list[RecordField] = []
    for field in dataclasses.fields(hint):
        if as_input and not field.init:
            continue
        field_hint = hints.get(field.name, Any)
        is_required = not as_input or _has_no_default(field)
        doc = _join_texts(_metadata_description(field.metadata), doc_of(field_hint))
        record_fields.append(RecordField(field.name, field_hint, is_required, doc))
    return record_fields


def _attribute_fields(hint: Any, as_input: bool) -> list[RecordField]:
    """Return the fields of an attrs or msgspec class."""
    hints = _hints_of(hint)
    # Any field may have a default, so all are optional in values that scripts pass.
    is_required = not as_input
    return [RecordField(n, hints.get(n, Any), is_required) for n in _attribute_names(hint)]


def _attribute_names(hint: Any) -> Sequence[str]:
    """Return the field names of an attrs or msgspec class."""
    attributes: Sequence[Any] = getattr(hint, "__attrs_attrs__", ())
    return [item.name for item in attributes] or getattr(hint, "__struct_fields__", ())


def _typed_dict_fields(hint: Any, _as_input: bool) -> list[RecordField]:
    """Return the fields of a TypedDict.

    Args:
        hint: The TypedDict.
        _as_input: Unused, because fields of a TypedDict have no defaults.
    """
    fields: list[RecordField] = []
    for name, field_hint in _hints_of(hint).items():
        doc = doc_of(strip_qualifiers(field_hint))
        required = is_required_key(hint, name, field_hint)
        fields.append(RecordField(name, field_hint, required, doc))
    return fields


def is_required_key(typed_dict: Any, name: str, hint: Any) -> bool:
    """Return True if a TypedDict requires a key.

    Args:
        typed_dict: The TypedDict.
        name: The key.
        hint: The type of the key, with its qualifiers.
    """
    # __required_keys__ ignores the qualifiers in string annotations.
    qualifiers = set(_qualifiers(hint))
    if "NotRequired" in qualifiers:
        return False
    return "Required" in qualifiers or name in typed_dict.__required_keys__


def _named_tuple_fields(hint: Any, as_input: bool) -> list[RecordField]:
    types = _hints_of(hint)
    defaults: Mapping[str, Any] = getattr(hint, "_field_defaults", {})
    return [
        RecordField(
            name=name,
            hint=types.get(name, Any),
            required=not as_input or name not in defaults,
            doc=doc_of(types.get(name)),
        )
        for name in hint._fields
    ]


def _model_fields(hint: Any, as_input: bool) -> list[RecordField]:
    """Return the fields of a pydantic model under their validation or serialization aliases."""
    config: Mapping[str, Any] = getattr(hint, "model_config", {})
    fields: list[RecordField] = []
    for name, field in cast("dict[str, Any]", hint.model_fields).items():
        if field.exclude is True and not as_input:  # pydantic leaves the field out of results
            continue
        shown_name = _alias_in_use(field, config, as_input) or name
        doc = _join_texts(field.description or "", *map(_limits_of, field.metadata))
        is_always_present = not as_input or field.is_required()
        fields.append(
            RecordField(shown_name, field.annotation, is_always_present, doc, attribute=name)
        )
    if not as_input:  # only results have computed fields
        computed = cast("dict[str, Any]", getattr(hint, "model_computed_fields", {}))
        for name, item in computed.items():
            alias = item.alias if config.get("serialize_by_alias") else None
            doc = item.description or ""
            fields.append(
                RecordField(alias or name, item.return_type, required=True, doc=doc, attribute=name)
            )
    return fields


def _alias_in_use(field: Any, config: Mapping[str, Any], as_input: bool) -> str | None:
    """Return the alias under which scripts see a field; None if scripts see the field's name."""
    if as_input:  # scripts pass the field: they use the name if pydantic accepts the name
        accepts_name = config.get("populate_by_name") or config.get("validate_by_name")
        return None if accepts_name else _alias(field)
    if config.get("serialize_by_alias"):
        return field.serialization_alias or field.alias
    return None


def _alias(field: Any) -> str | None:
    """Return the first alias of a field in input data; None without an alias."""
    alias = field.validation_alias if field.validation_alias is not None else field.alias
    for choice in getattr(alias, "choices", (alias,)):  # of an AliasChoices, or a single alias
        if isinstance(choice, str):
            return choice
    return None


def _hint_text(hint: Any, context: _Context) -> str:
    """Format a type as scripts see it; a record is shown with its keys."""
    if hint is None or hint is type(None):
        return "None"
    if hint is Any or hint is inspect.Parameter.empty:
        return "Any"
    if isinstance(hint, str):
        return hint
    if isinstance(hint, typing.TypeVar):
        return _variable_text(hint, context)
    origin = typing.get_origin(hint)
    if origin is not None:
        return _generic_text(hint, origin, typing.get_args(hint), context)
    if _is_alias(hint):
        return _alias_text(hint, hint, (), context)
    underlying = getattr(hint, "__supertype__", None)  # of a NewType
    if underlying is not None:
        return _hint_text(underlying, context)
    if isinstance(hint, type):
        return _class_text(hint, hint, context)
    name = getattr(hint, "__name__", None) or str(hint).replace("typing.", "")
    return _NAMES.get(name, name)


def _is_alias(hint: Any) -> bool:
    """Return True for an alias that a ``type`` statement defines."""
    return type(hint).__name__ == "TypeAliasType"


def _alias_text(hint: Any, alias: Any, args: tuple[Any, ...], context: _Context) -> str:
    """Format the type that an alias stands for.

    Args:
        hint: The alias, with its arguments if it is generic.
        alias: The alias without arguments.
        args: The arguments.
        context: Options and state.
    """
    is_recursive = hint in context.enclosing_aliases  # as in ``type Json = str | list[Json]``
    if is_recursive:
        return alias.__name__
    arg_by_variable = dict(zip(alias.__type_params__, args, strict=False))
    return _hint_text(_substitute(alias.__value__, arg_by_variable), context.enter_alias(hint))


def _variable_text(variable: typing.TypeVar, context: _Context) -> str:
    """Format a type variable that no type replaces."""
    if variable.__constraints__:
        return " | ".join(
            dict.fromkeys(_hint_text(each, context) for each in variable.__constraints__)
        )
    if variable.__bound__ is None:
        return "Any"
    return _hint_text(variable.__bound__, context)


def _generic_text(hint: Any, origin: Any, args: tuple[Any, ...], context: _Context) -> str:
    """Format a type with arguments, such as ``list[int]`` or a union."""
    if _is_wrapper(origin):
        return _hint_text(args[0], context) if args else "Any"
    if _is_union(origin):
        return " | ".join(dict.fromkeys(_hint_text(arg, context) for arg in args))
    if origin is typing.Literal:
        return _literal_text(args)
    if _is_alias(origin):
        return _alias_text(hint, origin, args, context)
    if isinstance(origin, type) and _field_reader_of(origin) is not None:
        return _class_text(origin, hint, context)  # a record with type arguments: ``Page[str]``
    name = getattr(origin, "__name__", str(origin))
    if name == "Callable":  # the first argument is a list of types, not a type
        return name
    if origin is type:
        return "type"
    if not args:  # such as typing.List without arguments
        return _NAMES.get(name, name)
    if origin is collections.Counter:
        return f"dict[{_hint_text(args[0], context)}, int]"
    argument_texts = [("..." if arg is Ellipsis else _hint_text(arg, context)) for arg in args]
    return f"{_NAMES.get(name, name)}[{', '.join(argument_texts)}]"


def _literal_text(values: Sequence[Any]) -> str:
    return f"Literal[{', '.join(repr(plain_default(value)) for value in values)}]"


def _class_text(cls: type[Any], hint: Any, context: _Context) -> str:
    """Format a class.

    An enum becomes a ``Literal``, a record its fields, and most other classes their name.

    Args:
        cls: The class.
        hint: The class with its arguments if it is generic: ``Page[int]`` and ``Page[str]`` are two
            records.
        context: Options and state.
    """
    if issubclass(cls, enum.Enum):
        return _literal_text(tuple(cls))
    library = cls.__module__.partition(".")[0]
    # Scripts get the tables and columns of these libraries as lists.
    if library in _LIBRARIES and not context.as_input:
        if cls.__name__ in _TABLES:
            return "list[dict]"
        if cls.__name__ in _COLUMNS:
            return "list"
    fields = _fields_of(hint, as_input=context.as_input)
    if fields is None:
        return _NAMES.get(cls.__name__, cls.__name__)
    if _is_root_model(cls):
        return _hint_text(fields[0].hint, context)
    if context.is_too_deep(hint):
        return "dict"
    return _record_text(fields, context.enter_record(hint))


def _record_text(fields: Sequence[RecordField], context: _Context) -> str:
    field_texts: list[str] = []
    for field in fields:
        # All records in the text share the budget: each field takes one item of the iterator.
        if next(context.field_budget, None) is None:
            raise _TooManyFieldsError
        optional_mark = "" if field.required else "?"
        field_texts.append(f'{optional_mark}"{field.name}": {_hint_text(field.hint, context)}')
    if not field_texts:
        return "dict"
    return f"{{{', '.join(field_texts)}}}"


def _is_root_model(hint: Any) -> bool:
    return getattr(hint, "__pydantic_root_model__", False) is True


def _bindings(hint: Any) -> dict[Any, Any]:
    """Return the types bound to the type variables of a class and its bases.

    For ``Page[int]`` the result is ``{T: int}``, if ``T`` is the type variable of ``Page``. If
    several of these classes use the same variable, the type in the class itself counts, or else
    the type in the first base that uses the variable.
    """
    own_arguments = _arguments_of(hint)
    bindings = dict(own_arguments)
    for arguments_of_base in _arguments_of_bases(typing.get_origin(hint) or hint).values():
        for variable, type_argument in arguments_of_base.items():
            # For ``class Page(Base[list[T]])``, the base of ``Page[int]`` is ``Base[list[int]]``.
            bindings.setdefault(variable, _substitute(type_argument, own_arguments))
    return bindings


def _arguments_of(hint: Any) -> dict[Any, Any]:
    """Map the type variables of a generic class to its arguments: ``{T: int}`` for ``Page[int]``.

    The type variables of base classes are left out.
    """
    variables = getattr(typing.get_origin(hint) or hint, "__parameters__", ())
    if not isinstance(variables, tuple):
        return {}
    return dict(zip(cast("tuple[Any, ...]", variables), typing.get_args(hint), strict=False))


def _substitute(hint: Any, type_arguments: Mapping[Any, Any]) -> Any:
    """Replace the type variables in a type: ``list[T]`` becomes ``list[int]``."""
    if isinstance(hint, typing.TypeVar):
        return type_arguments.get(hint, hint)
    if typing.get_origin(hint) is None:  # a class without arguments
        return hint
    variables: tuple[Any, ...] = getattr(hint, "__parameters__", ())
    # A variable of another kind, such as a ParamSpec, cannot be replaced by a single type.
    has_other_kinds = any(not isinstance(each, typing.TypeVar) for each in variables)
    if not variables or has_other_kinds:
        return hint
    return hint[tuple(type_arguments.get(variable, variable) for variable in variables)]


def _notes(hint: Any, context: _Context, path: str) -> Iterator[tuple[str, str]]:
    """Yield the key path and the description of each field and list item inside a type.

    A description may be empty.

    Args:
        hint: The type.
        context: Options and state.
        path: The key path of the type; empty for the outermost type.
    """
    while _is_wrapper(typing.get_origin(hint)):
        hint = typing.get_args(hint)[0]
    cls = typing.get_origin(hint) or hint  # ``Page`` for ``Page[int]``
    fields = _fields_of(hint, as_input=context.as_input) if isinstance(cls, type) else None
    if fields is None:  # not a record: a type such as ``int`` or ``dict[str, Order]``
        yield from _argument_notes(hint, context, path)
    elif _is_root_model(cls):  # a pydantic model whose only field, ``root``, is no key of the data
        root_hint = fields[0].hint
        yield from _item_notes(root_hint, doc_of(root_hint), context, path)
    elif not context.is_too_deep(hint):
        yield from _field_notes(cls, fields, context.enter_record(hint), path)


def _argument_notes(hint: Any, context: _Context, path: str) -> Iterator[tuple[str, str]]:
    """Yield the key path and the description of each type argument, and of everything inside it.

    ``Order`` is the type argument of ``list[Order]``. A type without arguments yields nothing.
    """
    origin = typing.get_origin(hint)
    if origin is typing.Literal:  # the arguments of a Literal are values, not types
        return
    for arg in typing.get_args(hint):
        if arg is not Ellipsis:
            # The descriptions of a union's members are part of the union's own description.
            item_doc = "" if _is_union(origin) else doc_of(arg)
            yield from _item_notes(arg, item_doc, context, path)


def _field_notes(
    record: type[Any], fields: Sequence[RecordField], context: _Context, path: str
) -> Iterator[tuple[str, str]]:
    """Yield the key path and description of each field of a record and of nested records.

    Args:
        record: The class of the record.
        fields: The fields of the record.
        context: Options and state for the fields.
        path: The key path of the record; empty for the outermost type.
    """
    docs = field_docs(record)
    for field in fields:
        field_path = f"{path}.{field.name}" if path else field.name
        documented = docs.get(field.attribute or field.name, "")
        yield field_path, _join_texts(documented, field.doc)
        yield from _notes(field.hint, context, field_path)


def _item_notes(
    hint: Any, item_doc: str, context: _Context, path: str
) -> Iterator[tuple[str, str]]:
    """Yield the path and description of an item, and then the notes inside the item.

    The path ``orders[]`` stands for one item of a list, but the keys of the item follow the path of
    the list: ``orders.price``.
    """
    yield f"{path}[]", item_doc
    yield from _notes(hint, context, path)


def _hints_of(owner: Any) -> dict[str, Any]:
    """Return the annotations of a class; an empty dict if they cannot be resolved.

    In annotations of bases, type variables are replaced: the annotation ``T`` of the class ``Page``
    becomes ``int`` in a class with the base ``Page[int]``.
    """
    try:
        hints = typing.get_type_hints(owner, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}
    arguments = _arguments_of_bases(owner)
    if not arguments:
        return hints
    # A hint contains the type variables of the class that declares the name. If several classes
    # declare the name, the most derived class counts, which this loop reaches last.
    declaring_class: dict[str, Any] = {}
    for cls in reversed(owner.__mro__):
        for name in inspect.get_annotations(cls):
            declaring_class[name] = cls
    return {
        name: _substitute(hint, arguments.get(declaring_class[name], {}))
        for name, hint in hints.items()
    }


def _arguments_of_bases(owner: Any) -> dict[Any, dict[Any, Any]]:
    """Return the types bound to the type variables of each direct or indirect base class.

    For ``class Names(Page[str])``, the result is ``{Page: {T: str}}``.
    """
    arguments: dict[Any, dict[Any, Any]] = {}
    for base in getattr(owner, "__orig_bases__", ()):
        origin: Any = typing.get_origin(base) or base
        arg_by_variable = arguments[origin] = _arguments_of(base)
        # If ``Page`` above is ``class Page(Items[list[T]])``, its argument for ``Items`` is
        # ``list[T]``. For ``Names``, replace ``T``: the argument for ``Items`` is ``list[str]``.
        for outer_base, outer_args in _arguments_of_bases(origin).items():
            arguments[outer_base] = {
                variable: _substitute(type_argument, arg_by_variable)
                for variable, type_argument in outer_args.items()
            }
    return arguments


def _is_qualifier(origin: Any) -> bool:
    return getattr(origin, "_name", None) in _QUALIFIERS


def _is_wrapper(origin: Any) -> bool:
    """Return True for ``Annotated`` and qualifiers, whose first argument is the type itself."""
    return origin is typing.Annotated or _is_qualifier(origin)


def _is_union(origin: Any) -> bool:
    return origin in (typing.Union, types.UnionType)


def _qualifiers(hint: Any) -> Iterator[str]:
    """Yield the names of the qualifiers around a type, such as ``NotRequired``, outermost first."""
    origin = typing.get_origin(hint)
    while _is_wrapper(origin):
        if origin is not typing.Annotated:
            # By name, because typing and typing_extensions have different objects.
            yield getattr(origin, "_name", "")
        hint = typing.get_args(hint)[0]
        origin = typing.get_origin(hint)


def strip_qualifiers(hint: Any) -> Any:
    """Strip ``Required``, ``ReadOnly`` and similar qualifiers, keeping ``Annotated``."""
    while _is_qualifier(typing.get_origin(hint)):
        hint = typing.get_args(hint)[0]
    return hint


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _texts_of(item: Any) -> list[str]:
    """Return the descriptions and constraints in one metadata item of ``Annotated``."""
    if isinstance(item, str):
        return [item]
    documentation = getattr(item, "documentation", None)  # typing_extensions.Doc
    description = getattr(item, "description", None)
    texts = [text for text in (documentation, description) if isinstance(text, str)]
    # The Field() of pydantic has its constraints in a list.
    constraints = _as_sequence(getattr(item, "metadata", ()))
    limits = map(_limits_of, (item, *constraints))
    return [*texts, *filter(None, limits)]


def _as_sequence(value: Any) -> Sequence[Any]:
    """Return a list or tuple; empty for any other value."""
    if isinstance(value, (list, tuple)):
        return cast("Sequence[Any]", value)
    return ()


def _limits_of(item: Any) -> str:
    """Return the limits of a value as text, from an annotation such as ``Field(ge=0)``."""
    texts: list[str] = []
    for name, words in _LIMITS:
        value = getattr(item, name, None)
        # An annotation may be any object, with a method of the same name as a limit.
        if value is not None and not callable(value):
            limit = getattr(value, "pattern", value)  # the text of a compiled pattern
            texts.append(words.format(limit))
    return ", ".join(texts)


def _metadata_description(metadata: Mapping[Any, Any]) -> str:
    """Return the description in a dataclass field's metadata, under the usual keys."""
    for name in ("description", "doc", "help"):
        text = metadata.get(name)
        if isinstance(text, str):
            return text
    return ""


def _join_texts(*texts: str) -> str:
    return "; ".join(dict.fromkeys(filter(None, texts)))
