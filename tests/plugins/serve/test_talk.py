"""Talk at a request: comments, assignments, and changes that people ask for."""

from __future__ import annotations

import pytest

from delf.protocols.approval import Decider
from delf_cli import answering
from delf_engine.approvals.talk import (
    MAX_REMARKS,
    REMARK_KIND,
    Assignment,
    Comment,
    encode_remark,
)
from delf_journal_sql.journal import SqlJournal
from plugins.serve.test_people import add, change, person
from support.serving import bearer, doing
from support.until import until

YES = {"decision": "approve"}
SEND = "print(await send('bob'))"


def wishing(code: str) -> dict:
    """Return a change request with the script that the test model writes next."""
    return {"decision": "request_changes", "reason": f"to another\n```run\n{code}\n```"}


@pytest.fixture
async def team(serve):
    """A server with a rule of four eyes for ``send``: ada asks, bo and cy decide."""
    rule = {"approvers": ["ada", "bo", "cy"], "four_eyes": True}
    server = await serve(agent={"approval_rules": {"send": rule}}, api_key="boss:boss-key")
    people = [person(name, scope="all") for name in ("ada", "bo", "cy")]
    await add(server, *people, person("dee", scope="all", rights=("read",)), person("eve"))
    server.client.headers.update(bearer("boss-key"))
    return server


async def asked(server, code: str = SEND, who: str = "ada") -> dict:
    """Return the request of a person's task."""
    order = {"task": doing(code)}
    answer = await server.client.post("/run", json=order, headers=bearer(f"{who}-key"))
    return await server.question(answer.json()["task_id"])


async def says(server, who: str, request: dict, what: str = "", **body):
    address = f"/approvals/{request['request_id']}{what}"
    return await server.client.post(address, json=body, headers=bearer(f"{who}-key"))


async def seen(server, request: dict, who: str = "bo") -> dict:
    address = f"/approvals/{request['request_id']}"
    return (await server.client.get(address, headers=bearer(f"{who}-key"))).json()


async def test_comments_and_assignee_are_facts_of_the_request(team):
    request = await asked(team)
    assert (request["comments"], request["assignee"]) == ([], None)
    answer = await says(team, "cy", request, "/comments", text=" is this\u202e the right Bob? ")
    assert answer.status_code == 200, answer.text
    await says(team, "ada", request, "/comments", text="yes, of sales")
    given = await says(team, "ada", request, "/assignee", person="bo")
    assert given.status_code == 200, given.text
    for known in (given.json(), await seen(team, request)):
        assert [(one["by"], one["text"]) for one in known["comments"]] == [
            ("cy", "is this\u202e the right Bob?"),
            ("ada", "yes, of sales"),
        ]
        assert known["assignee"] == "bo"
        found = {(one["kind"], one["label"], one["text"], one["note"]) for one in known["facts"]}
        assert ("comment", "comment by cy", "is this\\u202e the right Bob?", "") in found
        assert ("assignee", "assigned to", "bo", "by ada") in found
    none = (await says(team, "bo", request, "/assignee", person=None)).json()
    assert none["assignee"] is None
    assert "assignee" not in [one["kind"] for one in none["facts"]]
    assert [one["text"] for one in none["comments"]] == [
        "is this\u202e the right Bob?",
        "yes, of sales",
    ]
    (listed,) = (await team.client.get("/approvals")).json()["approvals"]
    assert listed["comments"] == none["comments"]
    assert (await says(team, "cy", request, **YES)).json()["by"] == "cy"


async def test_assignment_is_limited_to_possible_approvers(team):
    request = await asked(team)
    able = await team.client.get(f"/approvals/{request['request_id']}/assignable")
    assert able.json() == {"people": ["bo", "cy"]}
    for name in ("ada", "dee", "eve", "boss", "nobody", "BO"):
        answer = await says(team, "ada", request, "/assignee", person=name)
        assert answer.status_code == 409, name
        assert name in answer.json()["detail"]
    before = person("bo", scope="all")
    await change(team, before, person("bo", scope="all", revoked_at=2.0))
    assert (await says(team, "ada", request, "/assignee", person="bo")).status_code == 409
    assert (await seen(team, request, "cy"))["assignee"] is None


async def test_people_without_access_cannot_comment(team):
    request = await asked(team)
    for who, status in (("eve", 404), ("dee", 403)):
        for what, body in (("/comments", {"text": "hi"}), ("/assignee", {"person": "cy"})):
            assert (await says(team, who, request, what, **body)).status_code == status
    refused = await says(team, "dee", request, **wishing(SEND))
    assert refused.status_code == 403
    assert not (await seen(team, request))["comments"]


