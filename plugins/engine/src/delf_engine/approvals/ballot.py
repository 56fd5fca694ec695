"""Decisions under a team rule: the people who may decide, and the number of approvals needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace

from delf.errors import DelfError
from delf.events import ApprovalVoted, Event
from delf.protocols.approval import (
    ApprovalRequest,
    Approved,
    ChangesRequested,
    Decider,
    Decision,
    Edited,
    Rejected,
)
from delf.protocols.people import LOCAL, Person, name_of_user, normalise_name, sees
from delf.protocols.rules import ApprovalRule
from delf.protocols.shared_journal import SharedJournal
from delf_engine.approvals.decision import Answer, decision_data
from delf_engine.approvals.shared import Approvals
from delf_engine.journal.log import TaskLog

_log = logging.getLogger(__name__)


def why_refused(
    request: ApprovalRequest, task_user: str | None, decider: Decider, decision: Decision
) -> str | None:
    """Return why a person may not give a decision; None if allowed.

    Without a rule, everybody may decide. With a rule, the deciders may stop the call, and so may
    the user of the task, who wanted the call. Only deciders may approve the call, and the rule may
    exclude the user and unknown people. If the rule needs other people than the user to approve,
    people who influenced the task count like the user.

    Args:
        request: The request.
        task_user: The user of the task; None for the local user.
        decider: The person who decides.
        decision: The decision.
    """
    rule = ApprovalRule.from_data(request.rule)
    if rule is None:
        return None
    is_task_user = _is_task_user(decider, task_user)
    counts_like_user = rule.needs_others and _has_influenced_task(decider, request)
    if isinstance(decision, (Rejected, ChangesRequested)):
        wanted_call = is_task_user or counts_like_user
        return None if wanted_call else _why_no_decider(decider, rule)
    if is_task_user and rule.four_eyes:
        return "the person who asked for it does not decide it: another person has to"
    if counts_like_user:
        return (
            "a person who changed what is done, or gave the reason for it, does not approve it: "
            "another person has to"
        )
    return _why_no_decider(decider, rule) or _why_local_user_refused(decider, rule)


def _is_task_user(decider: Decider, task_user: str | None) -> bool:
    # A person may have several keys, so names are compared, too.
    is_same_name = _normalised_name(decider) == normalise_name(name_of_user(task_user))
    return is_same_name or decider.user == task_user


def _has_influenced_task(decider: Decider, request: ApprovalRequest) -> bool:
    """Return whether a person's edits, answers or changes influenced the task of a request."""
    return _normalised_name(decider) in map(normalise_name, request.shaped_by)


def _why_no_decider(decider: Decider, rule: ApprovalRule) -> str | None:
    """Return why a person is not among the deciders of a rule; None for a person who is."""
    names = {_name_of(decider), *decider.teams}
    if rule.deciders and names.isdisjoint(rule.deciders):
        return f"only {' or '.join(rule.deciders)} may decide it"
    return None


def _why_local_user_refused(decider: Decider, rule: ApprovalRule) -> str | None:
    """Return why an unnamed user of this machine may not approve; None if the decider may."""
    is_unnamed = decider.user is None
    # With ``four_eyes``, the decider must be another person than the asker. An unnamed user may be
    # any person, even the asker.
    if is_unnamed and rule.four_eyes and LOCAL not in rule.deciders:
        return (
            "delf does not know who uses this machine: this may be the person who asked; add "
            f"{LOCAL!r} to the deciders of the rule to allow it"
        )
    return None


def decider_of(person: Person) -> Decider:
    """Return the :class:`Decider` with the name, user and teams of a person."""
    return Decider(name=person.name, user=person.user, teams=person.teams)


