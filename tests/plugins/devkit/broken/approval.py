"""Approval channels that break one thing each."""

import asyncio
import time

import pytest
from planting import planting

from delf.protocols.approval import Approved, Edited, Rejected
from delf.testing import ApprovalContract, ScriptedApprovals


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
    "is away": None,
    "is silent": never,
    "cannot be reached": refuses,
}


class Suite(ApprovalContract):
    seconds = 0.5
    kind = ScriptedApprovals
    does = DOES

    @pytest.fixture
    def channel_to(self):
        does = {**self.does, "changes their mind": changes()}
        return lambda person: self.kind(default=does[person])


breaks = planting(Suite)


class TestGood(Suite):
    pass


class TestAlwaysRemembers(Suite):
    breaks = ("test_a_yes_is_a_yes",)
    does = {**DOES, "approves": Approved(remember="task")}


class TestGivesNoReason(Suite):
    breaks = ("test_a_no_has_a_reason",)
    does = {**DOES, "rejects": Rejected(reason=" ")}


@breaks("test_each_request_is_asked_anew", says="which nobody decided")
class TestRepeatsItsFirstAnswer(ScriptedApprovals):
    said = None

    async def decide(self, request):
        self.said = self.said or await super().decide(request)
        return self.said


class Present(ScriptedApprovals):
    there = True

    def can_ask(self):
        return self.there


@breaks("test_a_yes_is_a_yes", says="nobody ever is")
class TestNobodyIsEverThere(Present):
    there = False


class TestSomebodyIsAlwaysThere(Suite):
    breaks = ("test_nobody_there_is_never_a_yes",)
    says = "who is away"
    kind = Present


@breaks("test_an_edit_has_all_arguments")
class TestMixesEdits(ScriptedApprovals):
    async def decide(self, request):
        self.request = request
        await asyncio.sleep(0)
        return await super().decide(self.request)


@breaks("test_a_yes_is_a_yes")
class TestHoldsTheLoop(ScriptedApprovals):
    async def decide(self, request):
        time.sleep(0.3)
        return await super().decide(request)


class TestEditsDropTheRest(Suite):
    breaks = ("test_an_edit_has_all_arguments",)
    does = {**DOES, "edits": Edited(arguments={"amount": 7})}


class TestForgets(Suite):
    breaks = ("test_a_yes_can_last",)
    does = {**DOES, "remembers": True}


class TestNobodySaysYes(Suite):
    breaks = ("test_nobody_there_is_never_a_yes",)
    does = {**DOES, "is away": True}


@breaks("test_a_person_who_cannot_be_reached_approves_nothing")
class TestFailsOpen(ScriptedApprovals):
    """A pager that takes no news for good news."""

    async def decide(self, request):
        try:
            return await super().decide(request)
        except OSError:
            return Approved(reason="nobody objected")


@breaks("test_a_yes_is_a_yes")
class TestShowsTextOnly(ScriptedApprovals):
    async def decide(self, request):
        "".join(
            str(value, "ascii") if isinstance(value, bytes) else ""
            for value in request.arguments.values()
        )
        return await super().decide(request)


@breaks("test_a_yes_is_a_yes")
class TestOneAtATime(ScriptedApprovals):
    async def decide(self, request):
        self.requests.append(request)
        await asyncio.sleep(0)
        return await super().decide(self.requests[0]) if request is self.requests[-1] else None


class TestDecidesForTheSilent(Suite):
    breaks = ("test_waiting_can_be_cancelled",)
    does = {**DOES, "is silent": "too slow"}
