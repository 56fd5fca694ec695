"""A team's rules: who may decide about which action, by which way ever it is decided."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from unittest.mock import AsyncMock

import pytest

from delf import Approved, DelfError, Rejected
from delf.events import ApprovalVoted
from delf.protocols.approval import Decider
from delf_cli.answering import send
from delf_engine.approvals.inbox import ANSWER_KIND, answer_data
from delf_journal_sql.errors import JournalSetupError
from plugins.serve.test_people import add, change, person
from support.serving import bearer, doing
from support.until import until

YES = {"decision": "approve"}
NO = {"decision": "reject", "reason": "no"}
SEND = "print(await send('bob'))"


@pytest.fixture
async def ruled(serve):
    """Opens a server of a team with a rule for ``send``."""

    async def make(**rule):
        server = await serve(agent={"approval_rules": {"se*": rule}}, api_key="boss:boss-key")
        everybody = (
            person("ada", scope="all", teams=("finance",)),
            person("bo", scope="all", teams=("finance",)),
            person("cy", scope="all"),
            person("dee", scope="all", teams=("chiefs",)),
        )
        await add(server, *everybody)
        server.client.headers.update(bearer("boss-key"))
        return server

    return make


async def asked(server, who: str = "ada", code: str = SEND) -> str:
    """Return the request of a person's task."""
    order = {"task": doing(code)}
    answer = await server.client.post("/run", json=order, headers=bearer(f"{who}-key"))
    return (await server.question(answer.json()["task_id"]))["request_id"]


async def says(server, who: str, request: str, decision=YES):
    return await server.client.post(
        f"/approvals/{request}", json=decision, headers=bearer(f"{who}-key")
    )


async def ended(server, request: str) -> dict:
    detail = (await server.client.get(f"/approvals/{request}")).json()
    return await server.until(detail["task_id"], "done", "failed", "stopped")


async def test_only_approvers_of_the_rule_can_decide(ruled):
    server = await ruled(approvers=["finance"])
    request = await asked(server, "cy")
    for who in ("boss", "cy", "dee"):
        answer = await says(server, who, request)
        assert answer.status_code == 403, who
        assert "finance" in answer.json()["detail"]
    assert (await says(server, "bo", request)).json()["by"] == "bo"
    assert (await ended(server, request))["state"] == "done"
    assert server.box.sent == [("bob", 1)]


async def test_inbox_lists_requests_that_a_user_may_decide(ruled):
    server = await ruled(approvers=["finance"], four_eyes=True)
    request = await asked(server, "ada")
    seen = {}
    for who in ("ada", "bo", "cy"):
        headers = bearer(f"{who}-key")
        (task,) = (await server.client.get("/tasks", headers=headers)).json()["tasks"]
        mine = (await server.client.get("/approvals?mine=true", headers=headers)).json()
        (one,) = (await server.client.get("/approvals", headers=headers)).json()["approvals"]
        assert one["request_id"] == request
        assert one["asked_by"] == "ada"
        seen[who] = (task["waits_for_you"], len(mine["approvals"]), one["can_decide"])
    assert seen == {"ada": (False, 0, False), "bo": (True, 1, True), "cy": (False, 0, False)}


@pytest.mark.parametrize("named", [False, True])
async def test_local_user_counts_as_requester_unless_named_by_the_rule(ruled, named):
    server = await ruled(four_eyes=True, **({"approvers": ["local"]} if named else {}))
    journal = server.app.tasks.journal
    (record,) = await journal.find_requests(await asked(server))
    local = Decider(name="cli", via="terminal")
    if named:
        assert (await send(journal, record, Approved(), local)).by == "cli"
        return
    with pytest.raises(DelfError, match="may be the person who asked"):
        await send(journal, record, Approved(), local)
    note = answer_data(record.requested.request_id, record.requested.digest, Approved(), local)
    await journal.post(record.task.task_id, ANSWER_KIND, note)  # not by the command either
    decided = await send(journal, record, Rejected(reason="no"), local)
    assert (decided.decision, server.box.sent) == ("rejected", [])