def deciders(
    request: ApprovalRequest, task_user: str | None, people: Iterable[Person]
) -> list[Person]:
    """Return the people who may approve a request or answer a question.

    A returned person may see the task, has the right ``decide``, and is not refused by the
    request's rule. The user of the task may answer its questions without the right ``decide``.

    Args:
        request: The request.
        task_user: The user of the task; None for the local user.
        people: All people in the journal, including removed ones.
    """
    present = [person for person in people if person.revoked_at is None]
    found: list[Person] = []
    for person in present:
        is_asked_user = request.is_question and person.user == task_user
        if "decide" not in person.rights and not is_asked_user:
            continue
        if not sees(person, present, task_user):
            continue
        if why_refused(request, task_user, decider_of(person), Approved()) is None:
            found.append(person)
    return found


def _name_of(decider: Decider) -> str:
    return LOCAL if decider.user is None else name_of_user(decider.user)


def _normalised_name(decider: Decider) -> str:
    return normalise_name(_name_of(decider))


Votes = dict[str, ApprovalVoted]
"""A mapping from the normalised name of a person who approved to the person's vote."""


def votes_in(events: Iterable[Event], request_id: str) -> Votes:
    """Return the recorded votes about a request, by the voter's normalised name."""
    votes: Votes = {}
    for event in events:
        if isinstance(event, ApprovalVoted) and event.request_id == request_id:
            votes[normalise_name(_voter_name(event))] = event
    return votes


def is_valid(
    vote: ApprovalVoted, rule: ApprovalRule, task_user: str | None, people: Sequence[Person]
) -> bool:
    """Return whether a vote counts: the voter has not lost the right to decide or see the task.

    Args:
        vote: The vote.
        rule: The rule of the request.
        task_user: The user of the task; None for the local user.
        people: All people in the journal, including removed ones.
    """
    voter = next((person for person in people if person.user == vote.user), None)
    if voter is None:
        # The voter was never in the journal, like a user of Slack, or was replaced there.
        return not _was_voter_replaced(vote, people)
    if voter.revoked_at is not None or "decide" not in voter.rights:
        return False
    present = [person for person in people if person.revoked_at is None]
    return sees(voter, present, task_user) and _is_decider(voter, vote, rule, people)


def _was_voter_replaced(vote: ApprovalVoted, people: Iterable[Person]) -> bool:
    """Return whether the journal now has another person with the voter's name."""
    return normalise_name(_voter_name(vote)) in {normalise_name(person.name) for person in people}


def _is_decider(
    voter: Person, vote: ApprovalVoted, rule: ApprovalRule, people: Iterable[Person]
) -> bool:
    """Return whether a rule names a voter, or a team of the voter, as a decider.

    True if the rule names no deciders.
    """
    if not rule.deciders:
        return True
    # Teams in the journal are the current teams: the voter may have left a team since the vote.
    # Groups of a channel such as Slack are not in the journal, and are taken from the vote.
    teams_in_journal = {team for person in people for team in person.teams}
    groups_of_channel = [team for team in vote.teams if team not in teams_in_journal]
    names = (voter.name, *voter.teams, *groups_of_channel)
    return any(name in rule.deciders for name in names)


def _voter_name(vote: ApprovalVoted) -> str:
    return LOCAL if vote.user is None else name_of_user(vote.user)


def check_vote(decider: Decider, votes: Container[str]) -> None:
    """Check that a person has not voted yet; each person has one vote, whatever key they use.

    Raises:
        DelfError: If the person has voted.
    """
    if _normalised_name(decider) in votes:
        raise DelfError(f"{decider.name} has approved it, and another person must approve it, too")


