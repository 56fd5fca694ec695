"""``FixedAttributes``: public attributes that are fixed when an object is made."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from delf.errors import FixedAttributeError, did_you_mean

if TYPE_CHECKING:
    from types import FrameType

V = TypeVar("V")


class FixedAttributes:
    """Base class of objects whose public attributes can be assigned only once.

    An object reads most of its options when it is made. A later assignment would have no effect,
    and therefore raises. Assigning an unknown attribute raises, too, unless a method of the object
    itself makes the assignment. A property with a setter can be set.
    """

    # Constructor arguments that are not stored as attributes.
    _options: ClassVar[frozenset[str]] = frozenset()
    # The hint of the error for assigning an attribute; ``{name}`` stands for the attribute.
    _fixed_hint: ClassVar[str] = "make another one with this option"

    if not TYPE_CHECKING:  # a type checker that saw this would allow any name

        def __setattr__(self, name: str, value: object) -> None:
            """Set an attribute; raise for a public attribute that is fixed or unknown.

            Raises:
                FixedAttributeError: If the object has the public attribute already, or if code
                    outside of its methods sets an attribute that the class does not declare.
            """
            is_public = not name.startswith("_")
            if is_public and self._is_fixed(name):
                raise FixedAttributeError(
                    f"{type(self).__name__}.{name} cannot be set once it was made",
                    hint=self._fixed_hint.format(name=name),
                )
            if is_public and not hasattr(type(self), name):
                # Only methods of the object may add attributes. The caller's frame shows whether
                # such a method, for example a subclass's __init__, makes the assignment.
                caller = sys._getframe(1)  # noqa: SLF001 - inspect costs an import
                self._refuse_unknown(name, caller)
            super().__setattr__(name, value)

    def _refuse_unknown(self, name: str, caller: FrameType) -> None:
        """Raise for an attribute that does not exist, unless a method of the object assigns it.

        Args:
            name: The name of the attribute.
            caller: The frame of the code that assigns the attribute.
        """
        # The first parameter of an object's method, ``self``, is the object itself.
        first_parameter = caller.f_code.co_varnames[:1]
        is_own_method = first_parameter and caller.f_locals.get(first_parameter[0]) is self
        if is_own_method:
            return
        public_names = {word for word in dir(self) if not word.startswith("_")}
        suggestion = did_you_mean(name, sorted(public_names | self._options))
        raise FixedAttributeError(
            f"{type(self).__name__} has no attribute {name!r}{suggestion}",
            hint="options are given when it is made; a subclass may have attributes of its own",
        )

    def _is_fixed(self, name: str) -> bool:
        """Return True if a public attribute cannot be assigned any more."""
        attribute = getattr(type(self), name, None)
        if isinstance(attribute, property):
            return attribute.fset is None
        # The constructor made the object's parts from its arguments and attributes. Assigning
        # another value later would not change the parts.
        is_set_attribute = name in vars(self)
        is_constructor_argument = name in self._options
        return is_set_attribute or is_constructor_argument


class FixedTable(dict[str, V]):
    """An immutable copy of a configuration's table: every change raises an error."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise FixedAttributeError(
            "a table of a configuration cannot be changed",
            hint="make another configuration: Agent(config, name={**config.name, …})",
        )

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse  # pyright: ignore[reportAssignmentType]

    def __reduce__(self) -> tuple[type[FixedTable[V]], tuple[dict[str, V]]]:
        return FixedTable, (dict(self),)