async def test_requester_cannot_approve_under_four_eyes(ruled):
    server = await ruled(four_eyes=True)
    request = await asked(server, "ada")
    for decision in (YES, {"decision": "edit", "arguments": {"to": "eve"}}):
        assert (await says(server, "ada", request, decision)).status_code == 403
    assert server.box.sent == []
    assert (await says(server, "cy", request)).status_code == 200
    again = await asked(server, "ada")
    assert (await says(server, "ada", again, NO)).status_code == 200, "who asked may take it back"


async def test_rule_needs_two_different_approvers(ruled):
    server = await ruled(two_of=["finance", "chiefs"])
    request = await asked(server, "cy")
    first = (await says(server, "ada", request)).json()
    assert (first["decision"], first["is_final"]) == ("approved", False)
    assert server.box.sent == []
    assert (await says(server, "ada", request)).status_code == 409
    last = (await says(server, "dee", request)).json()
    assert (last["is_final"], last["others"]) == (True, ["ada"])
    task = await ended(server, request)
    assert server.box.sent == [("bob", 1)]
    kinds = [e["type"] for e in await server.events(task["task_id"])]
    assert kinds.index("ApprovalVoted") < kinds.index("ApprovalDecided")


async def test_single_rejection_is_enough(ruled):
    server = await ruled(two_of=["finance", "chiefs"])
    request = await asked(server, "cy")
    await says(server, "ada", request)
    assert (await says(server, "bo", request, NO)).json()["decision"] == "rejected"
    await ended(server, request)
    assert server.box.sent == []


async def test_approval_written_by_another_program_obeys_the_approval_rule(ruled):
    """The engine checks each answer, whatever program wrote it."""
    server = await ruled(approvers=["finance"], four_eyes=True)
    request = await asked(server, "ada")
    journal = server.app.tasks.journal
    (record,) = await journal.find_requests(request)
    known = record.requested
    strangers = (
        Decider(name="cli"),
        Decider(name="ada", user=record.task.user, teams=("finance",)),
        Decider(name="ada", user="ada:other", teams=("finance",)),
        Decider(name="mallory", user="mallory:1"),
    )
    for who in strangers:
        data = answer_data(request, known.digest, Approved(), who)
        await journal.post(known.task_id, ANSWER_KIND, data)
    with pytest.raises(DelfError, match="only finance"):
        server.app.agent.approve(request)
    await asyncio.sleep(0)
    done = await says(server, "bo", request)
    assert done.json()["by"] == "bo"
    assert done.json()["via"] == "API, 127.0.0.1"


async def test_answer_that_an_earlier_version_wrote_counts_for_its_user(ruled):
    server = await ruled(two_of=["finance", "chiefs"])
    request = await asked(server, "cy")
    journal = server.app.tasks.journal
    (record,) = await journal.find_requests(request)
    known = record.requested
    ada = next(each for each in await journal.people() if each.name == "ada")
    decider = Decider(name="ada", user=ada.user, teams=ada.teams)
    data = answer_data(request, known.digest, Approved(), decider)
    data["key"] = data.pop("user")
    await journal.post(known.task_id, ANSWER_KIND, data)

    async def recorded_votes():
        return [e for e in await journal.read(known.task_id) if isinstance(e, ApprovalVoted)]

    (vote,) = await until(recorded_votes)
    assert (vote.by, vote.user) == ("ada", ada.user)


async def test_rule_ignores_remembered_and_advance_approvals(ruled, serve):
    server = await ruled(approvers=["finance"])
    request = await asked(server, "cy")
    lasting = {"decision": "approve", "remember": "until_revoked", "covers": "action"}
    message = (await says(server, "bo", request, lasting)).json()
    assert message["remember"] == "no"
    await ended(server, request)
    assert await asked(server, "cy")
    rules = {"send": {"approvers": ["finance"]}}
    approved = {"approval_rules": {**rules, "*": "approve", "send*": "approve"}}
    for mode in ({"approval_mode": "approve_all"}, approved):
        agent = {"approval_rules": rules, **mode}
        other = await serve("boss-key", agent=agent, api_key="boss:boss-key")
        await other.app.keys.reload(other.app.tasks.journal, at_once=True)
        assert (await says(other, "cy", await asked(other, "cy"))).status_code == 403


