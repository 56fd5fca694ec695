"""Prompts: requests to models, stored compressed in the journal and read call by call."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import field

from delf.events import Event, ModelCalled, ModelFailed, ModelReplied
from delf.messages import FilePart, ImagePart, Message, Part, TextPart, ToolCall, Usage
from delf.records import dataclass
from delf_engine.views.copies import PERSON, copied_event_count


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """A message as it was sent to the model.

    Args:
        role: The author: ``system``, ``user`` or ``assistant``.
        text: The text; an image or a file is described in brackets.
        same: Whether the previous call for the same purpose also had this message.
    """

    role: str
    text: str
    same: bool = False


@dataclass(slots=True, kw_only=True)
class Prompt:
    """A model call with its complete prompt and its answer.

    Args:
        number: The number in the task, from 1.
        model: The model.
        purpose: The purpose of the call.
        attempt: The number of the strategy's attempt at a usable answer, from 1.
        at: The Unix time of the call.
        messages: The messages; None if the journal does not keep prompts.
        tools: Names of the offered functions and server-side tools.
        answer: The answer; None before the reply and after a failure.
        calls: The tool calls that the model requested.
        usage: The token counts.
        cost_usd: The cost; None if unknown.
        duration_ms: The duration in milliseconds.
        finish_reason: The reason for the end, in the provider's words.
        reply_id: The provider's id of the answer.
        error: The error message, if the call failed.
        replayed: Whether the answer was copied from the forked task, at no cost.
    """

    number: int
    model: str
    purpose: str
    attempt: int
    at: float
    messages: tuple[PromptMessage, ...] | None
    tools: tuple[str, ...] = ()
    answer: str | None = None
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    duration_ms: float | None = None
    finish_reason: str | None = None
    reply_id: str | None = None
    error: str | None = None
    replayed: bool = False


def pack(messages: Sequence[Message], before: Sequence[Message]) -> tuple[int, str]:
    """Compress the messages that a prompt adds to the previous prompt.

    Args:
        messages: The messages of the prompt.
        before: The messages of the previous prompt.

    Returns:
        The number of leading messages that both prompts share, and the other messages of the
        prompt, compressed.
    """
    shared_count = 0
    for message, earlier in zip(messages, before, strict=False):
        if message != earlier:
            break
        shared_count += 1
    new_messages = [[message.role, _text_of(message)] for message in messages[shared_count:]]
    raw = zlib.compress(json.dumps(new_messages).encode())
    return shared_count, base64.b64encode(raw).decode("ascii")


def prompts_of(events: Sequence[Event]) -> list[Prompt]:
    """Return all model calls of a task in order."""
    prompts_by_number: dict[int, Prompt] = {}
    # The messages of the latest call of each purpose, such as ``"generate"``.
    last_messages: dict[str, tuple[PromptMessage, ...]] = {}
    copied_count = copied_event_count(events)
    for event in events:
        if isinstance(event, ModelCalled):
            messages = _unpack_messages(event, last_messages.get(event.purpose, ()))
            last_messages[event.purpose] = messages or ()
            prompts_by_number[event.number] = _unanswered_prompt(event, messages)
        elif isinstance(event, (ModelReplied, ModelFailed)):
            prompt = prompts_by_number.get(event.number)
            if prompt is not None:
                _add_outcome(prompt, event, is_copied=event.seq <= copied_count)
    return list(prompts_by_number.values())


def _unanswered_prompt(event: ModelCalled, messages: tuple[PromptMessage, ...] | None) -> Prompt:
    return Prompt(
        number=event.number,
        model=event.model,
        purpose=event.purpose,
        attempt=event.attempt,
        at=event.at,
        messages=messages,
        tools=(*event.tools, *event.server_side),
    )


def _add_outcome(prompt: Prompt, event: ModelReplied | ModelFailed, *, is_copied: bool) -> None:
    """Add the reply or the failure of a model call to its prompt.

    Args:
        prompt: The prompt.
        event: The reply or failure.
        is_copied: Whether the event was copied from the forked task.
    """
    prompt.duration_ms = event.duration_ms
    if isinstance(event, ModelFailed):
        prompt.error = event.error
        return
    prompt.model = event.model
    prompt.answer = event.text
    prompt.calls = event.calls
    prompt.usage = event.usage
    prompt.cost_usd = event.cost_usd
    # ``replayed`` means that the fork does not pay again for an answer that the original task paid.
    # A person's answer costs nothing in any task.
    prompt.replayed = is_copied and event.model != PERSON
    prompt.finish_reason = event.finish_reason
    prompt.reply_id = event.reply_id


def _unpack_messages(
    event: ModelCalled, previous_messages: tuple[PromptMessage, ...]
) -> tuple[PromptMessage, ...] | None:
    """Return the messages of a prompt; None if some of them are not in the journal.

    Args:
        event: The event of the model call. ``event.same`` is the number of messages that this
            prompt and the previous prompt begin with; ``event.prompt`` has the others, compressed.
        previous_messages: The messages of the previous prompt, as far as the journal has them.
    """
    shared = previous_messages[: event.same]
    if event.prompt is None or len(shared) < event.same:
        return None
    shared_messages = [PromptMessage(message.role, message.text, same=True) for message in shared]
    new: list[list[str]] = json.loads(zlib.decompress(base64.b64decode(event.prompt)))
    return (*shared_messages, *(PromptMessage(role, text) for role, text in new))


def _text_of(message: Message) -> str:
    return "\n".join(map(_part_text, message.parts))


def _part_text(part: Part) -> str:
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, ImagePart):
        return f"[image: {part.media_type}, {len(part.data):,} bytes]"
    if isinstance(part, FilePart):
        return f"[file: {part.name}, {part.media_type}, {len(part.data):,} bytes]"
    if isinstance(part, ToolCall):
        return f"[call of {part.name}: {part.arguments}]"
    return f"[result of {part.name}]\n{part.text}"
