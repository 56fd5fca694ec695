"""Checks of plugin objects against the protocols that their kinds declare."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any, Final

from delf.errors import PluginError
from delf.hookspecs import HOOKS
from delf.plugins.loader import import_target

_WAITED_FOR: Final = ("Awaitable", "Coroutine", "Future", "Task")


def protocol_of(kind: str) -> type | None:
    """Return the protocol of a kind's objects; None for a kind that has none.

    Args:
        kind: The kind, a :attr:`delf.specs.Spec.kind`.
    """
    target = next((spec.protocol for spec in HOOKS.values() if spec.kind == kind), None)
    return None if target is None else import_target(target)


def optional_protocols(kind: str) -> Mapping[type, str]:
    """Return the optional protocols of a kind, each with the feature that needs it.

    Args:
        kind: The kind, a :attr:`delf.specs.Spec.kind`.
    """
    spec = next(spec for spec in HOOKS.values() if spec.kind == kind)
    module = (spec.protocol or "").partition(":")[0]
    return {
        import_target(name if ":" in name else f"{module}:{name}"): missing
        for name, missing in spec.optional.items()
    }


def require_type(given: object, wanted: type, who: str) -> None:
    """Raise for an object of the wrong type, with a clear message.

    Args:
        given: The object.
        wanted: The expected type.
        who: The plugin, for the message.

    Raises:
        PluginError: If the object is not of the type.
    """
    if isinstance(given, wanted):
        return
    what = f"{type(given).__name__} in place of {wanted.__name__}"
    if inspect.isawaitable(given):
        what += ": await it first"
    hint = f"its author has to give a {wanted.__module__}.{wanted.__name__}"
    raise PluginError(f"{who} gave {what}", hint=hint)


def members(protocol: type) -> Iterator[str]:
    """Yield the names that a protocol declares, inherited names first.

    Args:
        protocol: The protocol.
    """
    seen: set[str] = set()
    for base in reversed(protocol.__mro__):
        if getattr(base, "_is_protocol", False):
            names = (*(n for n in vars(base) if not n.startswith("_")), *_annotations_of(base))
            yield from (name for name in names if not (name in seen or seen.add(name)))


def has(made: object, name: str) -> bool:
    """Return whether an object or its class has a member; attributes of ``__init__`` count.

    Args:
        made: The object, or its class.
        name: The member.
    """
    if hasattr(made, name):
        return True
    if not isinstance(made, type):
        return False
    if any(name in _annotations_of(base) for base in made.__mro__):
        return True
    try:
        source = inspect.getsource(made)
    except (OSError, TypeError):
        return False
    return f"self.{name} = " in source or f"self.{name}: " in source


def faults(kind: str, made: object) -> Iterator[str]:
    """Yield the reasons that an object does not satisfy the protocol of a kind.

    Args:
        kind: The kind, a :attr:`delf.specs.Spec.kind`.
        made: The object, or its class.
    """
    protocol = protocol_of(kind)
    if protocol is None:
        return
    missing = [name for name in members(protocol) if not has(made, name)]
    if missing and kind != "connection":  # its name is set when it is made
        yield f"has no {', '.join(missing)}"
    problems = (
        mismatched_async_methods(each, made) for each in (protocol, *optional_protocols(kind))
    )
    yield from dict.fromkeys(fault for found in problems for fault in found)


def mismatched_async_methods(protocol: type, made: object) -> Iterator[str]:
    """Yield the methods that are async although the protocol declares plain ones, or vice versa.

    Args:
        protocol: The protocol that declares the methods; missing methods are ignored.
        made: The object, or its class.
    """
    owner = made if isinstance(made, type) else type(made)
    for name in members(protocol):
        declared = inspect.getattr_static(protocol, name, None)
        found = inspect.getattr_static(owner, name, None)
        if not isinstance(declared, FunctionType) or not isinstance(found, FunctionType):
            continue
        inner: Any = inspect.unwrap(found)
        is_async = inspect.iscoroutinefunction(inner)
        if inspect.iscoroutinefunction(declared):
            returns = str(getattr(found, "__annotations__", {}).get("return", ""))
            if not is_async and not any(word in returns for word in _WAITED_FOR):
                yield f"has a plain method {name}, which is awaited: write `async def {name}`"
            continue
        returns = str(declared.__annotations__.get("return", ""))
        if not is_async or any(word in returns for word in _WAITED_FOR):
            continue
        if "Async" in returns:
            yield f"has an async method {name} that yields nothing: it gives items by `yield`"
        else:
            yield f"has an async method {name}, which is not awaited: write `def {name}`"


def _annotations_of(made: type) -> Mapping[str, Any]:
    return vars(made).get("__annotations__", {})
