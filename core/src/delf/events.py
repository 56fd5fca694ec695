"""Events of a task, as a closed union of frozen records with frozen values.

Events are appended to a journal before anyone acts on them; traces, snapshots, costs and pending
approvals are computed from them. ``encode`` and ``decode`` give the stable form: ``{"type": …, "v":
VERSION, "task_id": …, "seq": …, "at": …, "data": {…}}``.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, ClassVar, Final, Literal, cast, get_args

from delf.errors import (
    BudgetExceededError,
    DelfError,
    TaskStoppedError,
    TaskTimeoutError,
    UnreadableEventError,
)
from delf.messages import Purpose, ToolCall, Usage
from delf.questions import Question
from delf.records import dataclass
from delf.types import Effect, Isolation, TaskState, Trust
from delf.values.encoding import PLAIN, estimate_size, from_jsonable, to_jsonable_or_repr
from delf.values.frozen import freeze

EVENT_VERSION: Final = 1

CallStatus = Literal["ok", "error", "refused", "rejected", "cancelled"]
ScriptStatus = Literal["done", "failed", "rerun", "limit", "crashed", "cancelled"]
ANSWER: Final = "answer"
"""The function that a script calls with the task's answer, if the answer is data and not text."""
ASK: Final = "ask"
"""The function that a script calls to ask a person a question."""
Cancellation = Literal["abandoned", "cut_off", "not_started"]
"""The reason a call was cancelled.

``abandoned``: the script stopped waiting. ``cut_off``: the sandbox died during the call.
``not_started``: the call was never made.
"""

Remember = Literal["no", "task", "until_revoked"]
Covers = Literal["call", "action"]
Fit = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""A function that validates arguments: returns them converted, or raises ``ToolRefusedError``."""
DecisionKind = Literal[
    "approved",
    "edited",
    "rejected",
    "changes_requested",
    "expired",
    "already_done",
    "answered",
]
DecisionSource = Literal[
    "person", "policy", "nobody", "timeout", "abandoned", "sandbox_died", "changed"
]
DECISION_WORDS: Final[Mapping[DecisionKind, str]] = {
    "approved": "approved",
    "edited": "edited",
    "rejected": "rejected",
    "changes_requested": "changes requested",
    "expired": "expired",
    "already_done": "marked as already done",
    "answered": "answered",
}
"""The words for each decision, used by terminal, page and chat channels."""
EXPIRY_REASONS: Final[Mapping[DecisionSource, str]] = {
    "timeout": "nobody answered in time",
    "abandoned": "the script stopped waiting for the call before anybody answered",
    "sandbox_died": "the sandbox of the script ended before anybody answered",
    "changed": "the call would now do something else, so a new request was made",
}
"""The reasons why a request expired, used by terminal, page and chat channels."""


class Step(StrEnum):
    """The steps of the engine's own loop; strategies may add steps with other names."""

    RECALL = "recall"
    SETUP = "setup"
    SELECT = "select"
    CONTEXT = "context"
    PREVIEW = "preview"
    EXECUTE = "execute"
    RERUN = "rerun"
    RETRY = "retry"
    LEARN = "learn"


class _Kind:
    """Class attributes and properties that every kind of event declares."""

    __slots__ = ()

    replay_key: ClassVar[tuple[str, ...] | None] = None
    """The fields by which a resumed task recognizes an event that is already in its journal.

    The task does not record such an event again. None for classes of events that need no such
    comparison.
    """

    @property
    def headline(self) -> str:
        """The event in one line, for lists of a task's events; empty for events that lists omit.

        The terminal and the page show the line, unless they have a layout of their own for this
        kind of event.
        """
        return ""

    @property
    def rewrite_reason(self) -> str | None:
        """The reason for another script after this event; None if no other script has to follow."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event(_Kind):
    """Fields of every event; ``seq`` counts within the task, ``at`` is Unix time in seconds."""

    task_id: str
    seq: int
    at: float


ASKED_FROM: Final = "asked_from"
"""The key in a task's setup under which the submitter's network address is stored."""


PROJECT_FOLDER: Final = "project"
"""The key in a task's setup for the folder of the project from which its agent was made.

