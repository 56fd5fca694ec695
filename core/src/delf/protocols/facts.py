"""All facts about a request for approval, worded once for every channel.

:func:`facts` turns an :class:`~delf.events.ApprovalRequest` into data. A channel lays these facts
out and adds none of its own. A channel that cannot show every required fact offers no approval.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from datetime import date, time
from decimal import Decimal
from enum import StrEnum
from pathlib import PurePath
from typing import Any, Final, cast
from uuid import UUID

from delf.events import (
    ApprovalAssigned,
    ApprovalCommented,
    ApprovalRequest,
    ApprovalVoted,
    Event,
    Label,
)
from delf.protocols.connection import without_verdict
from delf.protocols.people import LOCAL
from delf.protocols.rules import ApprovalRule
from delf.questions import Question
from delf.records import dataclass
from delf.terminal import hidden_characters, visible
from delf.types import Weight, can_be_undone, effect_words
from delf.values.encoding import is_same_data

HAPPENED: Final = "it did happen"
"""A person's answer to a request about a call with unknown outcome: the call took effect.

The call is then not made again.
"""
# The number of characters above which a fact also shows the length of its text.
_LONG_TEXT: Final = 80
_MAX_NAMED: Final = 5
_CONTAINERS: Final = (Mapping, list, tuple, set, frozenset)
# The line ends of Python source besides ``\n``. ``str.splitlines`` would also split at a form feed,
# which does not end a comment.
_LINE_ENDS: Final = re.compile("\r\n|\r")


class FactKind(StrEnum):
    """The kinds of facts, in the order in which :func:`facts` returns them."""

    QUESTION = "question"
    EFFECT = "effect"
    OUTCOME_UNKNOWN = "outcome_unknown"
    CHANGED = "changed"
    MADE_BEFORE = "made_before"
    OTHERS_WORDS = "others_words"
    HIDDEN = "hidden"
    WARNING = "warning"
    TASK = "task"
    ASKER = "asker"
    PARENT = "parent"
    SCRIPT = "script"
    LINE = "line"
    FIELD = "field"
    PERMISSION = "permission"
    ACTION = "action"
    CODE = "code"
    ARGUMENT = "argument"
    OPTION = "option"
    DEFAULT = "default"
    ORIGIN = "origin"
    FILE = "file"
    PREVIEW = "preview"
    CHANGES = "changes"
    RULE = "rule"
    VOTE = "vote"
    ASSIGNEE = "assignee"
    COMMENT = "comment"
    EXPIRY = "expiry"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFact:
    """A fact about a request, safe to show: invisible characters are escaped in each text.

    Args:
        kind: The subject of the fact.
        weight: The importance of the fact.
        label: A few words; for an argument its name.
        text: The full fact; for an argument its value, a string unquoted and all else as JSON.
        note: A remark, such as the length of a value; may be empty.
        about: The argument that the fact belongs to, by its real name; may be empty.
        required: Whether a channel must show the fact before it may offer approval.
    """

    kind: FactKind
    weight: Weight = "information"
    label: str
    text: str
    note: str = ""
    about: str = ""
    required: bool = True

    @property
    def heading(self) -> str:
        """The label with its note, such as ``text (5,007 characters)``."""
        return f"{self.label} ({self.note})" if self.note else self.label

    def data(self) -> dict[str, Any]:
        """Return the fact as JSON-ready data."""
        return asdict(self) | {"kind": self.kind.value}


def facts(request: ApprovalRequest, later_events: Iterable[Event] = ()) -> Sequence[RequestFact]:
    """Return all facts that a person needs to decide about a request.

    Args:
        request: The request or its event.
        later_events: The task's events after the request. Votes, comments and the assignee become
            facts.
    """
    all_facts = [*_warning_facts(request), *_task_facts(request), *_subject_facts(request)]
    all_facts += [*_team_facts(request, later_events), *_expiry_facts(request)]
    order = {kind: number for number, kind in enumerate(FactKind)}
    # The same rank keeps options, defaults and origins behind the argument they belong to.
    for kind in (FactKind.OPTION, FactKind.DEFAULT, FactKind.ORIGIN):
        order[kind] = order[FactKind.ARGUMENT]
    return sorted(all_facts, key=lambda fact: order[fact.kind])


def incomplete_text(request: ApprovalRequest) -> str:
    """Return the sentence for a channel that cannot show every required fact of a request."""
    outcome = "answered" if request.is_question else "approved"
    return f"Not all of this request is shown here, so it cannot be {outcome} here."


def labels() -> Mapping[str, Label]:
    """Return the labels of those request fields that a channel shows as ``LABEL: VALUE``.

    Returns:
        A mapping from the name of an attribute of :class:`ApprovalRequest` to its label.
    """
    name_and_label = ((item.name, item.metadata.get("label")) for item in fields(ApprovalRequest))
    return {name: label for name, label in name_and_label if label is not None}


def facts_data(
    request: ApprovalRequest, later_events: Iterable[Event] = ()
) -> list[dict[str, Any]]:
    """Return all that a person needs to know to decide a request, as JSON-ready data.

    Args:
        request: The request or its event.
        later_events: The task's events after the request, with votes and comments about it.
    """
    return [fact.data() for fact in facts(request, later_events)]


def plain_lines(facts_to_show: Iterable[RequestFact], mark: str = "! ") -> Iterator[str]:
    """Format each fact as plain text, for channels without layout.

    Further lines of a fact are indented, so that no text looks like another fact.

    Args:
        facts_to_show: The facts of a request.
        mark: The prefix of each fact that has a label, is required, and is more than information.
    """
    for fact in facts_to_show:
        text = fact.text
        if fact.label:
            prefix = mark if fact.required and fact.weight != "information" else ""
            separator = "\n" if "\n" in text else " "
            text = f"{prefix}{fact.heading}:{separator}{text}"
        elif fact.note:  # the fact about the effect, with a mark such as "●" as its note
            text = f"{fact.note} {text}"
        yield text.replace("\n", "\n    ")


def as_edited(request: ApprovalRequest, arguments: Mapping[str, Any]) -> ApprovalRequest:
    """Return a copy of a request with edited arguments, without the details of the old values.

    The copy has no preview and no other field from the connection's verdict, because the connection
    made them for the old arguments. For each edited argument, the origin and the flow warning are
    left out.

    Args:
        request: The original request.
        arguments: All arguments after the edit.
    """
    old_arguments = request.arguments
    if is_same_data(arguments, old_arguments):
        return request
    unchanged = {
        name
        for name, value in arguments.items()
        if name in old_arguments and is_same_data(old_arguments[name], value)
    }
    origins = {
        path: origin for path, origin in request.origins.items() if root_of(path) in unchanged
    }
    return replace(
        without_verdict(request),
        arguments=arguments,
        origins=origins,
        flow=_flow_after_edit(request, unchanged),
        made_before=None,  # only the call with the old arguments was made before
    )


def _flow_after_edit(request: ApprovalRequest, unchanged: Collection[str]) -> str | None:
    """Return the flow warning of a request, if any.

    Return None for a warning about an argument that a person has edited.
    """
    if request.flow is None:
        return None
    # A warning about one argument begins with its path, as in ``to[0]: …``. A warning about the
    # whole call stays.
    path = request.flow.partition(": ")[0]
    is_about_argument = path in request.origins
    is_edited = root_of(path) not in unchanged
    return None if is_about_argument and is_edited else request.flow


def value_text(value: Any) -> str:
    """Format an argument for a person: a text unquoted, any other value as JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=_readable)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _readable(value: Any) -> Any:
    """Convert a value that JSON does not support to readable data."""
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID, PurePath)):
        return str(value)
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if isinstance(value, (set, frozenset)):
        return list(cast("set[Any]", value))
    return repr(value)


