"""Request and response bodies, which validate data and define the OpenAPI document."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Annotated, Any, Final, Literal, Self, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    StringConstraints,
    create_model,
)

from delf.messages import ToolCall, Usage
from delf.protocols import search
from delf.protocols.approval import ApprovalRequest
from delf.protocols.conversation import ChatMessage
from delf.protocols.facts import RequestFact
from delf.protocols.journal import filterable_fields
from delf.protocols.people import NoticeChoice, Person, PersonKey, Right, Scope
from delf.protocols.search import FigureBy
from delf.protocols.sessions import SessionRecord
from delf.protocols.states import STORED_STATES
from delf.tools.docstrings import read_docstring
from delf.types import TaskState
from delf_cli import answering
from delf_cli.schedules import SHOWN_SCHEDULE_FIELDS, Firing, Schedule
from delf_engine.approvals.talk import MAX_COMMENT_LENGTH
from delf_engine.views import prompts
from delf_serve.people import NoticeWay

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
ConversationId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:-]{1,100}$")]
Wait = Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)]
Time = Annotated[float, Field(description="Unix time in seconds.")]


FileName = Annotated[
    str,
    StringConstraints(
        pattern=r"^[\w()\[\]+@#=&'-](?:[\w ()\[\]+@#=&'.,-]{0,118}[\w()\[\]+@#=&'-])?$"
    ),
]
"""A file name without a path: letters, digits and a few punctuation marks, no dot at either end."""


class Given(BaseModel):
    """A request body. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ResponseModel(BaseModel):
    """The base class of the bodies of the API's responses."""

    model_config = ConfigDict(ser_json_inf_nan="constants")  # plain() makes texts of NaN and inf

    @classmethod
    def of(cls, record: object, **further: Any) -> Self:
        """Create the body from a record: each field gets the record's attribute of its name.

        Args:
            record: The record.
            further: Values of fields that the record does not have, or has in another form.
        """
        names = cls.model_fields.keys() - further.keys()
        return cls(**{name: getattr(record, name) for name in names}, **further)


def _as_body(kind: type[Any], *names: str) -> type[ResponseModel]:
    """Create a response model with the fields of a dataclass or TypedDict.

    The fields keep their types and descriptions.

    Args:
        kind: The class. Fields of a dataclass with ``compare=False`` are omitted: they are no data,
            and JSON cannot represent them. An example is the function ``ApprovalRequest.fit``.
        names: The names of the fields in the model. Without names, the model has all fields.
    """
    hints = get_type_hints(kind)
    docstring = (inspect.getdoc(kind) or "").replace("``", "`")  # OpenAPI has Markdown, not reST
    docs = read_docstring(docstring).parameters
    declared = list(hints)
    if dataclasses.is_dataclass(kind):
        declared = [item.name for item in dataclasses.fields(kind) if item.compare]
    fields: dict[str, Any] = {
        name: (hints[name], Field(description=docs.get(name)))
        for name in declared
        if not names or name in names
    }
    return create_model(kind.__name__, __base__=ResponseModel, **fields)


_PROJECT: Final = "The name of the task's project, if it is not the server's own."


class Problem(ResponseModel):
    """The reason why a request was refused, in the format of RFC 9457."""

    type: str = Field(description="Always about:blank: `code` names the kind of failure.")
    title: str = Field(description="The status in words.")
    status: int
    detail: str = Field(description="The fault of this request.")
    code: str = Field(description="The kind of failure; never renamed.")
    hint: str | None = Field(default=None, description="How to fix it.")
    param: str | None = Field(
        default=None, description="The field or parameter that was wrong, with dots between names."
    )
    request_id: str = Field(description="The id of this request in the server's logs.")
    error: dict[str, Any] | None = Field(
        default=None, description="The same for clients of OpenAI's API, at its addresses only."
    )


class FileReference(Given):
    """An uploaded input file."""

    id: Annotated[str, StringConstraints(pattern=r"^file_[0-9a-f]{32}$")]


VARIANTS = frozenset({"approve", "reject", "request_changes", "edit", "settle"})
"""The names of a decision's variants, which pydantic puts first into the location of an error."""


TaskWords = Annotated[str, StringConstraints(min_length=1, max_length=100_000, pattern=r"\S")]


