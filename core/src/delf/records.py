"""Dataclasses that are cheap to define.

The classes behave like standard dataclasses, also for type checkers and for ``dataclasses.fields``,
``replace`` and ``asdict``. The standard library compiles up to six methods when it defines a
dataclass, which takes half a millisecond, and most dataclasses are never used in a process. Here
``__init__`` is compiled when the first instance is made, and the other methods are closures.
"""

from __future__ import annotations

import dataclasses
import operator
import reprlib
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import inspect
    from dataclasses import dataclass

    __all__ = ["dataclass"]
else:

    def dataclass(
        *, frozen: bool = False, slots: bool = False, kw_only: bool = False
    ) -> Callable[[type], type]:
        """Make a class a dataclass, like ``dataclasses.dataclass`` without ``InitVar`` support.

        Args:
            frozen: Fields cannot be assigned to.
            slots: Instances have no ``__dict__``.
            kw_only: Fields are given by name.
        """

        def make(cls: type) -> type:
            # Set a missing docstring, because ``dataclass`` would set it to the signature.
            cls.__doc__ = cls.__doc__ or cls.__name__
            cls = _with_fields(cls, frozen=frozen, slots=slots, kw_only=kw_only)
            for name, method in _methods(cls, frozen=frozen, slots=slots).items():
                # Do not replace a method of the class. A __hash__ of None is no method: Python sets
                # it in a class that defines __eq__ alone.
                if cls.__dict__.get(name) is None:
                    setattr(cls, name, method)
            cls.__signature__ = _LazySignature()  # for inspect.signature() and help()
            return cls

        return make


# Modules are imported in several threads, and _with_fields() changes the ``frozen`` flags of base
# classes for a moment.
_BASES_LOCK: Final = threading.RLock()


