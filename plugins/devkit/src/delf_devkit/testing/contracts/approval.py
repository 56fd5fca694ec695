"""The contract of approval channels."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import pytest

from delf.protocols.approval import (
    Answered,
    ApprovalChannel,
    ApprovalRequest,
    Approved,
    DecidedBy,
    Edited,
    Expired,
    Rejected,
    SupportsPresence,
    SupportsQuestions,
)
from delf.protocols.facts import FactKind, facts, incomplete_text, plain_lines
from delf_devkit.testing.contracts.base import Contract, fail_without, needs
from delf_devkit.testing.contracts.clocks import clock_ahead
from delf_devkit.testing.requests import (
    question_for,
    request_for,
    sample_questions,
    sample_requests,
    unseen_facts,
)

Person = Literal[
    "approves",
    "rejects",
    "edits",
    "remembers",
    "answers",
    "changes their mind",
    "decides one",
    "is away",
    "is silent",
    "cannot be reached",
]
"""The behaviour of the person behind a channel.

A person who ``remembers`` approves every request, and asks that the approval be remembered. A
person who ``changes their mind`` approves the first request and rejects all later ones. A person
who ``decides one`` approves the request of the action ``bank.pay_1`` and answers no other. A person
who ``is silent`` never answers. If the person ``is away``, the channel can ask nobody. A person
``cannot be reached`` if the service is down, the connection breaks or the answer is garbled.
"""

_WAIT_SECONDS = 2.0
_LONG_WAITS = (60.0, 600.0, 7_200.0, 90_000.0)
_MARK = "marmalade-7741"
# The values of ``Approved.remember`` with which later calls are approved, too.
_LASTING = ("task", "until_revoked")

# Control characters that a channel must not pass on, each with its effect on a reader.
_CONTROLS: Mapping[str, str] = {
    "\x1b[2J": "clear the screen",
    "\x1b]8": "hide a link",
    "\u202e": "turn text round",
    "\x9b": "begin a command of the terminal",
    "\x08": "overwrite what stands before it",
    "\u2066": "turn text round",
    "\u200b": "make two words look alike",
    "\u00ad": "make two words look alike",
    "\x7f": "be seen as nothing",
}

_ODD_ARGUMENTS: Mapping[str, Any] = {
    "text": "Grüße 🦊\x1b[2J\x00\n\u202eevil",
    "long": "x" * 100_000,
    "raw": b"\x00\xff",
    "nested": {"a": [{"b": None}] * 50},
    "object": object(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A request as it arrived at a person.

    Args:
        text: Everything that the person can read before answering, including folded and attached
            parts.
        offers_yes: Whether the channel let the person approve the request, or answer the question.
    """

    text: str
    offers_yes: bool


def _with_unique_id(number: int, request: ApprovalRequest) -> ApprovalRequest:
    """Return a copy of a request with a number in its id, to make the id unique."""
    return replace(request, request_id=f"{request.request_id}_{number}", call_id=number)


def _effect_line(request: ApprovalRequest) -> str:
    effect = [fact for fact in facts(request) if fact.kind is FactKind.EFFECT]
    return "\n".join(plain_lines(effect))


def _decision_without_decider(answer: Any) -> Any:
    """Return a channel's decision without the name that :class:`DecidedBy` adds."""
    return answer.decision if isinstance(answer, DecidedBy) else answer


async def _decision_or_cancel(asking: asyncio.Future[Any]) -> Any:
    """Cancel a channel that is still asking, and return the decision of the channel.

    None if the channel was still asking, or has failed.
    """
    asking.cancel()
    await asyncio.wait({asking})
    has_decided = not asking.cancelled() and asking.exception() is None
    return _decision_without_decider(asking.result()) if has_decided else None


def _can_ask(channel: object) -> bool | None:
    """Return whether the channel can ask somebody; None if the channel does not know."""
    return channel.can_ask() if isinstance(channel, SupportsPresence) else None