class RunRequest(Given):
    """A task to do."""

    task: TaskWords = Field(description="What to do, in plain words.")
    timeout: Seconds | None = Field(
        default=None,
        description=("Seconds from the start of the task; the agent's timeout when omitted."),
    )
    conversation_id: ConversationId | None = Field(
        default=None, description="The conversation to continue; a new one when omitted."
    )
    files: list[FileReference] = Field(
        default_factory=list[FileReference],
        max_length=100,
        description="Uploaded input files; the agent's files, if it has any, when empty.",
    )
    llm: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = Field(
        default=None,
        description="The name of another model for this task: one of `models` of GET /session.",
    )
    output: dict[str, Any] | None = Field(
        default=None,
        description="A JSON Schema: the answer is data that fit it, in `value`.",
    )
    wait: Wait = Field(
        default=0,
        description="Seconds to wait until the task ends or asks a person; 0 answers at once.",
    )


class RoutineRequest(Given):
    """A request to run a routine."""

    inputs: dict[str, str | int | float] = Field(
        default_factory=dict[str, str | int | float],
        description=(
            "Values of parameters; the others are as in the task that the routine came from."
        ),
    )
    timeout: Seconds | None = Field(
        default=None,
        description=("Seconds from the start of the task; the agent's timeout when omitted."),
    )
    wait: Wait = Field(
        default=0,
        description="Seconds to wait until the task ends or asks a person; 0 answers at once.",
    )


class ScheduleRequest(Given):
    """A task that runners do at set times, or for each new item that a call returns."""

    name: str = Field(min_length=1, max_length=100)
    cron: str = Field(
        max_length=200, description=("The times as in cron: minute, hour, day, month, weekday.")
    )
    task: str = Field(
        min_length=1,
        description="The task, in plain words; with `routine` the call of a routine, such as "
        'report(month="2026-10"), or report(mail=item["id"]) for each item.',
    )
    routine: bool = Field(default=False, description="Whether the task is the call of a routine.")
    zone: str | None = Field(default=None, description="The time zone; UTC when null.")
    each: str | None = Field(
        default=None,
        max_length=10_000,
        description="A call that only reads: each new item starts the task, whose scripts find it "
        "as the variable `item`.",
    )
    id_field: str | None = Field(
        default=None, max_length=200, description="The field that identifies an item."
    )
    queue: str = Field(default="default", max_length=100, description="The queue for the tasks.")


class ScheduleChange(Given):
    """A request to pause or resume a schedule."""

    paused: bool = Field(description="Whether the schedule is paused.")


class RoutineParameter(ResponseModel):
    """A parameter of a routine."""

    name: str
    type: Literal["text", "number", "integer", "date"]
    default: str | int | float
    pattern: str | None = Field(
        default=None, description=("A pattern that the whole text must match.")
    )


class Task(ResponseModel):
    """A task as an entry of a list."""

    task_id: str
    task: str = Field(description="The text of the task.")
    state: TaskState
    started_at: Time
    finished_at: Time | None = None
    duration_ms: float | None = None
    cost_usd: float | None = Field(default=None, description="Null if unknown.")
    error: str | None = None
    events: int = 0
    owner: str | None = Field(default=None, description="The process that works on the task.")
    asked_by: str = Field(description="The name of the person; `local` for the machine's user.")
    project: str | None = Field(default=None, description=_PROJECT)
    columns: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="Further values to show in lists, by the heading of their column.",
    )
    waits_for_you: bool = Field(
        default=False, description="Whether the task waits for a decision that you may make."
    )
    is_terminal: bool


class TaskList(ResponseModel):
    """Tasks, newest first."""

    tasks: list[Task]
    more: bool = Field(description="Whether there are more entries.")
    next: str | None = Field(description="The `after` of the next page, if there is one.")


class FoundTask(_as_body(search.FoundTask, "person", "place", "event", "excerpt")):
    """A task that a search found, with the matching text."""

    task: Task


class FoundList(ResponseModel):
    """The tasks that a search found, newest first."""

    tasks: list[FoundTask]
    more: bool = Field(description="Whether there are older tasks.")
    behind: int = Field(description="How many events are not searched yet.")


class Figures(_as_body(search.Figures)):
    """Statistics of a group of tasks."""