# -- what to look at first --------------------------------------------------------------------


def _warning_facts(request: ApprovalRequest) -> Iterator[RequestFact]:
    """Yield the question, the effect, and everything unusual about the request."""
    effect = effect_words(request.effect)
    weight: Weight = "information" if request.effect == "read" else "caution"
    if not can_be_undone(request.effect):
        weight = "danger"
    yield RequestFact(kind=FactKind.QUESTION, weight=weight, label="", text=_question_text(request))
    if request.question is None:
        text, mark = effect.text, effect.mark
    else:
        text, mark = request.question.kind_text, "?"
    yield RequestFact(kind=FactKind.EFFECT, weight=weight, label="", text=visible(text), note=mark)
    if request.outcome_unknown:
        yield RequestFact(
            kind=FactKind.OUTCOME_UNKNOWN,
            weight="danger",
            label="may already have happened",
            text="the call was begun and interrupted, and whether it happened is not recorded; "
            f"approving makes it again, {HAPPENED!r} does not",
        )
    if request.changed:
        yield RequestFact(
            kind=FactKind.CHANGED,
            weight="danger",
            label="changed",
            text="it has changed since it was shown; this is what would be done now",
        )
    if request.made_before is not None:
        yield RequestFact(
            kind=FactKind.MADE_BEFORE,
            weight="danger",
            label="made before",
            text=f"the very same call was made before in this task (call {request.made_before})",
        )
    if request.flow is not None:  # untrusted data reached an argument or the model
        label, text = _describe_flow(request, request.flow)
        yield RequestFact(
            kind=FactKind.OTHERS_WORDS, weight="danger", label=visible(label), text=visible(text)
        )
    if request.reason:
        yield RequestFact(
            kind=FactKind.WARNING,
            weight="caution",
            label="why approval is needed",
            text=visible(request.reason),
        )
    yield from _hidden_characters_in_texts(request)


