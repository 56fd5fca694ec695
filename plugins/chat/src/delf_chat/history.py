"""Conversion of stored messages to the history for a model."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast, get_args

from delf.errors import ConfigurationError, DelfError
from delf.machine.threads import in_own_thread
from delf.messages import Message, Part, Role, TextPart, user
from delf.protocols.conversation import ChatMessage

Transform = Callable[[list[ChatMessage]], Any]
"""Function that converts the messages of a task's history; sync or async."""

ROLES: Final[tuple[str, ...]] = get_args(Role)
_MAX_CHARACTERS: Final = 8_000
_GAP: Final = "(Earlier messages are left out.)"
# The placeholder for an empty message, which some providers refuse.
_EMPTY: Final = "(nothing)"


def make_message(role: Any, content: Any, **more: Any) -> ChatMessage:
    """Create a message, and replace lone surrogates in its text.

    Raises:
        ConfigurationError: If the role is unknown, or the content is not text.
    """
    if role not in ROLES:
        raise ConfigurationError(
            f"a chat has no role {role!r}", hint=f"one of: {', '.join(sorted(ROLES))}"
        )
    if not isinstance(content, str):
        raise ConfigurationError(
            f"a message's content is text, not {type(content).__name__}", hint="convert it first"
        )
    return ChatMessage(role=role, content=_replace_surrogates(content), **more)


def _replace_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


async def apply_transform(
    messages: Sequence[ChatMessage], transform: Transform | None
) -> Sequence[ChatMessage]:
    """Apply ``history_transform`` to the messages of a task's history.

    Raises:
        DelfError: If the function fails. The messages are not used then, because the function may
            have to hide some.
    """
    if transform is None:
        return messages
    # A plain function may block, so call the function in a thread.
    call = partial(_list_or_awaitable, transform, list(messages))
    try:
        result = await in_own_thread(call, "delf-transform")
        if not isinstance(result, list):  # the awaitable of an async function
            result = _as_list(await result)
        return [_as_message(item) for item in result]
    except Exception as error:
        name = getattr(transform, "__name__", type(transform).__name__)
        is_delf_error = isinstance(error, DelfError)
        reason = error.message if is_delf_error else f"{type(error).__name__}: {error}"
        hint = error.hint if is_delf_error else None
        raise DelfError(f"history_transform {name} failed: {reason}", hint=hint) from error


def _list_or_awaitable(
    transform: Transform, messages: list[ChatMessage]
) -> list[Any] | Awaitable[Any]:
    """Call a transform, and return its messages.

    If the transform is an async function, return an awaitable of the messages.
    """
    result = transform(messages)
    return result if inspect.isawaitable(result) else _as_list(result)


def _as_list(result: Any) -> list[Any]:
    kind = type(result).__name__
    if not isinstance(result, Iterable) or isinstance(result, (str, bytes, Mapping)):
        raise ConfigurationError(f"the transform returned {kind}, not a list of messages")
    return list(cast("Iterable[Any]", result))


def _as_message(item: Any) -> ChatMessage:
    if isinstance(item, ChatMessage):
        return make_message(item.role, item.content, trust=item.trust)
    if isinstance(item, Mapping):
        fields = cast("Mapping[str, Any]", item)
        return make_message(fields.get("role"), fields.get("content"))
    raise ConfigurationError(f"the transform returned a {type(item).__name__}, not a message")


def for_model(messages: Iterable[ChatMessage]) -> tuple[Message, ...]:
    """Convert messages for a model: roles alternate, and the user begins."""
    # Some providers refuse consecutive messages of one role, and a first message of the model.
    merged: list[Message] = []
    has_dialogue_begun = False
    for message in messages:
        if message.role == "assistant" and not has_dialogue_begun:
            merged.append(user(_GAP))  # in place of a message of the user
        if message.role in ("user", "assistant"):  # not a system message
            has_dialogue_begun = True
        trust = "own" if message.is_own else "outside"
        parts: list[Part] = [TextPart(_text_for_model(message.content))]
        if merged and merged[-1].role == message.role:
            previous = merged.pop()  # one message replaces both
            parts = [*previous.parts, TextPart("\n\n"), *parts]
            if previous.trust == "outside":
                trust = "outside"
        merged.append(Message(message.role, tuple(parts), trust))
    return tuple(merged)


def _text_for_model(text: str) -> str:
    """Return a message's text, truncated if it is long; a placeholder for an empty text."""
    if len(text) <= _MAX_CHARACTERS:
        return text if text.strip() else _EMPTY
    return f"{text[:_MAX_CHARACTERS]}… (cut, {len(text):,} characters)"