@pytest.mark.parametrize("text", ["", "  \n", "x" * 4001, None, 7])
async def test_invalid_comment_is_refused_with_its_field(team, text):
    request = await asked(team)
    answer = await says(team, "bo", request, "/comments", text=text)
    assert (answer.status_code, answer.json()["param"]) == (422, "text")


async def test_comment_on_a_decided_request_is_refused(team):
    request = await asked(team)
    await says(team, "bo", request, **YES)
    for what, body in (("/comments", {"text": "hi"}), ("/assignee", {"person": "cy"})):
        late = await says(team, "cy", request, what, **body)
        assert late.status_code in (404, 409)
        assert "approved by bo" in late.json()["detail"]


async def test_change_request_returns_to_the_model_and_the_task_continues(team):
    """The task needs no retry for this, even if its script catches the refusal and calls again."""
    code = "try:\n    await send('bob')\nexcept Exception:\n    print(await send('mallory'))"
    first = await asked(team, code)
    assert first["takes_changes"] is True
    answer = await says(team, "bo", first, **wishing("print(await send('carl'))"))
    assert answer.json()["decision"] == "changes_requested"
    second = await team.question(first["task_id"])
    assert second["arguments"]["to"] == "carl"
    assert second["because"].startswith("bo asked for changes: to another")
    assert second["shaped_by"] == ["bo"]
    assert (await says(team, "bo", second, **YES)).status_code == 403  # bo shaped the call
    assert (await says(team, "ada", second, **YES)).status_code == 403  # ada asked for it
    assert (await says(team, "cy", second, **YES)).json()["by"] == "cy"
    detail = await team.until(first["task_id"], "done", "failed")
    assert (detail["state"], detail["result"]) == ("done", "sent 1 to carl")
    assert team.box.sent == [("carl", 1)]


async def test_change_request_is_accepted_only_from_people_of_the_task(team):
    request = await asked(team)
    assert (await says(team, "boss", request, **wishing(SEND))).status_code == 403
    assert (await says(team, "ada", request, **wishing("print(await send('b'))"))).is_success
    request = await team.question(request["task_id"])
    assert request["shaped_by"] == ["ada"]
    assert (await says(team, "bo", request, **wishing("print(await send('c'))"))).is_success
    request = await team.question(request["task_id"])
    assert (await says(team, "bo", request, **wishing("print(await send('d'))"))).is_success
    request = await team.question(request["task_id"])
    assert request["arguments"]["to"] == "d"
    assert not team.box.sent


async def test_votes_restart_after_a_change_request(serve):
    rule = {"two_of": ["ada", "bo", "cy", "dee"]}
    server = await serve(agent={"approval_rules": {"send": rule}}, api_key="boss:boss-key")
    await add(server, *[person(name, scope="all") for name in ("ada", "bo", "cy", "dee", "eve")])
    server.client.headers.update(bearer("boss-key"))
    first = await asked(server, who="eve")
    assert (await says(server, "ada", first, **YES)).json()["is_final"] is False
    assert (await says(server, "bo", first, **wishing("print(await send('carl'))"))).is_success
    second = await server.question(first["task_id"])
    assert "vote" not in [fact["kind"] for fact in second["facts"]]
    assert (await says(server, "cy", second, **YES)).json()["is_final"] is False
    assert (await says(server, "bo", second, **YES)).status_code == 403
    assert (await says(server, "dee", second, **YES)).json()["is_final"] is True
    assert (await server.until(first["task_id"], "done"))["result"] == "sent 1 to carl"


async def test_same_call_is_asked_again_after_a_change_request(team):
    """A change request does not reject the call for the rest of the task."""
    first = await asked(team)
    await says(team, "bo", first, **wishing(SEND))
    second = await team.question(first["task_id"])
    assert second["request_id"] != first["request_id"]
    assert (await says(team, "cy", second, **YES)).is_success
    assert (await team.until(first["task_id"], "done"))["result"] == "sent 1 to bob"


async def test_change_request_for_a_plan_makes_a_new_plan(serve):
    server = await serve(agent={"confirm_mode": "plan", "approval_mode": "interactive"})
    started = await server.run(SEND)
    first = await server.question(started["task_id"])
    assert first["code"]
    address = f"/approvals/{first['request_id']}"
    answer = await server.client.post(address, json=wishing("print(await send('carl'))"))
    assert answer.is_success, answer.text
    second = await server.question(started["task_id"])
    assert "carl" in second["code"]
    await server.client.post(f"/approvals/{second['request_id']}", json=YES)
    assert (await server.until(started["task_id"], "done"))["result"] == "sent 1 to carl"


