"""The members of protocols, and how ``isinstance`` checks them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from abc import ABCMeta as _TypeOfProtocol
else:
    _TypeOfProtocol = type(Protocol)


class ProtocolMeta(_TypeOfProtocol):
    """The metaclass of protocols that ``isinstance`` checks.

    From Python 3.12 on, the check of :mod:`typing` does not call ``__getattr__``. The check would
    miss optional methods, such as ``aclose``, that an object forwards to a wrapped object. This
    class finds such methods on each version of Python.
    """

    def __instancecheck__(cls, instance: object) -> bool:  # noqa: N805 - of a metaclass
        """Return whether an object implements the protocol; ``__getattr__`` may supply members."""
        if super().__instancecheck__(instance):
            return True
        is_protocol = getattr(cls, "_is_protocol", False)  # False for an implementing class
        forwards = hasattr(type(instance), "__getattr__")
        return is_protocol and forwards and all(hasattr(instance, name) for name in members(cls))


def members(protocol: type) -> Iterator[str]:
    """Yield the names that a protocol declares, inherited names first.

    Args:
        protocol: The protocol.
    """
    seen_names: set[str] = set()
    for base in reversed(protocol.__mro__):
        if not getattr(base, "_is_protocol", False):
            continue
        names = [name for name in vars(base) if not name.startswith("_")]
        names += annotations_of(base)
        for name in names:
            if name not in seen_names:
                seen_names.add(name)
                yield name


def annotations_of(cls: type) -> Mapping[str, Any]:
    """Return the annotations of a class itself, without those of its bases."""
    return vars(cls).get("__annotations__", {})
