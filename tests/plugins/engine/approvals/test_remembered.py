"""Decisions that hold for later calls: the calls they cover, their display, and their end."""

import dataclasses

import pytest

from delf import Connection, action
from delf.errors import DelfError, UnknownRequestError
from delf.events import ApprovalDecided, ApprovalRemembered, ApprovalRequested
from delf.protocols.approval import Approved, Decider, Rejected
from delf.protocols.connection import Allowed, NeedsApproval
from delf.protocols.sandbox import Returned
from delf.settings import PluginSettings, SecretStr
from delf_engine.approvals.channels import CallbackChannel, NamedChannel
from delf_engine.approvals.decision import Answer
from delf_engine.approvals.pending import PendingRequests
from delf_engine.approvals.shared import Approvals
from delf_engine.config import AgentConfig
from delf_engine.journal.in_process import InProcessJournal
from support.gates import gate_bench


class MailSettings(PluginSettings):
    """The receiver of the mail."""

    server: str = "mail.us.example"
    login: SecretStr = SecretStr("smtp://ann:secret-word@mail.us.example/out")


class Mail(Connection[MailSettings]):
    """Mail."""

    @action(effect="write")
    async def send(self, to: list[str], body: str = "hello") -> str:
        """Send a mail."""
        return "sent"


def require_remembered(remember="task", covers="call"):
    return lambda request: Approved(remember=remember, covers=covers)


def remembered_in(bench):
    return [event for event in bench.events if isinstance(event, ApprovalRemembered)]


async def test_remembered_approval_covers_only_the_same_call():
    bench = await gate_bench(Mail(), decide=require_remembered())
    await bench.call("mail.send", ["ann@us.example"])
    await bench.call("mail.send", ["ann@us.example"], "hello")
    assert len(bench.asked) == 1
    await bench.call("mail.send", ["eve@far.example", "ann@us.example"])
    assert len(bench.asked) == 2


async def test_remembered_action_covers_any_arguments():
    bench = await gate_bench(Mail(), decide=require_remembered(covers="action"))
    for to in (["ann@us.example"], ["eve@far.example"], []):
        assert isinstance(await bench.call("mail.send", to), Returned)
    assert len(bench.asked) == 1


async def test_remembered_approval_records_its_author_and_time():
    bench = await gate_bench(Mail(), decide=require_remembered(covers="action"))
    for to in ("a", "b", "c"):
        await bench.call("mail.send", [to])
    asked, decided = bench.events[:2]
    assert isinstance(asked, ApprovalRequested)
    assert isinstance(decided, ApprovalDecided)
    assert (decided.remember, decided.covers) == ("task", "action")
    second, third = remembered_in(bench)
    assert (second.call_id, third.call_id) == (2, 3)
    for event in (second, third):
        assert (event.action, event.by) == ("mail.send", "test")
        assert (event.from_task, event.from_request) == ("task_1", asked.request_id)
        assert asked.at <= event.decided_at <= event.at


@pytest.mark.parametrize("covers", ["call", "action"])
async def test_remembered_approval_lasts_until_revoked(covers):
    journal = InProcessJournal()
    first = await gate_bench(
        Mail(), decide=require_remembered("until_revoked", covers), journal=journal
    )
    await first.call("mail.send", ["ann@us.example"])
    second = await gate_bench(Mail(), journal=journal, task_id="task_2")
    assert isinstance(await second.call("mail.send", ["ann@us.example"]), Returned)
    (event,) = remembered_in(second)
    assert (event.from_task, event.from_request) == ("task_1", first.asked[0].request_id)
    (decision,) = await journal.remembered()
    assert (decision.action, decision.by, decision.project) == (
        "mail.send",
        "test",
        "/home/ada/shop",
    )
    assert decision.arguments == (None if covers == "action" else {"to": ["ann@us.example"]})
    await journal.revoke(decision.request_id, "cli")
    for bench in (second, first):
        answer = await bench.call("mail.send", ["ann@us.example"])
        assert isinstance(answer, Returned) == (bench is first), "somebody is asked again"
    assert len(first.asked) == 2
    assert len(second.asked) == 1
    with pytest.raises(UnknownRequestError):
        await journal.revoke(decision.request_id, "cli")


@pytest.mark.parametrize(
    "other", [{"project": "/home/ada/bank"}, {"user": "bob"}], ids=["project", "user"]
)
async def test_remembered_approval_is_bound_to_project_and_key(other):
    journal = InProcessJournal()
    first = await gate_bench(
        Mail(), decide=require_remembered("until_revoked", "action"), journal=journal, user="ann"
    )
    await first.call("mail.send", ["x"])
    for options, passes in (({}, True), (other, False)):
        given = {"user": "ann", **options}
        later = await gate_bench(Mail(), journal=journal, task_id=f"task_{passes}", **given)
        assert isinstance(await later.call("mail.send", ["x"]), Returned) == passes
        assert len(later.asked) == (not passes)


def answered_by(pending, user, decision):
    """Somebody answers through the journal or the page, as a person of a server."""

    async def decide(request):
        pending.submit(request.request_id, Answer(decision, Decider(name=str(user), user=user)))

    return decide


