"""A connection checks calls by their arguments, before anybody is asked."""

import asyncio

import pytest

from delf import Allowed, Approved, Connection, Edited, NeedsApproval, Refused, action
from delf.errors import ConnectionUnavailableError
from delf.events import ApprovalRequested
from delf.protocols.sandbox import Raised, Returned
from support.gates import gate_bench


class Mail(Connection):
    """Mail."""

    def __init__(self, check=None, **options):
        super().__init__(**options)
        self._check = check
        self.made = []
        self.checked = []

    async def check(self, call):
        self.checked.append(call)
        verdict = self._check(call)
        return await verdict if asyncio.iscoroutine(verdict) else verdict

    @action(effect="write")
    async def send(self, to: str, body: str = "hello", copies: int = 1) -> str:
        """Send a mail."""
        self.made.append((to, body, copies))
        return "sent"

    @action(effect="read")
    async def read(self, folder: str = "inbox") -> list:
        """Read mails."""
        self.made.append(folder)
        return []


def asks_about_strangers(call):
    if call.action == "send" and not call.arguments["to"].endswith("@us.example"):
        return NeedsApproval(
            reason="a stranger", preview=f"To: {call.arguments['to']}\nSubject: none"
        )
    return Allowed()


# -- what a check can do ------------------------------------------------------------------


async def test_check_can_require_approval_although_confirm_does_not():
    mail = Mail(asks_about_strangers, confirm=False)
    bench = await gate_bench(mail, decide=lambda request: True)
    assert isinstance(await bench.call("mail.send", "ann@us.example"), Returned)
    assert bench.asked == []
    assert isinstance(await bench.call("mail.send", "eve@far.example"), Returned)
    (request,) = bench.asked
    assert request.reason == "a stranger"
    assert request.preview == "To: eve@far.example\nSubject: none"
    (asked,) = [event for event in bench.events if isinstance(event, ApprovalRequested)]
    assert (asked.reason, asked.preview) == (request.reason, request.preview)


@pytest.mark.parametrize("confirm", [None, True, "send"])
async def test_check_cannot_waive_a_confirmation(confirm):
    mail = Mail(lambda call: Allowed(preview="a mail"), confirm=confirm)
    bench = await gate_bench(mail, decide=lambda request: False)
    assert (await bench.call("mail.send", "ann@us.example")).kind == "ApprovalRejected"
    assert [(r.reason, r.preview) for r in bench.asked] == [(None, "a mail")]
    assert mail.made == []


async def test_disallowed_call_is_refused_before_its_check():
    mail = Mail(lambda call: Allowed(), allow="read")
    bench = await gate_bench(mail)
    assert (await bench.call("mail.send", "ann@us.example")).kind == "ToolNotAllowed"
    assert mail.checked == []


async def test_check_can_refuse_without_asking():
    mail = Mail(lambda call: Refused(message="no mail to Eve"), confirm=True)
    bench = await gate_bench(mail, decide=lambda request: pytest.fail("asked"))
    answer = await bench.call("mail.send", "eve@far.example")
    assert answer == Raised("ToolNotAllowed", "mail.send is refused: no mail to Eve")
    assert bench.calls == [("mail.send", "refused")]
    assert mail.made == []


async def test_check_receives_an_immutable_copy_of_validated_arguments():
    def meddles(call):
        call.arguments["to"] = "eve@far.example"
        return Allowed()

    mail = Mail(meddles, confirm=False)
    bench = await gate_bench(mail)
    await bench.call("mail.send", "ann@us.example", copies="2", desc="as agreed")
    (call,) = mail.checked
    assert (call.action, call.arguments["copies"], call.description) == ("send", 2, "as agreed")
    assert mail.made == [("ann@us.example", "hello", 2)]


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (ValueError("broken"), "it could not be checked: ValueError: broken"),
        (ConnectionUnavailableError("it is down"), "it could not be checked: it is down"),
        (asyncio.CancelledError(), "its check cancelled itself"),
        (None, "check returned NoneType"),
    ],
)
async def test_failing_check_refuses_the_call(failure, text):
    def check(call):
        if failure is not None:
            raise failure

    mail = Mail(check, confirm=False)
    bench = await gate_bench(mail)
    answer = await bench.call("mail.send", "ann@us.example")
    assert answer.kind == "ToolNotAllowed"
    assert text in answer.message
    assert mail.made == []


async def test_secrets_are_redacted_in_check_texts():
    mail = Mail(
        lambda call: NeedsApproval(reason="key hunter2!", preview="with hunter2!"), confirm=False
    )
    bench = await gate_bench(mail, decide=lambda request: True, secrets=["hunter2!"])
    await bench.call("mail.send", "ann@us.example")
    assert "hunter2!" not in repr(bench.asked) + repr(bench.events)


async def test_edited_call_passes_its_check_again():
    def check(call):
        if call.arguments["to"] == "eve@far.example":
            return Refused(message="no mail to Eve")
        return NeedsApproval(reason="all mails are looked at")

    mail = Mail(check, confirm=False)
    edited = Edited(arguments={"to": "eve@far.example"})
    bench = await gate_bench(mail, decide=lambda request: edited)
    answer = await bench.call("mail.send", "ann@us.example")
    assert answer == Raised("ToolNotAllowed", "mail.send is refused: no mail to Eve")
    assert mail.made == []


# -- the same call ----------------------------------------------------------------------------


async def test_spelled_out_default_is_the_same_call():
    bench = await gate_bench(
        Mail(lambda call: Allowed()), decide=lambda request: Approved(remember="task")
    )
    await bench.call("mail.send", "ann@us.example")
    await bench.call("mail.send", "ann@us.example", "hello")
    await bench.call("mail.send", to="ann@us.example", copies=1, body="hello")
    assert len(bench.asked) == 1
    await bench.call("mail.send", "ann@us.example", copies=2)
    assert len(bench.asked) == 2