async def test_longest_rule_pattern_applies(serve):
    rules = {"*": {"approvers": ["chiefs"]}, "send": {"approvers": ["finance"]}}
    server = await serve("boss-key", agent={"approval_rules": rules}, api_key="boss:boss-key")
    await add(server, person("bo", scope="all", teams=("finance",)))
    request = await asked(server, "boss")
    assert (await says(server, "bo", request)).status_code == 200
    other = await asked(server, "boss", "print(await note([{'a': 1}]))")
    assert (await says(server, "bo", other)).status_code == 403


# -- who shapes a call ----------------------------------------------------------------------

EDIT = {"decision": "edit", "arguments": {"to": "eve"}}
TWICE = """
try:
    await send('bob')
except Exception:
    await send('eve')
"""


async def next_request(server, before: str) -> dict:
    """Return the request of the same task that followed another one."""
    task_id = (await server.client.get(f"/approvals/{before}")).json()["task_id"]

    async def later() -> dict | None:
        found = (await server.client.get("/approvals")).json()["approvals"]
        same = (one for one in found if one["task_id"] == task_id)
        return next((one for one in same if one["request_id"] != before), None)

    return await until(later)


def rule_text(request: dict) -> str:
    return next(fact["text"] for fact in request["facts"] if fact["kind"] == "rule")


async def test_editor_cannot_approve_their_own_edit(ruled):
    server = await ruled(four_eyes=True)
    request = await asked(server, "ada")
    edited = (await says(server, "bo", request, EDIT)).json()
    assert (edited["decision"], edited["is_final"]) == ("edited", False)
    again = await next_request(server, request)
    assert again["arguments"] == {"to": "eve"}
    assert again["shaped_by"] == ["bo"]
    assert "bo changed what is done" in rule_text(again)
    assert again["origins"] == {}, "the model did not write what bo wrote"
    assert server.box.sent == []
    for who in ("ada", "bo"):
        for decision in (YES, EDIT):
            assert (await says(server, who, again["request_id"], decision)).status_code == 403, who
    assert (await says(server, "cy", again["request_id"])).status_code == 200
    assert (await ended(server, request))["state"] == "done"
    assert server.box.sent == [("eve", 1)]


async def test_edited_request_needs_a_third_approver(ruled):
    server = await ruled(four_eyes=True)
    request = await asked(server, "ada")
    await says(server, "bo", request, EDIT)
    second = (await next_request(server, request))["request_id"]
    await says(server, "cy", second, {"decision": "edit", "arguments": {"to": "fay"}})
    task_id = (await server.client.get(f"/approvals/{request}")).json()["task_id"]

    async def later() -> dict | None:
        found = await server.question(task_id)
        return None if found["request_id"] in (request, second) else found

    third = await until(later)
    assert third["shaped_by"] == ["bo", "cy"]
    assert (await says(server, "bo", third["request_id"])).status_code == 403
    assert (await says(server, "dee", third["request_id"])).status_code == 200
    await ended(server, request)
    assert server.box.sent == [("fay", 1)]


async def test_request_that_nobody_can_approve_says_so(ruled):
    """Ada asked and bo edited the call; cy, the only other approver, is removed and comes back."""
    server = await ruled(four_eyes=True, approvers=["ada", "bo", "cy"])
    cy = next(one for one in await server.app.tasks.journal.people() if one.name == "cy")
    removed = replace(cy, revoked_at=2.0)
    await change(server, cy, removed)

    async def reason(who: str, name: str) -> str:
        address = f"/approvals/{name}"
        return (await server.client.get(address, headers=bearer(f"{who}-key"))).json()["why_not"]

    first = await asked(server, "ada")
    assert "Nobody" not in await reason("ada", first)
    await says(server, "bo", first, EDIT)
    second = (await next_request(server, first))["request_id"]
    for who in ("ada", "bo", "dee"):
        assert "Nobody can approve it now" in await reason(who, second)
    await change(server, removed, cy)
    assert "Nobody" not in await reason("bo", second)
    assert (await says(server, "cy", second)).status_code == 200
    await ended(server, second)
    assert server.box.sent == [("eve", 1)]


