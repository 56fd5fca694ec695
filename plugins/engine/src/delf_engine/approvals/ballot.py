"""The decision about one request under a team's rule: who may give it, and how many have to."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from delf.errors import DelfError
from delf.events import ApprovalVoted, Event
from delf.protocols.approval import Approved, Decider, Decision, Edited, Rejected
from delf.protocols.people import LOCAL, folded, name_of_holder
from delf.protocols.rules import ApprovalRule
from delf_engine.approvals.decision import Answer, decision_data


def why_refused(
    rule: ApprovalRule | None, asker: str | None, who: Decider, decision: Decision, waited: float
) -> str | None:
    """Say why somebody may not give a decision; None where they may.

    Args:
        rule: The rule; without one, anybody may who has the right to decide.
        asker: The owner of the task; None for the local user.
        who: Who decides.
        decision: What they decide.
        waited: The seconds for which the request has waited.
    """
    if rule is None:
        return None
    is_asker = who.key == asker or folded(_name_of(who)) == folded(name_of_holder(asker))
    if is_asker and isinstance(decision, Rejected):
        return None  # whoever asked may take it back
    if is_asker and rule.four_eyes:
        return "who asked for it does not decide it: another person has to"
    if rule.deciders and not _may(rule, asker, who, waited):
        return f"only {' or '.join(_allowed(rule, waited))} may decide it"
    is_local = who.key is None and LOCAL not in _allowed(rule, waited)
    if is_local and rule.four_eyes and not isinstance(decision, Rejected):
        return (
            "delf does not know who uses this machine: it may be who asked; the rule can name local"
        )
    if rule.two_of and isinstance(decision, Edited):
        return "two people have to approve the same call: reject it, and say what to change"
    return None


def stood_for(rule: ApprovalRule | None, who: Decider, waited: float) -> tuple[str, ...]:
    """The people in whose place somebody decides, where they could not do so themselves."""
    if rule is None or not rule.deciders or _is_named(rule, _name_of(who), who.teams, waited):
        return ()
    return tuple(name for name, teams in who.stands_for if _is_named(rule, name, teams, waited))


def _may(rule: ApprovalRule, asker: str | None, who: Decider, waited: float) -> bool:
    own = (_name_of(who), who.teams)
    # Nobody decides by the word of the person who asked.
    asked_by = folded(name_of_holder(asker))
    others = [one for one in who.stands_for if folded(one[0]) != asked_by]
    return any(_is_named(rule, name, teams, waited) for name, teams in (own, *others))


def _is_named(rule: ApprovalRule, name: str, teams: Sequence[str], waited: float) -> bool:
    return not {name, *teams}.isdisjoint(_allowed(rule, waited))


def _allowed(rule: ApprovalRule, waited: float) -> tuple[str, ...]:
    is_late = rule.escalate_after is not None and waited >= rule.escalate_after * 60
    return (*rule.deciders, *(rule.escalate_to if is_late else ()))


def _name_of(who: Decider) -> str:
    return LOCAL if who.key is None else name_of_holder(who.key)


Votes = dict[str, str]
"""By the folded names of the people for whom somebody has approved: who it was."""


def votes_in(events: Iterable[Event], request_id: str) -> Votes:
    """The votes about a request that are recorded."""
    votes: Votes = {}
    for event in events:
        if isinstance(event, ApprovalVoted) and event.request_id == request_id:
            name = LOCAL if event.key is None else name_of_holder(event.key)
            votes |= dict.fromkeys(map(folded, (name, *event.instead_of)), event.by)
    return votes


def voices(
    rule: ApprovalRule, who: Decider, waited: float, votes: Mapping[str, str]
) -> tuple[str, ...]:
    """The people for whom a further vote counts: who votes, or those in whose place.

    A person has one vote, by whatever key or deputy it is given.

    Raises:
        DelfError: When they have voted.
    """
    instead_of = stood_for(rule, who, waited)
    left = tuple(name for name in instead_of if folded(name) not in votes)
    if folded(_name_of(who)) in votes or (instead_of and not left):
        for_whom = " or ".join(instead_of) or who.name
        raise DelfError(f"{for_whom} has approved it, and another person must approve it, too")
    return left


class Ballot:
    """The votes about one request.

    Args:
        rule: The rule that holds.
        asker: The owner of the task; None for the local user.
        since: Since when it waits, as Unix time.
        votes: Those that were given.
    """

    def __init__(self, rule: ApprovalRule, asker: str | None, since: float, votes: Votes) -> None:
        self._rule = rule
        self._asker = asker
        self._since = since
        self._votes = votes

    def cast(self, answer: Answer) -> tuple[Answer, bool]:
        """The answer as it counts; False beside it where another person has to give the same.

        Raises:
            DelfError: When who gave it may not.
        """
        who, waited = answer.who, time.time() - self._since
        why = why_refused(self._rule, self._asker, who, answer.decision, waited)
        if why is not None:
            raise DelfError(why, hint="the team's rules are in [approvals.rules]")
        if not self._rule.two_of or isinstance(answer.decision, Rejected):
            return replace(answer, instead_of=stood_for(self._rule, who, waited)), True
        if not isinstance(answer.decision, Approved):
            kind = decision_data(answer.decision)["decision"]
            raise DelfError(f"two people approve it, or one rejects it: {kind} is neither")
        instead_of = voices(self._rule, who, waited, self._votes)
        others = tuple(dict.fromkeys(self._votes.values()))
        names = map(folded, (_name_of(who), *instead_of))
        self._votes |= dict.fromkeys(names, who.name)
        return replace(answer, instead_of=instead_of, others=others), bool(others)
