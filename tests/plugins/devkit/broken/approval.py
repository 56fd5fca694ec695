"""Approval channels that break one thing each."""

import asyncio
import threading
import time

import pytest
from planting import planting

from delf.protocols.approval import Approved, Edited, Rejected
from delf.protocols.facts import FactKind, facts, incomplete_text, plain_lines
from delf.terminal import visible
from delf.testing import ApprovalContract, ScriptedApprovals, Shown


async def never(_request):
    await asyncio.Event().wait()


def refuses(_request):
    raise ConnectionRefusedError("the pager is down")


def changes():
    left = [True]
    return lambda _request: left.pop() if left else "not again"


DOES = {
    "approves": True,
    "rejects": "not today",
    "edits": lambda request: Edited(arguments={**request.arguments, "amount": 7}),
    "remembers": Approved(remember="until_revoked"),
    "answers": "Bob",
    "decides one": lambda request: True if request.action == "bank.pay_1" else never(request),
    "is away": None,
    "is silent": never,
    "cannot be reached": refuses,
}


class Suite(ApprovalContract):
    seconds = 0.5
    people = ApprovalContract.people | {"answers"}
    kind = ScriptedApprovals
    does = DOES

    @pytest.fixture
    def channel_to_person_who(self):
        does = {**self.does, "changes their mind": changes()}
        return lambda person: self.kind(default=does[person])

    @pytest.fixture
    def shown_to(self):
        async def show(request):
            return self.show(request)

        return show

    def show(self, request):
        return Shown(text="\n".join(plain_lines(facts(request))), offers_yes=True)


breaks = planting(Suite)


class TestGood(Suite):
    pass


class Board(ScriptedApprovals):
    """A message board that keeps answers, found by the request's id."""

    def __init__(self, **given):
        super().__init__(**given)
        self.answers = {}

    async def decide(self, request):
        if request.request_id not in self.answers:
            self.answers[request.request_id] = await super().decide(request)
        return self.answers[request.request_id]


class TestGoodBoard(Suite):
    kind = Board


class Short(ScriptedApprovals):
    """A channel limited to 3,000 characters, in which longer requests cannot be approved."""

    async def decide(self, request):
        decision = await super().decide(request)
        long = len("\n".join(plain_lines(facts(request)))) > 3_000
        is_yes = isinstance(decision, Approved | Edited)
        return Rejected(reason="it is too long for this channel") if long and is_yes else decision


class TestGoodShort(Suite):
    kind = Short

    def show(self, request):
        text = "\n".join(plain_lines(facts(request)))
        if len(text) <= 3_000:
            return Shown(text=text, offers_yes=True)
        return Shown(text=f"{text[:3_000]}… {self.note(request)}", offers_yes=False)

    def note(self, request):
        return incomplete_text(request)


class TestConcealsWhyItOffersNoYes(TestGoodShort):
    breaks = ("test_request_carries_every_fact_before_a_yes",)

    def note(self, request):
        return ""


@breaks("test_yes_approves_the_request", says="a person says yes, and the channel returns")
class TestRejectsWhatItOffers(Short):
    pass


class TestAnswersOnlyWhatIsUntested(Suite):
    breaks = ("test_channel_with_answer_method_declares_questions",)
    people = ApprovalContract.people


class TestAnswersAnotherOption(Suite):
    breaks = ("test_channel_returns_the_persons_answer",)
    does = {**DOES, "answers": "Ann"}


class TestAlwaysRemembers(Suite):
    breaks = ("test_yes_approves_the_request",)
    does = {**DOES, "approves": Approved(remember="task")}


class TestGivesNoReason(Suite):
    breaks = ("test_rejection_has_a_reason",)
    does = {**DOES, "rejects": Rejected(reason=" ")}


@breaks("test_channel_asks_every_request_separately", says="which nobody decided")
class TestRepeatsItsFirstAnswer(ScriptedApprovals):
    words = None

    async def decide(self, request):
        self.words = self.words or await super().decide(request)
        return self.words


class Present(ScriptedApprovals):
    there = True

    def can_ask(self):
        return self.there


@breaks("test_yes_approves_the_request", says="delf never asks anybody")
class TestNobodyIsEverThere(Present):
    there = False