A task of a command has the key ``folder``: the folder in which the command was typed.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskQueued(_Event):
    """A task was submitted for the background; :class:`TaskStarted` marks the start of work.

    The event holds everything that another process needs to work on the task. ``timeout`` is in
    seconds. ``queue`` is the name of the queue from which a runner takes the task; None if this
    process works on the task. Runners take tasks with a lower ``priority`` first, and no task
    before its Unix time ``not_before``. ``user`` is the user for whom the task runs: a queue limits
    the tasks of each user. After an outage the task is attempted again up to ``retries`` times, for
    the first time after ``retry_after`` seconds. If ``retries`` or ``retry_after`` is None, the
    queue's setting applies.
    """

    task: str
    origin: str = ""
    timeout: float | None = None
    setup: Mapping[str, Any] = field(default_factory=dict[str, Any])
    conversation: str | None = None
    interactive: bool = False
    queue: str | None = None
    user: str | None = None
    priority: int = 0
    not_before: float | None = None
    retries: int | None = None
    retry_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarted(_Event):
    """A task was accepted. ``origin`` names the agent.

    ``seed`` is the source of the scripts' random numbers; ``setup`` is what a program needs to set
    up the same agent again. ``conversation`` is the conversation that the task continues.
    ``interactive`` is true if the submitter waits for the task and can answer requests for
    approval; otherwise the requests are kept until somebody answers. ``parent`` is the parent of a
    child task, and ``worker`` the name of the worker that does the task. ``zone`` is the time zone
    at the start as a POSIX rule, and ``zone_name`` the zone's name if known: a resumed task keeps
    both. ``user`` is the user for whom the task runs; None for the local user.
    """

    replay_key = ()
    task: str
    origin: str = ""
    seed: str = ""
    setup: Mapping[str, Any] = field(default_factory=dict[str, Any])
    conversation: str | None = None
    interactive: bool = True
    parent: str | None = None
    worker: str | None = None
    zone: str = ""
    zone_name: str = ""
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResumed(_Event):
    """A task was resumed after its process died, or after it ended at its timeout or budget.

    Earlier steps are not repeated; an earlier :class:`TaskFinished` no longer ends the task.
    ``setup`` and ``parent`` are as at the start of the task.
    """

    origin: str = ""
    setup: Mapping[str, Any] = field(default_factory=dict[str, Any])
    parent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPostponed(_Event):
    """A task failed and waits in its queue for another attempt at the Unix time ``not_before``.

    ``tries`` is the number of attempts so far. The next attempt does not repeat the calls that
    earlier attempts recorded.
    """

    error: str
    code: str
    tries: int
    not_before: float
    hint: str | None = None

    @property
    def headline(self) -> str:
        """The event in one line."""
        return f"attempt {self.tries} failed and will be repeated: {self.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted(_Event):
    """A step of a task's run began; ``attempt`` is the number of the task's script, from 1.

    Steps before the first script have 1, too. A step ``rerun`` has the number of the rerun.

    :class:`Step` names the loop's own steps; strategies add steps, such as ``generate``.
    """

    replay_key = ("step", "attempt")
    step: str
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished(_Event):
    """A step of a task's run ended, such as recalling facts or generating a script."""

    replay_key = ("step", "attempt")
    step: str
    duration_ms: float
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsSelected(_Event):
    """The actions that the model is shown, such as ``connection.method``.

    ``by`` is the prefilter's name, or ``all``.
    """

    replay_key = ()
    actions: tuple[str, ...]
    by: str = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalled(_Event):
    """A request was sent to a model.

    ``number`` counts a task's model calls from 1. ``same`` is the number of leading messages that
    are the same as in the previous call with this ``purpose``, and ``prompt`` has the other
    messages, compressed; ``prompt`` is None if prompts are not kept. ``server_side`` names the
    tools that the provider may use by itself, such as a web search.
    """

    model: str
    purpose: Purpose
    attempt: int = 1
    number: int = 0
    same: int = 0
    prompt: str | None = None
    tools: tuple[str, ...] = ()
    server_side: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReplied(_Event):
    """A model answered; ``cost_usd`` is None if no price is known.

    ``text`` includes the reasoning; ``finish_reason`` is in the provider's words, and ``reply_id``
    is the provider's id of the answer.
    """

    model: str
    purpose: Purpose
    text: str
    usage: Usage
    cost_usd: float | None
    duration_ms: float
    calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    number: int = 0
    reply_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailed(_Event):
    """A model call failed, and retries did not help."""

    model: str
    purpose: Purpose
    error: str
    duration_ms: float
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWrote(_Event):
    """A part of a streamed answer was recorded, before the answer was complete.

    ``text`` continues the text of the previous ``ModelWrote``. A part is recorded before a call in
    the answer is made, and when the stream breaks off. If no ``ModelReplied`` follows, the recorded
    parts are the answer.
    """

    purpose: Purpose
    text: str
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptGenerated(_Event):
    """A script was extracted from a model's answer."""

    replay_key = ("attempt",)
    code: str
    attempt: int
    confirmed_actions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOpened(_Event):
    """A sandbox session was opened for the task."""

    replay_key = ()
    backend: str
    isolation: Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class VariablesRestored(_Event):
    """Variables of the conversation's previous task were passed to the scripts of this task.

    A resumed task gets the same variables. ``trust`` is ``own`` if the previous task had read no
    untrusted data, else ``outside``.
    """

    replay_key = ()
    variables: Mapping[str, Any]
    trust: Trust = "outside"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFinished(_Event):
    """A script ended, with or without an error.

    ``limit`` is the limit that ended the script, if any; ``lost`` is true if the sandbox and its
    variables were lost, too.
    """

    replay_key = ("attempt",)
    status: ScriptStatus
    duration_ms: float
    error: str | None = None
    line: int | None = None
    attempt: int = 1
    limit: str | None = None
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted(_Event):
    """A call passed the gate and is about to be made.

    ``line`` is the line of the call in the script, if the sandbox knows the line.
    """

    call_id: int
    action: str
    arguments: Mapping[str, Any]
    effect: Effect
    digest: str
    description: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFinished(_Event):
    """A call ended. A call that was refused before it was made has no ``CallStarted``.

    ``raised`` is the name of the exception that the script saw, such as ``ToolError``; None if the
    script got a result, which can be a tool's error as text. ``digest`` is set for a call that was
    refused or rejected; otherwise an earlier event has the call's digest.
    ``cancellation`` is set when ``status`` is ``cancelled``. ``can_retry`` is False if the call
    would fail again in any other script that the model writes. ``outcome_unknown`` is set if the
    tool cannot tell whether the change was made. ``http_status`` is the HTTP status of an answer
    that was an error. ``line`` is the line of a call that was not made, if the sandbox knows it.
    """

    call_id: int
    action: str
    status: CallStatus
    duration_ms: float
    result: Any = None
    error: str | None = None
    description: str | None = None
    raised: str | None = None
    digest: str | None = None
    cancellation: Cancellation | None = None
    can_retry: bool = True
    outcome_unknown: bool = False
    http_status: int | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAbandoned(_Event):
    """The script stopped waiting for a call and will not see its result."""

    call_id: int
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPrinted(_Event):
    """A call printed text while it ran, such as the output of a command."""

    call_id: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStarted(_Event):
    """A call started a child task, which has events of its own."""

    replay_key = ("child_id",)
    call_id: int
    child_id: str
    task: str
    worker: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildFinished(_Event):
    """A child task ended; ``cost_usd`` is None if a price is unknown."""

    replay_key = ("child_id",)
    call_id: int
    child_id: str
    status: bool
    duration_ms: float
    error: str | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Label:
    """The label under which approval channels show a field of a request.

    Args:
        text: The label.
        required: Whether a channel must show the field before it may offer approval.
    """

    text: str
    required: bool = True


