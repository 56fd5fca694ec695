"""Requests as Slack's blocks. Others' words are plain text: they mention and link nobody."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from delf.protocols.approval import ApprovalRequest
from delf.terminal import visible
from delf.types import can_be_undone

Block = dict[str, Any]

APPROVE: Final = "delf_approve"
REJECT: Final = "delf_reject"
EDIT: Final = "delf_edit"
REASON: Final = "reason"
_EFFECTS: Final = {
    "read": "○ only reads",
    "write": "◐ changes data",
    "irreversible": "● cannot be undone",
}
_MOST_OF_A_TEXT: Final = 2_900
"""Characters of a text in a block; Slack takes 3,000."""
_MOST_OF_A_VALUE: Final = 600
"""Characters of a value in the message; a longer one is a file in the thread."""
_MOST_ARGUMENTS: Final = 20
_MOST_OF_AN_INPUT: Final = 3_000
_MOST_INPUTS: Final = 40
_MOST_OF_A_BUTTON: Final = 75


def title_of(request: ApprovalRequest) -> str:
    """A request in one line, which notifications show."""
    return f"delf asks: {visible(request.action)} ({_words_of(request.effect)})"


def _words_of(effect: str) -> str:
    """The words of an effect; a level of a newer version is named."""
    return _EFFECTS.get(effect, f"● {effect}")


def escaped(text: str) -> str:
    """A text whose signs mean nothing to Slack, for where it takes no plain text."""
    return visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def story_of(request: ApprovalRequest, page_url: str | None) -> list[Block]:
    """The message that a task's thread begins with."""
    found = [plain(f"Task: {request.task or request.task_id}")]
    told = f"delf · {request.task_id}"
    if page_url is not None:
        told += f" · {page_url.rstrip('/')}/#/{request.task_id}"
    return [*found, _context(told)]


def question_of(
    request: ApprovalRequest, *, is_editable: bool, so_far: str | None = None
) -> list[Block]:
    """A request with its buttons.

    Args:
        request: The request.
        is_editable: Whether its arguments can be changed in a form.
        so_far: How somebody has decided already, where another person has to, too.
    """
    buttons: list[Block] = [_button("Approve", APPROVE, request)]
    if is_editable:
        buttons.append(_button("Edit…", EDIT, request))
    buttons.append(_button("Reject…", REJECT, request))
    told = [] if so_far is None else [plain(so_far)]
    return [
        *told_of(request),
        *told,
        {"type": "actions", "block_id": "decide", "elements": buttons},
    ]


def told_of(request: ApprovalRequest) -> list[Block]:
    """A request without buttons: what would be done, with what, and where that came from."""
    who = f" by {request.worker}" if request.worker else ""
    found = [_header(visible(request.action)), _context(f"{_words_of(request.effect)}{who}")]
    if request.outcome_unknown:
        found.append(plain("It was begun before its process died; approving makes it again."))
    if request.flow is not None:
        found.append(plain(f"⚠ Look at this: {request.flow}"))
    if request.reason is not None:
        found.append(plain(f"The connection asks because: {request.reason}"))
    if request.preview is not None:
        found.append(plain(request.preview))
    if request.code is not None:
        found.append(plain(request.code))
    shown = list(request.arguments.items())
    found += [_argument(request, name, value) for name, value in shown[:_MOST_ARGUMENTS]]
    if more := len(shown) - _MOST_ARGUMENTS:
        found += [plain(f"and {more} more arguments")] if more > 0 else []
    if request.description is not None:
        found.append(_context(f"The script's own words, not checked: {request.description}"))
    if request.made_before is not None:
        found.append(_context(f"This task has done the very same in call {request.made_before}."))
    if request.changes:
        before = f"{request.changes_before} changes before, then " if request.changes_before else ""
        found.append(_context(f"So far: {before}" + "; ".join(request.changes)))
    return found


def told_with(request: ApprovalRequest, how: str) -> list[Block]:
    """A request that waits no more, and how it was decided."""
    return [*told_of(request), plain(how)]


def long_values(request: ApprovalRequest) -> list[tuple[str, str]]:
    """The arguments that are too long for a message, as names and texts of files."""
    written = ((name, text_of(value)) for name, value in request.arguments.items())
    found = [(f"{name}.txt", text) for name, text in written if len(text) > _MOST_OF_A_VALUE]
    texts = {"preview.txt": request.preview, "script.py": request.code}
    found += [(name, text) for name, text in texts.items() if text and len(text) > _MOST_OF_A_TEXT]
    return found