class FigureList(ResponseModel):
    """Statistics of tasks, one entry for each group such as a day or a person."""

    figures: list[Figures]
    more: bool = Field(description="Whether there are more entries.")


class RoutineSaveRequest(Given):
    """A task to save as a routine."""

    task_id: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    name: Annotated[str, StringConstraints(min_length=1, max_length=63)]
    fixed: list[Annotated[str, StringConstraints(max_length=200)]] = Field(
        default_factory=list[str],
        max_length=100,
        description="Proposed parameters to leave as constants in the script.",
    )
    seen: Annotated[str, StringConstraints(max_length=64)] | None = Field(
        default=None,
        description=("The `digest` that you saw; the routine is saved only if it is unchanged."),
    )


class RoutineDraft(ResponseModel):
    """A preview of a task as a routine."""

    name: str
    change: str = Field(description="The routine's file, or a diff if it replaces a routine.")
    parameters: list[str]
    differences: list[str] = Field(
        description="How the routine differs from its task; if it does, it cannot be saved."
    )
    warnings: list[str] = Field(
        description="The places of the script that still contain the value of a parameter."
    )
    cost_usd: float | None = Field(description="The cost of merging several scripts into one.")
    digest: str = Field(description="Send it as `seen` to save this.")
    saved: bool


class RoutineView(ResponseModel):
    """A routine: a task saved as a script that runs without a model."""

    name: str
    title: str | None = Field(
        description="Null if it repeats the words of a task that you may not see."
    )
    parameters: list[RoutineParameter]
    text: str = Field(
        description=(
            "Its file; without the words and the id of the task that it was saved from, if you may "
            "not see that task."
        )
    )
    done: int = Field(description="The number of newest runs that succeeded.")
    saved_usd: float | None = Field(description="The cost of these runs as tasks; null if unknown.")
    runs: list[Task] = Field(description="The newest runs.")


class ScheduleView(_as_body(Schedule, *SHOWN_SCHEDULE_FIELDS)):
    """A schedule."""

    routine: bool = Field(description="Whether the task is the call of a routine.")
    user: str | None = Field(
        description=("The person whose tasks it starts; null for the local user.")
    )


class ScheduleList(ResponseModel):
    """The schedules whose tasks the caller sees."""

    schedules: list[ScheduleView]
    more: bool = Field(default=False, description="Whether there are further schedules.")
    missing: str | None = Field(
        default=None, description="What schedules need that is missing, such as their plugin."
    )


class FiringView(_as_body(Firing)):
    """The outcome of one firing of a schedule."""


class ScheduleHistory(ResponseModel):
    """The outcomes of a schedule's most recent firings, newest first."""

    firings: list[FiringView]
    more: bool = Field(default=False, description="Whether there are more entries.")


class EvaluationView(ResponseModel):
    """An evaluation data set of the project."""

    name: str
    runs: int = Field(description="The number of kept runs.")


class EvaluationList(ResponseModel):
    """The evaluation data sets of the project."""

    evaluations: list[EvaluationView]
    more: bool = Field(default=False, description="Whether there are further data sets.")


class EvaluationReport(ResponseModel):
    """The report of an evaluation run."""

    runs: int = Field(description="The number of kept runs.")
    report: dict[str, Any] = Field(description="As `delf evals show DATASET --json` writes it.")


class RoutineList(ResponseModel):
    """The routines of the project."""

    routines: list[RoutineView]
    more: bool = Field(default=False, description="Whether there are further routines.")


class ComparedTask(ResponseModel):
    """A task in a comparison of tasks, with the task's cost, duration and numbers of calls."""

    task_id: str
    task: str
    state: str
    models: list[str]
    model_calls: int
    calls: int
    tokens: int
    cost_usd: float | None
    duration_ms: float | None
    error: str | None


class ComparedLine(ResponseModel):
    """A line of both compared tasks, or of only one task."""

    left: str | None = Field(description="Null if the first task has no such line.")
    right: str | None = Field(description="Null if the second task has no such line.")
    same: bool


class Comparison(ResponseModel):
    """Two tasks side by side."""

    a: ComparedTask
    b: ComparedTask
    scripts: list[ComparedLine]
    calls: list[ComparedLine] = Field(description="Calls with their arguments and results.")
    answer: list[ComparedLine]