def _hidden_characters_in_texts(request: ApprovalRequest) -> Iterator[RequestFact]:
    """Yield a fact for each text of a request, except the arguments, with hidden characters."""
    labelled_fields = {name: value_text(getattr(request, name) or "") for name in labels()}
    texts_by_name = {
        "the task": request.task,
        "the action": request.action,
        "the reason": request.reason,
        "the script": _LINE_ENDS.sub("\n", request.code or ""),
        "the preview": request.preview,
        "what was changed before": "\n".join(request.changes),
        **labelled_fields,
    }
    for name, text in texts_by_name.items():
        if text:
            yield from _hidden_character_facts(name, [text])


def _question_text(request: ApprovalRequest) -> str:
    if request.code is not None:
        return "May this script run?"
    if request.question is not None:
        return visible(request.question.text)
    action = visible(request.action)
    if request.outcome_unknown:
        return f"{action} was interrupted. Make it again?"
    return f"May {action} be called?"


def _describe_flow(request: ApprovalRequest, flow: str) -> tuple[str, str]:
    """Return a label and a text that warn a person of untrusted data that reached a call.

    Args:
        request: The request for approval of the call.
        flow: The value of ``request.flow``: a path in the arguments, a colon, and the source; a
            text without a path if no argument contains untrusted data.
    """
    path, _, description = flow.partition(": ")
    origin = request.origins.get(path)  # None if the flow has no path
    comes_from_outside = origin is not None and origin["trust"] == "outside"
    if not comes_from_outside:
        # The arguments contain no untrusted value, but untrusted data may have led the model to
        # make this call.
        return "careful: a stranger may have caused this call", flow
    source = description.partition(";")[0]
    label = f"careful: a stranger may have chosen {root_of(path)}"
    return label, f"it is {source}, not from the task"