async def test_change_request_without_a_planning_model_is_refused(serve):
    class Fixed:
        async def solve(self, host):
            return str((await host.call("send", {"to": "bob"})).message)

    server = await serve(agent={"strategy": Fixed()})
    request = await server.question((await server.run(SEND))["task_id"])
    assert request["takes_changes"] is False
    address = f"/approvals/{request['request_id']}"
    answer = await server.client.post(address, json=wishing(SEND))
    assert answer.status_code == 409
    assert "no model" in answer.json()["detail"]
    assert (await server.client.get(address)).json()["state"] == "waiting"


async def test_comments_survive_a_resume(serve, journal_url):
    """Another server resumes the task, and reads the notes of the first one again."""
    one = await serve()
    request = await one.question((await one.run(SEND))["task_id"])
    journal = one.app.tasks.journal
    record = await answering.find_request(journal, request["request_id"])
    who = Decider(name="bo", user="bo:uid", via="page")
    await answering.comment(journal, record, "look twice", who)
    await one.app.stop()
    # Posted while nobody works on the task: recorded once it is resumed.
    data = encode_remark(request["request_id"], Comment("after the end"), who)
    other = SqlJournal(journal_url)
    await other.post(request["task_id"], REMARK_KIND, data)
    await other.aclose()
    two = await serve()
    address = f"/approvals/{request['request_id']}"

    async def has_both() -> bool:
        comments = (await two.client.get(address)).json()["comments"]
        return [one["text"] for one in comments] == ["look twice", "after the end"]

    await until(has_both)
    await two.client.post(address, json=wishing("print(await send('carl'))"))
    second = await two.question(request["task_id"])
    assert second["comments"] == []
    await two.client.post(f"/approvals/{second['request_id']}", json=YES)
    assert (await two.until(request["task_id"], "done"))["result"] == "sent 1 to carl"
    assert await has_both()


async def test_number_of_comments_is_limited(team):
    request = await asked(team)
    journal = team.app.tasks.journal
    record = await answering.find_request(journal, request["request_id"])
    for _ in range(MAX_REMARKS):
        data = encode_remark(request["request_id"], Comment("again"), Decider(name="bo"))
        await journal.post(request["task_id"], REMARK_KIND, data)
    data = encode_remark(request["request_id"], Assignment("bo"), Decider(name="bo"))
    await journal.post(request["task_id"], REMARK_KIND, data)

    async def count() -> int:
        return len((await answering.find_request(journal, record.requested.request_id)).discussion)

    async def is_full() -> bool:
        return await count() >= MAX_REMARKS

    await until(is_full)
    answer = await says(team, "cy", request, "/comments", text="one more")
    assert answer.status_code == 409
    assert str(MAX_REMARKS) in answer.json()["detail"]
    assert await count() == MAX_REMARKS


async def test_audit_lists_comments_and_assignments(team):
    request = await asked(team)
    await says(team, "cy", request, "/comments", text="=1+1")
    await says(team, "ada", request, "/assignee", person="bo")
    await says(team, "bo", request, **wishing(SEND))
    await change(
        team, person("cy", scope="all"), person("cy", scope="all", rights=("people", "read"))
    )
    entries = (await team.client.get("/audit", headers=bearer("cy-key"))).json()["entries"]
    about = [(one["what"], one["by"], one["about"].partition(": ")[2]) for one in entries]
    assert about[:3] == [
        ("changes_requested", "bo", wishing(SEND)["reason"]),
        ("assigned", "ada", "to bo"),
        ("commented", "cy", "=1+1"),
    ]


async def test_secret_in_what_people_write_is_not_kept(serve):
    secret = "sk-declared-secret-4711"
    server = await serve(agent={"providers": {"openai": secret}})
    task = (await server.run("print(await send('bob'))\nprint(await ask('Which?'))"))["task_id"]
    path = f"/approvals/{(await server.question(task))['request_id']}"
    await server.client.post(f"{path}/comments", json={"text": f"is it {secret}?"})
    edited = {"decision": "edit", "arguments": {"to": secret}}
    assert (await server.client.post(path, json=edited)).is_success
    path = f"/approvals/{(await server.question(task))['request_id']}"
    answered = {"decision": "answer", "answer": secret}
    assert (await server.client.post(path, json=answered)).is_success
    await server.until(task, "done")
    assert server.box.sent == [(secret, 1)]
    journal = server.app.tasks.journal
    assert secret not in f"{await journal.notes(task)} {await journal.read(task)}"