class PromptMessage(_as_body(prompts.PromptMessage)):
    """A message that was sent to a model."""


class AskedCall(_as_body(ToolCall, "name", "arguments")):
    """A tool call in a model's answer."""


class ModelUsage(_as_body(Usage)):
    """The token counts of a model call."""


class OwnBudget(ResponseModel):
    """A budget that covers the caller's tasks in the current month."""

    name: str = Field(description="The user or team whose budget it is.")
    limit_usd: float
    cost_usd: float
    left_usd: float


class PersonRequest(Given):
    """A person to add or to change. Omitted fields stay unchanged."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    rights: list[Right] | None = Field(default=None, max_length=5)
    scope: Scope | None = Field(default=None, description="The tasks that the person sees.")
    teams: list[Annotated[str, StringConstraints(min_length=1, max_length=64)]] | None = Field(
        default=None, max_length=50
    )
    mail: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        default=None, description="The person's mail address, for logins and notices."
    )
    key: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = Field(
        default=None, description="The label of a key to make; only this answer contains the key."
    )


class PersonKeyView(_as_body(PersonKey, "label", "made_at")):
    """A key of a person, without its secret."""


_PERSON_FIELDS: Final = ("name", "rights", "scope", "teams", "mail", "made_at", "revoked_at")


class PersonView(_as_body(Person, *_PERSON_FIELDS)):
    """A person with rights and keys, for callers who manage people."""

    keys: list[PersonKeyView] = Field(description="The keys that are valid.")


class PersonMade(PersonView):
    """The person who was added or changed, with the new key."""

    key: str | None = Field(default=None, description="The new key; it is not shown again.")


class PersonList(ResponseModel):
    """The people of the server."""

    people: list[PersonView]
    more: bool = Field(description="Whether there are more entries.")


class AuditEntry(ResponseModel):
    """An entry of the audit log."""

    at: Time
    what: str = Field(
        description="A decision, as `approved`; `approved first`, `commented` or `assigned` of a "
        "request; `added`, `changed`, `revoked`, `key added`, `key revoked` of a person; or "
        "`logged in`."
    )
    by: str
    via: str = Field(description="From where.")
    about: str = Field(description="The action, or the person.")
    task_id: str | None = None
    request_id: str | None = None


class AuditList(ResponseModel):
    """Decisions on requests, changes to people's accounts, and logins, newest first."""

    entries: list[AuditEntry]
    more: bool = Field(description="Whether there are more entries.")


class NoticesRequest(Given):
    """The kinds of notices that a person chooses, and their channels."""

    notices: list[NoticeChoice] = Field(
        max_length=5,
        description="`asked`: a request waits that you may decide; `reminded`: it still waits; "
        "`ended`: a task of yours has ended; `assigned`: a request is assigned to you; "
        "`commented`: somebody commented on a request that concerns you.",
    )
    ways: list[NoticeWay] | None = Field(
        default=None,
        max_length=4,
        description="The ways in which you get notices; unchanged when omitted.",
    )
    webhook: Annotated[str, StringConstraints(max_length=2_000)] | None = Field(
        default=None,
        description=(
            "The https address of your own webhook, at a host of the setting "
            "`notice_hosts`; empty for none. Unchanged when omitted."
        ),
    )


class NoticesView(ResponseModel):
    """The kinds of notices that a person gets, and their channels."""

    notices: list[NoticeChoice]
    ways: list[NoticeWay] = Field(description="The ways that you chose.")
    mail: str = Field(description="Your mail address, for mails and Slack; empty if unknown.")
    webhook: str = Field(description="The address of your own webhook; empty for none.")
    webhook_secret: str | None = Field(
        default=None,
        description="The key that signs messages to a new webhook, as Standard Webhooks says. It "
        "is shown only once.",
    )
    works: list[NoticeWay] = Field(description="The ways that this server has.")
    reaches: list[NoticeWay] = Field(description="The ways in which you can be reached.")


class Prompt(_as_body(prompts.Prompt)):
    """A model call, with its messages and its answer."""

    messages: list[PromptMessage] | None = Field(
        description="Null if they are not stored, or were removed."
    )
    calls: list[AskedCall]
    usage: ModelUsage


class PromptList(ResponseModel):
    """A task's model calls, in order."""

    prompts: list[Prompt]
    more: bool = Field(description="Whether there are more entries.")