def _hidden_character_facts(
    name: str, texts: Iterable[str], about: str = ""
) -> Iterator[RequestFact]:
    """Yield a fact that lists the invisible and misleading characters, if there are any.

    Args:
        name: The name of the texts for people, such as ``the question``.
        texts: The texts to search.
        about: The argument of the call that the texts belong to, if any.
    """
    characters: dict[str, None] = {}
    for text in texts:
        characters |= dict.fromkeys(hidden_characters(text))
    if not characters:
        return
    shown_characters = list(characters)[:_MAX_NAMED]
    text = ", ".join(map(_describe_hidden, shown_characters))
    omitted_count = len(characters) - len(shown_characters)
    if omitted_count:
        text += f" and {omitted_count} more"
    yield RequestFact(
        kind=FactKind.HIDDEN,
        weight="danger",
        label=f"hidden characters in {visible(name)}",
        text=text,
        about=about,
    )


def _describe_hidden(characters: str) -> str:
    """Describe a hidden character, or a name in letters that look like other letters."""
    if len(characters) > 1:
        return f"letters that look like others: {visible(characters)}"
    code = f"U+{ord(characters):04X}"
    name = unicodedata.name(characters, "")
    return f"{code} {name}".strip()


# -- who asks, and what for -------------------------------------------------------------------


def _task_facts(request: ApprovalRequest) -> Iterator[RequestFact]:
    """Yield the facts about the task and the script that make the request."""
    if request.task:
        yield RequestFact(kind=FactKind.TASK, label="task", text=visible(request.task))
    if request.asked_by != LOCAL:
        yield RequestFact(kind=FactKind.ASKER, label="asked by", text=visible(request.asked_by))
    if request.parent:
        text = f"a script of the task {visible(request.parent)} started this task"
        yield RequestFact(kind=FactKind.PARENT, label="child task", text=text)
    if request.script > 1:
        because = f"because {request.because}" if request.because else "there were others before"
        yield RequestFact(
            kind=FactKind.SCRIPT, label=f"script {request.script}", text=visible(because)
        )
    if request.line is not None:
        text = str(request.line)
        yield RequestFact(kind=FactKind.LINE, label="line of the script", text=text, required=False)
    for name, label in labels().items():
        value = getattr(request, name)
        if value not in (None, ""):
            yield RequestFact(
                kind=FactKind.FIELD,
                label=label.text,
                text=visible(value_text(value)),
                required=label.required,
            )
    method = request.action.rpartition(".")[2]
    # A permission with the name of the action or of its method says nothing new.
    if request.permission not in ("", request.action, method):
        permission = visible(request.permission)
        yield RequestFact(
            kind=FactKind.PERMISSION, label="permission", text=permission, required=False
        )
    if request.changes:
        count = request.changes_before + len(request.changes)
        lines = [visible(change) for change in request.changes]
        if request.changes_before:
            lines.insert(0, f"… {request.changes_before:,} before these")
        yield RequestFact(
            kind=FactKind.CHANGES,
            label="changed so far in this task",
            text="\n".join(lines),
            note=f"{count:,}",
            required=False,
        )


# -- what would be done -----------------------------------------------------------------------


def _subject_facts(request: ApprovalRequest) -> Iterator[RequestFact]:
    """Yield the facts about what would be done: the script, or the call's arguments."""
    # A request about a script lists the actions that the script may call.
    for action in request.actions:
        effect = request.effects.get(action, request.effect)
        words = effect_words(effect)
        yield RequestFact(
            kind=FactKind.ACTION,
            weight="caution" if can_be_undone(effect) else "danger",
            label="it may call, as often as it likes",
            text=f"{visible(action)}: {words.mark} {visible(words.text)}",
        )
    if request.code is not None:
        code = _LINE_ENDS.sub("\n", request.code)
        yield RequestFact(
            kind=FactKind.CODE, label="script", text=visible(code), note=_size_text(code)
        )
    if (question := request.question) is not None:
        yield from _question_facts(request, question)
        return
    for name, value in request.arguments.items():
        yield from _argument_facts(name, value)
        yield from _origin_facts(request, name)
    for name, value in request.defaults.items():
        if name not in request.arguments:
            yield from _argument_facts(
                name, value, kind=FactKind.DEFAULT, note="left out by the script"
            )
    for name, size in request.files.items():
        yield RequestFact(
            kind=FactKind.FILE, label="file", text=visible(name), note=f"{size:,} bytes"
        )
    if request.preview:
        yield RequestFact(
            kind=FactKind.PREVIEW,
            label="what would happen",
            text=visible(request.preview.rstrip("\n")),
            note=_size_text(request.preview),
        )