class TestSomebodyIsAlwaysThere(Suite):
    breaks = ("test_channel_without_a_person_never_approves",)
    says = "the only person is away"
    kind = Present


@breaks("test_edit_has_all_arguments")
class TestMixesEdits(ScriptedApprovals):
    async def decide(self, request):
        self.request = request
        await asyncio.sleep(0)
        return await super().decide(self.request)


@breaks("test_yes_approves_the_request")
class TestHoldsTheLoop(ScriptedApprovals):
    async def decide(self, request):
        time.sleep(0.3)
        return await super().decide(request)


class TestEditsDropTheRest(Suite):
    breaks = ("test_edit_has_all_arguments",)
    does = {**DOES, "edits": Edited(arguments={"amount": 7})}


class TestForgets(Suite):
    breaks = ("test_lasting_approval_is_passed_on",)
    does = {**DOES, "remembers": True}


class TestNobodySaysYes(Suite):
    breaks = ("test_channel_without_a_person_never_approves",)
    does = {**DOES, "is away": True}


@breaks("test_unreachable_person_approves_nothing")
class TestFailsOpen(ScriptedApprovals):
    """A pager that takes a missing answer for an approval."""

    async def decide(self, request):
        try:
            return await super().decide(request)
        except OSError:
            return Approved(reason="nobody objected")


@breaks("test_yes_approves_the_request")
class TestShowsTextOnly(ScriptedApprovals):
    async def decide(self, request):
        "".join(
            str(value, "ascii") if isinstance(value, bytes) else ""
            for value in request.arguments.values()
        )
        return await super().decide(request)


@breaks("test_yes_approves_the_request")
class TestOneAtATime(ScriptedApprovals):
    async def decide(self, request):
        self.requests.append(request)
        await asyncio.sleep(0)
        return await super().decide(self.requests[0]) if request is self.requests[-1] else None


class TestDecidesForTheSilent(Suite):
    breaks = ("test_waiting_for_a_decision_can_be_cancelled",)
    does = {**DOES, "is silent": "too slow"}


class Shows(Suite):
    def text(self, request):
        raise NotImplementedError

    def show(self, request):
        return Shown(text=self.text(request), offers_yes=True)


class TestShowsTheCallAlone(Shows):
    breaks = ("test_request_carries_every_fact_before_a_yes",)
    says = "the script says"

    def text(self, request):
        return f"{request.message} {request.task} cannot be undone, May bank.pay be called"


class TestShowsTwentyArguments(Shows):
    breaks = ("test_request_carries_every_fact_before_a_yes",)
    says = "parameter_20"

    def text(self, request):
        found = facts(request)
        arguments = [fact for fact in found if fact.kind is FactKind.ARGUMENT]
        return "\n".join(plain_lines(fact for fact in found if fact not in arguments[20:]))


class TestLeavesDefaultsOut(Shows):
    breaks = ("test_request_carries_every_fact_before_a_yes",)
    says = "currency"

    def text(self, request):
        return "\n".join(plain_lines(f for f in facts(request) if f.kind is not FactKind.DEFAULT))


class TestHasNoRoomForAllAndOffersAYes(Shows):
    breaks = ("test_request_carries_every_fact_before_a_yes",)
    says = "body"

    def text(self, request):
        return "\n".join(line[:3_000] for line in plain_lines(facts(request)))


class TestShowsNoRule(Shows):
    breaks = ("test_request_carries_every_fact_before_a_yes",)
    says = "rule"

    def text(self, request):
        return "\n".join(plain_lines(f for f in facts(request) if f.kind is not FactKind.RULE))


class TestShowsOneOption(Shows):
    breaks = ("test_question_carries_every_fact_before_an_answer",)
    says = "option 2"

    def text(self, request):
        return "\n".join(plain_lines(f for f in facts(request) if f.label != "option 2"))


class TestNeverOffersAYes(Suite):
    breaks = ("test_request_carries_every_fact_before_a_yes",)
    says = "never offers a yes"

    def show(self, request):
        return Shown(text=f"{request.action} {incomplete_text(request)}", offers_yes=False)


class TestShowsNothing(Suite):
    breaks = ("test_request_carries_every_fact_before_a_yes",)
    says = "nothing arrived"

    def show(self, request):
        return Shown(text="", offers_yes=False)


