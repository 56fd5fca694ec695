"""Checks of plugin objects against the protocols that their kinds declare."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any, Final, cast

from delf.errors import PluginError
from delf.hookspecs import HOOKS
from delf.members import annotations_of, members
from delf.plugins.loader import import_target

_AWAITABLE_TYPE_NAMES: Final = ("Awaitable", "Coroutine", "Future", "Task")


def protocol_of(kind: str) -> type | None:
    """Return the protocol of a kind's objects; None for a kind without a protocol.

    Args:
        kind: The kind, a :attr:`delf.specs.Spec.kind`.
    """
    for spec in HOOKS.values():
        if spec.kind == kind:
            return None if spec.protocol is None else import_target(spec.protocol)
    return None


def optional_protocols(kind: str) -> Mapping[type, str]:
    """Return the protocols that plugins of a kind may implement in addition to their main protocol.

    Args:
        kind: The kind, a :attr:`delf.specs.Spec.kind`.

    Returns:
        The optional protocols, each with the feature that is missing without the protocol.
    """
    spec = next(spec for spec in HOOKS.values() if spec.kind == kind)
    module = (spec.protocol or "").partition(":")[0]  # "delf.journals:Journal" -> "delf.journals"
    protocols: dict[type, str] = {}
    for name, feature in spec.optional.items():
        # A name without a module is in the module of the main protocol.
        target = name if ":" in name else f"{module}:{name}"
        protocols[import_target(target)] = feature
    return protocols


def require_type(value: object, expected_type: type, subject: str) -> None:
    """Raise for an object of the wrong type, with a clear message.

    Args:
        value: The object.
        expected_type: The expected type.
        subject: The plugin, for the message.

    Raises:
        PluginError: If the object is not of the type.
    """
    if isinstance(value, expected_type):
        return
    message = f"{type(value).__name__} in place of {expected_type.__name__}"
    if inspect.isawaitable(value):
        message += ": await it first"
    hint = f"its author has to give a {expected_type.__module__}.{expected_type.__name__}"
    raise PluginError(f"{subject} gave {message}", hint=hint)


def has(value: object, name: str) -> bool:
    """Return whether an object or its class has a member.

    For a class, attributes that ``__init__`` sets on the instance count as members, too.

    Args:
        value: The object, or its class.
        name: The member.
    """
    if hasattr(value, name):
        return True
    if not isinstance(value, type):
        return False
    if any(name in annotations_of(base) for base in value.__mro__):
        return True
    try:
        source = inspect.getsource(value)
    except (OSError, TypeError):
        return False
    return f"self.{name} = " in source or f"self.{name}: " in source


def faults(kind: str, instance: object) -> Iterator[str]:
    """Yield the ways in which an object violates the protocol of a kind.

    Args:
        kind: The kind, a :attr:`delf.specs.Spec.kind`.
        instance: The object, or its class.
    """
    protocol = protocol_of(kind)
    if protocol is None:
        return
    missing = [name for name in members(protocol) if not has(instance, name)]
    # Members of a connection may be missing here, because delf adds members such as ``name`` later.
    if missing and kind != "connection":
        yield f"has no {', '.join(missing)}"
    mismatches: list[str] = []
    for each in (protocol, *optional_protocols(kind)):
        mismatches += mismatched_async_methods(each, instance)
    yield from dict.fromkeys(mismatches)  # without repeats: two protocols may share a method


def _return_annotation(function: FunctionType) -> str:
    return str(function.__annotations__.get("return", ""))


def _returns_awaitable(function: FunctionType) -> bool:
    return any(name in _return_annotation(function) for name in _AWAITABLE_TYPE_NAMES)


def mismatched_async_methods(protocol: type, instance: object) -> Iterator[str]:
    """Yield a message for each method that is async where the protocol's is not, or vice versa.

    Args:
        protocol: The protocol that declares the methods; missing methods are ignored.
        instance: The object, or its class.
    """
    owner = instance if isinstance(instance, type) else type(instance)
    for name in members(protocol):
        declared = inspect.getattr_static(protocol, name, None)
        given = inspect.getattr_static(owner, name, None)
        if isinstance(declared, FunctionType) and isinstance(given, FunctionType):
            message = _async_mismatch(name, declared, given)
            if message is not None:
                yield message


def _async_mismatch(name: str, declared: FunctionType, given: FunctionType) -> str | None:
    """Return a message if only one of a declared and a given method is async; None otherwise.

    A plain method that returns an awaitable counts as async.
    """
    given_is_async = inspect.iscoroutinefunction(inspect.unwrap(cast("Any", given)))
    if inspect.iscoroutinefunction(declared):
        if given_is_async or _returns_awaitable(given):
            return None
        return f"has a plain method {name}, which is awaited: write `async def {name}`"
    if not given_is_async or _returns_awaitable(declared):
        return None
    must_be_generator = "Async" in _return_annotation(declared)  # such as AsyncIterator[str]
    if must_be_generator:
        return f"has an async method {name} without `yield`: it must be an async generator"
    return f"has an async method {name}, which is not awaited: write `def {name}`"
