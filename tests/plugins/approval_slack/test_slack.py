"""The channel ``slack``: messages, buttons and forms, by Socket Mode and by signed HTTP."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import Counter

import fancy_slack
import pytest
from fancy_slack._runtime import verify_hmac
from slack_sdk.signature import SignatureVerifier
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from delf import Agent, Approved, Rejected, tool
from delf.errors import ConnectionConfigurationError, ToolRefusedError
from delf.events import ApprovalCommented, ApprovalDecided, ApprovalRequested, TaskStarted
from delf.protocols.approval import AlreadyDone, Answered, Edited
from delf.protocols.facts import incomplete_text
from delf.testing import ApprovalContract, Shown, request_for
from delf_approval_slack.channel import SlackChannel, SlackUnavailableError
from delf_journal_sql import SqlJournal
from plugins.approval_slack.slack import OURS, SECRET, Slack, buttons_of, signature, texts
from support.until import until

APPROVE, REJECT, EDIT, HAPPENED = "delf_approve", "delf_reject", "delf_edit", "delf_happened"
ANSWER = "delf_answer"


def fitting(arguments):
    if not isinstance(arguments.get("amount"), int):
        raise ToolRefusedError("amount: give a whole number")
    return arguments


def channel_of(slack, *, http=False, **options):
    receiver = {"signing_secret": SECRET, "port": 0} if http else {"app_token": "xapp-1"}
    return SlackChannel(
        **{
            "bot_token": "xoxb-1",
            "channel": "C0PAY",
            "approvers": ["U0ADA"],
            "api_url": f"{slack.url}/api/",
            **receiver,
            **options,
        }
    )


def asked(**fields):
    return dataclasses.replace(request_for(), fit=fitting, **fields)


async def approves(slack, message):
    await slack.press(message, APPROVE)


async def rejects(slack, message):
    await slack.press(message, REJECT)
    await slack.send({"reason": "not to ACME"})


async def edits(slack, message):
    await slack.press(message, EDIT)
    await slack.send({"amount": "7"})


async def answers(slack, message):
    await slack.press(message, ANSWER)
    (choice,) = [
        option["value"]
        for block in slack.views[-1]["blocks"]
        for option in block.get("element", {}).get("options", ())
        if option["text"]["text"].endswith(" Bob")
    ]
    await slack.send({ANSWER: choice})


class ChangesTheirMind:
    def __init__(self):
        self.seen = Counter()

    async def __call__(self, slack, message):
        self.seen["all"] += 1
        await (approves if self.seen["all"] == 1 else rejects)(slack, message)


async def decides_one(slack, message):
    if "bank.pay_1" in texts(message):
        await approves(slack, message)


async def is_silent(slack, message):
    pass


def seen_in(slack):
    """Return all texts in Slack, and whether a button for approval is shown."""
    written = [*map(texts, slack.messages.values())]
    written += [file["content"] for file in slack.files.values()]
    offered = {
        element.get("action_id")
        for message in [*slack.messages.values(), *slack.updates, *slack.asked]
        for block in message["blocks"]
        for element in block.get("elements", ())
    }
    yes = {APPROVE, EDIT, HAPPENED, ANSWER}
    return Shown(text="\n".join(written), offers_yes=bool(offered & yes))


PEOPLE = {
    "approves": approves,
    "rejects": rejects,
    "answers": answers,
    "is silent": is_silent,
    "decides one": decides_one,
}


class TestSlack(ApprovalContract):
    """A person with Slack open."""

    people = frozenset({*PEOPLE, "changes their mind"})

    @pytest.fixture
    async def channel_to_person_who(self):
        opened = []
        servers = {name: Slack(person) for name, person in PEOPLE.items()}
        servers["changes their mind"] = Slack(ChangesTheirMind())
        servers["cannot be reached"] = Slack(fails=("chat.postMessage",))
        for server in servers.values():
            await server.__aenter__()

        def make(person):
            opened.append(channel_of(servers[person]))
            return opened[-1]

        yield make
        for channel in opened:
            await channel.aclose()
        for server in servers.values():
            await server.__aexit__()

    @pytest.fixture
    def shown_to(self):
        async def show(request):
            async with Slack(rejects) as slack:
                channel = channel_of(slack, names={"U0ADA": "ada"})
                await channel.decide(request)
                shown = seen_in(slack)
                await channel.aclose()
                return shown

        return show


@pytest.fixture(params=[False, True], ids=["Socket Mode", "HTTP"])
async def office(request):
    """Slack, and a function that opens a channel connected to it."""
    opened = []
    async with Slack() as slack:

        async def opens(person=None, **options):
            slack.person = person
            channel = channel_of(slack, http=request.param, **options)
            opened.append(channel)
            await channel.open()
            if request.param:
                slack.http_port = channel.receiver.port
            return channel

        yield slack, opens
        for channel in opened:
            await channel.aclose()


async def test_loopback_slack_works_with_the_official_client():
    async with Slack() as slack:
        web = AsyncWebClient("xoxb-1", base_url=f"{slack.url}/api/")
        posted = await web.chat_postMessage(channel="C1", text="hello")
        await web.chat_update(channel="C1", ts=posted["ts"], text="bye")
        await web.files_upload_v2(
            channel="C1", thread_ts=posted["ts"], content="x" * 9, filename="a.txt"
        )
        assert [file["content"] for file in slack.files.values()] == ["x" * 9]
        received = []

        async def take(client, request):
            received.append(request.payload)
            words = SocketModeResponse(envelope_id=request.envelope_id, payload={"seen": True})
            await client.send_socket_mode_response(words)

        client = SocketModeClient(app_token="xapp-1", web_client=web)
        client.socket_mode_request_listeners.append(take)
        await client.connect()
        assert await slack.tell({"type": "block_actions"}) == {"seen": True}
        assert received == [{"type": "block_actions"}]
        await client.close()


async def test_message_shows_every_fact_and_origin(office):
    slack, opens = office
    origins = {
        "to": {
            "kind": "result",
            "trust": "outside",
            "text": "from mail.read (call 1); others wrote it",
        },
        "amount": {"kind": "task", "trust": "own", "text": "in the task"},
    }
    channel = await opens(approves, page_url="https://delf.example/")
    request = asked(
        origins=origins, flow="to: others wrote it", changes=("bank.open()",), reason="a new payee"
    )
    words = await channel.decide(request)
    assert words.decision == Approved()
    assert (words.who.name, words.who.via) == ("ada (U0ADA)", "slack")
    story, question = slack.messages.values()
    assert "Pay the bills." in texts(story)
    assert "https://delf.example/#/task_1" in texts(story)
    assert question["thread_ts"] == next(iter(slack.messages))
    shown = "\n".join(texts(message) for message in [question, *slack.asked])
    for words in (
        "May bank.pay be called?",
        "● cannot be undone",
        "to: Ann\n    ↑ ⚠ source of to: from mail.read (call 1); others wrote it",
        "amount: 12\n    ↑ source of amount: in the task",
        "⚠ careful: a stranger may have chosen to: it is others wrote it, not from the task",
        "⚠ why approval is needed: a new payee",
        "the script says: the rent",
        "changed so far in this task (1): bank.open()",
    ):
        assert words in shown


async def test_decided_message_shows_the_decision_without_buttons(office):
    slack, opens = office
    channel = await opens(rejects)
    assert (await channel.decide(asked())).decision == Rejected(reason="not to ACME")
    await slack.closed.wait()
    (update,) = slack.updates
    assert "Rejected (not to ACME) by ada (U0ADA)" in texts(update)
    assert not [block for block in update["blocks"] if block["type"] == "actions"]


async def test_unusable_answer_is_reported_with_what_to_answer(office):
    _slack, opens = office

    async def tries(slack, message):
        await slack.press(message, ANSWER)
        problem = (await slack.send({ANSWER: "many"}))["errors"][ANSWER]
        assert problem == "'many' does not answer the question: answer with a number, as 12 or 12.5"
        assert not await slack.send({ANSWER: "12"})

    channel = await opens(tries)
    arguments = {"question": "How many?", "answer": "number"}
    request = asked(action="ask", effect="read", is_question=True, arguments=arguments)
    assert (await channel.decide(request)).decision == Answered(answer=12)


async def test_options_of_a_form_are_numbered(office):
    slack, opens = office
    choices = [f"{'Send the report of this month to ' * 3}{name}" for name in ("Ann", "Bob")]

    async def picks(slack, message):
        await slack.press(message, ANSWER)
        await slack.send({ANSWER: "1"})

    channel = await opens(picks)
    arguments = {"question": "Which?", "options": choices}
    request = asked(action="ask", effect="read", is_question=True, arguments=arguments)
    assert (await channel.decide(request)).decision == Answered(answer=choices[1])
    (shown,) = [
        block["element"]["options"] for block in slack.views[-1]["blocks"] if "element" in block
    ]
    assert [option["text"]["text"][:8] for option in shown] == ["1. Send ", "2. Send "]
    assert f"option 2 (102 characters): {choices[1]}" in texts(slack.asked[0])


async def test_task_has_one_slack_thread(office):
    slack, opens = office
    channel = await opens(approves)
    await asyncio.gather(*(channel.decide(asked(request_id=f"req_{n}")) for n in range(3)))
    await channel.decide(asked(request_id="req_other", task_id="task_2"))
    threads = [message.get("thread_ts") for message in slack.messages.values()]
    assert len(set(threads) - {None}) == 2
    assert threads.count(None) == 2


async def test_invalid_edit_is_reported_at_its_field(office):
    _slack, opens = office

    async def tries(slack, message):
        await slack.press(message, EDIT)
        for text in ("much", "[" * 2500):
            assert (await slack.send({"amount": text}))["errors"] == {"amount": "this is not JSON"}
        wrong = await slack.send({"amount": '"7"'})
        assert wrong["errors"] == {"amount": "amount: give a whole number"}
        assert not await slack.send({"amount": "7"})

    channel = await opens(tries)
    assert (await channel.decide(asked())).decision == Edited(arguments={"to": "Ann", "amount": 7})


async def test_only_named_approvers_and_groups_can_decide(office):
    slack, opens = office

    async def both(slack, message):
        for button in (APPROVE, REJECT, EDIT):
            await slack.press(message, button, "U0EVE")
        assert not slack.views
        await slack.press(message, APPROVE, "U0ADA")

    channel = await opens(both, approvers=["S0FINANCE", "U0BO"])
    assert (await channel.decide(asked())).decision == Approved()
    assert [words["user"] for words in slack.ephemeral] == ["U0EVE"] * 3
    assert "may not decide" in slack.ephemeral[0]["text"]
    assert slack.asked_groups == 1, "the members are known for a while"


async def test_team_names_replace_slack_ids(office):
    _slack, opens = office
    names = {"U0ADA": "ada", "S0FINANCE": "finance"}
    channel = await opens(approves, names=names)
    who = (await channel.decide(asked())).who
    assert (who.name, who.user, who.teams) == ("ada", "ada:U0ADA", ("finance",))


async def test_unknown_slack_user_cannot_decide_if_the_rule_demands_another_person(office):
    """An unknown Slack user could be the person who asked, so they are not another person."""
    slack, opens = office

    async def both(slack, message):
        await slack.press(message, APPROVE, "U0BO")
        await slack.press(message, APPROVE, "U0ADA")

    channel = await opens(both, approvers=["*"], names={"U0ADA": "ada"})
    words = await channel.decide(asked(rule={"four_eyes": True}))
    assert words.who.name == "ada"
    assert "does not know you" in slack.ephemeral[0]["text"]
    assert [reported["user"] for reported in slack.ephemeral] == ["U0BO"]


@pytest.mark.parametrize(
    ("settings", "outsider"),
    [
        pytest.param({}, "T0THEIRS", id="another company in a shared channel"),
        pytest.param({}, None, id="a workspace that Slack does not name"),
        pytest.param({"workspaces": ["T0SISTER"]}, "T0THEIRS", id="with workspaces"),
    ],
)
async def test_star_in_approvers_permits_only_people_of_own_workspaces(office, settings, outsider):
    slack, opens = office

    async def several(slack, message):
        await slack.press(message, APPROVE, "U0EVE", outsider)
        await slack.press(message, REJECT)
        refused = await slack.send({"reason": "x"}, "U0EVE", outsider)
        assert "may not decide" in refused["errors"]["reason"]
        await slack.press(message, APPROVE, "U0BO", [*settings.get("workspaces", ()), OURS][0])

    channel = await opens(several, approvers=["*"], **settings)
    assert (await channel.decide(asked())).who.name == "bo (U0BO)"
    assert [reported["user"] for reported in slack.ephemeral] == ["U0EVE"]


async def test_approver_of_another_workspace_decides_if_named(office):
    _slack, opens = office

    async def press(slack, message):
        await slack.press(message, APPROVE, "U0EVE", "T0THEIRS")

    channel = await opens(press, approvers=["*", "U0EVE"])
    assert (await channel.decide(asked())).who.name == "eve (U0EVE)"


async def test_form_of_another_user_is_ignored(office):
    _slack, opens = office

    async def passed_on(slack, message):
        await slack.press(message, REJECT)
        words = await slack.send({"reason": "x"}, "U0EVE")
        assert "may not decide" in words["errors"]["reason"]
        await slack.send({"reason": "mine"})

    channel = await opens(passed_on)
    assert (await channel.decide(asked())).decision == Rejected(reason="mine")


async def test_request_decided_elsewhere_is_closed_in_slack(office):
    slack, opens = office
    seen = asyncio.get_running_loop().create_future()

    async def looks(slack, message):
        seen.set_result(message)

    channel = await opens(looks)
    asking = asyncio.ensure_future(channel.decide(asked()))
    message = await seen
    asking.cancel()
    await asyncio.wait({asking})
    await slack.closed.wait()
    assert "Decided elsewhere" in texts(slack.updates[-1])
    await slack.press(message, APPROVE)
    assert "is not pending any more" in slack.ephemeral[-1]["text"]


async def test_long_values_are_uploaded_as_thread_files(office):
    slack, opens = office
    channel = await opens(approves)
    await channel.decide(asked(arguments={"to": "Ann", "amount": 12, "text": "word " * 5_000}))
    await slack.sent.wait()
    (file,) = slack.files.values()
    assert (file["name"], file["content"]) == ("text.txt", "word " * 5_000)
    assert file["thread"] == next(iter(slack.messages))
    assert all(len(texts(message)) < 5_000 for message in slack.messages.values())


async def test_request_slack_cannot_show_offers_only_reject(office):
    """The request has more text than Slack shows, or a file that was not uploaded."""
    slack, opens = office
    long = {f"parameter_{n:04}": f"{n} " + "x" * 500 for n in range(400)}
    too_many = {"request_id": "req_many", "arguments": long}
    for fails, fields in (
        ((), too_many),
        (("files.getUploadURLExternal",), {"request_id": "req_file", "preview": "y" * 9_000}),
    ):
        slack.fails = fails
        channel = await opens(rejects, page_url="https://delf.example")
        request = asked(**fields)
        assert (await channel.decide(request)).decision == Rejected(reason="not to ACME")
        (question,) = [m for m in slack.asked if buttons_of(m)[REJECT] == request.request_id]
        assert set(buttons_of(question)) == {REJECT}
        assert "cannot be approved here" in texts(question)
        assert f"https://delf.example/#/task_1/{request.request_id}" in texts(question)
        assert f"delf approvals show {request.request_id}" in texts(question)


async def test_long_comment_that_is_not_uploaded_leaves_only_reject(office, tmp_path):
    slack, opens = office
    journal = SqlJournal(f"sqlite:///{tmp_path}/journal.db")
    request = asked()
    comment = ApprovalCommented(
        task_id=request.task_id,
        seq=2,
        at=0.0,
        request_id=request.request_id,
        by="eve",
        text="word " * 2_000,
    )
    await journal.append(TaskStarted(task_id=request.task_id, seq=1, at=1.0, task=request.task))
    channel = await opens(is_silent)
    channel.use_journal(journal)
    deciding = asyncio.create_task(channel.decide(request))

    await until(lambda: _recorded(journal, request))
    slack.fails = ("files.getUploadURLExternal",)
    await channel.show_discussion(request, comment, ())
    assert set(buttons_of(slack.updates[-1])) == {REJECT}
    slack.fails = ()
    await channel.show_discussion(request, comment, ())
    assert set(buttons_of(slack.updates[-1])) >= {APPROVE, REJECT}
    assert comment.text in [file.get("content") for file in slack.files.values()]
    deciding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deciding
    await channel.aclose()  # reads from the journal
    await journal.aclose()


@pytest.mark.parametrize(
    "refusal", ["message_not_found", "cant_update_message", "edit_window_closed"]
)
async def test_message_that_cannot_be_updated_is_posted_again(tmp_path, refusal):
    """A process that resumes a task finds the message of the process that died."""
    request = asked()
    journal = SqlJournal(f"sqlite:///{tmp_path}/journal.db")
    await journal.append(TaskStarted(task_id=request.task_id, seq=1, at=1.0, task=request.task))
    async with Slack() as slack:
        for count in (1, 2):
            channel = channel_of(slack)
            channel.use_journal(journal)
            deciding = asyncio.create_task(channel.decide(request))
            await until(lambda: _recorded(journal, request))
            await until(lambda count=count: len(slack.asked) == count)
            deciding.cancel()
            await asyncio.wait({deciding})
            await channel.aclose()
            slack.not_updatable = dict.fromkeys(slack.messages, refusal)
    assert len(slack.asked) == 2
    await journal.aclose()


async def test_edit_to_an_equal_value_of_another_type_is_sent_to_the_task(tmp_path):
    request = dataclasses.replace(asked(arguments={"urgent": 1, "amount": 12}), fit=None)
    values = {f.name: getattr(request, f.name) for f in dataclasses.fields(request)}
    requested = ApprovalRequested(**values | {"task_id": request.task_id, "seq": 2, "at": 1.0})
    journal = SqlJournal(f"sqlite:///{tmp_path}/journal.db")
    await journal.append(TaskStarted(task_id=request.task_id, seq=1, at=1.0, task=request.task))
    await journal.append(requested)

    async def edits_the_type(slack, message):
        await slack.press(message, EDIT)
        await slack.send({"urgent": "true"})

    async def sent():
        notes = await journal.notes(request.task_id)
        return [note.data["arguments"] for note in notes if "arguments" in note.data]

    async with Slack(edits_the_type) as slack:
        channel = channel_of(slack)
        channel.use_journal(journal)
        deciding = asyncio.create_task(channel.decide(request))
        await until(sent)
        arguments, *_ = await sent()
        deciding.cancel()
        await asyncio.wait({deciding})
        await channel.aclose()
    await journal.aclose()
    assert repr(arguments) == "{'urgent': True}"


async def _recorded(journal, request):
    notes = await journal.notes(request.task_id)
    return any(note.data.get("what") == request.request_id for note in notes)


async def test_button_press_on_a_hidden_request_is_ignored(office):
    """The button comes from an old message or is forged: the message shows no such button."""
    slack, opens = office

    async def presses(slack, message):
        for button in (APPROVE, EDIT, HAPPENED):
            await slack.press(message, button)
        await rejects(slack, message)

    slack.fails = ("files.getUploadURLExternal",)
    channel = await opens(presses)
    assert (await channel.decide(asked(preview="y" * 9_000))).decision == Rejected(
        reason="not to ACME"
    )
    assert [words["text"].partition(":")[0] for words in slack.ephemeral] == [
        f"{incomplete_text(asked())} Decide on the page or with delf."
    ] * 3


async def test_long_values_arrive_before_the_button(office):
    _slack, opens = office
    seen = []

    async def looks(slack, message):
        seen.extend(file.get("content") for file in slack.files.values())
        await approves(slack, message)

    channel = await opens(looks)
    await channel.decide(asked(arguments={"text": "word " * 5_000}))
    assert seen == ["word " * 5_000]


async def test_form_can_declare_that_a_call_of_unknown_outcome_happened(office):
    _slack, opens = office

    async def settles(slack, message):
        assert "Make it again" in texts(message)
        await slack.press(message, HAPPENED)
        await slack.send({"result": '{"paid": 12}', "reason": "the bank says so"})

    channel = await opens(settles)
    words = await channel.decide(asked(outcome_unknown=True))
    assert words.decision == AlreadyDone(result={"paid": 12}, reason="the bank says so")


async def test_foreign_text_creates_no_mention_or_link(office):
    slack, opens = office
    channel = await opens(approves)
    await channel.decide(
        asked(
            task="<!channel> & <https://evil.example|click>",
            arguments={"amount": 1, "to": "<!here>"},
        )
    )
    assert slack.messages
    for message in slack.messages.values():
        assert "<" not in message["text"]
        assert all(
            block["type"] != "mrkdwn" and '"mrkdwn"' not in str(block)
            for block in message["blocks"]
        )


async def test_slack_rate_limit_is_waited_for(office):
    slack, opens = office
    slack.limited = 2
    channel = await opens(approves)
    assert (await channel.decide(asked())).decision == Approved()


async def test_script_request_offers_approve_without_edit(office):
    slack, opens = office
    channel = await opens(approves)
    request = asked(action="script", arguments={}, code="print(await bank.pay('Ann', 12))\n" * 200)
    assert (await channel.decide(request)).decision == Approved()
    await slack.sent.wait()
    assert [file["name"] for file in slack.files.values()] == ["script.py"]


async def test_slack_failure_is_reported_with_its_code():
    async with Slack(fails=("chat.postMessage",)) as slack:
        channel = channel_of(slack)
        with pytest.raises(SlackUnavailableError, match="ask in Slack: channel_not_found"):
            await channel.decide(asked())
        await channel.aclose()


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"secret": "another"}, 401),
        ({"at": time.time() - 3600}, 401),
        ({"signed": "v0=é"}, 401),
        ({}, 200),
    ],
    ids=["another secret", "an old request", "no ASCII", "Slack's own"],
)
async def test_unsigned_slack_request_is_refused(given, status):
    async with Slack() as slack:
        channel = channel_of(slack, http=True)
        await channel.open()
        slack.http_port = channel.receiver.port
        assert (await slack.post({"type": "block_actions"}, **given))[0] == status
        assert (await slack.post(["no object"]))[0] == 400
        await channel.aclose()


async def test_second_slack_client_works_with_the_loopback_slack(monkeypatch):
    async with Slack() as slack:
        monkeypatch.setitem(fancy_slack.BASE_URLS, "live", slack.url)
        names = ("accessToken", "refreshToken", "clientId", "clientSecret")
        keys = dict.fromkeys(names, "xoxb-1")
        config = {"channel": "C1", "text": "hello"}
        posted = await asyncio.to_thread(
            fancy_slack.message_post, config, credentials=keys, mode="live"
        )
        assert posted.data["ts"] in slack.messages


def test_signature_matches_two_other_libraries():
    body, at = "payload=%7B%7D", str(int(time.time()))
    made = signature(body, at)
    assert made == SignatureVerifier(SECRET).generate_signature(timestamp=at, body=body)
    checked = verify_hmac(
        raw=body,
        signature=made.removeprefix("v0="),
        secret=SECRET,
        payload=lambda raw, when: f"v0:{when}:{raw}",
        algorithm="sha256",
        tolerance=300,
        timestamp=at,
    )
    assert checked.ok


@pytest.mark.parametrize(
    "options",
    [
        {"approvers": []},
        {"signing_secret": "x"},
        {"app_token": None},
        {"channel": ""},
        {"port": -1},
    ],
)
async def test_invalid_slack_setting_is_refused(options):
    given = {"bot_token": "xoxb-1", "app_token": "xapp-1", "channel": "C", "approvers": ["*"]}
    with pytest.raises(ConnectionConfigurationError):
        SlackChannel(**given | options)


async def test_task_asks_in_slack_and_records_the_person(delf_host, scripted_model):
    @tool(effect="irreversible", confirm=True)
    def pay(to: str, amount: int, key: str = "") -> str:
        """Pay."""
        return f"paid {amount} to {to}"

    async with Slack(edits) as slack:
        channel = channel_of(slack)
        scripted_model.writes("print(pay('Ann', 12, desc='the rent'))")
        from delf.specs import ApprovalSpec

        delf_host.provide(
            ApprovalSpec(
                name="chat-of-the-office", summary="x", factory="x:y", needs_presence=False
            ),
            lambda **_: channel,
        )
        async with Agent(
            tools=[pay], llm="scripted", host=delf_host, approvals=["chat-of-the-office"]
        ) as agent:
            response = await agent.arun("Pay the rent")
        assert response.text == "paid 7 to Ann"
        (decided,) = [e for e in response.events if isinstance(e, ApprovalDecided)]
        assert (decided.by, decided.via) == ("ada (U0ADA)", "slack")
        await slack.closed.wait()
        assert "Edited by ada" in texts(slack.updates[0])