@pytest.mark.parametrize(
    ("by", "holds"), [("ann", True), (None, True), ("bob", False)], ids=["own", "local", "other"]
)
async def test_approval_of_a_key_covers_only_its_own_later_tasks(by, holds):
    journal, pending = InProcessJournal(), PendingRequests()
    decide = answered_by(pending, by, Approved(remember="until_revoked", covers="action"))
    shared = Approvals(
        config=AgentConfig(approval_timeout=5, wait_approvals=True),
        channels=(NamedChannel("page", CallbackChannel(decide)),),
        pending_requests=pending,
        journal=journal,
        project="/shop",
    )
    first = await gate_bench(Mail(), shared=shared, journal=journal, user="ann")
    for to in ("x", "y"):
        assert isinstance(await first.call("mail.send", [to]), Returned)
    assert len(remembered_in(first)) == 1, "in the task that was looked at it holds"
    for user in ("ann", "bob", None):
        later = await gate_bench(
            Mail(), journal=journal, user=user, task_id=f"task_{user}", project="/shop"
        )
        passes = holds and user == "ann"
        assert isinstance(await later.call("mail.send", ["z"]), Returned) == passes


class Renamed(Mail):
    """Mail, by another class."""

    @classmethod
    def type_name(cls):
        return "mail"


class MoreParameters(Mail):
    """Mail with one parameter more."""

    @classmethod
    def type_name(cls):
        return "mail"

    @action(effect="write")
    async def send(self, to: list[str], body: str = "hello", bcc: str = "") -> str:
        """Send a mail."""
        return "sent"


class Final(Mail):
    """Mail that cannot be called back."""

    @classmethod
    def type_name(cls):
        return "mail"

    @action(effect="irreversible")
    async def send(self, to: list[str], body: str = "hello") -> str:
        """Send a mail."""
        return "sent"


@pytest.mark.parametrize(
    "changed",
    [
        Renamed,
        MoreParameters,
        Final,
        lambda: Mail(server="mail.far.example"),
        lambda: Mail(login="smtp://ann:secret-word@mail.far.example/out"),
    ],
    ids=["another class", "another parameter", "another effect", "another setting", "other host"],
)
@pytest.mark.parametrize("covers", ["call", "action"])
async def test_changed_action_invalidates_its_remembered_approvals(changed, covers):
    journal = InProcessJournal()
    first = await gate_bench(
        Mail(), decide=require_remembered("until_revoked", covers), journal=journal
    )
    await first.call("mail.send", ["x"])
    again = await gate_bench(
        Mail(login="smtp://ann:new-word@mail.us.example/out"), journal=journal, task_id="task_2"
    )
    assert isinstance(await again.call("mail.send", ["x"]), Returned), "with another password"
    later = await gate_bench(changed(), journal=journal, task_id="task_3")
    assert not isinstance(await later.call("mail.send", ["x"]), Returned)


async def test_new_action_version_needs_approval_again():
    (send,) = await Mail().actions()
    assert dataclasses.replace(send, version="1").digest != send.digest
    assert dataclasses.replace(send, summary="Send or burn a mail.").digest != send.digest
    (same,) = await Mail().actions()
    assert same.digest == send.digest


@pytest.mark.parametrize("first_asks", [True, False])
async def test_remembered_approval_satisfies_the_connection_check(first_asks):
    class Guarded(Mail):
        """Mail with a rule of its own."""

        def check(self, call):
            if "far" in call.arguments["to"][0] or first_asks:
                return NeedsApproval(reason="a stranger")
            return Allowed()

        @classmethod
        def type_name(cls):
            return "mail"

    bench = await gate_bench(Guarded(), decide=require_remembered(covers="action"))
    await bench.call("mail.send", ["ann@us.example"])
    await bench.call("mail.send", ["eve@far.example"])
    assert len(bench.asked) == (1 if first_asks else 2)


async def test_unreadable_journal_makes_the_task_ask(caplog):
    class Torn(InProcessJournal):
        async def remembered(self):
            raise DelfError("the disk is gone")

    journal = Torn()
    bench = await gate_bench(Mail(), decide=require_remembered("until_revoked"), journal=journal)
    for _ in range(2):
        assert isinstance(await bench.call("mail.send", ["x"]), Returned)
    assert len(bench.asked) == 2
    assert "remembered decisions cannot be read" in caplog.text


async def test_strict_mode_ignores_remembered_approvals():
    journal = InProcessJournal()
    first = await gate_bench(
        Mail(), decide=require_remembered("until_revoked", "action"), journal=journal
    )
    await first.call("mail.send", ["x"])
    later = await gate_bench(Mail(), journal=journal, task_id="task_2", mode="strict")
    assert not isinstance(await later.call("mail.send", ["x"]), Returned)


async def test_rejection_in_the_task_overrides_a_remembered_approval():
    journal = InProcessJournal()
    message = [Rejected(reason="not today")]
    bench = await gate_bench(Mail(), decide=lambda _: message.pop(), journal=journal)
    await bench.call("mail.send", ["x"])
    other = await gate_bench(
        Mail(), decide=require_remembered("until_revoked"), journal=journal, task_id="task_2"
    )
    await other.call("mail.send", ["x"])
    assert not isinstance(await bench.call("mail.send", ["x"]), Returned)