def request_field(text: str, *, required: bool = True) -> Any:
    """Declare a field of a request that approval channels show unless its value is None.

    The default of the field is None.

    Args:
        text: The label of the field.
        required: Whether a channel must show the field's value before it may offer approval.
    """
    return field(default=None, metadata={"label": Label(text, required)})


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """A question for a person: may this call be made, or may this script run?

    Channels, programs, other processes and the web page get this one object, whose fields are
    declared only here. Channels show a field declared with :func:`request_field` under its
    label; :mod:`delf.protocols.facts` makes the texts of the other fields. The ``digest`` binds the
    request to its action and arguments.

    With ``confirm_mode="plan"`` a request may be about a whole script. Then ``code`` is set,
    ``action`` is ``script``, and ``digest`` is over the code. A script cannot be edited.

    Args:
        request_id: The unique id of the request.
        task_id: The task that makes the call.
        task: The task in plain words.
        call_id: The number of the call; 0 for a script.
        action: ``connection.method``.
        permission: The name by which ``allow`` and ``confirm`` list the action: the action's own
            name or the name of its group.
        effect: The action's effect on the world.
        arguments: The real, validated arguments.
        defaults: The values of arguments that the call leaves out, as far as they are known.
        description: The script's own ``desc=``, if any: a claim of the script, not checked.
        digest: SHA-256 over action and arguments.
        action_digest: SHA-256 over the action. If it changes, a remembered decision is void.
        shown_digest: SHA-256 over the preview and the state that it was made from. An approved call
            is checked again before it is made; if the digest has changed, a person is asked again.
            None without preview.
        files_digest: SHA-256 over the content of the files that the call names. The call uses this
            content, whatever happens to the files meanwhile. None without files.
        reason: The connection's reason for asking a person, if given.
        preview: The effect of the call in the connection's words; plain text of any length.
        outcome_unknown: True for a call that was begun before its process died, and whose end is
            not recorded. ``Approved`` makes the call again, ``AlreadyDone`` states that it
            happened.
        returns: For an interrupted call, the type of the action's result, such as
            ``{"rowcount": int}``: a person who answers ``AlreadyDone`` states a result of this
            type, with which the script goes on. None for any other call.
        changed: True if an earlier approval is void because the call would now have another effect.
        is_question: True for a question of a script, whose ``arguments`` are those of ``ask``.
            ``Answered`` gives the answer, ``Rejected`` declines.
        code: The script, if a script as a whole is to be approved.
        actions: The script's actions that need approval. An approval of the script allows all calls
            of these actions while the script runs.
        effects: The effect of each of these actions.
        script: The number of the script that makes the call; 0 without a script.
        because: Why the model wrote another script after the first; None for the first script.
        changes: The latest changes that the task has made, one line each.
        changes_before: The number of earlier changes not listed in ``changes``.
        made_before: The ``call_id`` of an earlier identical call of this task, if any.
        line: The line of the call in the script, if known.
        worker: The name of the worker that runs the task, if any.
        origins: The sources of values in the arguments, by path, such as ``to[0]``. ``kind`` is
            ``task``, ``script``, ``result`` or ``unknown``, ``trust`` is ``own`` or ``outside``,
            and ``text`` describes the source. Origins are a hint, not a proof.
        flow: The warning that untrusted data reached the call, and that the call therefore needs
            approval; it begins with the argument, if one has the data. None without a warning.
        asked_by: The name of the person whose task it is; ``local`` is the local user.
        shaped_by: The names of people who shaped the task: by an edit, a rejection with a
            reason, a request for changes, or the result of an interrupted call. The person whose
            task was forked or run again is also in the list. Under a rule that requires four
            eyes or two approvers, the people in the list may only reject.
        rule: The team's rule for the action as data of :class:`delf.protocols.rules.ApprovalRule`;
            empty if no rule applies.
        files: The files that the call would send or read, by name, with their sizes in bytes.
        parent: The task whose script started this task, if it is a child task.
        expires_after: Seconds until the request expires, which counts as a rejection.
        takes_changes: True if a person can ask for changes, which a model then plans.
        fit: A function that validates edited arguments and returns them converted. It raises
            :class:`delf.errors.ToolRefusedError` for invalid arguments, so that a channel can ask
            again. None for a script, and in events.
    """

    request_id: str
    task_id: str
    task: str = ""
    call_id: int = 0
    action: str
    permission: str = ""
    effect: Effect
    arguments: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    description: str | None = request_field("the script says", required=False)
    digest: str
    action_digest: str = ""
    shown_digest: str | None = None
    files_digest: str | None = None
    reason: str | None = None
    preview: str | None = None
    outcome_unknown: bool = False
    returns: str | None = request_field("it returns", required=False)
    changed: bool = False
    is_question: bool = False
    code: str | None = None
    actions: tuple[str, ...] = ()
    effects: Mapping[str, Effect] = field(default_factory=dict[str, Effect])
    script: int = 0
    because: str | None = None
    changes: tuple[str, ...] = ()
    changes_before: int = 0
    made_before: int | None = None
    line: int | None = None
    worker: str | None = request_field("worker")
    origins: Mapping[str, Any] = field(default_factory=dict[str, Any])
    asked_by: str = "local"
    shaped_by: tuple[str, ...] = ()
    rule: Mapping[str, Any] = field(default_factory=dict[str, Any])
    flow: str | None = None
    files: Mapping[str, int] = field(default_factory=dict[str, int])
    parent: str | None = None
    expires_after: float | None = None
    takes_changes: bool = False
    fit: Fit | None = field(default=None, repr=False, compare=False)

    @property
    def message(self) -> str:
        """The request in one line."""
        if self.code is not None:
            return f"script({', '.join(self.actions)})"
        if self.is_question:
            return _one_line(self.arguments.get("question", ""))
        arguments_text = ", ".join(
            f"{name}={_short(value)}" for name, value in self.arguments.items()
        )
        call = f"{self.action}({arguments_text})"
        if self.outcome_unknown:
            return f"make it again? it was interrupted: {call}"
        return call

    @property
    def question(self) -> Question | None:
        """The question that a script asks; None if the request is for the approval of an action."""
        if self.is_question:
            return Question.from_arguments(self.arguments)
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict of the fields and of the property ``message``.

        The field ``fit`` is left out, because JSON cannot hold a function.
        """
        data: dict[str, Any] = {}
        for each in dataclasses.fields(ApprovalRequest):
            if each.name != "fit":
                data[each.name] = _plain(getattr(self, each.name))
        data["message"] = self.message
        return data


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(cast("tuple[Any, ...]", value))
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequested(ApprovalRequest, _Kind):
    """A request for approval was made; the event has all fields of the request.

    The request waits for a person, unless ``by_policy`` is true: then the policy has decided
    already, and the ``ApprovalDecided`` follows.
    """

    seq: int
    at: float
    by_policy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecided(_Event):
    """A request was decided.

    Args:
        request_id: The unique id of the request.
        decision: The kind of decision.
        by: The name of the person, or a description of what else decided.
        via: The channel or address of the answer.
        others: The earlier approvers, if the rule requires two people.
        source: The origin of the decision: ``person`` (or a program acting for a person),
            ``policy`` (the approval mode), ``nobody`` (no one could be asked), ``timeout``,
            ``abandoned`` (the script stopped waiting), ``sandbox_died``, or ``changed`` (the effect
            differs from the one shown).
        reason: The reason that the person gave, if any.
        arguments: The arguments of an edited call.
        result: The result of a call declared as already done.
        answer: The answer to a question.
        note: The position of the journal's note with the answer; None if the answer came another
            way.
        remember: How long later calls pass without approval.
        covers: Which later calls pass: with ``call`` only calls with the same arguments, with
            ``action`` all calls of the action.
        user: The user for whose later tasks the decision holds, if ``remember`` is
            ``until_revoked``; None for the local user.
        project: The folder of the project for whose later tasks the decision holds.
        person: The decider, as in ``TaskStarted.user`` of the decider's own tasks; None for the
            local user.
    """

    request_id: str
    decision: DecisionKind
    by: str
    via: str = ""
    others: tuple[str, ...] = ()
    source: DecisionSource = "person"
    reason: str | None = None
    arguments: Mapping[str, Any] | None = None
    result: Any = None
    answer: Any = None
    note: int | None = None
    remember: Remember = "no"
    covers: Covers = "call"
    user: str | None = None
    project: str | None = None
    person: str | None = None

    @property
    def rewrite_reason(self) -> str | None:
        """The text ``Ann asked for changes: …`` if a person asked for changes, else None."""
        if self.decision != "changes_requested":
            return None
        return f"{self.by} asked for changes: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalVoted(_Event):
    """The first of two required approvers approved a request.

    ``note`` and ``via`` are as in :class:`ApprovalDecided`. ``user`` is the approver: tasks that
    run for this person have the same value in ``TaskStarted.user``. None stands for the local user.
    ``teams`` are the approver's teams at the time of the approval.
    """

    request_id: str
    by: str
    reason: str | None = None
    user: str | None = None
    teams: tuple[str, ...] = ()
    note: int | None = None
    via: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalCommented(_Event):
    """A person commented on a pending request.

    People read comments; neither the script nor the model does. ``note``, ``via`` and ``user`` are
    as in :class:`ApprovalVoted`.
    """

    request_id: str
    by: str
    text: str
    user: str | None = None
    note: int | None = None
    via: str = ""

    @property
    def headline(self) -> str:
        """The comment and its author, in one line."""
        return f"comment by {self.by}: {_one_line(self.text)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAssigned(_Event):
    """A person set or removed the assignee of a pending request.

    ``to`` is the new assignee; None if the assignee was removed. The assignment does not change who
    may decide the request. ``note``, ``via`` and ``user`` are as in :class:`ApprovalVoted`.
    """

    request_id: str
    by: str
    to: str | None
    user: str | None = None
    note: int | None = None
    via: str = ""

    @property
    def headline(self) -> str:
        """The assignment and its author, in one line."""
        return f"assigned to {self.to or 'nobody'} by {self.by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRemembered(_Event):
    """A call or script passed by a remembered approval, without a question.

    ``by`` is the person who approved the request ``from_request`` of the task ``from_task``, at the
    Unix time ``decided_at``.
    """

    replay_key = ("call_id", "digest")
    call_id: int
    action: str
    digest: str
    by: str
    decided_at: float
    from_task: str
    from_request: str

    @property
    def headline(self) -> str:
        """The event in one line."""
        return f"{self.action} passes: {self.by} approved it in {self.from_task}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed(_Event):
    """The script printed text; several lines may come in one event."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRead(_Event):
    """The script read the time; a resumed task gets the same times.

    ``readings`` are the times in nanoseconds, in the order in which the script read them. Each is a
    Unix time, a processor time, or a time of the script's event loop. ``turns`` says in which
    iteration of that loop calls were answered and timers fired, as in
    :meth:`delf.protocols.sandbox.ScriptHost.turns_taken`.
    """

    readings: tuple[int, ...] = ()
    turns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWritten(_Event):
    """An output file is complete on the host."""

    replay_key = ("label",)
    label: str
    path: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunRequested(_Event):
    """The script asked that the model write another script, with ``context`` in its prompt."""

    replay_key = ("attempt",)
    attempt: int
    context: str
    remaining: str
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    duration_ms: float = 0.0

    @property
    def headline(self) -> str:
        """The event in one line: another script follows, for the work in ``remaining``."""
        return f"another pass: {self.remaining}"

    @property
    def rewrite_reason(self) -> str:
        """The reason for another script: the work that the ended script left undone."""
        return f"the one before left this to do: {self.remaining}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryScheduled(_Event):
    """The script failed and goes back to the model."""

    replay_key = ("attempt",)
    attempt: int
    error: str

    @property
    def headline(self) -> str:
        """The event in one line."""
        return f"the script failed: {self.error}"

    @property
    def rewrite_reason(self) -> str:
        """The failure of the script."""
        return f"the one before failed: {self.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(_Event):
    """A warning for the user was recorded; the task continues."""

    replay_key = ("message",)
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted(_Event):
    """A strategy recorded data that it had fetched, such as a notification.

    A resumed task gets the recorded data instead of fetching data again. ``topic`` is the
    strategy's own name for the data, which people see with the text.
    """

    replay_key = ("topic", "text")
    topic: str
    text: str

    @property
    def headline(self) -> str:
        """The event in one line."""
        return f"{self.topic}: {self.text}" if self.text else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsLearned(_Event):
    """Facts of this task were added to the memory store."""

    facts: tuple[str, ...]