async def test_person_who_rejected_with_a_reason_cannot_approve_the_next_call(ruled):
    server = await ruled(four_eyes=True)
    request = await asked(server, "ada", TWICE)
    await says(server, "bo", request, {"decision": "reject", "reason": "send it to eve"})
    again = await next_request(server, request)
    assert (again["shaped_by"], again["can_decide"]) == (["bo"], True)
    answer = await says(server, "bo", again["request_id"])
    assert answer.status_code == 403
    assert "gave the reason" in answer.json()["detail"]
    assert (await says(server, "cy", again["request_id"])).status_code == 200
    await ended(server, request)
    assert server.box.sent == [("eve", 1)]


async def test_person_who_rejected_without_a_reason_can_approve_the_next_call(ruled):
    server = await ruled(four_eyes=True)
    request = await asked(server, "ada", TWICE)
    await says(server, "bo", request, {"decision": "reject"})
    again = await next_request(server, request)
    assert again["shaped_by"] == []
    assert (await says(server, "bo", again["request_id"])).status_code == 200


@pytest.mark.parametrize("who", ["ada", "bo"])
async def test_requester_and_editor_may_always_reject(ruled, who):
    server = await ruled(four_eyes=True)
    request = await asked(server, "ada")
    await says(server, "bo", request, EDIT)
    again = await next_request(server, request)
    headers = bearer(f"{who}-key")
    seen = (await server.client.get(f"/approvals/{again['request_id']}", headers=headers)).json()
    assert (seen["can_decide"], seen["can_reject"]) == (False, True)
    (task,) = (await server.client.get("/tasks", headers=headers)).json()["tasks"]
    assert not task["waits_for_you"]
    listed = (await server.client.get("/approvals?rejectable=true", headers=headers)).json()
    assert [one["request_id"] for one in listed["approvals"]] == [again["request_id"]]
    both = (await server.client.get("/approvals?mine=true&rejectable=true", headers=headers)).json()
    assert both == listed
    assert (await server.client.get("/waiting", headers=headers)).json()["count"] == 0
    others = (await server.client.get("/waiting", headers=bearer("cy-key"))).json()
    assert others == {"count": 1, "action": "send", "asked_by": "ada"}
    assert (await says(server, who, again["request_id"], NO)).status_code == 200
    await ended(server, request)
    assert server.box.sent == []


async def test_edit_resets_the_votes_of_a_two_person_rule(ruled):
    server = await ruled(two_of=["finance", "chiefs", "cy"])
    request = await asked(server, "boss")
    assert not (await says(server, "ada", request)).json()["is_final"]
    assert not (await says(server, "bo", request, EDIT)).json()["is_final"]
    again = (await next_request(server, request))["request_id"]
    assert (await says(server, "bo", again)).status_code == 403
    assert not (await says(server, "dee", again)).json()["is_final"], "ada's vote was for another"
    assert (await says(server, "cy", again)).json()["others"] == ["dee"]
    await ended(server, request)
    assert server.box.sent == [("eve", 1)]


async def test_vote_of_a_removed_person_does_not_count_while_people_cannot_be_read(
    ruled, monkeypatch, caplog
):
    server = await ruled(two_of=["ada", "bo", "cy"])
    request = await asked(server, "boss")
    assert not (await says(server, "ada", request)).json()["is_final"]
    journal = server.app.tasks.journal
    ada = next(one for one in await journal.people() if one.name == "ada")
    await change(server, ada, replace(ada, revoked_at=1.0))
    with monkeypatch.context() as patch:
        error = JournalSetupError("the journal does not answer")
        patch.setattr(type(journal), "people", AsyncMock(side_effect=error))
        vote = asyncio.create_task(says(server, "bo", request))
        await until(lambda: "was not counted" in caplog.text)
        vote.cancel()
    assert not (await says(server, "bo", request)).json()["is_final"]
    assert (await says(server, "cy", request)).json()["others"] == ["bo"]
    await ended(server, request)