class OutputFile(ResponseModel):
    """A file that a task created."""

    name: str
    size: int


class TaskDecision(ResponseModel):
    """A decision of a person in a task."""

    request_id: str
    action: str
    decision: str = Field(
        description="`approved`, `edited`, `rejected`, `changes_requested`, `expired`, "
        "`already_done` or `answered`."
    )
    source: str = Field(
        description=(
            "`person`, or another cause of the decision, such as `timeout` or `sandbox_died`."
        )
    )
    by: str
    via: str = Field(description="The channel, such as `page, 203.0.113.9` or `slack`.")
    at: Time
    is_final: bool = Field(description="False if another person must approve it, too.")


class TaskDetail(Task):
    """A task with its result."""

    result: str | None = Field(default=None, description="The answer, once the task has one.")
    value: Any = Field(default=None, description="The answer as data, if `output` was given.")
    code: str | None = Field(default=None, description="The kind of its error; never renamed.")
    hint: str | None = Field(default=None, description="How to fix its error.")
    output_so_far: str = Field(default="", description="What its scripts printed.")
    files: list[OutputFile] = Field(default_factory=list[OutputFile])
    conversation_id: str | None = None
    asked_from: str | None = Field(default=None, description="The address of the client.")
    stopped_by: str | None = Field(default=None, description="The person who stopped it.")
    stopped_from: str | None = Field(
        default=None, description=("The channel by which it was stopped.")
    )
    decisions: list[TaskDecision] = Field(
        default_factory=list[TaskDecision],
        description=("The decisions in the task, with the people who made them."),
    )
    tokens_used: int | None = None
    approvals: list[str] = Field(
        default_factory=list[str], description="The ids of pending requests to people."
    )


class Accepted(ResponseModel):
    """A submitted task."""

    task_id: str
    state: TaskState
    conversation_id: str | None = None
    approvals: list[str] = Field(
        default_factory=list[str], description="The ids of pending requests to people."
    )
    url: str = Field(description="The URL of the task.")


class HookAnswer(ResponseModel):
    """The response to an accepted webhook message."""

    task_id: str
    is_new: bool = Field(description="False if the message was received before.")


class Cancelled(ResponseModel):
    """The outcome of a cancellation."""

    task_id: str
    cancelled: bool = Field(description="False if the task had already ended.")


class WaitingCount(ResponseModel):
    """The number of requests that wait for the caller."""

    count: int = Field(description="How many requests the caller may decide.")
    action: str | None = Field(default=None, description="The action of the newest of them.")
    asked_by: str | None = Field(
        default=None, description=("The person whose task makes the request.")
    )


class DecidedView(_as_body(answering.DecisionRow)):
    """The decision about a request, with the person who decided."""


class Remembered(_as_body(answering.RememberedRow)):
    """A remembered approval, which approves later calls."""


class RememberedList(ResponseModel):
    """The remembered approvals, oldest first."""

    remembered: list[Remembered]
    more: bool = Field(description="Whether there are more entries.")


class FactView(_as_body(RequestFact)):
    """A fact about a request, for the person who decides."""


class CommentView(ResponseModel):
    """A comment on a request. Comments are for people; the model does not get them."""

    by: str
    text: str
    at: Time
    via: str = Field(description="From where.")


class Request(_as_body(ApprovalRequest)):
    """An approval request or a question for a person, pending or decided."""

    facts: list[FactView] = Field(
        description=("All facts that a person must know, as text, in order.")
    )
    message: str = Field(description="The request in one line.")
    state: str = Field(description="waiting, a decision, interrupted, or over.")
    since: Time
    decided: DecidedView | None = None
    project: str | None = Field(default=None, description=_PROJECT)
    assignee: str | None = Field(
        default=None, description="The person to whom it is assigned; others may decide, too."
    )
    comments: list[CommentView] = Field(
        default_factory=list[CommentView], description="The comments on the request, in order."
    )
    can_decide: bool = Field(default=False, description="Whether you may approve it.")
    can_reject: bool = Field(
        default=False, description="Whether you may reject it, as the submitter and voters may."
    )
    can_talk: bool = Field(
        default=False, description="Whether you may comment on it and assign it, while it waits."
    )
    why_not: str | None = Field(
        default=None, description="Why you may not approve it, while it waits."
    )