def reject_view(request: ApprovalRequest) -> dict[str, Any]:
    """The form that asks for the reason of a no."""
    asked = {
        "type": "input",
        "block_id": REASON,
        "optional": True,
        "label": _text("Why? The script and the model read it."),
        "element": {
            "type": "plain_text_input",
            "action_id": "value",
            "multiline": True,
            "max_length": _MOST_OF_AN_INPUT,
        },
    }
    return _view("Reject", REJECT, request, [asked])


def edit_view(request: ApprovalRequest) -> dict[str, Any]:
    """The form that changes arguments, one field each."""
    return _view(
        "Edit",
        EDIT,
        request,
        [
            {
                "type": "input",
                "block_id": name,
                "optional": True,
                "label": _text(name[:_MOST_OF_A_BUTTON]),
                "element": {
                    "type": "plain_text_input",
                    "action_id": "value",
                    "multiline": "\n" in text_of(value) or len(text_of(value)) > 80,
                    "initial_value": text_of(value),
                },
            }
            for name, value in request.arguments.items()
        ],
    )


def is_editable(request: ApprovalRequest) -> bool:
    """Tell whether each argument fits into a field, and comes out of it as it was."""
    if request.fit is None or request.code is not None or request.outcome_unknown:
        return False
    written = [text_of(value) for value in request.arguments.values()]
    kept = [_is_kept(value) for value in request.arguments.values()]
    fits = all(0 < len(text) <= _MOST_OF_AN_INPUT for text in written)
    return bool(written) and len(written) <= _MOST_INPUTS and fits and all(kept)


def edited(request: ApprovalRequest, fields: Mapping[str, str | None]) -> dict[str, Any]:
    """The arguments of a form; a field that was not changed stays as it was.

    Raises:
        ValueError: With the field's name, where a value is not JSON and was none of text.
    """
    found: dict[str, Any] = {}
    for name, value in request.arguments.items():
        given = fields.get(name)
        if given is None or given == text_of(value):
            found[name] = "" if given is None and isinstance(value, str) else value
        elif isinstance(value, str):
            found[name] = given
        else:
            try:
                found[name] = json.loads(given)
            except ValueError:
                raise ValueError(name) from None
    return found


def text_of(value: Any) -> str:
    """A value as a person reads and writes it: a text as it is, and others as JSON."""
    if isinstance(value, str):
        return visible(value)
    try:
        return visible(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError):
        return visible(repr(value))


def plain(text: str) -> Block:
    """A section of plain text."""
    return {"type": "section", "text": _text(_cut(visible(text), _MOST_OF_A_TEXT) or " ")}


def _argument(request: ApprovalRequest, name: str, value: Any) -> Block:
    text = text_of(value)
    if len(text) > _MOST_OF_A_VALUE:
        text = f"{text[:_MOST_OF_A_VALUE]}… ({len(text):,} characters; whole in the thread)"
    lines = [f"{name} = {text}"]
    for path, origin in request.origins.items():
        if path == name or path.startswith((f"{name}.", f"{name}[")):
            mark = "⚠ " if origin["trust"] == "outside" else ""
            where = "" if path == name else f"{path} "
            lines.append(f"    ↑ {mark}{where}{origin['text']}")
    return plain("\n".join(lines[:12]))


def _is_kept(value: Any) -> bool:
    if isinstance(value, str):
        return visible(value) == value
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False


def _button(label: str, action: str, request: ApprovalRequest) -> Block:
    found: Block = {
        "type": "button",
        "action_id": action,
        "text": _text(label),
        "value": request.request_id,
    }
    if action == APPROVE and not can_be_undone(request.effect):
        found["confirm"] = {
            "title": _text("This cannot be undone"),
            "text": _text(_cut(f"Call {visible(request.action)} with these arguments?", 290)),
            "confirm": _text("Approve"),
            "deny": _text("Back"),
        }
    return found | ({"style": "primary"} if action == APPROVE else {})


def _view(
    title: str, kind: str, request: ApprovalRequest, blocks: Sequence[Block]
) -> dict[str, Any]:
    return {
        "type": "modal",
        "callback_id": kind,
        "private_metadata": request.request_id,
        "title": _text(title),
        "submit": _text(title),
        "close": _text("Back"),
        "blocks": [_context(_cut(visible(request.action), 150)), *blocks],
    }


def _header(text: str) -> Block:
    return {"type": "header", "text": _text(_cut(text, 150))}


def _context(text: str) -> Block:
    return {"type": "context", "elements": [_text(_cut(visible(text), 1_900))]}


def _text(text: str) -> Block:
    return {"type": "plain_text", "text": text, "emoji": False}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
