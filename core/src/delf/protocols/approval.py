"""Approval channels: ways to ask a person whether a call may be made."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol, Self, get_args, runtime_checkable

from delf.errors import ConfigurationError, check_one_of
from delf.events import (
    ApprovalAssigned,
    ApprovalCommented,
    ApprovalDecided,
    ApprovalRequested,
    Covers,
    DecisionKind,
    Event,
    Remember,
)
from delf.events import ApprovalRequest as ApprovalRequest  # noqa: PLC0414 - exported from here
from delf.members import ProtocolMeta
from delf.records import dataclass

NO_REASON: Final = "no reason was given"


def _check_reason(kind: str, reason: object) -> None:
    if reason is not None and not isinstance(reason, str):
        raise ConfigurationError(f"reason of {kind} is {reason!r}", hint="give a text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """A decision that a call may be made, and perhaps later calls, too.

    Args:
        remember: How long later calls pass without a question: for this ``task``, or
            ``until_revoked``.
        covers: The later calls that pass, if ``remember`` is set: ``call`` for calls with the same
            arguments (with or without explicit defaults), ``action`` for all calls of the action.
        reason: A note for the journal.
    """

    kind: ClassVar[DecisionKind] = "approved"
    remember: Remember = "no"
    covers: Covers = "call"
    reason: str | None = None

    def __post_init__(self) -> None:
        check_one_of("remember of Approved", self.remember, get_args(Remember))
        check_one_of("covers of Approved", self.covers, get_args(Covers))
        _check_reason("Approved", self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """Approval of the call with changed arguments, which are checked again."""

    kind: ClassVar[DecisionKind] = "edited"
    arguments: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"arguments of Edited is a {type(self.arguments).__name__}",
                hint="give all arguments of the call by name, as a dict",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A decision that a call must not be made.

    Args:
        reason: A text for the script and the model, which may write another script. Without a
            person's reason, the model writes no other script, because another script could only
            ask the same again.
    """

    kind: ClassVar[DecisionKind] = "rejected"
    reason: str = NO_REASON

    def __post_init__(self) -> None:
        _check_reason("Rejected", self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesRequested:
    """A decision that a call must not be made as it is; the model plans again.

    The running script makes no further call. The model writes another script, which does not count
    as a retry. A request accepts this decision if :attr:`ApprovalRequest.takes_changes` is true.

    Args:
        reason: The wanted changes, for the model.
    """

    kind: ClassVar[DecisionKind] = "changes_requested"
    reason: str

    def __post_init__(self) -> None:
        _check_reason("ChangesRequested", self.reason)
        if not (self.reason or "").strip():
            raise ConfigurationError(
                "reason of ChangesRequested is empty", hint="say what the model should change"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyDone:
    """The statement that an interrupted call (``outcome_unknown``) did happen.

    Args:
        result: The result of the call, for the script.
        reason: A note for the journal.
    """

    kind: ClassVar[DecisionKind] = "already_done"
    result: Any = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a question of a script.

    Args:
        answer: A text, one of the options, a number, or a bool. A text such as ``yes`` or ``7`` is
            accepted for a bool or a number, too.
    """

    kind: ClassVar[DecisionKind] = "answered"
    answer: str | bool | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """The request expired without an answer; counts as a rejection."""

    kind: ClassVar[DecisionKind] = "expired"
    after_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider:
    """The person who decides a request.

    Args:
        name: The person's name; for the local user, who has no name, the name of the channel, such
            as ``terminal``.
        user: The ``user`` of the person's own tasks on a server; None for the local user.
        teams: The teams to which the person belongs.
        via: The channel and address of the decision, such as ``page, 203.0.113.9`` or ``mail``.
    """

    name: str = "agent"
    user: str | None = None
    teams: tuple[str, ...] = ()
    via: str = ""


Decision = Approved | Edited | Rejected | ChangesRequested | AlreadyDone | Answered | Expired


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedBy:
    """A decision and the person who made it, from a channel that identifies people."""

    decision: Decision
    who: Decider


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedDecision:
    """An approval that lets later calls pass without asking a person again.

    The approval holds until a person revokes the approval. Without ``project``, the approval also
    ends with its task.

    Args:
        request_id: The approved request, whose id identifies the decision.
        task_id: The task.
        action: The action that was called.
        arguments: The arguments with which a call passes; None for any arguments.
        digest: The digest of a call with these arguments.
        action_digest: The digest of the action at the time of the decision.
        worker: The worker of the child task that asked, if any.
        has_reason: True if the connection required the approval and gave a reason; False if only
            the policy required the approval.
        by: The person who approved.
        user: The user whose later tasks may use the approval; None for the local user.
        project: The folder of the project; None for a decision that holds only for its own task.
        at: The Unix time of the decision.
        files_digest: The digest of the content of the files that the approved call names.
        flow_rules: The flows of untrusted data that the approver was shown, as patterns such
            as ``mail.read.sender -> mail.send.to`` (see :func:`flow_between`). Empty if the
            decision covers a single call instead of all calls of the action.
    """

    request_id: str
    task_id: str
    action: str
    arguments: Mapping[str, Any] | None
    digest: str
    action_digest: str
    worker: str | None
    has_reason: bool
    by: str
    user: str | None
    project: str | None
    at: float
    flow_rules: tuple[str, ...] = ()
    files_digest: str | None = None

    @classmethod
    def from_request(
        cls,
        request: ApprovalRequest,
        approved: Approved,
        *,
        by: str,
        at: float,
        user: str | None = None,
        project: str | None = None,
    ) -> Self:
        """Make the remembered decision for an approved request.

        Args:
            request: The request.
            approved: The approval, which says what later calls pass.
            by: The person who approved.
            at: The Unix time of the approval.
            user: The user whose later tasks may use the approval; None for the local user.
            project: The folder of the project whose later tasks may use the approval; None if only
                the request's own task may.
        """
        covers_all_calls = approved.covers == "action"
        return cls(
            request_id=request.request_id,
            task_id=request.task_id,
            action=request.action,
            arguments=None if covers_all_calls else request.arguments,
            digest=request.digest,
            action_digest=request.action_digest,
            worker=request.worker,
            has_reason=request.reason is not None,
            by=by,
            user=user,
            project=project,
            at=at,
            # A later call may have other arguments, with data from the same sources. The decision
            # approves such data, too.
            flow_rules=_flows_of(request) if covers_all_calls else (),
            files_digest=request.files_digest,
        )

    @classmethod
    def from_events(cls, requested: ApprovalRequested, decision: ApprovalDecided) -> Self | None:
        """Return the remembered decision of events in a journal; None if nothing is remembered."""
        if decision.decision != "approved" or decision.remember == "no":
            return None
        repeats_interrupted_call = requested.outcome_unknown
        if repeats_interrupted_call:  # each such call needs a decision of its own
            return None
        return cls.from_request(
            requested,
            Approved(remember=decision.remember, covers=decision.covers),
            by=decision.by,
            at=decision.at,
            user=decision.user,
            project=decision.project,
        )

    def covers(self, request: ApprovalRequest) -> bool:
        """Return True if the decision also approves the call of a request.

        The caller checks that the decision holds for the call's task.
        """
        own_action = (self.action, self.action_digest, self.worker)
        if own_action != (request.action, request.action_digest, request.worker):
            return False
        is_for_one_call = self.arguments is not None
        if is_for_one_call:
            return (self.digest, self.files_digest) == (request.digest, request.files_digest)
        # A reason means that the connection's check requires approval of the call. A decision made
        # without such a reason does not approve the call.
        return request.reason is None or self.has_reason


def flow_between(source: str, path: str, action: str, argument: str) -> tuple[str, str]:
    """Return the names of a value's source and target: ``mail.read.sender``, ``mail.send.to``.

    Args:
        source: The action whose result has the value.
        path: The path of the value in the result, such as ``[3].sender``.
        action: The action whose arguments have the value.
        argument: The path of the value in the arguments, such as ``to[0]``.
    """
    source_names = [source]
    # ``users[key 5].name`` has the steps ``users``, ``[key 5]`` and ``name``.
    for step in re.findall(r"\[key \d+\]|[^.\[\]]+", path):
        if step.startswith("["):  # the key itself is the value: users[key 5] is in users.keys()
            source_names.append("keys()")
        elif not step.isdecimal():  # list indexes and numeric keys are left out
            source_names.append(step)
    parameter = re.split(r"[.[]", argument, maxsplit=1)[0]
    return ".".join(source_names), f"{action}.{parameter}"


def _flows_of(request: ApprovalRequest) -> tuple[str, ...]:
    """Return the flows of untrusted results into arguments, as patterns ``source -> target``."""
    if not request.flow:  # the request does not mention a flow, so the person approves of none
        return ()
    flows: list[str] = []
    for argument, origin in request.origins.items():
        if origin["kind"] == "result" and origin["trust"] == "outside":
            names = flow_between(origin["action"], origin["path"], request.action, argument)
            # Names in a result are untrusted: escape characters with a meaning in patterns.
            escaped_names = [re.sub(r"[*?[]", r"[\g<0>]", name) for name in names]
            flows.append(" -> ".join(escaped_names))
    return tuple(dict.fromkeys(flows))


@runtime_checkable
class SupportsPresence(Protocol, metaclass=ProtocolMeta):
    """A channel that knows in advance whether a person can answer."""

    def can_ask(self) -> bool:
        """Return True if a person can probably answer now; must not ask anybody."""
        ...


@runtime_checkable
class SupportsQuestions(Protocol, metaclass=ProtocolMeta):
    """A channel that also passes on questions of scripts; other channels get approvals only."""

    async def answer(self, request: ApprovalRequest) -> Decision | DecidedBy | None:
        """Ask a person a script's question.

        Args:
            request: A request whose ``question`` is not None.

        Returns:
            ``Answered`` with the answer; ``Rejected`` if the person declines to answer; None to
            leave the question to the next channel.
        """
        ...


@runtime_checkable
class SupportsDiscussion(Protocol, metaclass=ProtocolMeta):
    """A channel that tells people if somebody comments on a pending request or assigns it."""

    async def show_discussion(
        self,
        request: ApprovalRequest,
        event: ApprovalCommented | ApprovalAssigned,
        discussion: Sequence[Event],
    ) -> None:
        """Report a comment or an assignment.

        Args:
            request: The request.
            event: The comment or assignment.
            discussion: The earlier votes, comments and assignments of the request.
        """
        ...


class ApprovalChannel(Protocol):
    """A way to ask a person for a decision."""

    async def decide(self, request: ApprovalRequest) -> Decision | DecidedBy | None:
        """Return the decision, or None to leave the request to the next channel."""
        ...