async def test_requester_who_edits_loses_their_vote_under_a_two_person_rule(ruled):
    server = await ruled(two_of=["finance", "chiefs", "cy"])
    request = await asked(server, "ada")
    await says(server, "ada", request, EDIT)
    again = await next_request(server, request)
    assert again["shaped_by"] == ["ada"]
    assert "ada changed what is done" in rule_text(again)
    assert (await says(server, "ada", again["request_id"])).status_code == 403
    await says(server, "cy", again["request_id"])
    assert (await says(server, "dee", again["request_id"])).json()["others"] == ["cy"]
    await ended(server, request)
    assert server.box.sent == [("eve", 1)]


async def test_requester_who_answers_a_question_keeps_their_vote(ruled):
    server = await ruled(two_of=["ada", "cy"])
    question = await asked(server, "ada", "print(await send(await ask('To whom?')))")
    await says(server, "ada", question, {"decision": "answer", "answer": "eve"})
    request = await next_request(server, question)
    assert request["shaped_by"] == []
    await says(server, "ada", request["request_id"])
    assert (await says(server, "cy", request["request_id"])).json()["others"] == ["ada"]
    await ended(server, request["request_id"])
    assert server.box.sent == [("eve", 1)]


async def test_edit_without_a_rule_for_several_people_is_final(ruled):
    server = await ruled(approvers=["finance"])
    request = await asked(server, "ada")
    assert (await says(server, "bo", request, EDIT)).json()["is_final"]
    await ended(server, request)
    assert server.box.sent == [("eve", 1)]


@pytest.mark.parametrize("way", ["fork", "again"])
async def test_repeater_and_author_of_a_task_both_count_as_requesters(ruled, way):
    """A person who forks or repeats a task gives its author no vote."""
    server = await ruled(four_eyes=True)
    request = await asked(server, "ada")
    await says(server, "ada", request, NO)
    task = await ended(server, request)
    events = await server.events(task["task_id"])
    begun = next(e["seq"] for e in events if e["type"] == "TaskStarted")
    body = {"at": begun} if way == "fork" else {}
    place = f"/tasks/{task['task_id']}/{way}"
    made = (await server.client.post(place, json=body, headers=bearer("bo-key"))).json()
    again = await server.question(made["task_id"])
    assert (again["asked_by"], again["shaped_by"]) == ("bo", ["ada"])
    for who in ("ada", "bo"):
        assert (await says(server, who, again["request_id"])).status_code == 403, who
    assert (await says(server, "cy", again["request_id"])).status_code == 200


# -- people who are removed -----------------------------------------------------------------


def removed(one):
    return replace(one, revoked_at=1.0)


def without_right(one):
    return replace(one, rights=("read", "run"))


def out_of_the_team(one):
    return replace(one, teams=())


def without_the_task(one):
    return replace(one, scope="own")


def replaced(one):
    return replace(one, uid="later")


@pytest.mark.parametrize(
    "how", [removed, without_right, out_of_the_team, without_the_task, replaced]
)
async def test_vote_of_a_removed_person_does_not_count(ruled, how):
    server = await ruled(two_of=["finance", "chiefs"])
    request = await asked(server, "cy")
    assert not (await says(server, "ada", request)).json()["is_final"]
    people = await server.app.tasks.journal.people()
    known = next(person for person in people if person.name == "ada")
    await change(server, known, how(known))
    assert not (await says(server, "dee", request)).json()["is_final"], (
        "it is the first that counts"
    )
    assert server.box.sent == []
    assert (await says(server, "bo", request)).json()["others"] == ["dee"]
    await ended(server, request)
    assert server.box.sent == [("bob", 1)]


# -- one person by another way ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["Ada", "ADA"])
async def test_requester_is_recognised_in_any_form_of_the_name(ruled, name):
    server = await ruled(four_eyes=True)
    await add(server, replace(person(name, scope="all"), uid="other"))
    request = await asked(server, "ada")
    assert (await says(server, name, request)).status_code == 403
    assert server.box.sent == []


async def test_requester_is_recognised_by_any_of_their_keys(serve):
    """One key is in the settings, one belongs to a person added later under the same name."""
    rules = {"send": {"four_eyes": True}}
    server = await serve(agent={"approval_rules": rules}, api_key="ada:other-key,boss:boss-key")
    server.client.headers.update(bearer("boss-key"))
    ada = person("ada", scope="all")
    await add(server, ada)
    request = await asked(server, "ada")
    assert (await says(server, "other", request)).status_code == 403
    await change(server, ada, replace(ada, uid="later"))
    assert (await says(server, "ada", request)).status_code == 403
    assert server.box.sent == []
    assert (await says(server, "boss", request)).status_code == 200


