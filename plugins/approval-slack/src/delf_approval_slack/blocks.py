"""Requests as Slack's blocks, in which other people's texts can mention and link nobody."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from delf.events import Event
from delf.protocols.approval import ApprovalRequest
from delf.protocols.facts import (
    FactKind,
    RequestFact,
    facts,
    incomplete_text,
    plain_lines,
    value_text,
)
from delf.terminal import visible
from delf.types import can_be_undone, effect_words

Block = dict[str, Any]

APPROVE: Final = "delf_approve"
REJECT: Final = "delf_reject"
EDIT: Final = "delf_edit"
CHANGES: Final = "delf_changes"
HAPPENED: Final = "delf_happened"
ANSWER: Final = "delf_answer"
REASON: Final = "reason"
RESULT: Final = "result"
# The maximum number of characters of a text in a block; Slack's limit is 3,000.
_MAX_TEXT_CHARS: Final = 2_900
# The maximum number of characters of a value in a message.
#
# A longer value is uploaded as a file to the thread.
_MAX_VALUE_CHARS: Final = 600
# The maximum number of sections in a message.
#
# Slack's limit is 50 blocks, including the header, notes and buttons.
_MAX_SECTIONS: Final = 44
# The usual maximum number of characters of a section. Slack collapses longer sections.
_SECTION_CHARS: Final = 900
_MAX_FILES: Final = 20
_MAX_INPUT_SIZE: Final = 3_000
_MAX_INPUTS: Final = 40
_MAX_BUTTON_SIZE: Final = 75
_MAX_HEADER_SIZE: Final = 150
_ANSWER_LABEL: Final = "Your answer; the script gets it."


def title_of(request: ApprovalRequest) -> str:
    """Return a summary of a request in one line, for notifications."""
    question, effect, *_ = facts(request)
    return f"delf asks: {question.text} {effect.note} {effect.text}"


def escape_markup(text: str) -> str:
    """Escape control characters and Slack's markup in a text."""
    return visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def story_of(request: ApprovalRequest, page_url: str | None) -> list[Block]:
    """Return the blocks of the message that begins a task's thread: the task and its id."""
    footer = f"delf · {request.task_id}"
    if page_url is not None:
        footer += f" · {page_url.rstrip('/')}/#/{request.task_id}"
    return [plain(f"Task: {request.task or request.task_id}"), _context(footer)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidOut:
    """The facts of a request, formatted for Slack.

    Args:
        blocks: The blocks with the facts, without buttons.
        files: The name and text of each file with a fact that is too long for the message.
        shows_all_facts: Whether blocks and files show all facts within Slack's limits.
    """

    blocks: Sequence[Block]
    files: Sequence[tuple[str, str]]
    shows_all_facts: bool


def lay_out(request: ApprovalRequest, discussion: Iterable[Event] = ()) -> LaidOut:
    """Format the facts of a request as blocks and files.

    Args:
        request: The request.
        discussion: The votes, comments and assignments of the request.
    """
    headline, *other_facts = facts(request, discussion)
    files: dict[str, str] = {}  # _fact_text() adds each fact that is too long for a message
    texts = [_fact_text(fact, files) for fact in other_facts]
    if len(headline.text) > _MAX_HEADER_SIZE:  # the header then shows only the beginning
        texts.insert(0, _fact_text(headline, files))
    sections = _pack_sections(texts, _SECTION_CHARS)
    if len(sections) > _MAX_SECTIONS:  # use fewer, longer sections
        sections = _pack_sections(texts, _MAX_TEXT_CHARS)
    shows_all_facts = len(sections) <= _MAX_SECTIONS and len(files) <= _MAX_FILES
    blocks = [_header(headline.text), *map(plain, sections[:_MAX_SECTIONS])]
    return LaidOut(
        blocks=blocks, files=[*files.items()][:_MAX_FILES], shows_all_facts=shows_all_facts
    )


def question_of(
    request: ApprovalRequest,
    *,
    offers_approval: bool,
    page_url: str | None = None,
    discussion: Iterable[Event] = (),
) -> list[Block]:
    """Return the blocks of a request's message: the facts and the buttons.

    Args:
        request: The request.
        offers_approval: Whether the message has a button for approval, which needs all facts to be
            shown in Slack. Otherwise the message says where else a person can approve.
        page_url: The URL of delf's page; None without a page.
        discussion: The votes, comments and assignments of the request.
    """
    buttons: list[Block] = []
    if offers_approval and request.is_question:
        buttons.append(_button("Answer…", ANSWER, request))
    elif offers_approval:
        approve_label = "Make it again" if request.outcome_unknown else "Approve"
        buttons.append(_button(approve_label, APPROVE, request))
        if request.outcome_unknown:
            buttons.append(_button("It did happen…", HAPPENED, request))
        if is_editable(request):
            buttons.append(_button("Edit…", EDIT, request))
    reject_label = "Answer nothing…" if request.is_question else "Reject…"
    buttons.append(_button(reject_label, REJECT, request))
    if request.takes_changes:
        buttons.append(_button("Ask for changes…", CHANGES, request))
    notes = [] if offers_approval else [plain(_decide_elsewhere_text(request, page_url))]
    return [
        *lay_out(request, discussion).blocks,
        *notes,
        {"type": "actions", "block_id": "decide", "elements": buttons},
    ]


def _decide_elsewhere_text(request: ApprovalRequest, page_url: str | None) -> str:
    page_choice = ""
    if page_url:
        page_choice = f"{page_url.rstrip('/')}/#/{request.task_id}/{request.request_id} or "
    return (
        f"⚠ {incomplete_text(request)} Look at it at {page_choice}with: "
        f"delf approvals show {request.request_id}"
    )


def _fact_text(fact: RequestFact, files: dict[str, str]) -> str:
    """Format a fact as lines of a message; a long text is truncated and added to ``files``.

    Args:
        fact: The fact.
        files: A mapping from the name of a file to its text.
    """
    text = "\n".join(plain_lines([fact], mark="⚠ "))
    if len(fact.text) <= _MAX_VALUE_CHARS and len(text) <= _MAX_TEXT_CHARS:
        if fact.kind is FactKind.ORIGIN:  # the origin of the value in the fact before this one
            return f"    ↑ {text}"
        return text
    name = _file_name(fact, files)
    files[name] = fact.text
    beginning = f"{fact.text[:_MAX_VALUE_CHARS]}… (whole in the thread: {name})"
    shortened_fact = replace(fact, label=fact.label[:_MAX_VALUE_CHARS], text=beginning)
    return "\n".join(plain_lines([shortened_fact], mark="⚠ "))


def _file_name(fact: RequestFact, files: Mapping[str, str]) -> str:
    """Return a name for the file with a fact's text; the name is not in ``files`` yet."""
    stem = re.sub(r"\W+", "_", fact.label).strip("_")[:60] or fact.kind.value
    suffix = ".py" if fact.kind is FactKind.CODE else ".txt"
    name = f"{stem}{suffix}"
    number = 2
    while name in files:
        name = f"{stem}_{number}{suffix}"
        number += 1
    return name


def _pack_sections(texts: Iterable[str], limit: int) -> list[str]:
    """Join texts into sections of at most ``limit`` characters; a longer text stays whole."""
    sections: list[str] = []
    for text in texts:
        if sections and len(sections[-1]) + len(text) < limit:
            sections[-1] += f"\n{text}"
        else:
            sections.append(text)
    return sections


def decided_blocks(request: ApprovalRequest, decision_text: str) -> list[Block]:
    """Return the blocks of a decided request: the facts, and a text about the decision."""
    return [*lay_out(request).blocks, plain(decision_text)]


def happened_view(request: ApprovalRequest) -> dict[str, Any]:
    """Return the form that asks a person for the result of an interrupted call.

    The form opens after the person stated that the call took effect.
    """
    label = "What did the call return? JSON or a text; empty for nothing."
    result = _input(RESULT, label, {"multiline": True, "max_length": _MAX_INPUT_SIZE})
    note = _input(REASON, "How do you know? It is kept in the journal.", {"max_length": 300})
    return _view("It did happen", HAPPENED, request, [result, note])


def answer_view(request: ApprovalRequest) -> dict[str, Any]:
    """Return the form for the answer to a question: a list of choices, or a text field."""
    question = request.question
    choices = () if question is None else question.choices
    if not choices:
        element_fields = {"multiline": True, "max_length": _MAX_INPUT_SIZE}
        return _view("Answer", ANSWER, request, [_input(ANSWER, _ANSWER_LABEL, element_fields)])
    # Slack limits the size of an option, so use the option's number, which the message shows, too.
    options = [
        {
            "text": _text(_truncate(f"{number + 1}. {visible(choice)}", _MAX_BUTTON_SIZE)),
            "value": str(number),
        }
        for number, choice in enumerate(choices)
    ]
    block = _input(ANSWER, _ANSWER_LABEL, {})
    block["element"] = {"type": "static_select", "action_id": "value", "options": options}
    return _view("Answer", ANSWER, request, [block])


def reject_view(request: ApprovalRequest) -> dict[str, Any]:
    """Return the form that asks for the reason of a rejection."""
    element_fields = {"multiline": True, "max_length": _MAX_INPUT_SIZE}
    reason_input = _input(REASON, "Why? The script and the model read it.", element_fields)
    return _view("Reject", REJECT, request, [reason_input])


def changes_view(request: ApprovalRequest) -> dict[str, Any]:
    """Return the form that asks what the model should change."""
    element_fields = {"multiline": True, "max_length": _MAX_INPUT_SIZE}
    reason_input = _input(
        REASON, "What should change? The model reads it and plans again.", element_fields
    )
    return _view("Ask for changes", CHANGES, request, [reason_input])


def edit_view(request: ApprovalRequest) -> dict[str, Any]:
    """Return the form with a text field for each argument."""
    inputs: list[Block] = []
    for name, value in request.arguments.items():
        text = text_of(value)
        element_fields = {"multiline": "\n" in text or len(text) > 80, "initial_value": text}
        inputs.append(_input(name, name[:_MAX_BUTTON_SIZE], element_fields))
    return _view("Edit", EDIT, request, inputs)


def is_editable(request: ApprovalRequest) -> bool:
    """Return True if a person may edit the arguments of a request in the text fields of a form.

    All arguments must fit into text fields and be read back from them unchanged. Code, and a call
    whose outcome is unknown, cannot be edited.
    """
    validates_edits = request.fit is not None
    if not validates_edits or request.code is not None or request.outcome_unknown:
        return False
    values = request.arguments.values()
    texts = [text_of(value) for value in values]
    if not 0 < len(texts) <= _MAX_INPUTS:
        return False
    if not all(0 < len(text) <= _MAX_INPUT_SIZE for text in texts):
        return False
    return all(map(_is_unchanged_by_form, values))


def edited_arguments(request: ApprovalRequest, fields: Mapping[str, str | None]) -> dict[str, Any]:
    """Parse the arguments in a form; an unchanged field keeps the argument's value.

    Raises:
        NotJsonError: If an argument that is not a text is not valid JSON.
    """
    edited: dict[str, Any] = {}
    for name, value in request.arguments.items():
        text = fields.get(name)
        if text is None and isinstance(value, str):
            edited[name] = ""  # Slack sends None for an empty field
        elif text is None or text == text_of(value):
            edited[name] = value
        elif isinstance(value, str):
            edited[name] = text
        else:
            try:
                edited[name] = json.loads(text)
            except (ValueError, RecursionError):
                raise NotJsonError(name) from None
    return edited


class NotJsonError(ValueError):
    """The text in a form's field is not JSON.

    Args:
        field: The name of the field.
    """

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.field = field


def result_of(text: str) -> Any:
    """Parse the result that a person typed for a call: JSON, otherwise the text; None if empty."""
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return text


def text_of(value: Any) -> str:
    """Format a value as text that a person can read and edit."""
    return visible(value_text(value))


def plain(text: str) -> Block:
    """Return a section block with plain text, truncated to Slack's limit."""
    return {"type": "section", "text": _text(_truncate(visible(text), _MAX_TEXT_CHARS) or " ")}


def _input(name: str, label: str, element_fields: Mapping[str, Any]) -> Block:
    return {
        "type": "input",
        "block_id": name,
        "optional": True,
        "label": _text(label),
        "element": {"type": "plain_text_input", "action_id": "value", **element_fields},
    }


def _is_unchanged_by_form(value: Any) -> bool:
    """Return True if a text field can show a value, and the same value is read back from it.

    The field shows a string without its invisible characters, and any other value as JSON.
    """
    if isinstance(value, str):
        return visible(value) == value
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError, RecursionError):
        return False