def _with_fields(cls: type, *, frozen: bool, slots: bool, kw_only: bool) -> Any:
    """Return a class as a dataclass with fields and slots, but without generated methods.

    Raises:
        TypeError: If a base class is frozen and the class is not, or vice versa.
    """
    dataclass_bases = [base for base in cls.__mro__[1:] if "__dataclass_params__" in vars(base)]
    base_params: list[Any] = [vars(base)["__dataclass_params__"] for base in dataclass_bases]
    add_fields: Any = dataclasses.dataclass
    with _BASES_LOCK:
        if any(params.frozen != frozen for params in base_params):
            raise TypeError(f"{cls.__name__}: a dataclass and its bases must all be frozen or none")
        # ``dataclass(frozen=True)`` would compile methods, and ``dataclass(frozen=False)`` refuses
        # frozen base classes. Mark the base classes as not frozen during the call.
        for params in base_params:
            params.frozen = False
        try:
            made = add_fields(cls, init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
        finally:
            for params in base_params:
                params.frozen = frozen  # the old value, see the check above
    made.__dataclass_params__.frozen = frozen
    return made


class _Absent:
    """The placeholder default of a parameter whose field has a ``default_factory``."""

    def __repr__(self) -> str:
        """Return ``<factory>``, as in the signatures of standard dataclasses."""
        return "<factory>"


_ABSENT: Final = _Absent()


def _methods(cls: type, *, frozen: bool, slots: bool) -> Mapping[str, Callable[..., Any] | None]:
    """Return the methods that ``@dataclass`` adds to a class, by name.

    The ``__hash__`` of a class that is not frozen is None, which makes its instances unhashable.
    """
    fields = dataclasses.fields(cls)
    shown_fields = [field.name for field in fields if field.repr]
    get_compared_values = _values_getter([field.name for field in fields if field.compare])

    def compile_and_init(self: Any, *args: Any, **keywords: Any) -> None:
        # Many classes are imported and never instantiated: compile on the first call.
        init = _compile_init(cls)
        cls.__init__ = init
        init(self, *args, **keywords)

    @reprlib.recursive_repr()
    def show(self: Any) -> str:
        text = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown_fields)
        return f"{type(self).__qualname__}({text})"

    def equal(self: Any, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return get_compared_values(self) == get_compared_values(other)

    methods = {"__init__": compile_and_init, "__repr__": show, "__eq__": equal, "__hash__": None}
    if frozen:
        return {**methods, **_frozen_methods(cls, slots=slots)}
    return methods


def _is_hashed(field: dataclasses.Field[Any]) -> bool:
    """Return True if the value of a field is part of a record's hash, as in dataclasses."""
    if field.hash is None:
        return field.compare
    return field.hash


def _frozen_methods(cls: type, *, slots: bool) -> Mapping[str, Callable[..., Any]]:
    """Return the methods that ``dataclass(frozen=True)`` adds to a class, by name."""
    fields = dataclasses.fields(cls)
    field_names = [field.name for field in fields]
    get_hashed_values = _values_getter([field.name for field in fields if _is_hashed(field)])

    def digest(self: Any) -> int:
        return hash(get_hashed_values(self))

    def assign(self: Any, name: str, value: Any) -> None:
        # A subclass without this decorator may have further attributes, which are not frozen.
        if type(self) is cls or name in field_names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete(self: Any, name: str) -> None:
        # Like ``assign``: attributes that a subclass adds are not frozen.
        if type(self) is cls or name in field_names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    def save(self: Any) -> list[Any]:
        return [getattr(self, name) for name in field_names]

    def load(self: Any, state: list[Any]) -> None:
        for name, value in zip(field_names, state, strict=True):
            object.__setattr__(self, name, value)

    methods = {"__hash__": digest, "__setattr__": assign, "__delattr__": delete}
    # Python's own unpickling and copying of slots would assign to fields, which ``assign`` refuses.
    if slots:
        return methods | {"__getstate__": save, "__setstate__": load}
    return methods


def _values_getter(names: list[str]) -> Callable[[Any], Any]:
    """Return a function that returns the values of some fields of a record, to compare or hash.

    For several fields, the function returns a tuple. For a single field, it returns the bare value.
    """
    if names:
        return operator.attrgetter(*names)
    return lambda _: ()


class _FieldSource(NamedTuple):
    """The source code for a field in a generated ``__init__``.

    Args:
        parameter: The parameter, with its default.
        passed_value: The expression for the field's value, computed from the parameter.
        default: The expression for the field's default value; empty without a default.
    """

    parameter: str
    passed_value: str
    default: str


def _field_source(field: dataclasses.Field[Any], scope: dict[str, Any]) -> _FieldSource:
    """Return the source code for a field in a generated ``__init__``.

    For a field ``tags`` with a default factory, ``__init__`` will be::

        def __init__(self, tags=_absent):
            self.tags = _make_tags() if tags is _absent else tags

    Args:
        field: The field.
        scope: The global variables of the generated ``__init__``, among them ``_absent``. This
            function adds the field's default or default factory.
    """
    name = field.name
    if field.default_factory is not dataclasses.MISSING:
        factory_name = f"_make_{name}"
        scope[factory_name] = field.default_factory
        new_value = f"{factory_name}()"
        return _FieldSource(
            parameter=f"{name}=_absent",
            passed_value=f"{new_value} if {name} is _absent else {name}",
            default=new_value,
        )
    if field.default is not dataclasses.MISSING:
        default_name = f"_default_{name}"
        scope[default_name] = field.default
        return _FieldSource(
            parameter=f"{name}={default_name}", passed_value=name, default=default_name
        )
    return _FieldSource(parameter=name, passed_value=name, default="")


def _compile_init(cls: type) -> Callable[..., None]:
    """Compile the ``__init__`` of a dataclass from generated source, which runs fastest."""
    scope: dict[str, Any] = {"_set": object.__setattr__, "_absent": _ABSENT}
    is_frozen = cls.__setattr__ is not object.__setattr__
    parameters = ["self"]
    keyword_only: list[str] = []
    body: list[str] = []
    for field in dataclasses.fields(cls):
        source = _field_source(field, scope)
        if field.init:
            value = source.passed_value
            if field.kw_only:
                keyword_only.append(source.parameter)
            else:
                parameters.append(source.parameter)
        elif source.default:  # a field with init=False always gets its default
            value = source.default
        else:
            continue  # the field stays unset
        if is_frozen:
            body.append(f"_set(self, {field.name!r}, {value})")
        else:
            body.append(f"self.{field.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    if not body:
        body.append("pass")
    if keyword_only:
        parameters += ["*", *keyword_only]
    head = f"def __init__({', '.join(parameters)}):"
    exec("\n ".join([head, *body]), scope)  # noqa: S102
    init = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {f.name: f.type for f in dataclasses.fields(cls) if f.init}
    return init


class _LazySignature:
    """A descriptor for ``__signature__``, because ``__init__`` is compiled only on first use."""

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        """Return the signature of a dataclass's ``__init__``, without ``self``."""
        import inspect

        # Before the first instance, the ``__init__`` of the class has only ``*args, **keywords``.
        signature = inspect.signature(_compile_init(owner))
        _, *parameters = signature.parameters.values()
        return signature.replace(parameters=parameters)
