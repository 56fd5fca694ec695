"""The decision about one request under a team's rule: who may decide, and how many must."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

from delf.errors import DelfError
from delf.events import ApprovalVoted, Event
from delf.protocols.approval import Approved, Decider, Decision, Edited, Rejected
from delf.protocols.people import LOCAL, Person, folded, name_of_holder
from delf.protocols.rules import ApprovalRule
from delf_engine.approvals.decision import Answer, decision_data


def why_refused(
    rule: ApprovalRule | None,
    asker: str | None,
    who: Decider,
    decision: Decision,
    shaped_by: Iterable[str] = (),
) -> str | None:
    """Return why a person may not give a decision; None if allowed.

    Args:
        rule: The rule; without one, anybody may who has the right to decide.
        asker: The owner of the task; None for the local user.
        who: Who decides.
        decision: What they decide.
        shaped_by: The names of further people who shaped what is asked about.
    """
    if rule is None:
        return None
    name, is_no = folded(_name_of(who)), isinstance(decision, Rejected)
    is_asker = who.key == asker or name == folded(name_of_holder(asker))
    is_shaper = rule.needs_others and name in map(folded, shaped_by)
    if is_no and (is_asker or is_shaper):
        return None  # nobody is kept from taking back what they asked for
    if is_asker and rule.four_eyes:
        return "who asked for it does not decide it: another person has to"
    if is_shaper:
        return (
            "who changed what is done, or gave the reason for it, does not approve it: another "
            "person has to"
        )
    if rule.deciders and {_name_of(who), *who.teams}.isdisjoint(rule.deciders):
        return f"only {' or '.join(rule.deciders)} may decide it"
    is_local = who.key is None and LOCAL not in rule.deciders
    if is_local and rule.four_eyes and not is_no:
        return (
            "delf does not know who uses this machine: it may be who asked; the rule can name local"
        )
    return None


def _name_of(who: Decider) -> str:
    return LOCAL if who.key is None else name_of_holder(who.key)


Votes = dict[str, ApprovalVoted]
"""By the folded names of those who have approved a request: their votes."""


def votes_in(events: Iterable[Event], request_id: str) -> Votes:
    """Return the votes about a request that are recorded."""
    votes: Votes = {}
    for event in events:
        if isinstance(event, ApprovalVoted) and event.request_id == request_id:
            votes[folded(_voter(event))] = event
    return votes


def counts(vote: ApprovalVoted, rule: ApprovalRule, people: Iterable[Person]) -> bool:
    """Return whether a vote still counts: its person was not removed, and may still decide.

    Args:
        vote: The vote.
        rule: The rule of its request.
        people: Everybody whom the journal knows, also those who were removed.
    """
    known, name = list(people), _voter(vote)
    own = next((person for person in known if person.holder == vote.key), None)
    if own is None:  # a key of the settings, the local user, or somebody of a channel
        return not any(folded(person.name) == folded(name) for person in known)
    if own.revoked_at is not None or "decide" not in own.rights:
        return False
    kept = {team for person in known for team in person.teams}
    # Teams that the journal does not know are a channel's own, such as its user groups.
    teams = {team for team in vote.teams if team not in kept or team in own.teams}
    return not rule.deciders or not {own.name, *teams, *own.teams}.isdisjoint(rule.deciders)


def _voter(vote: ApprovalVoted) -> str:
    return LOCAL if vote.key is None else name_of_holder(vote.key)


def check_vote(who: Decider, votes: Container[str]) -> None:
    """Check that somebody has not voted yet: a person has one vote, by whatever key.

    Raises:
        DelfError: When they have.
    """
    if folded(_name_of(who)) in votes:
        raise DelfError(f"{who.name} has approved it, and another person must approve it, too")


class Ballot:
    """The votes about one request.

    Args:
        rule: The rule that holds.
        asker: The owner of the task; None for the local user.
        shaped_by: The names of further people who shaped what is asked about.
        votes: Those that are recorded.
    """

    def __init__(
        self, rule: ApprovalRule, asker: str | None, shaped_by: Iterable[str], votes: Votes
    ) -> None:
        self._rule = rule
        self._asker = asker
        self._shaped_by = tuple(shaped_by)
        self._cast = set(votes)

    def cast(self, answer: Answer) -> bool:
        """Take an answer; False where it is a vote, which :meth:`close` counts.

        Raises:
            DelfError: When who gave it may not.
        """
        who, rule = answer.who, self._rule
        why = why_refused(rule, self._asker, who, answer.decision, self._shaped_by)
        if why is not None:
            raise DelfError(why, hint="the team's rules are in [agent.approval_rules]")
        if not rule.two_of or isinstance(answer.decision, (Rejected, Edited)):
            return True
        if not isinstance(answer.decision, Approved):
            kind = decision_data(answer.decision)["decision"]
            raise DelfError(f"two people approve it, or one rejects it: {kind} is neither")
        check_vote(who, self._cast)
        self._cast.add(folded(_name_of(who)))
        return False

    def withdraw(self, answer: Answer) -> None:
        """Take back a vote that could not be counted; its person may vote again."""
        self._cast.discard(folded(_name_of(answer.who)))

    def close(self, answer: Answer, votes: Votes, people: Iterable[Person]) -> Answer | None:
        """Return the answer with the votes before it, or None where another person is needed.

        Args:
            answer: A vote.
            votes: Those before it.
            people: Everybody whom the journal knows now: a vote of somebody who was removed
                meanwhile does not count.
        """
        known = list(people)
        held = [vote for vote in votes.values() if counts(vote, self._rule, known)]
        others = tuple(dict.fromkeys(vote.by for vote in held))
        return replace(answer, others=others) if others else None
