"""The decision about one request under a team's rule: who may give it, and how many have to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from delf.errors import DelfError
from delf.events import ApprovalVoted, Event
from delf.protocols.approval import Approved, Decider, Decision, Edited, Rejected
from delf.protocols.people import LOCAL, folded, name_of_holder
from delf.protocols.rules import ApprovalRule
from delf_engine.approvals.decision import Answer, decision_data


def why_refused(
    rule: ApprovalRule | None, asker: str | None, who: Decider, decision: Decision
) -> str | None:
    """Say why somebody may not give a decision; None where they may.

    Args:
        rule: The rule; without one, anybody may who has the right to decide.
        asker: The owner of the task; None for the local user.
        who: Who decides.
        decision: What they decide.
    """
    if rule is None:
        return None
    is_asker = who.key == asker or folded(_name_of(who)) == folded(name_of_holder(asker))
    if is_asker and isinstance(decision, Rejected):
        return None  # whoever asked may take it back
    if is_asker and rule.four_eyes:
        return "who asked for it does not decide it: another person has to"
    if rule.deciders and {_name_of(who), *who.teams}.isdisjoint(rule.deciders):
        return f"only {' or '.join(rule.deciders)} may decide it"
    is_local = who.key is None and LOCAL not in rule.deciders
    if is_local and rule.four_eyes and not isinstance(decision, Rejected):
        return (
            "delf does not know who uses this machine: it may be who asked; the rule can name local"
        )
    if rule.two_of and isinstance(decision, Edited):
        return "two people have to approve the same call: reject it, and say what to change"
    return None


def _name_of(who: Decider) -> str:
    return LOCAL if who.key is None else name_of_holder(who.key)


Votes = dict[str, str]
"""By the folded names of those who have approved a request: their names."""


def votes_in(events: Iterable[Event], request_id: str) -> Votes:
    """The votes about a request that are recorded."""
    votes: Votes = {}
    for event in events:
        if isinstance(event, ApprovalVoted) and event.request_id == request_id:
            name = LOCAL if event.key is None else name_of_holder(event.key)
            votes[folded(name)] = event.by
    return votes


def check_vote(who: Decider, votes: Mapping[str, str]) -> None:
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
        votes: Those that were given.
    """

    def __init__(self, rule: ApprovalRule, asker: str | None, votes: Votes) -> None:
        self._rule = rule
        self._asker = asker
        self._votes = votes

    def cast(self, answer: Answer) -> tuple[Answer, bool]:
        """The answer as it counts; False beside it where another person has to give the same.

        Raises:
            DelfError: When who gave it may not.
        """
        who = answer.who
        why = why_refused(self._rule, self._asker, who, answer.decision)
        if why is not None:
            raise DelfError(why, hint="the team's rules are in [agent.approval_rules]")
        if not self._rule.two_of or isinstance(answer.decision, Rejected):
            return answer, True
        if not isinstance(answer.decision, Approved):
            kind = decision_data(answer.decision)["decision"]
            raise DelfError(f"two people approve it, or one rejects it: {kind} is neither")
        check_vote(who, self._votes)
        others = tuple(dict.fromkeys(self._votes.values()))
        self._votes[folded(_name_of(who))] = who.name
        return replace(answer, others=others), bool(others)
