"""Messages and answers without the secrets that a redactor knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from delf.engine.redact import Redactor
from delf.messages import (
    FilePart,
    Message,
    ModelDelta,
    ModelReply,
    Part,
    TextPart,
    ToolCall,
    ToolResult,
)

_NO_TEXT: Final = frozenset({"image", "audio", "video"})


def clean_reply(reply: ModelReply, redactor: Redactor) -> ModelReply:
    """An answer without secrets."""
    calls = tuple(replace(call, arguments=redactor.text(call.arguments)) for call in reply.calls)
    name = None if reply.reply_id is None else redactor.text(reply.reply_id)
    return replace(reply, text=redactor.text(reply.text), calls=calls, reply_id=name)


def clean_delta(delta: ModelDelta, redactor: Redactor) -> ModelDelta:
    """A piece of a call; the whole of it without secrets."""
    if delta.whole is None:
        return delta
    clean = replace(delta.whole, arguments=redactor.text(delta.whole.arguments))
    return replace(delta, whole=clean)


def clean_message(message: Message, redactor: Redactor) -> Message:
    """A message without secrets."""
    return replace(message, parts=tuple(_clean(part, redactor) for part in message.parts))


def _clean(part: Part, redactor: Redactor) -> Part:
    if isinstance(part, TextPart):
        return TextPart(redactor.text(part.text))
    if isinstance(part, FilePart):
        is_text = part.media_type.partition("/")[0] not in _NO_TEXT
        data = redactor.value(part.data) if is_text else part.data
        return replace(part, name=redactor.text(part.name), data=data)
    if isinstance(part, ToolCall):
        return replace(part, arguments=redactor.text(part.arguments))
    if isinstance(part, ToolResult):
        return replace(part, text=redactor.text(part.text))
    return part
