"""Forms for approvals: the question to the client's user before a call, and the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import mcp_types as types

from delf.protocols.approval import NO_REASON, ApprovalRequest, Approved, Decision, Edited, Rejected
from delf.terminal import visible
from delf_mcp.questions import INDENT, inside

_APPROVE: Final = "approve"
_REASON: Final = "reason"
_LONGEST: Final = 2000
_CHANGES: Final = 3
_SHORT: Final = 80
_KINDS: Final[dict[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
}


def question_of(request: ApprovalRequest) -> types.ElicitRequestFormParams:
    """The question: what would be done, and a form whose fields can change it."""
    lines = list(_asked(request))
    if request.changed:
        lines.append("It has changed since it was shown; this is what would be done now.")
    if request.preview:
        lines += ["What would happen:", *inside(request.preview)]
    if request.reason:
        lines += ["Asked because:", *inside(request.reason)]
    for change in request.changes[-_CHANGES:]:
        lines += ["Changed so far:", *inside(change)]
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


def _asked(request: ApprovalRequest) -> Iterator[str]:
    """All that a yes would allow: nobody can see more of it elsewhere."""
    if request.code is not None:
        yield f"May this script run? It may call {', '.join(map(visible, request.actions))}:"
        yield from inside(request.code)
        return
    again = (
        " It was interrupted, and whether it happened is not known."
        if request.outcome_unknown
        else ""
    )
    if not request.arguments:
        yield f"May this be done?{again} {visible(request.action)}()"
        return
    yield f"May this be done?{again} {visible(request.action)} with"
    for name, value in request.arguments.items():
        lines = inside(value if isinstance(value, str) and "\n" in value else repr(value))
        size = len(value) if isinstance(value, str) else 0
        label = f"{INDENT}{visible(name)}{f' ({size:,} characters)' if size > _SHORT else ''} ="
        if len(lines) == 1:
            yield f"{label} {lines[0].removeprefix(INDENT)}"
        else:
            yield label
            yield from (INDENT + line for line in lines)


def decision_of(request: ApprovalRequest, result: Any) -> Decision:
    """Read the decision of the client's user."""
    if not isinstance(result, types.ElicitResult) or result.action != "accept":
        return Rejected()
    content: Mapping[str, Any] = result.content or {}
    if content.get(_APPROVE) is not True:
        return Rejected(reason=str(content.get(_REASON) or NO_REASON))
    changed = {
        name: content[name]
        for name, value in _offered(request).items()
        if name in content and content[name] != value
    }
    return Edited(arguments={**request.arguments, **changed}) if changed else Approved()


def _offered(request: ApprovalRequest) -> dict[str, Any]:
    """The arguments that a form can show: short and of one piece. A script's are its own."""
    if request.code is not None or request.outcome_unknown:
        return {}
    return {
        name: value
        for name, value in request.arguments.items()
        if type(value) in _KINDS
        and name not in (_APPROVE, _REASON)
        and not (isinstance(value, str) and len(value) > _LONGEST)
    }
