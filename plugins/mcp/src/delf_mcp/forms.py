"""What the client's user is asked before a call, and what they answer: an approval as a form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types

from delf.protocols.approval import ApprovalRequest, Approved, Decision, Edited, Rejected

_APPROVE: Final = "approve"
_REASON: Final = "reason"
_LONGEST: Final = 2000
_CHANGES: Final = 3
_KINDS: Final[dict[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
}


def question_of(request: ApprovalRequest) -> types.ElicitRequestFormParams:
    """The question: what would be done, and a form whose fields can change it.

    Args:
        request: What waits for a decision.
    """
    lines = [f"May this be done? {request.message}"]
    if request.preview:
        lines.append(request.preview)
    if request.reason:
        lines.append(f"Asked because: {request.reason}")
    lines += [f"Changed so far: {change}" for change in request.changes[-_CHANGES:]]
    fields: dict[str, Any] = {
        _APPROVE: {"type": "boolean", "title": "Approve", "description": "Let it be done."},
        _REASON: {"type": "string", "title": "Reason", "description": "Why not."},
    }
    for name, value in _offered(request).items():
        fields[name] = {"type": _KINDS[type(value)], "title": name, "default": value}
    return types.ElicitRequestFormParams(
        message="\n".join(lines),
        requested_schema={"type": "object", "properties": fields, "required": [_APPROVE]},
    )


def decision_of(request: ApprovalRequest, result: Any) -> Decision:
    """What the client's user said.

    Args:
        request: What they were asked about.
        result: What the client sent.
    """
    if not isinstance(result, types.ElicitResult) or result.action != "accept":
        return Rejected(reason="the user said no")
    content: Mapping[str, Any] = result.content or {}
    if content.get(_APPROVE) is not True:
        return Rejected(reason=str(content.get(_REASON) or "the user said no"))
    changed = {
        name: content[name]
        for name, value in _offered(request).items()
        if name in content and content[name] != value
    }
    return Edited(arguments={**request.arguments, **changed}) if changed else Approved()


def _offered(request: ApprovalRequest) -> dict[str, Any]:
    """The arguments that a form can show: short and of one piece. A script's are its own."""
    if request.code is not None or request.unsettled:
        return {}
    return {
        name: value
        for name, value in request.arguments.items()
        if type(value) in _KINDS
        and name not in (_APPROVE, _REASON)
        and not (isinstance(value, str) and len(value) > _LONGEST)
    }
