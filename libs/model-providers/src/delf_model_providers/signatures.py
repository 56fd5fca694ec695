"""Opaque values of a provider, which come with its calls and go back to it with their results.

Claude signs its thinking, Gemini signs its calls, and open models want their reasoning back. Each
token carries the name of the model that made it, because another model refuses it: a fallback never
gets the token of the model before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from delf.messages import Message, ModelReply, ModelRequest, Part, ToolCall, ToolResult

_SEPARATOR: Final = "\n"


def label_signature(call: ToolCall, model: str) -> ToolCall:
    """Return a call whose ``token`` begins with the name of the model that made the call.

    A call without a token is returned unchanged.
    """
    if call.token is None:
        return call
    return replace(call, token=f"{model}{_SEPARATOR}{call.token}")


def label_signatures(reply: ModelReply, model: str) -> ModelReply:
    """Prefix the ``token`` of each call with the name of the model that made the reply.

    A token may contain a signature by the provider that is valid for this model only.

    Args:
        reply: The reply.
        model: The provider and name of the model that made the reply.
    """
    if all(call.token is None for call in reply.calls):
        return reply
    return replace(reply, calls=tuple(label_signature(call, model) for call in reply.calls))


def keep_own_signatures(request: ModelRequest, model: str) -> ModelRequest:
    """Keep the signature of each earlier tool call that this model made, and remove all others.

    A signature is opaque data in ``ToolCall.token``, which other models reject. The label that
    :func:`label_signatures` put before each signature is removed.

    Args:
        request: The request.
        model: The provider and name of the model that gets the request.
    """

    def with_own_signature(part: Part) -> Part:
        """Remove the signature from a call of another model; return other parts unchanged."""
        if not isinstance(part, ToolCall) or part.token is None:
            return part
        token_model, _, token = part.token.partition(_SEPARATOR)
        return replace(part, token=token if token_model == model else None)

    def with_own_signatures(message: Message) -> Message:
        """Remove the signatures of other models, which this model's provider would refuse."""
        if not any(isinstance(part, ToolCall) for part in message.parts):
            return message
        return replace(message, parts=tuple(map(with_own_signature, message.parts)))

    return replace(request, messages=tuple(map(with_own_signatures, request.messages)))


def may_think(request: ModelRequest) -> bool:
    """Return True if the model may think about a request.

    Claude refuses thinking within a sequence of tool calls that began without thinking, such as a
    sequence that another model began.
    """
    # The token contains the signature of the thinking before the call. A call without a token was
    # made without thinking, or by another model.
    calls = _calls_of_current_turn(request.messages)
    return not calls or calls[0].token is not None


def _calls_of_current_turn(messages: Iterable[Message]) -> list[ToolCall]:
    """Return the model's calls after the last message that the user wrote."""
    calls: list[ToolCall] = []
    for message in messages:
        if message.role == "assistant":
            calls += (part for part in message.parts if isinstance(part, ToolCall))
            continue
        is_written_by_user = not any(isinstance(part, ToolResult) for part in message.parts)
        if is_written_by_user:
            calls.clear()
    return calls


def token_of(message: Mapping[str, Any], call: Mapping[str, Any]) -> str | None:
    """Return a call's token: the provider's fields that the next request has to repeat, as JSON.

    Args:
        message: The fields of the whole message that contains the call, such as its reasoning.
        call: The fields of the call itself, such as its signature.

    Returns:
        The token; None if there are no fields to repeat.
    """
    fields_by_part = {"message": message, "call": call}
    token_fields = {name: dict(fields) for name, fields in fields_by_part.items() if fields}
    if token_fields:
        return json.dumps(token_fields, ensure_ascii=False)
    return None


def fields_of(call: ToolCall, part: str) -> dict[str, Any]:
    """Return the provider's fields that :func:`token_of` stored in a call's token.

    Args:
        call: The call.
        part: ``message`` for the fields of the whole message, ``call`` for those of the call.
    """
    try:
        data: Any = json.loads(call.token or "{}")
    except (ValueError, RecursionError):  # a token in another format
        return {}
    if not isinstance(data, dict):
        return {}
    fields: Any = cast("Mapping[str, Any]", data).get(part)
    return dict(cast("Mapping[str, Any]", fields)) if isinstance(fields, dict) else {}
