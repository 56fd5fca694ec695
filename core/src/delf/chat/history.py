"""From kept messages to what a model is shown of them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast, get_args

from delf.errors import ConfigurationError, DelfError
from delf.messages import Message, Role, TextPart, user
from delf.protocols.conversation import ChatMessage

Transform = Callable[[list[ChatMessage]], Any]
"""Given the messages that a task would see, returns those that it shall see; plain or async."""

ROLES: Final[tuple[str, ...]] = get_args(Role)
_LONGEST: Final = 8_000
_GAP: Final = "(What was said before is left out.)"


def make_message(role: Any, content: Any, **more: Any) -> ChatMessage:
    """A message from what a user gave.

    Raises:
        ConfigurationError: For a role that there is not, or a content that is no text.
    """
    if role not in ROLES:
        raise ConfigurationError(
            f"a chat has no role {role!r}", hint=f"one of: {', '.join(sorted(ROLES))}"
        )
    if not isinstance(content, str):
        raise ConfigurationError(
            f"a message's content is text, not {type(content).__name__}", hint="convert it first"
        )
    return ChatMessage(role=role, content=content, **more)


async def transformed(
    messages: Sequence[ChatMessage], transform: Transform | None
) -> Sequence[ChatMessage]:
    """The messages that a task shall see.

    Raises:
        DelfError: When the user's function fails: what it was to hide must not be shown.
    """
    if transform is None:
        return messages
    name = getattr(transform, "__name__", type(transform).__name__)
    try:
        if inspect.iscoroutinefunction(transform):
            result = await transform(list(messages))
        else:
            result = await asyncio.to_thread(transform, list(messages))
            result = await result if inspect.isawaitable(result) else result
    except DelfError:
        raise
    except Exception as error:
        raise DelfError(
            f"history_transform {name} failed: {type(error).__name__}: {error}"
        ) from error
    return [_given(item, name) for item in _items(result, name)]


def _items(result: Any, name: str) -> Iterable[Any]:
    kind = type(result).__name__
    if not isinstance(result, Iterable) or kind in {"str", "bytes", "dict"}:
        raise ConfigurationError(
            f"history_transform {name} returned {kind}, not a list of messages"
        )
    return cast("Iterable[Any]", result)


def _given(item: Any, name: str) -> ChatMessage:
    if isinstance(item, ChatMessage):
        return item
    if isinstance(item, Mapping):
        fields = cast("Mapping[str, Any]", item)
        return make_message(fields.get("role"), fields.get("content"))
    raise ConfigurationError(f"history_transform {name} returned a {type(item).__name__}")


def for_model(messages: Iterable[ChatMessage]) -> tuple[Message, ...]:
    """Messages as a model takes them: it begins with a user's, and speakers take turns."""
    merged: list[Message] = []
    for message in messages:
        part = TextPart(_cut(message.content))
        if not merged and message.role == "assistant":
            merged.append(user(_GAP))
        if merged and merged[-1].role == message.role:
            merged[-1] = Message(message.role, (*merged[-1].parts, TextPart("\n\n"), part))
        else:
            merged.append(Message(message.role, (part,)))
    return tuple(merged)


def _cut(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}… (cut, {len(text):,} characters)"