@breaks("test_yes_approves_only_its_own_request", says="bind an answer to the id")
class TestAnyYesApprovesWhateverWaits(ScriptedApprovals):
    def __init__(self, **more):
        super().__init__(**more)
        self.approved = asyncio.Event()

    async def decide(self, request):
        own = asyncio.ensure_future(super().decide(request))
        any_yes = asyncio.ensure_future(self.approved.wait())
        try:
            await asyncio.wait({own, any_yes}, return_when=asyncio.FIRST_COMPLETED)
            if any_yes.done():
                return Approved()
            if isinstance(own.result(), Approved):
                self.approved.set()
                await asyncio.sleep(0)
            return own.result()
        finally:
            own.cancel()
            any_yes.cancel()
            await asyncio.wait({own, any_yes})


class TestShowsSignsAsTheyAre(Suite):
    breaks = ("test_control_characters_are_shown_as_text",)
    says = "can clear the screen"

    def show(self, request):
        good = super().show(request)
        raw = "".join(str(value) for value in request.arguments.values())
        return Shown(text=good.text + raw, offers_yes=True)


class TestAlwaysCoversTheAction(Suite):
    breaks = ("test_lasting_approval_is_passed_on",)
    says = "with any arguments"
    does = {**DOES, "remembers": Approved(remember="task", covers="action")}


@breaks("test_silence_approves_nothing", says="silence is never a yes")
class TestTakesSilenceForAYes(ScriptedApprovals):
    async def decide(self, request):
        try:
            async with asyncio.timeout(300):
                return await super().decide(request)
        except TimeoutError:
            return Approved(reason="nobody objected")


@breaks("test_use_leaves_the_process_unchanged", says="the thread 'pager'")
class TestLeavesAThread(ScriptedApprovals):
    async def decide(self, request):
        threading.Thread(target=threading.Event().wait, name="pager", daemon=True).start()
        return await super().decide(request)


@breaks("test_cancelled_question_leaves_nothing_running", says="still runs after aclose()")
class TestPollsOnWhenCancelled(ScriptedApprovals):
    async def decide(self, request):
        polling = asyncio.ensure_future(asyncio.Event().wait())
        decision = await super().decide(request)
        polling.cancel()
        return decision


@breaks("test_secrets_are_never_shown", secrets=("tok-secret",))
class TestShowsItsToken(ScriptedApprovals):
    def __repr__(self):
        return "Pager('tok-secret')"


@breaks("test_edit_has_all_arguments", says="what was asked is in the journal")
class TestEditsTheRequestItself(ScriptedApprovals):
    async def decide(self, request):
        decision = await super().decide(request)
        if isinstance(decision, Edited):
            request.arguments.update(decision.arguments)
        return decision


@breaks("test_yes_approves_one_of_equal_requests", says="not to its action")
class TestBindsAYesToTheAction(ScriptedApprovals):
    def __init__(self, **options):
        super().__init__(**options)
        self.waiting = {}

    async def decide(self, request):
        if request.action not in self.waiting:
            self.waiting[request.action] = asyncio.ensure_future(super().decide(request))
            asyncio.get_running_loop().call_later(0.01, self.waiting.pop, request.action)
        return await asyncio.shield(self.waiting[request.action])


@breaks("test_yes_approves_only_its_own_request", says="for a later request")
class TestKeepsAYesForTheNext(ScriptedApprovals):
    left = None

    async def decide(self, request):
        if self.left is not None and request.action == "bank.close_all":
            return self.left
        decision = await super().decide(request)
        self.left = decision if isinstance(decision, Approved) else self.left
        return decision


@breaks("test_channel_asks_again_after_a_lasting_approval", says="nobody was asked")
class TestRemembersByItself(ScriptedApprovals):
    always = False

    async def decide(self, request):
        if self.always:
            return Approved(reason="always")
        decision = await super().decide(request)
        self.always = isinstance(decision, Approved) and decision.remember != "no"
        return decision


class TestLetsArgumentsBeginALine(Shows):
    breaks = ("test_argument_cannot_look_like_a_fact",)
    says = "looks like the true line"

    def text(self, request):
        raw = [visible(str(value)) for value in request.arguments.values()]
        return "\n".join([*plain_lines(facts(request)), *raw])