class Ballot:
    """Collects the answers to one request, and applies the request's team rule.

    A rule may require the approval of two people: each approval is then a vote.

    Args:
        request: The request.
        task_user: The user of the task; None for the local user.
        log: The log of the task, which records the votes.
        approvals: The approvals that all tasks of the agent share.
    """

    def __init__(
        self, request: ApprovalRequest, task_user: str | None, log: TaskLog, approvals: Approvals
    ) -> None:
        self._request = request
        self._task_user = task_user
        self._log = log
        self._approvals = approvals
        self._voters = set(self._votes())
        self._loop = asyncio.get_running_loop()
        # The future of each vote, which is done when the vote is counted.
        self._vote_futures: list[Future[None]] = []
        self._lock = asyncio.Lock()

    def take_answer(self, answer: Answer) -> bool:
        """Check an answer; take it as a vote if the rule needs two approvals.

        May be called from any thread, but not by two threads at the same time.

        Returns:
            True if the answer alone decides the request; False for a vote, which is counted later,
            on the agent's event loop.

        Raises:
            DelfError: If the person may not give this answer.
        """
        rule = ApprovalRule.from_data(self._request.rule)
        if rule is None:
            return True
        refusal = why_refused(self._request, self._task_user, answer.who, answer.decision)
        if refusal is not None:
            raise DelfError(refusal, hint="the team's rules are in [agent.approval_rules]")
        # One person may stop the call. An edited call is a new one, which others approve later.
        is_decided_by_one = isinstance(answer.decision, (Rejected, ChangesRequested, Edited))
        if not rule.two_of or is_decided_by_one:
            return True
        if not isinstance(answer.decision, Approved):
            kind = decision_data(answer.decision)["decision"]
            raise DelfError(f"two people must approve it, or one reject it; the answer is {kind!r}")
        check_vote(answer.who, self._voters)
        # The vote is recorded later. From now on, the same person cannot vote again.
        self._voters.add(_normalised_name(answer.who))
        counting = self._count_vote(rule, answer)
        self._vote_futures.append(asyncio.run_coroutine_threadsafe(counting, self._loop))
        return False

    async def wait_until_counted(self) -> None:
        """Wait until all votes are counted.

        If the votes suffice, the request is then decided.
        """
        for future in self._vote_futures:  # grows meanwhile if more people vote
            await asyncio.wait({asyncio.wrap_future(future)})

    async def _count_vote(self, rule: ApprovalRule, answer: Answer) -> None:
        """Count a vote; if the journal fails, log the failure and let the person vote again."""
        request_id = self._request.request_id
        # One vote at a time: the second of two must find the first in the journal.
        async with self._lock:
            if self._approvals.pending_requests.find(request_id) is None:
                return  # somebody rejected it meanwhile
            try:
                await self._decide_or_record_vote(rule, answer)
            except Exception as error:
                self._voters.discard(_normalised_name(answer.who))
                message = f"a vote about {request_id} was not counted"
                self._log.redactor.log_failure(_log, message, error)

    async def _decide_or_record_vote(self, rule: ApprovalRule, answer: Answer) -> None:
        """Decide the request if this is the second vote; record the vote if it is the first."""
        request_id = self._request.request_id
        people = await self._people()
        # An earlier voter may have lost the right to decide meanwhile.
        earlier_votes = [
            vote for vote in self._votes().values() if is_valid(vote, rule, self._task_user, people)
        ]
        if earlier_votes:
            earlier_voters = tuple(dict.fromkeys(vote.by for vote in earlier_votes))
            decided = replace(answer, earlier_voters=earlier_voters)
            self._approvals.pending_requests.settle(request_id, decided)
            return
        await self._log.record(
            ApprovalVoted,
            request_id=request_id,
            by=answer.who.name,
            reason=getattr(answer.decision, "reason", None),
            user=answer.who.user,
            teams=answer.who.teams,
            # The event's field ``note`` is the position of the vote in the journal's inbox.
            note=answer.inbox_position,
            via=answer.who.via,
        )

    def _votes(self) -> Votes:
        return votes_in(self._log.events, self._request.request_id)

    async def _people(self) -> Sequence[Person]:
        """Return all people in the journal; empty if the journal keeps no people."""
        journal = self._approvals.journal
        return await journal.people() if isinstance(journal, SharedJournal) else ()
