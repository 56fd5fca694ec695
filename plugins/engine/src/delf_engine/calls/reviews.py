"""``CallReviews``: people review a call until their answer is about the call as it will be made."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from delf.errors import ToolRefusedError
from delf.protocols.approval import Approved, Edited, Rejected
from delf.protocols.connection import Allowed, NeedsApproval, Refused
from delf_engine.approvals.decision import Answer, RefusedByCheck, with_secrets
from delf_engine.approvals.policy import TaskApprovals
from delf_engine.calls.call import Call
from delf_engine.calls.checks import CallChecks
from delf_engine.calls.contexts import CallContexts
from delf_engine.calls.records import CallRecords
from delf_engine.journal.recording import RecordedCall

# The maximum number of questions to a person about one call whose effect keeps changing.
_MAX_QUESTIONS = 20


class CallReviews:
    """Asks people about calls, applies their edits, and checks the calls again.

    Args:
        approvals: Decides whether the calls of the task may be made.
        checks: Checks calls.
        contexts: Reads the files that calls send.
        records: Records the ends of calls that are cancelled before they are decided.
    """

    def __init__(
        self,
        approvals: TaskApprovals,
        checks: CallChecks,
        contexts: CallContexts,
        records: CallRecords,
    ) -> None:
        self._approvals = approvals
        self._checks = checks
        self._contexts = contexts
        self._records = records

    async def ask(
        self,
        call: Call,
        recorded_call: RecordedCall | None,
        verdict: Allowed | NeedsApproval,
        *,
        outcome_unknown: bool = False,
    ) -> Answer:
        """Ask people for approval of a call, and apply their edits.

        People are asked again if the call changed while they decided, or if a rule demands that
        another person approves an edited call.

        Args:
            call: The call.
            recorded_call: The record of the call from an earlier process, if any.
            verdict: The verdict of the checks, with the preview to show.
            outcome_unknown: Whether the call may have taken effect already.

        Returns:
            The answer. Its decision is never ``Edited``; the decision is ``RefusedByCheck`` if the
            check refuses an approved call.
        """
        for _ in range(_MAX_QUESTIONS):
            answer = await self._ask_once(
                call, recorded_call, verdict, outcome_unknown=outcome_unknown
            )
            if not _needs_second_check(answer, verdict):
                return answer
            if isinstance(answer.decision, Edited):
                try:
                    call.edit(answer.decision.arguments)
                except ToolRefusedError as error:
                    reason = f"the edited arguments do not fit: {error.message}"
                    return replace(answer, decision=Rejected(reason=reason))
            verdict_now = await self._checks.verdict(call)
            if isinstance(verdict_now, Refused):
                return replace(answer, decision=RefusedByCheck(reason=verdict_now.message))
            if _is_still_approved(answer, verdict, verdict_now):
                call.basis = verdict_now.basis
                return replace(answer, decision=Approved())
            # Ask again, about the call as it is now.
            verdict = verdict_now
            recorded_call = None  # its decision has been used
            call.has_changed_since_request = True
        return Answer(Rejected(reason="its effect changes too quickly for a person to check it"))

    async def _ask_once(
        self,
        call: Call,
        recorded_call: RecordedCall | None,
        verdict: Allowed | NeedsApproval,
        *,
        outcome_unknown: bool,
    ) -> Answer:
        """Ask people about a call as it is now.

        If this method is cancelled before an answer, the call is recorded as cancelled.
        """
        try:
            # Files are read before the question, so that the person's answer is about the bytes to
            # be sent.
            await self._contexts.freeze(call)
            return await self._approvals.decide(
                call,
                verdict,
                recorded_call=recorded_call,
                outcome_unknown=outcome_unknown,
            )
        except asyncio.CancelledError:
            await self._records.cancel(call, "cancelled before it was decided")
            raise


def restore_edited_arguments(call: Call, recorded_call: RecordedCall) -> str | None:
    """Give a repeated call the arguments that a person had edited, if any.

    Returns:
        None if the call can be made with these arguments; otherwise the reason why not.
    """
    misfit = None
    start = recorded_call.edited_start
    if start is not None:
        try:
            call.edit(start.arguments)
        except ToolRefusedError as error:
            misfit = f"its recorded arguments do not fit: {error.message}"
            # A person is asked about these arguments anyway: the call was started with them.
            call.arguments, call.digest = dict(start.arguments), start.digest
    # The placeholder of a secret may fit the action, but must not be sent.
    if recorded_call.has_lost_arguments:
        return "its edited arguments held a secret, which the journal does not have"
    return misfit


def reapply_edits(call: Call, recorded_call: RecordedCall | None) -> None:
    """Apply the recorded edits to a call that no earlier process started.

    If an edit does not fit the action any more, all edits are dropped, and the person is asked
    about the script's arguments.
    """
    # The start event of a started call has the edited arguments.
    if recorded_call is None or recorded_call.started is not None:
        return
    original_arguments, original_digest = call.arguments, call.digest
    for request_event, decision_event in recorded_call.edits:
        recorded_edit = Edited(arguments=decision_event.arguments or {})
        # The journal has placeholders for secrets. The script's secrets are in call.arguments;
        # a secret that the person wrote is lost, which makes the edit invalid.
        edit = with_secrets(recorded_edit, request_event, call.arguments)
        assert isinstance(edit, Edited)  # noqa: S101 - with_secrets() keeps the decision's type
        try:
            call.edit(edit.arguments)
        except ToolRefusedError:
            # Undo the earlier edits, too: nobody has seen the call with only these. The values are
            # the script's again, so call.edit() must not mark them as a person's.
            call.arguments, call.digest = original_arguments, original_digest
            call.edited.clear()
            return
    call.has_changed_since_request = bool(recorded_call.edits)


def _needs_second_check(answer: Answer, verdict: Allowed | NeedsApproval) -> bool:
    """Return whether a call must be checked again after an answer, before it is made."""
    if isinstance(answer.decision, Edited):
        return True
    # The person may have taken hours, and the call may now have another effect than the preview.
    has_preview = verdict.digest is not None
    return isinstance(answer.decision, Approved) and answer.was_shown and has_preview


def _is_still_approved(
    answer: Answer, verdict: Allowed | NeedsApproval, verdict_now: Allowed | NeedsApproval
) -> bool:
    """Return whether an approval still covers a call that was checked again after the answer.

    Args:
        answer: The answer, which approved or edited the call.
        verdict: The verdict of the check before the question, with the preview that the person saw.
        verdict_now: The verdict of the check after the answer.
    """
    is_basis_same = verdict_now.basis == verdict.basis  # the state from which the preview was made
    is_preview_same = verdict_now.digest == verdict.digest
    # A person who edits the arguments knows that the preview changes.
    is_preview_approved = is_preview_same or isinstance(answer.decision, Edited)
    return is_basis_same and is_preview_approved and not answer.needs_other_approver