def _button(label: str, action: str, request: ApprovalRequest) -> Block:
    """Return a button; the approval of an irreversible call opens a confirmation dialog."""
    button: Block = {
        "type": "button",
        "action_id": action,
        "text": _text(label),
        "value": request.request_id,
    }
    if action == APPROVE and not can_be_undone(request.effect):
        question = facts(request)[0].text  # such as "May mail.send be called?"
        warning = f"It {effect_words(request.effect).text}"  # such as "It cannot be undone"
        button["confirm"] = {
            "title": _text(_truncate(warning, 100)),
            "text": _text(_truncate(question, 290)),
            "confirm": _text("Approve"),
            "deny": _text("Back"),
        }
    if action == APPROVE:
        button["style"] = "primary"
    return button


def _view(
    title: str, kind: str, request: ApprovalRequest, blocks: Sequence[Block]
) -> dict[str, Any]:
    """Return a modal form.

    Args:
        title: The title, which is also the label of the submit button.
        kind: The kind of decision, such as ``REJECT``, which identifies the submitted form.
        request: The request.
        blocks: The fields.
    """
    return {
        "type": "modal",
        "callback_id": kind,
        "private_metadata": request.request_id,
        "title": _text(title),
        "submit": _text(title),
        "close": _text("Back"),
        "blocks": [_context(_truncate(visible(request.action), 150)), *blocks],
    }


def _header(text: str) -> Block:
    return {"type": "header", "text": _text(_truncate(text, _MAX_HEADER_SIZE))}


def _context(text: str) -> Block:
    return {"type": "context", "elements": [_text(_truncate(visible(text), 1_900))]}


def _text(text: str) -> Block:
    return {"type": "plain_text", "text": text, "emoji": False}


def _truncate(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