class RequestList(ResponseModel):
    """Approval requests and questions, oldest first."""

    approvals: list[Request]
    more: bool = Field(description="Whether there are more entries.")


Reason = Annotated[str, StringConstraints(max_length=10_000)]


class Approval(Given):
    """The approval of a call. The approval can also be remembered for later calls."""

    decision: Literal["approve"]
    reason: Reason | None = Field(default=None, description="A note.")
    remember: Literal["no", "task", "until_revoked"] = Field(
        default="no",
        description=(
            "Let later calls pass without a request, in this task or until this is revoked."
        ),
    )
    covers: Literal["call", "action"] = Field(
        default="call",
        description="With remember: calls with the same arguments, or any call of the action.",
    )


class Rejection(Given):
    """The rejection of a call."""

    decision: Literal["reject"]
    reason: Reason | None = Field(
        default=None, description="The reason, which the script and the model read."
    )


class ChangeWish(Given):
    """A request for changes: the call is not made, and the model plans again."""

    decision: Literal["request_changes"]
    reason: Annotated[str, StringConstraints(max_length=10_000, pattern=r"\S")] = Field(
        description="What the model should change, only for a request with `takes_changes`."
    )


class CommentRequest(Given):
    """A comment on a request."""

    text: Annotated[str, StringConstraints(max_length=MAX_COMMENT_LENGTH, pattern=r"\S")]


class AssigneeRequest(Given):
    """The body of a call that assigns an approval request to a person."""

    person: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = Field(
        description="The name of a person who may approve it; null for nobody."
    )


class AssignableList(ResponseModel):
    """The people to whom a request can be assigned."""

    people: list[str] = Field(description="The names of the people who may approve it.")


class Edit(Given):
    """An approval of the call with other arguments."""

    decision: Literal["edit"]
    arguments: dict[str, Any] = Field(min_length=1, description="The arguments to change.")


class AlreadyDoneAnswer(Given):
    """The decision that an interrupted call did happen, so that the call is not repeated."""

    decision: Literal["settle"]
    result: Any = Field(default=None, description="What the call returned.")
    reason: Reason | None = Field(default=None, description="A note.")


class AnswerToQuestion(Given):
    """The answer to a question that a script asked."""

    decision: Literal["answer"]
    answer: Annotated[str, StringConstraints(max_length=100_000)] | bool | int | float = Field(
        description="A text, one of the options, a number, true or false, as the question asks."
    )


_Decision = Approval | Rejection | ChangeWish | Edit | AlreadyDoneAnswer | AnswerToQuestion


class DecisionRequest(RootModel[_Decision]):
    """A decision about a request, or the answer to a question."""

    root: _Decision = Field(discriminator="decision")


def _to_integer(value: object) -> object:
    """Convert 3.0 to 3, because JSON Schema counts 3.0 as an integer."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


class ResumeRequest(Given):
    """The limits of a task that is resumed."""

    timeout: Seconds | None = Field(
        default=None,
        description="The timeout of the task from now on; its earlier timeout when omitted.",
    )


class AgainRequest(Given):
    """Changes to a task that is repeated."""

    task: TaskWords | None = Field(
        default=None, description="A new text for the task; the same text when omitted."
    )
    timeout: Seconds | None = Field(
        default=None,
        description=("Seconds from the start of the task; the agent's timeout when omitted."),
    )
    llm: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = Field(
        default=None,
        description="The name of another model for this task: one of `models` of GET /session.",
    )
    wait: Wait = Field(
        default=0,
        description="Seconds to wait until the task ends or asks a person; 0 answers at once.",
    )


class ForkRequest(Given):
    """The event from which a task is repeated."""

    at: Annotated[int, Field(ge=1, le=2**53), BeforeValidator(_to_integer)] | None = Field(
        default=None,
        description=(
            "The last event to copy; when omitted, the event before the last request to the model."
        ),
    )
    script: Annotated[str, StringConstraints(max_length=200_000, pattern=r"\S")] | None = Field(
        default=None, description="A script that replaces the model's next script."
    )
    llm: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = Field(
        default=None,
        description=(
            "The name of another model for the later scripts: one of `models` of GET /session."
        ),
    )


class Stored(ResponseModel):
    """An uploaded file."""

    id: str
    name: str
    size: int
    at: Time


class StoredList(ResponseModel):
    """The files that the caller has uploaded, newest first."""

    files: list[Stored]
    more: bool = Field(description="Whether there are more entries.")


class Conversation(ResponseModel):
    """A stored conversation."""

    conversation_id: str
    title: str
    messages: int
    updated_at: Time


class ConversationList(ResponseModel):
    """Conversations, newest first."""

    conversations: list[Conversation]
    more: bool = Field(description="Whether there are more entries.")


class ChatLine(_as_body(ChatMessage)):
    """A message of a conversation."""


class ConversationDetail(ResponseModel):
    """The messages of a conversation."""

    conversation_id: str
    messages: list[ChatLine]
    more: bool = Field(description="Whether there are more entries.")


class LoginRequest(Given):
    """An API key, which logs a person in to the page."""

    key: Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class TaskCost(ResponseModel):
    """The cost of a task, including its child tasks."""

    task_id: str
    cost_usd: float


class Budget(ResponseModel):
    """The agent's budget in this process, with the costs of the tasks that the caller may see."""

    limit_usd: float | None = Field(description="Null for a person who does not see all tasks.")
    cost_usd: float = Field(description="The cost of all tasks that you see.")
    left_usd: float | None = Field(description="Null for a person who does not see all tasks.")
    tasks: list[TaskCost] = Field(description="The newest tasks with a cost, newest first.")


