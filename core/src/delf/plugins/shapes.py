"""Shapes of objects by kind: a protocol, compared with somebody's object."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any, Final

from delf.errors import PluginError
from delf.protocols import (
    approval,
    connection,
    embedder,
    formats,
    journal,
    memory,
    model,
    observer,
    prefilter,
    sandbox,
    shared_journal,
    strategy,
)

PROTOCOLS: Final[Mapping[str, type]] = {
    "approval": approval.ApprovalChannel,
    "connection": connection.ConnectionLike,
    "embedder": embedder.Embedder,
    "format": formats.FileFormat,
    "journal": journal.Journal,
    "memory": memory.MemoryStore,
    "model": model.Model,
    "observer": observer.Observer,
    "prefilter": prefilter.Prefilter,
    "sandbox": sandbox.SandboxBackend,
    "strategy": strategy.Strategy,
}
"""The protocols that the object of a kind must have."""

MORE: Final[Mapping[str, tuple[type, ...]]] = {
    "approval": (approval.SupportsPresence,),
    "connection": (
        connection.SupportsCheck,
        connection.SupportsClose,
        connection.SupportsContext,
        connection.SupportsNotices,
        connection.SupportsPluginContext,
        connection.SupportsRenewal,
    ),
    "embedder": (embedder.SupportsCheck, embedder.SupportsLoading),
    "format": (formats.SupportsWrite, formats.SupportsPeek),
    "memory": (memory.SupportsMemoryWarmUp,),
    "journal": (
        journal.SupportsRemembered,
        shared_journal.SharedJournal,
    ),
    "model": (
        model.SupportsTools,
        model.SupportsPrice,
        model.SupportsModelCheck,
        model.SupportsSessions,
        model.SupportsModelWarmUp,
    ),
    "sandbox": (sandbox.SupportsLanguage, sandbox.SupportsWarmUp, sandbox.SupportsMeasures),
}
"""The protocols that it may have besides."""

_WAITED_FOR: Final = ("Awaitable", "Coroutine", "Future", "Task")


def need(given: object, wanted: type, who: str) -> None:
    """Refuse what a plugin gave in place of something else, before it fails in other words.

    Args:
        given: What it gave.
        wanted: What it had to give.
        who: The plugin, for the message.

    Raises:
        PluginError: When it is another thing.
    """
    if isinstance(given, wanted):
        return
    what = f"{type(given).__name__} in place of {wanted.__name__}"
    if inspect.isawaitable(given):
        what += ": await it first"
    hint = f"its author has to give a {wanted.__module__}.{wanted.__name__}"
    raise PluginError(f"{who} gave {what}", hint=hint)


def members(protocol: type) -> Iterator[str]:
    """The names that a protocol declares, those of its bases first.

    Args:
        protocol: The protocol.
    """
    seen: set[str] = set()
    for base in reversed(protocol.__mro__):
        if getattr(base, "_is_protocol", False):
            names = (*(n for n in vars(base) if not n.startswith("_")), *_annotated(base))
            yield from (name for name in names if not (name in seen or seen.add(name)))


def has(made: object, name: str) -> bool:
    """Tell whether an object, or those of a class, have a member; one set in ``__init__`` counts.

    Args:
        made: The object, or its class.
        name: The member.
    """
    if hasattr(made, name):
        return True
    if not isinstance(made, type):
        return False
    if any(name in _annotated(base) for base in made.__mro__):
        return True
    try:
        source = inspect.getsource(made)
    except (OSError, TypeError):
        return False
    return f"self.{name} = " in source or f"self.{name}: " in source


def faults(kind: str, made: object) -> Iterator[str]:
    """Explain why an object cannot be of a kind: members missing, or not async.

    Args:
        kind: As in :attr:`delf.specs.Spec.kind`.
        made: The object, or the class of such.
    """
    protocol = PROTOCOLS.get(kind)
    if protocol is None:
        return
    lacks = [name for name in members(protocol) if not has(made, name)]
    if lacks and kind != "connection":  # it has its name and permissions once it is made
        yield f"has no {', '.join(lacks)}"
    told = (not_as_declared(each, made) for each in (protocol, *MORE.get(kind, ())))
    yield from dict.fromkeys(fault for found in told for fault in found)


def not_as_declared(protocol: type, made: object) -> Iterator[str]:
    """Methods that are async where a plain one belongs, or the other way round.

    Args:
        protocol: Declares them; what is not there is passed over.
        made: The object, or the class of such.
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


def _annotated(made: type) -> Mapping[str, Any]:
    return vars(made).get("__annotations__", {})