LIMIT_CODES: Final = frozenset({TaskTimeoutError.code, BudgetExceededError.code})
"""The codes of errors after which a task can continue with more time or budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFinished(_Event):
    """The task ended; ``value`` is its answer as plain data, if the task declared an answer type.

    ``status`` is True for a task that was done, and False for one that failed or was stopped.
    ``by`` is the person who stopped the task, if known. ``via`` is the interface in which the
    person stopped the task, with the client's address, such as ``page, 203.0.113.9``.
    """

    status: bool
    text: str
    duration_ms: float
    error: str | None = None
    code: str | None = None
    hint: str | None = None
    cost_usd: float | None = None
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    value: Any = None
    by: str | None = None
    via: str = ""

    @property
    def state(self) -> TaskState:
        """The state of the task: done, stopped or failed."""
        if self.status:
            return TaskState.DONE
        if self.code == TaskStoppedError.code:
            return TaskState.STOPPED
        return TaskState.FAILED

    @property
    def at_limit(self) -> bool:
        """True if the task ended at its timeout or budget and can continue with a higher limit."""
        has_succeeded = self.status
        return not has_succeeded and self.code in LIMIT_CODES


Event = (
    TaskQueued
    | TaskStarted
    | TaskResumed
    | TaskPostponed
    | StepStarted
    | StepFinished
    | ToolsSelected
    | ModelCalled
    | ModelReplied
    | ModelFailed
    | ModelWrote
    | ScriptGenerated
    | SandboxOpened
    | VariablesRestored
    | ScriptFinished
    | CallStarted
    | CallFinished
    | CallAbandoned
    | CallPrinted
    | ChildStarted
    | ChildFinished
    | ApprovalRequested
    | ApprovalDecided
    | ApprovalVoted
    | ApprovalCommented
    | ApprovalAssigned
    | ApprovalRemembered
    | Printed
    | ClockRead
    | FileWritten
    | RerunRequested
    | RetryScheduled
    | Warned
    | Noted
    | FactsLearned
    | TaskFinished
)

_TYPES: Final[dict[str, type[Event]]] = {cls.__name__: cls for cls in get_args(Event)}
_FIELDS_BESIDE_DATA = ("task_id", "seq", "at")


def _data_fields(cls: type[Any]) -> tuple[str, ...]:
    """Return the names of an event's fields that a journal stores in the record's ``data``.

    The task's id, the event's number and the time are stored beside ``data``. Fields excluded from
    comparison hold functions and are not stored.
    """
    return tuple(
        field.name
        for field in dataclasses.fields(cls)
        if field.name not in _FIELDS_BESIDE_DATA and field.compare
    )


_FIELDS: Final[Mapping[type[Any], tuple[str, ...]]] = {
    cls: _data_fields(cls) for cls in _TYPES.values()
}
# The types of event fields whose values are numbers or fixed words.
_NUMBERS: Final = frozenset({"None", "bool", "int", "float", "tuple[int, ...]", "Usage"})
_FIXED_WORDS: Final = frozenset(
    {"CallStatus", "ScriptStatus", "Cancellation", "DecisionKind", "DecisionSource", "Remember"}
    | {"Covers", "Effect", "Isolation", "Purpose", "Trust"}
)
# For each class of events, the fields that may contain free text, and therefore a secret. Digests
# are left out, because they consist of hexadecimal digits.
_TEXTS: Final = {
    cls: tuple(
        f.name
        for f in dataclasses.fields(cls)
        if f.name in _FIELDS[cls]
        and not f.name.endswith("digest")
        and not {*f.type.split(" | ")} <= _NUMBERS | _FIXED_WORDS
    )
    for cls in _TYPES.values()
}
# For each class of events, the fields whose values may be mutable, and are copied and frozen.
_MUTABLE_FIELDS: Final = {
    cls: tuple(
        f.name
        for f in dataclasses.fields(cls)
        if f.name in _FIELDS[cls] and any(word in str(f.type) for word in ("Any", "Mapping"))
    )
    for cls in _TYPES.values()
}
SAFE: Final = {"seq", "at"}.union(*_FIELDS.values()).difference(*_TEXTS.values())
"""Fields that are never redacted.