class Login(_as_body(SessionRecord, "began", "until", "way", "client", "browser")):
    """A session in which a person is logged in to the server's web page."""

    id: str
    is_this: bool = Field(description="Whether this request comes from that session.")


class LoginList(ResponseModel):
    """The sessions of a person, oldest first."""

    sessions: list[Login]
    more: bool = Field(description="Whether there are more entries.")


class Session(ResponseModel):
    """The data that the web page needs about the caller and the server's features."""

    name: str
    rights: list[str]
    scope: str = Field(description="The tasks that you see: `own`, `team` or `all`.")
    teams: list[str] = Field(default_factory=list[str])
    way: str = Field(description="How you are logged in: `none`, `key`, `session` or `proxy`.")
    csrf: str | None = Field(default=None, description="The token to send as X-CSRF-Token.")
    login: bool = Field(description="Whether the server requires a key.")
    server: str = Field(description="An id that changes when the server restarts.")
    model: str | None = None
    models: list[str] = Field(
        default_factory=list[str], description="Further models, for `llm` of a task."
    )
    browser_notices: bool = Field(
        default=True, description="Whether the person wants notices in the browser."
    )
    budget: Budget | None = Field(default=None, description="Null if there is no limit.")
    budgets: list[OwnBudget] = Field(
        default_factory=list[OwnBudget],
        description="The budgets for this month of the user, and of their teams.",
    )


class Health(ResponseModel):
    """The status of a healthy server."""

    ok: bool


class Query(BaseModel):
    """Query parameters. Unknown parameters are refused."""

    model_config = ConfigDict(extra="forbid")


class PageQuery(Query):
    """The requested page of a list."""

    limit: Annotated[int, Field(ge=1, le=1000, description="The maximum number of items.")] = 100
    offset: Annotated[int, Field(ge=0, le=100_000, description="The number of items to skip.")] = 0


class RunQuery(Query):
    """The evaluation run whose report is requested."""

    run: Annotated[int, Field(ge=1, le=100_000, description="1 for the last run.")] = 1


class TaskQuery(Query):
    """Conditions for tasks."""

    limit: Annotated[int, Field(ge=1, le=1000, description="The maximum number of items.")] = 100
    after: (
        Annotated[str, StringConstraints(max_length=500, pattern=r"^[0-9]{1,12}\.[0-9]{9}~.+$")]
        | None
    ) = Field(default=None, description="The `next` of the previous page.")
    state: TaskState | None = None
    text: Annotated[str, StringConstraints(max_length=1000)] | None = Field(
        default=None, description="Only tasks whose text contains this, in any case."
    )
    since: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None = Field(
        default=None, description="Only tasks that started at this Unix time or later."
    )


Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