def _question_facts(request: ApprovalRequest, question: Question) -> Iterator[RequestFact]:
    """Yield the options of a question, warnings about hidden characters, and origins of texts."""
    yield from _hidden_character_facts("the question", [question.text], about="question")
    yield from _origin_facts(request, "question")
    yield from _hidden_character_facts("the options", question.options, about="options")
    for number, option in enumerate(question.options, 1):
        yield RequestFact(
            kind=FactKind.OPTION,
            label=f"option {number}",
            text=visible(option),
            note=_size_text(option),
            about="options",
        )
    yield from _origin_facts(request, "options")


def _argument_facts(
    name: str, value: Any, *, kind: FactKind = FactKind.ARGUMENT, note: str = ""
) -> Iterator[RequestFact]:
    """Yield an argument's value, and warnings about hidden characters in the value."""
    yield from _hidden_character_facts(name, _argument_texts(name, value), about=name)
    text = visible(value_text(value))
    yield RequestFact(
        kind=kind,
        label=visible(name),
        text=text,
        note="; ".join(filter(None, [_size_text(value, text), note])),
        about=name,
    )


def _size_text(value: Any, text: str = "") -> str:
    """Return the size of a value in words; empty for a short value.

    Args:
        value: The value.
        text: The text form of a value that is neither a string nor bytes; its length decides
            whether the value is short.
    """
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value):,} bytes"
    if isinstance(value, str):
        is_long = len(value) > _LONG_TEXT or "\n" in value
        return f"{len(value):,} characters" if is_long else ""
    if len(text) <= _LONG_TEXT:
        return ""
    if isinstance(value, _CONTAINERS):
        return f"{len(cast('Sequence[Any]', value)):,} items"
    return f"{len(text):,} characters"


def _argument_texts(name: str, value: Any) -> Iterator[str]:
    """Yield the name of an argument, then all strings in its value."""
    yield name
    values_to_visit = [value]
    seen_ids = set[int]()
    while values_to_visit:
        part: Any = values_to_visit.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, _CONTAINERS) and id(cast("object", part)) not in seen_ids:
            seen_ids.add(id(cast("object", part)))
            values_to_visit += cast("Iterable[Any]", part)  # a mapping yields its keys
            if isinstance(part, Mapping):
                values_to_visit += cast("Mapping[Any, Any]", part).values()


def _origin_facts(request: ApprovalRequest, name: str) -> Iterator[RequestFact]:
    """Yield a fact for each source of an argument's values.

    If a source has the values ``items[0].name`` and ``items[2].name`` of the argument ``items``,
    the label of its fact is ``source of items[0].name, [2].name``.
    """
    inner_paths_by_origin: dict[tuple[str, bool], list[str]] = {}
    for path, origin in request.origins.items():
        if root_of(path) != name:
            continue
        is_untrusted = origin["trust"] == "outside"
        text = str(origin["text"])
        inner_paths = inner_paths_by_origin.setdefault((text, is_untrusted), [])
        is_whole_argument = path == name
        if not is_whole_argument:
            inner_paths.append(path.removeprefix(name))  # such as [0].name
    for (text, is_untrusted), inner_paths in inner_paths_by_origin.items():
        path_list = visible(", ".join(inner_paths[:_MAX_NAMED]))
        if len(inner_paths) > _MAX_NAMED:
            path_list += f" and {len(inner_paths) - _MAX_NAMED} more"
        yield RequestFact(
            kind=FactKind.ORIGIN,
            weight="caution" if is_untrusted else "information",
            label=f"source of {visible(name)}{path_list}",
            text=visible(text),
            about=name,
            required=is_untrusted,
        )