async def _check_yes_is_passed_on(
    request: ApprovalRequest,
    answer: object,
    shown_to: Callable[[ApprovalRequest], Awaitable[Shown]],
) -> None:
    """Fail if a channel does not approve a request although its test person says yes.

    A channel that offers the person no way to say yes need not approve. Also fail if the approval
    would be remembered for later calls, because the person did not ask for that.

    Args:
        request: The request.
        answer: The result of the channel's ``decide`` for the request.
        shown_to: Sends a request, and returns what a person sees.
    """
    decision = _decision_without_decider(answer)
    if isinstance(decision, Approved):
        assert decision.remember == "no", (
            "the channel remembers an approval, and the person did not ask for it"
        )
        return
    shown = await shown_to(request)
    assert not shown.offers_yes, f"a person says yes, and the channel returns {decision!r}"


class ApprovalContract(Contract):
    """Tests for an approval channel; needs a fixture ``channel_to_person_who``.

    The fixture makes a channel for a person with a given behaviour (:data:`Person`). ``people``
    lists the behaviours that the suite tests, among them:

    - ``approves``: needs another fixture ``shown_to``, an async function that sends a request, or a
      question, and returns what a person sees as :class:`Shown`.
    - ``edits``: the person changes ``amount`` to 7.
    - ``answers``, for a channel that passes on questions: the person answers ``Bob`` to a question
      with the options ``Ann`` and ``Bob``.

    Every channel is also tested with a person who ``cannot be reached``, which must not count as
    approval.
    """

    people: ClassVar[frozenset[str]] = frozenset(
        {
            "approves",
            "rejects",
            "edits",
            "remembers",
            "changes their mind",
            "decides one",
            "is away",
            "is silent",
        }
    )

    @pytest.fixture
    def channel_to_person_who(self) -> Callable[[Person], ApprovalChannel]:
        """Return a function that makes the channel under test."""
        fail_without(self, "a fixture `channel_to_person_who`")

    @pytest.fixture
    def shown_to(self) -> Callable[[ApprovalRequest], Awaitable[Shown]]:
        """Return a function that shows a request to a person."""
        fail_without(self, "a fixture `shown_to`")

    @needs("people:approves")
    async def test_request_carries_every_fact_before_a_yes(
        self, shown_to: Callable[[ApprovalRequest], Awaitable[Shown]]
    ) -> None:
        for name, request in sample_requests().items():
            shown = await self.within(shown_to(request), self.seconds)
            assert shown.text.strip(), f"{name}: nothing arrived"
            unseen = [fact.heading for fact in unseen_facts(request, shown.text)]
            if shown.offers_yes:
                assert not unseen, (
                    f"{name}: a yes is offered, and {', '.join(unseen)} did not arrive: lay out "
                    "all of delf.protocols.facts.facts(request), or offer no yes"
                )
            else:
                assert incomplete_text(request) in shown.text, (
                    f"{name}: no yes is offered, and the person does not learn why: show "
                    "delf.protocols.facts.incomplete_text(request)"
                )
            if name == "a plain request":  # every channel can show this request completely
                assert shown.offers_yes, "it never offers a yes"

    @needs("people:answers")
    async def test_question_carries_every_fact_before_an_answer(
        self, shown_to: Callable[[ApprovalRequest], Awaitable[Shown]]
    ) -> None:
        for name, question in sample_questions().items():
            shown = await self.within(shown_to(question), self.seconds)
            unseen = [fact.heading for fact in unseen_facts(question, shown.text) if fact.required]
            assert not (shown.offers_yes and unseen), (
                f"{name}: an answer is offered, and {', '.join(unseen)} did not arrive"
            )
            # A channel may be unable to show a longer question in full, and then offers no answer.
            if name == "a choice":
                assert shown.offers_yes, "the channel offers no answer to a plain choice"

    @needs("people:answers")
    async def test_channel_returns_the_persons_answer(
        self, channel_to_person_who: Callable[..., Any]
    ) -> None:
        channel = channel_to_person_who("answers")
        # A channel may wrap a decision in DecidedBy, which names the person who decided.
        assert _decision_without_decider(await channel.answer(question_for())) == Answered("Bob")

    async def test_channel_with_answer_method_declares_questions(
        self, channel_to_person_who: Callable[[Person], ApprovalChannel]
    ) -> None:
        channel = channel_to_person_who("cannot be reached")
        has_answer_method = isinstance(channel, SupportsQuestions)
        # ``people`` lists what a test person can do through the channel.
        can_person_answer = "answers" in self.people
        can_person_approve = "approves" in self.people
        if can_person_answer:
            assert has_answer_method, "`people` has 'answers', and the channel has no `answer`"
        elif can_person_approve:  # a channel with neither only notifies people
            assert not has_answer_method, (
                "the channel has `answer`, and no test calls it: add 'answers' to `people`"
            )

    @needs("people:approves")
    async def test_yes_approves_the_request(
        self,
        channel_to_person_who: Callable[..., Any],
        shown_to: Callable[[ApprovalRequest], Awaitable[Shown]],
    ) -> None:
        channel = channel_to_person_who("approves")
        assert _can_ask(channel) is not False, (
            "the channel says that nobody can be asked, so delf never asks anybody"
        )
        await self.check_loop_stays_free(lambda: channel.decide(request_for()))
        concurrent = [_with_unique_id(n, request_for(f"bank.pay_{n}")) for n in range(5)]
        decisions = await asyncio.gather(*(channel.decide(request) for request in concurrent))
        for request, decision in zip(concurrent, decisions, strict=True):
            await _check_yes_is_passed_on(request, decision, shown_to)
        for number, (name, value) in enumerate(_ODD_ARGUMENTS.items(), len(concurrent)):
            request = _with_unique_id(number, request_for(**{name: value}))
            await _check_yes_is_passed_on(request, await channel.decide(request), shown_to)

    @needs("people:rejects")
    async def test_rejection_has_a_reason(self, channel_to_person_who: Callable[..., Any]) -> None:
        # A channel may wrap a decision in DecidedBy, which names the person who decided.
        decision = _decision_without_decider(
            await channel_to_person_who("rejects").decide(request_for())
        )
        assert isinstance(decision, Rejected)
        assert decision.reason.strip()

    @needs("people:edits")
    async def test_edit_has_all_arguments(self, channel_to_person_who: Callable[..., Any]) -> None:
        # This person changes the amount of each request to 7.
        channel = channel_to_person_who("edits")
        names = ("Ann", "Bob", "Cleo")
        requests = [
            _with_unique_id(n, request_for(to=name, amount=12)) for n, name in enumerate(names)
        ]
        answers = await asyncio.gather(*(channel.decide(r) for r in requests))
        for name, request in zip(names, requests, strict=True):
            assert dict(request.arguments) == {"to": name, "amount": 12}, (
                "an edit changed the arguments of the request itself: what was asked is in the "
                "journal, and stays as it was"
            )
        for name, decision in zip(names, map(_decision_without_decider, answers), strict=True):
            assert isinstance(decision, Edited)
            assert dict(decision.arguments) == {"to": name, "amount": 7}, (
                "an edit returns all arguments, changed or not"
            )

    @needs("people:changes their mind")
    async def test_channel_asks_every_request_separately(
        self, channel_to_person_who: Callable[..., Any]
    ) -> None:
        channel = channel_to_person_who("changes their mind")
        requests = [request_for(), request_for(), request_for("bank.close", account=7)]
        requests = [_with_unique_id(number, request) for number, request in enumerate(requests)]
        first, *other_decisions = [
            _decision_without_decider(await channel.decide(request)) for request in requests
        ]
        assert isinstance(first, Approved), "the person approves the first request"
        for decision in other_decisions:
            assert isinstance(decision, Rejected), (
                f"a later request got {decision!r}, which nobody decided: to remember is the "
                "engine's work, not a channel's"
            )

    @needs("people:changes their mind")
    async def test_yes_approves_one_of_equal_requests(
        self, channel_to_person_who: Callable[..., Any]
    ) -> None:
        # This person approves one request, and rejects all later ones.
        channel = channel_to_person_who("changes their mind")
        requests = [_with_unique_id(n, request_for(to="Ann", amount=n)) for n in range(3)]
        pending = {asyncio.ensure_future(channel.decide(request)) for request in requests}
        await asyncio.wait(pending, timeout=_WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        # Wait a moment longer: a faulty channel may now decide the other requests, too.
        decided, waiting = await asyncio.wait(pending, timeout=0.1)
        # A channel that shows one request at a time may leave the others undecided for long.
        for each in waiting:
            each.cancel()
        await asyncio.wait(pending)
        decisions = [
            _decision_without_decider(each.result()) for each in decided if each.exception() is None
        ]
        approved = sum(isinstance(decision, Approved) for decision in decisions)
        assert approved <= 1, (
            f"one yes approved {approved} calls of one action that waited together: bind an answer "
            "to the id of its request, not to its action or its task"
        )

    @needs("people:decides one")
    async def test_yes_approves_only_its_own_request(
        self, channel_to_person_who: Callable[..., Any]
    ) -> None:
        # This person approves ``bank.pay_1`` and answers no other request.
        channel = channel_to_person_who("decides one")
        other = asyncio.ensure_future(channel.decide(request_for("bank.close_all", account=7)))
        try:
            await asyncio.wait({other}, timeout=0.05)
            decision = channel.decide(request_for("bank.pay_1"))
            answer = _decision_without_decider(await self.within(decision, self.seconds))
            assert isinstance(answer, Approved), "the person approves this request"
            await asyncio.wait({other}, timeout=0.1)
            assert not other.done(), (
                "the yes to one request answered another that waits, too: bind an answer to the "
                "id of its request"
            )
            other.cancel()
            await asyncio.wait({other})
            other = asyncio.ensure_future(channel.decide(request_for("bank.close_all", account=8)))
            await asyncio.wait({other}, timeout=0.1)
            assert not other.done(), (
                "a request that nobody answered got an answer: do not keep an answer to one "
                "request for a later request"
            )
        finally:
            other.cancel()
            await asyncio.wait({other})

    @needs("people:approves")
    async def test_control_characters_are_shown_as_text(
        self, shown_to: Callable[[ApprovalRequest], Awaitable[Shown]]
    ) -> None:
        odd = "".join(_CONTROLS)
        request = request_for(
            to="Ann\x1b[2J\x1b]8;;http://evil\x07",
            note="pay\u202eyna\r\u200b",
            iban=f"\x9b1K\x08\u2066DE{odd}",
        )
        places = {
            "an argument": request,
            "the name of a parameter": request_for(**{f"to{odd}": "Ann"}),
            "a nested argument": request_for(to=[{"name": f"Ann{odd}"}]),
            "the preview": replace(request_for(), preview=f"Ann{odd}"),
            "the task": replace(request_for(), task=f"Pay Ann{odd}"),
            "the reason": replace(request_for(), reason=f"Ann{odd}"),
        }
        for place, each in places.items():
            shown = await self.within(shown_to(each), self.seconds)
            for sign, effect in _CONTROLS.items():
                assert sign not in shown.text, (
                    f"{sign!r} of {place} arrives as it is, and can {effect} for the person who "
                    "decides: lay out the lines of delf.protocols.facts.plain_lines, or "
                    "delf.terminal.visible(text)"
                )

    @needs("people:approves")
    async def test_argument_cannot_look_like_a_fact(
        self, shown_to: Callable[[ApprovalRequest], Awaitable[Shown]]
    ) -> None:
        request = request_for()
        true_line = _effect_line(request)
        forged_line = _effect_line(replace(request, effect="read"))
        request = replace(request, arguments={"to": f"Ann\n{forged_line}"})
        shown = await self.within(shown_to(request), self.seconds)
        lines = shown.text.split("\n")
        # A channel that does not show the effect as a line cannot be imitated by this argument.
        if true_line not in lines:
            return
        assert forged_line not in lines, (
            f"the argument 'Ann\\n{forged_line}' arrives as a separate line, {forged_line!r}, that "
            f"looks like the true line {true_line!r}: indent or quote all lines of a value, as "
            "plain_lines does"
        )

    @needs("people:remembers")
    async def test_lasting_approval_is_passed_on(
        self, channel_to_person_who: Callable[..., Any]
    ) -> None:
        channel = channel_to_person_who("remembers")
        decision = _decision_without_decider(await channel.decide(request_for()))
        assert isinstance(decision, Approved)
        assert decision.covers == "call", (
            f"a lasting yes covers the {decision.covers}, with any arguments: the person has "
            "seen this call alone; offer `covers='action'` as a choice of its own"
        )
        assert decision.remember in _LASTING, (
            f"a person who says always is taken for {decision.remember!r}"
        )

    @needs("people:remembers")
    async def test_channel_asks_again_after_a_lasting_approval(
        self, channel_to_person_who: Callable[..., Any]
    ) -> None:
        channel = channel_to_person_who("remembers")
        await channel.decide(_with_unique_id(0, request_for()))
        later_requests = (request_for(to="Bob", amount=99), request_for("bank.close", account=7))
        for number, request in enumerate(later_requests, 1):
            answer = await channel.decide(_with_unique_id(number, request))
            decision = _decision_without_decider(answer)
            assert isinstance(decision, Approved)
            # If the channel had asked the person again, the decision would be another "always".
            assert decision.remember in _LASTING, (
                "a call with other arguments was approved after an always, and nobody was asked: "
                "to remember is the engine's work, not a channel's"
            )

    @needs("people:is away")
    async def test_channel_without_a_person_never_approves(
        self, channel_to_person_who: Callable[..., Any]
    ) -> None:
        channel = channel_to_person_who("is away")
        assert not _can_ask(channel), "can_ask() is true, although the only person is away"
        decision = _decision_without_decider(await channel.decide(request_for()))
        # None passes the request on to the next channel.
        assert decision is None or isinstance(decision, (Rejected, Expired))

    async def test_unreachable_person_approves_nothing(
        self, channel_to_person_who: Callable[..., Any]
    ) -> None:
        asking = asyncio.ensure_future(
            channel_to_person_who("cannot be reached").decide(request_for())
        )
        await asyncio.wait({asking}, timeout=min(self.seconds, _WAIT_SECONDS))
        decision = await _decision_or_cancel(asking)
        problem = f"it answered {decision!r} though nobody was reached"
        assert decision is None or isinstance(decision, (Rejected, Expired)), problem

    @needs("people:is silent")
    async def test_silence_approves_nothing(
        self, channel_to_person_who: Callable[..., Any]
    ) -> None:
        with clock_ahead() as advance_clock:
            channel = channel_to_person_who("is silent")
            waiting = asyncio.ensure_future(channel.decide(request_for()))
            for seconds in _LONG_WAITS:
                await asyncio.wait({waiting}, timeout=0.02)  # the channel begins to wait
                advance_clock(seconds)
            await asyncio.wait({waiting}, timeout=0.05)  # the timers that are due now fire
            decision = await _decision_or_cancel(waiting)
        assert decision is None or isinstance(decision, (Rejected, Expired)), (
            f"after some hours without an answer it returned {decision!r}: silence is never a yes"
        )

    @needs("people:approves")
    async def test_use_leaves_the_process_unchanged(
        self, channel_to_person_who: Callable[..., Any]
    ) -> None:
        channel = channel_to_person_who("approves")

        async def use() -> None:
            decision = _decision_without_decider(await channel.decide(request_for(to=_MARK)))
            assert isinstance(decision, Approved)

        await self.check_nothing_remains(channel, use, forbidden_texts=(_MARK,), may_print=True)

    @needs("people:is silent")
    async def test_cancelled_question_leaves_nothing_running(
        self, channel_to_person_who: Callable[..., Any]
    ) -> None:
        channel = channel_to_person_who("is silent")

        async def use() -> None:
            waiting = asyncio.ensure_future(channel.decide(request_for()))
            await asyncio.wait({waiting}, timeout=0.02)
            waiting.cancel()
            await asyncio.wait({waiting})

        await self.check_nothing_remains(channel, use, may_print=True)

    @needs("people:approves")
    async def test_secrets_are_never_shown(self, channel_to_person_who: Callable[..., Any]) -> None:
        for behaviour in ("approves", "cannot be reached"):
            channel = channel_to_person_who(behaviour)
            await self.check_no_secret_is_shown(
                channel, lambda channel=channel: channel.decide(request_for())
            )

    @needs("people:is silent")
    async def test_waiting_for_a_decision_can_be_cancelled(
        self, channel_to_person_who: Callable[..., Any]
    ) -> None:
        waiting = asyncio.ensure_future(channel_to_person_who("is silent").decide(request_for()))
        await asyncio.wait({waiting}, timeout=0.1)
        assert not waiting.done(), "it decided although nobody answered"
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