async def test_person_has_one_vote_with_any_number_of_keys(serve):
    rules = {"send": {"two_of": ["finance", "ada"]}}
    server = await serve(agent={"approval_rules": rules}, api_key="ada:other-key,boss:boss-key")
    server.client.headers.update(bearer("boss-key"))
    ada = person("ada", scope="all")
    await add(server, ada, person("bo", scope="all", teams=("finance",)))
    request = await asked(server, "boss")
    assert not (await says(server, "ada", request)).json()["is_final"]
    assert (await says(server, "other", request)).status_code == 409
    await change(server, ada, replace(ada, uid="later"))
    assert (await says(server, "ada", request)).status_code == 409
    journal = server.app.tasks.journal
    (record,) = await journal.find_requests(request)
    known = record.requested
    for user in ("ada:U0ADA", "Ada:1"):  # what never came by the API is held to it, too
        data = answer_data(request, known.digest, Approved(), Decider(name="ada", user=user))
        await journal.post(known.task_id, ANSWER_KIND, data)
    last = (await says(server, "bo", request)).json()
    assert not last["is_final"], "the vote of the former ada does not count any more"


async def test_fork_copies_no_approval(ruled):
    """From any event: finished calls are not repeated, and later calls ask again."""
    server = await ruled(approvers=["finance"], four_eyes=True)
    request = await asked(server, "ada")
    assert (await says(server, "bo", request)).status_code == 200
    task = await ended(server, request)
    place, points = f"/tasks/{task['task_id']}/fork", dict[str, bool]()
    for at, event in enumerate(await server.events(task["task_id"]), 1):
        if not event["type"].startswith(("Approval", "Call")):
            continue
        fork = await server.client.post(place, json={"at": at}, headers=bearer("ada-key"))
        name = fork.json()["task_id"]
        over = await server.until(name, "waiting", "done", "failed")
        points[event["type"]] = over["state"] == "waiting"
        assert server.box.sent == [("bob", 1)], event
        if over["state"] == "waiting":
            again = (await server.question(name))["request_id"]
            assert (await says(server, "ada", again)).status_code == 403
    assert points == {
        "ApprovalRequested": True,
        "ApprovalDecided": True,
        "CallStarted": False,
        "CallFinished": False,
    }


async def test_fork_copies_no_vote(ruled):
    server = await ruled(two_of=["finance", "chiefs"])
    request = await asked(server, "cy")
    assert not (await says(server, "bo", request)).json()["is_final"]
    detail = (await server.client.get(f"/approvals/{request}")).json()
    events = await server.events(detail["task_id"], until="ApprovalVoted")
    place, body = f"/tasks/{detail['task_id']}/fork", {"at": len(events)}
    fork = (await server.client.post(place, json=body, headers=bearer("cy-key"))).json()
    again = (await server.question(fork["task_id"]))["request_id"]
    assert not (await says(server, "dee", again)).json()["is_final"]
    assert server.box.sent == []


async def test_fork_copies_no_remembered_decision(serve):
    server = await serve("boss-key", api_key="boss:boss-key")
    request = await asked(server, "boss", "await send('bob')\nprint(await send('bob'))")
    lasting = {"decision": "approve", "remember": "until_revoked", "covers": "action"}
    assert (await says(server, "boss", request, lasting)).is_success
    task = await ended(server, request)
    assert len(server.box.sent) == 2
    gone = await server.client.delete(f"/remembered/{request}")
    assert gone.is_success
    events = await server.events(task["task_id"])
    first = next(i for i, e in enumerate(events, 1) if e["type"] == "CallFinished")
    place = f"/tasks/{task['task_id']}/fork"
    fork = (await server.client.post(place, json={"at": first})).json()
    await server.question(fork["task_id"])
    assert (await server.client.get("/remembered")).json()["remembered"] == []
    assert len(server.box.sent) == 2