def root_of(path: str) -> str:
    """Return the argument name at the start of a path such as ``to[0].name``."""
    return re.split(r"[.\[]", path, maxsplit=1)[0]


# -- who decides ------------------------------------------------------------------------------


def _team_facts(request: ApprovalRequest, later_events: Iterable[Event]) -> Iterator[RequestFact]:
    """Yield the team's rule, the votes and comments, and the latest assignment."""
    rule = ApprovalRule.from_data(request.rule)
    if rule is not None:
        yield RequestFact(
            kind=FactKind.RULE, label="rule", text=visible("; ".join(_rule_texts(request, rule)))
        )
    assigned: ApprovalAssigned | None = None
    for event in later_events:
        if getattr(event, "request_id", None) != request.request_id:
            continue
        if isinstance(event, ApprovalAssigned):  # only the latest counts
            assigned = event
        elif (fact := reaction_fact(event)) is not None:
            yield fact
    if assigned is not None and (fact := reaction_fact(assigned)) is not None:
        yield fact


def reaction_fact(event: Event) -> RequestFact | None:
    """Describe a vote, a comment or an assignment as a fact for display beside its request.

    Return None for other events, and for an assignment to nobody.
    """
    match event:
        case ApprovalVoted(by=by, reason=reason):
            text = visible(f"{by}: {reason}" if reason else by)
            return RequestFact(
                kind=FactKind.VOTE, label="approved by", text=text, note="another is needed"
            )
        case ApprovalCommented(by=by, text=words):
            label = f"comment by {visible(by)}"
            return RequestFact(kind=FactKind.COMMENT, label=label, text=visible(words))
        case ApprovalAssigned(by=by, to=str(to)):
            return RequestFact(
                kind=FactKind.ASSIGNEE,
                label="assigned to",
                text=visible(to),
                note="" if by == to else f"by {visible(by)}",
                required=False,
            )
        case _:
            return None


def _rule_texts(request: ApprovalRequest, rule: ApprovalRule) -> Iterator[str]:
    """Yield the parts of a rule in words."""
    if rule.approvers:
        yield f"{' or '.join(rule.approvers)} may decide"
    if rule.two_of:
        yield f"two of {', '.join(rule.two_of)} have to approve"
    if not rule.approvers and not rule.two_of:
        yield "everybody with the right to decide may decide"
    if rule.four_eyes:
        yield f"{request.asked_by} asked for the task and may only reject"
    if not rule.needs_others:
        return
    already_named = (request.asked_by,) if rule.four_eyes else ()
    shapers = [name for name in request.shaped_by if name not in already_named]
    if shapers:
        names = ", ".join(shapers)
        yield f"{names} changed what is done, or gave the reason for it, and may only reject"


_UNITS: Final = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"))


def _expiry_facts(request: ApprovalRequest) -> Iterator[RequestFact]:
    """Yield the fact that says when the request expires, and the consequence."""
    seconds = request.expires_after
    if seconds is None:
        return
    # The largest unit of which there are at least two: "36 hours" instead of "1.5 days".
    fitting_units = ((length, name) for length, name in _UNITS if seconds >= 2 * length)
    unit_seconds, unit_name = next(fitting_units, (1.0, "seconds"))
    after = f"{seconds / unit_seconds:.3g} {unit_name}"
    consequence = _consequence_of_expiry(request.question)
    yield RequestFact(
        kind=FactKind.EXPIRY,
        label="expires",
        text=visible(f"without an answer within {after} {consequence}"),
        required=False,
    )


def _consequence_of_expiry(question: Question | None) -> str:
    if question is None:
        return "it counts as rejected"
    if question.default is None:
        return "the script fails"
    return f"the answer is {value_text(question.default)}"
