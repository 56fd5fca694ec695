"""Approval requests as MCP forms: all facts for the client's user, and the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types

from delf.errors import DelfError
from delf.protocols.approval import (
    NO_REASON,
    AlreadyDone,
    Answered,
    ApprovalRequest,
    Approved,
    Decision,
    Edited,
    Rejected,
)
from delf.protocols.facts import facts, incomplete_text, plain_lines
from delf.questions import Question

_APPROVE: Final = "approve"
_HAPPENED: Final = "it_did_happen"
_ANSWER: Final = "answer"
_RESULT: Final = "result"
_REASON: Final = "reason"
_RESERVED: Final = frozenset({_APPROVE, _HAPPENED, _RESULT, _REASON})
_MAX_VALUE_CHARACTERS: Final = 2000
_MAX_MESSAGE_CHARACTERS: Final = 20_000
_JSON_TYPES: Final[dict[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
}


def question_of(request: ApprovalRequest) -> types.ElicitRequestFormParams:
    """Convert an approval request to an MCP form.

    The message has all facts, and the form has a field for each argument that can be edited. If the
    facts are too long for a message, the message is truncated, and the person can only reject the
    request: the form has no field for approval.
    """
    message = "\n".join(plain_lines(facts(request)))
    reason = {"type": "string", "title": "Reason", "description": "Why not."}
    if not _fits_message(request):
        return types.ElicitRequestFormParams(
            message=_truncate(request, message),
            requested_schema={"type": "object", "properties": {_REASON: reason}, "required": []},
        )
    if (question := request.question) is not None:
        schema = _question_schema(question)
        return types.ElicitRequestFormParams(message=message, requested_schema=schema)
    fields = _fields_after_crash() if request.outcome_unknown else _fields_before_call()
    fields[_REASON] = reason
    for name, value in _editable_arguments(request).items():
        fields[name] = {"type": _JSON_TYPES[type(value)], "title": name, "default": value}
    return types.ElicitRequestFormParams(
        message=message,
        requested_schema={"type": "object", "properties": fields, "required": [_APPROVE]},
    )


def _fields_before_call() -> dict[str, Any]:
    """Return the form's field for approving a call that was not begun."""
    return {
        _APPROVE: {"type": "boolean", "title": "Approve", "description": "Let it be done."},
    }


def _fields_after_crash() -> dict[str, Any]:
    """Return the form's fields for a call that was begun, but has no recorded end."""
    return {
        _APPROVE: {
            "type": "boolean",
            "title": "Make it again",
            "description": "Make the call once more.",
        },
        _HAPPENED: {
            "type": "boolean",
            "title": "It did happen",
            "description": "The call was made before: do not make the call again.",
        },
        _RESULT: {
            "type": "string",
            "title": "Result",
            "description": "What the call returned, as JSON or as a text, if it did happen.",
        },
    }


def decision_of(request: ApprovalRequest, result: Any) -> Decision:
    """Convert the response to an MCP form to a decision.

    Args:
        request: The approval request.
        result: The response, as the client sent it.
    """
    if not isinstance(result, types.ElicitResult) or result.action != "accept":
        return Rejected()
    content: Mapping[str, Any] = result.content or {}
    reason = str(content.get(_REASON) or "")
    if not _fits_message(request):  # the form was too long to show, so it offered only rejection
        return Rejected(reason=reason or NO_REASON)
    if (question := request.question) is not None:
        return _answer_of(question, content.get(_ANSWER))
    did_happen = request.outcome_unknown and content.get(_HAPPENED) is True
    is_approved = content.get(_APPROVE) is True
    if did_happen and is_approved:
        return Rejected(reason="the answer was to repeat the call, and that the call did happen")
    if did_happen:
        return AlreadyDone(result=_parse_result(content.get(_RESULT)), reason=reason or None)
    if not is_approved:
        return Rejected(reason=reason or NO_REASON)
    return _approval(request, content)


def _approval(request: ApprovalRequest, content: Mapping[str, Any]) -> Approved | Edited:
    """Return the approval of a call, with the arguments that the person edited in the form."""
    edited: dict[str, Any] = {}
    for name, value in _editable_arguments(request).items():
        if name in content and content[name] != value:
            edited[name] = content[name]
    if edited:
        return Edited(arguments={**request.arguments, **edited})
    return Approved()


def _question_schema(question: Question) -> dict[str, Any]:
    """Return the schema of a form with one field for the answer to a question."""
    field: dict[str, Any] = {"title": "Answer"}
    if question.options:
        field |= {"type": "string", "enum": list(question.options)}
    else:
        kinds = {"yes/no": "boolean", "number": "number"}
        field["type"] = kinds.get(question.answer, "string")
    return {"type": "object", "properties": {_ANSWER: field}, "required": [_ANSWER]}


def _answer_of(question: Question, content: object) -> Answered | Rejected:
    """Convert a client's answer to a decision; an invalid answer rejects the request."""
    try:
        return Answered(question.read(content))
    except DelfError as error:
        return Rejected(reason=error.message)


def _fits_message(request: ApprovalRequest) -> bool:
    characters = sum(len(line) + 1 for line in plain_lines(facts(request)))
    return characters <= _MAX_MESSAGE_CHARACTERS


def _truncate(request: ApprovalRequest, message: str) -> str:
    """Truncate a message, and add where a person can see the whole request."""
    omitted = len(message) - _MAX_MESSAGE_CHARACTERS
    return (
        f"{message[:_MAX_MESSAGE_CHARACTERS]}… {omitted:,} more characters. "
        f"{incomplete_text(request)} Look at all of it on delf's page or with: "
        f"delf approvals show {request.request_id}"
    )


def _parse_result(content: object) -> Any:
    """Parse the result that a person typed for a call as JSON; other texts stay texts."""
    text = str(content or "").strip()
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return text


def _editable_arguments(request: ApprovalRequest) -> dict[str, Any]:
    """Return the arguments that a form can edit: numbers, booleans and short texts.

    The mapping is empty if the person may not edit the arguments.
    """
    # The second of two approvers has to see the same arguments as the first.
    needs_two_approvers = bool(request.rule.get("two_of"))
    if request.code is not None or request.outcome_unknown or needs_two_approvers:
        return {}
    editable: dict[str, Any] = {}
    for name, value in request.arguments.items():
        is_long_text = isinstance(value, str) and len(value) > _MAX_VALUE_CHARACTERS
        if type(value) in _JSON_TYPES and name not in _RESERVED and not is_long_text:
            editable[name] = value
    return editable
