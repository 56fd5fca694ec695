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
from delf.protocols.questions import Question

_APPROVE: Final = "approve"
_HAPPENED: Final = "it_did_happen"
_ANSWER: Final = "answer"
_RESULT: Final = "result"
_REASON: Final = "reason"
_RESERVED: Final = frozenset({_APPROVE, _HAPPENED, _RESULT, _REASON})
_LONGEST: Final = 2000
_ROOM: Final = 20_000
"""The maximum number of characters of a message in a client's dialog."""
_KINDS: Final[dict[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
}


def question_of(request: ApprovalRequest) -> types.ElicitRequestFormParams:
    """Return the question: all facts for a person, and a form with the editable fields.

    The form of a request that is too long for a message has no field for approval.
    """
    message = "\n".join(plain_lines(facts(request)))
    reason = {"type": "string", "title": "Reason", "description": "Why not."}
    if not _has_room(request):
        return types.ElicitRequestFormParams(
            message=_shortened(request, message),
            requested_schema={"type": "object", "properties": {_REASON: reason}, "required": []},
        )
    if (question := Question.from_request(request)) is not None:
        return types.ElicitRequestFormParams(message=message, requested_schema=_form(question))
    may_have_happened = request.outcome_unknown
    title, text = (
        ("Make it again", "Make the call once more.") if may_have_happened else ("Approve", "")
    )
    fields: dict[str, Any] = {
        _APPROVE: {"type": "boolean", "title": title, "description": text or "Let it be done."},
    }
    if may_have_happened:
        fields[_HAPPENED] = {
            "type": "boolean",
            "title": "It did happen",
            "description": "It was made before: do not make it again.",
        }
        fields[_RESULT] = {
            "type": "string",
            "title": "Result",
            "description": "What the call returned, as JSON or as a text, if it did happen.",
        }
    fields[_REASON] = reason
    for name, value in _editable(request).items():
        fields[name] = {"type": _KINDS[type(value)], "title": name, "default": value}
    return types.ElicitRequestFormParams(
        message=message,
        requested_schema={"type": "object", "properties": fields, "required": [_APPROVE]},
    )


def decision_of(request: ApprovalRequest, result: Any) -> Decision:
    """Read the decision of the client's user."""
    if not isinstance(result, types.ElicitResult) or result.action != "accept":
        return Rejected()
    content: Mapping[str, Any] = result.content or {}
    reason = str(content.get(_REASON) or "")
    if not _has_room(request):
        return Rejected(reason=reason or NO_REASON)
    if (question := Question.from_request(request)) is not None:
        return _answer(question, content.get(_ANSWER))
    if request.outcome_unknown and content.get(_HAPPENED) is True:
        if content.get(_APPROVE) is True:
            return Rejected(reason="the answer was both to make it again and that it did happen")
        return AlreadyDone(result=_result(content.get(_RESULT)), reason=reason or None)
    if content.get(_APPROVE) is not True:
        return Rejected(reason=reason or NO_REASON)
    changed = {
        name: content[name]
        for name, value in _editable(request).items()
        if name in content and content[name] != value
    }
    return Edited(arguments={**request.arguments, **changed}) if changed else Approved()


def _form(question: Question) -> dict[str, Any]:
    """Return the schema of a form with one field for the answer to a question."""
    field: dict[str, Any] = {"title": "Answer"}
    if question.options:
        field |= {"type": "string", "enum": list(question.options)}
    else:
        kinds = {"yes/no": "boolean", "number": "number"}
        field["type"] = kinds.get(question.answer, "string")
    return {"type": "object", "properties": {_ANSWER: field}, "required": [_ANSWER]}


def _answer(question: Question, content: object) -> Answered | Rejected:
    """Read the answer to a question, which the client may not have checked."""
    try:
        return Answered(question.read(content))
    except DelfError as error:
        return Rejected(reason=error.message)


def _has_room(request: ApprovalRequest) -> bool:
    return sum(len(line) + 1 for line in plain_lines(facts(request))) <= _ROOM


def _shortened(request: ApprovalRequest, message: str) -> str:
    """Return a shortened message that says where the whole request can be seen."""
    omitted = len(message) - _ROOM
    return (
        f"{message[:_ROOM]}… {omitted:,} more characters. {incomplete_text(request)} Look at all "
        f"of it on delf's page or with: delf approvals show {request.request_id}"
    )


def _result(content: object) -> Any:
    """Read the result that a person gives for a call: JSON, or a text."""
    text = str(content or "").strip()
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return text


def _editable(request: ApprovalRequest) -> dict[str, Any]:
    """Return the arguments that a form can show: short scalar values. A script has none."""
    if request.code is not None or request.outcome_unknown or request.rule.get("two_of"):
        return {}
    return {
        name: value
        for name, value in request.arguments.items()
        if type(value) in _KINDS
        and name not in _RESERVED
        and not (isinstance(value, str) and len(value) > _LONGEST)
    }