Their values are numbers or fixed words. If a value happens to equal a secret, no reader of the
event can know this.
"""


def frozen_fields(kind: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Return an event's fields, with mutable values replaced by frozen copies.

    Args:
        kind: The event's class.
        fields: The values of the event's fields by name.
    """
    frozen = {
        name: freeze(fields[name])
        for name in _MUTABLE_FIELDS.get(kind, ())
        if name in fields and type(fields[name]) not in PLAIN
    }
    return {**fields, **frozen} if frozen else fields


def content_of(event: Event | ApprovalRequest) -> dict[str, Any]:
    """Return an event's or request's own fields, without task id, number and time."""
    names = _FIELDS.get(type(event)) or _data_fields(type(event))
    return {name: getattr(event, name) for name in names}


def encode(event: Event) -> dict[str, Any]:
    """Encode an event as JSON-ready data; types that JSON does not support are tagged."""
    cls = type(event)
    data = {name: to_jsonable_or_repr(value) for name, value in content_of(event).items()}
    return {
        "type": cls.__name__,
        "v": EVENT_VERSION,
        "task_id": event.task_id,
        "seq": event.seq,
        "at": event.at,
        "data": data,
    }


def with_user(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return stored fields; a field ``key``, as earlier versions named it, becomes ``user``."""
    if "user" in stored or "key" not in stored:
        return stored
    return {"user" if name == "key" else name: value for name, value in stored.items()}


def decode(record: Mapping[str, Any]) -> Event:
    """Decode an event from the output of :func:`encode`.

    Raises:
        UnreadableEventError: If the record has an unknown type or a newer version.
    """
    cls = _TYPES.get(str(record.get("type")))
    if cls is None or record.get("v", 0) > EVENT_VERSION:
        raise UnreadableEventError(
            f"cannot read an event of type {record.get('type')!r} version {record.get('v')!r}",
            hint="it was written by a newer delf",
        )
    data = from_jsonable(record["data"])
    if "user" in _FIELDS[cls]:
        data = with_user(data)  # earlier versions stored ``user`` as ``key``
    # Another version of delf may have stored the event: a missing field gets its default, and an
    # unknown field is dropped.
    known_data = {name: data[name] for name in _FIELDS[cls] if name in data}
    known_fields = frozen_fields(cls, known_data)
    # These two fields hold objects of delf's classes, which JSON stores as tables.
    if "usage" in known_fields:
        known_fields["usage"] = Usage(**known_fields["usage"])
    if "calls" in known_fields:
        known_fields["calls"] = tuple(ToolCall(**call) for call in known_fields["calls"])
    fields_beside_data = {name: record[name] for name in _FIELDS_BESIDE_DATA}
    return cls(**fields_beside_data, **known_fields)


# Estimated bytes of an event's small fields.
_EVENT_BYTES: Final = 500
_MAX_BYTES: Final = 64 * 1024 * 1024


def size_of(event: Event) -> int:
    """Estimate the bytes of memory that an event takes; counting stops at 64 MB."""
    size = _EVENT_BYTES  # for the fields that are not counted below: numbers and fixed words
    for name in _TEXTS[type(event)]:
        value = getattr(event, name)
        if type(value) is str:
            size += len(value)
        elif type(value) not in PLAIN:
            size += estimate_size(value, _MAX_BYTES)
    return size


@dataclass(frozen=True, slots=True)
class StoppedBy:
    """The person who stopped a task.

    Args:
        name: The person's name, if known.
        via: The channel or address from which the person stopped it.
    """

    name: str | None = None
    via: str = ""


def make_end_event(
    events: Sequence[Event], error: DelfError, stopped_by: StoppedBy | None = None
) -> TaskFinished:
    """Make the :class:`TaskFinished` event for a task that no process works on.

    Args:
        events: All events of the task.
        error: The error with which the task ends.
        stopped_by: The person who stopped the task.
    """
    last_event = events[-1]
    return TaskFinished(
        task_id=last_event.task_id,
        seq=last_event.seq + 1,
        at=time.time(),
        status=False,
        text="",
        duration_ms=0.0,
        error=error.message,
        code=error.code,
        hint=error.hint,
        cost_usd=cost_of(events),
        by=None if stopped_by is None else stopped_by.name,
        via="" if stopped_by is None else stopped_by.via,
    )


def start_event(events: Sequence[Event]) -> TaskQueued | TaskStarted | None:
    """Return the event with a task's text and set-up; None if the events have none."""
    for event in events:
        if isinstance(event, (TaskQueued, TaskStarted)):
            return event
    return None


def end_event(events: Sequence[Event]) -> TaskFinished | None:
    """Return the event that ended a task; None if the task has not ended or was resumed."""
    for event in reversed(events):
        if isinstance(event, TaskFinished):
            return event
        if isinstance(event, TaskResumed):
            return None
    return None


def cost_of(events: Sequence[Event]) -> float | None:
    """Return the total cost of a task's model calls and child tasks in USD.

    None if any price is unknown. Calls for the set-up of connections do not count.
    """
    costs: list[float] = []
    for event in events:
        if not isinstance(event, (ModelReplied, ChildFinished)):
            continue
        is_setup = isinstance(event, ModelReplied) and event.purpose == "setup"
        if is_setup:
            continue
        if event.cost_usd is None:
            return None
        costs.append(event.cost_usd)
    return sum(costs, 0.0)


def _one_line(text: object, limit: int = 300) -> str:
    return _truncate(" ".join(str(text).split()), limit)


def _short(value: Any, limit: int = 80) -> str:
    return _truncate(repr(value), limit)


def _truncate(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[: limit - 1]}…"