def _with_fields_of_records() -> type[Query]:
    """Create a query model with a parameter for each filterable field of a task record."""
    kind: Any = Name  # pyright does not know that an Annotated type can be combined by ``|``
    fields: dict[str, Any] = {
        name: (kind | None, Field(default=None, description=description))
        for name, description in filterable_fields().items()
    }
    return create_model("RecordQuery", __base__=Query, **fields)


class FilterQuery(_with_fields_of_records()):
    """Conditions for tasks. A task must meet all of them."""

    text: Annotated[str, StringConstraints(max_length=1000)] | None = Field(
        default=None,
        description=(
            "Words of the task, a script, a call, the answer or an error. Words in double "
            "quotes must be adjacent; the last word may be the start of a word."
        ),
    )
    person: Name | None = Field(
        default=None, description=("The name of the person who submitted the task.")
    )
    connection: Name | None = Field(default=None, description="A connection that was called.")
    action: Name | None = Field(default=None, description="An action that was called.")
    model: Name | None = Field(default=None, description="A model that was asked.")
    since: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None = Field(
        default=None, description="Only tasks that started at this Unix time or later."
    )
    until: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None = Field(
        default=None, description="Only tasks that started before this Unix time."
    )
    least_cost: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = Field(
        default=None, description="Only tasks that cost at least this, in US dollars."
    )


class SearchQuery(FilterQuery):
    """The conditions and the page of a search for tasks."""

    state: TaskState | None = Field(default=None, description="The state.")
    limit: Annotated[int, Field(ge=1, le=200, description="The maximum number of items.")] = 50
    before: Name | None = Field(
        default=None, description="Only tasks older than the task with this id: the next page."
    )


def _require_stored(state: TaskState) -> TaskState:
    """Return a state that journals store; raise ``ValueError`` for a state that is computed."""
    if state not in STORED_STATES:
        raise ValueError(f"one of {', '.join(STORED_STATES)}")
    return state


class FiguresQuery(FilterQuery):
    """The grouping of tasks for statistics, and the filters that select the tasks."""

    by: FigureBy = Field(default="day", description="The kind of group.")
    state: Annotated[TaskState, AfterValidator(_require_stored)] | None = Field(
        default=None, description="The state; a task that waits for a person counts as running."
    )
    zone: Annotated[str, StringConstraints(min_length=1, max_length=60)] = Field(
        default="UTC", description="The time zone of the days, by its IANA name."
    )
    format: Literal["json", "csv"] = Field(
        default="json", description="The format; a table for a spreadsheet has all groups."
    )
    limit: Annotated[int, Field(ge=1, le=10_000, description="The maximum number of items.")] = 1000
    offset: Annotated[int, Field(ge=0, le=100_000, description="The number of items to skip.")] = 0


class AuditQuery(PageQuery):
    """Conditions for entries of the audit log."""

    since: Annotated[float, Field(ge=0, le=2**53)] | None = Field(
        default=None, description="The earliest Unix time."
    )
    until: Annotated[float, Field(ge=0, le=2**53)] | None = Field(
        default=None, description="The Unix time before which entries are returned."
    )
    by: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = Field(
        default=None, description="Only entries of this person."
    )
    format: Literal["json", "csv"] = Field(
        default="json", description="The format; a table for a spreadsheet has all entries."
    )


class MessageQuery(Query):
    """The requested range of messages in a conversation."""

    after: Annotated[int, Field(ge=0, le=2**53)] = Field(
        default=0, description="The position of the last message that you have."
    )
    limit: Annotated[int, Field(ge=1, le=1000, description="The maximum number of items.")] = 100


class WaitQuery(Query):
    """The maximum time to wait for a result."""

    wait: Wait = Field(
        default=0, description="Seconds to wait until the task is over or asks a person."
    )


class RequestQuery(PageQuery):
    """Conditions for approval requests."""

    waiting: bool = Field(default=True, description="Only pending requests.")
    mine: bool = Field(default=False, description="Only requests that you may decide.")
    rejectable: bool = Field(
        default=False,
        description="Only those that you may reject, but not approve; with `mine`, after those.",
    )


class EventQuery(Query):
    """The event after which the stream starts."""

    after: Annotated[int, Field(ge=0, le=2**53)] = Field(
        default=0, description="The number of the last event that you have."
    )


class FileQuery(Query):
    """The name of an uploaded file."""

    name: FileName


class NoQuery(Query):
    """No parameters."""
