"""Attacks of a team's own people on four eyes, triggers, notices and each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from delf.protocols.people import PersonKey, digest_of
from plugins.serve.test_people import RIGHTS, add, person
from support.serving import bearer, doing

HOOK: Final = {"order": {"secret": "a-secret-of-the-hook", "task": "Do it."}}
SCHEDULE: Final = {"name": "x", "cron": "0 8 * * *", "task": "Do it."}
YES: Final = {"decision": "approve"}
CHANGES: Final = {"decision": "request_changes"}
WISH: Final = {**CHANGES, "reason": "to mallory"}

ATTACKS: Final[tuple[tuple[str, str, str, Any, int], ...]] = (
    # Four eyes: who asks, who only reads, who sees nothing, who manages people.
    ("ada", "POST", "/approvals/REQUEST", YES, 403),
    ("ada-ci", "POST", "/approvals/REQUEST", YES, 403),
    ("ada", "POST", "/approvals/REQUEST", {**YES, "remember": "until_revoked"}, 403),
    ("ada", "POST", "/approvals/REQUEST", {"decision": "edit", "arguments": {"to": "m"}}, 403),
    ("ada", "POST", "/approvals/REQUEST", {"decision": "settle", "result": 1}, 403),
    ("dee", "POST", "/approvals/REQUEST", YES, 403),
    ("dee", "POST", "/approvals/REQUEST", WISH, 403),
    ("eve", "POST", "/approvals/REQUEST", YES, 404),
    ("eve", "POST", "/approvals/REQUEST", WISH, 404),
    ("mia", "POST", "/approvals/REQUEST", YES, 403),
    ("mia", "POST", "/approvals/REQUEST", WISH, 403),
    ("out", "POST", "/approvals/REQUEST", YES, 403),
    ("out", "POST", "/approvals/REQUEST", WISH, 403),
    ("gone", "POST", "/approvals/REQUEST", YES, 401),
    ("bo", "POST", "/approvals/PREFIX", YES, 404),
    ("bo", "POST", "/approvals/REQUEST", {"decision": "approved"}, 422),
    ("bo", "POST", "/approvals/REQUEST", {**YES, "by": "cy"}, 422),
    ("bo", "POST", "/approvals/REQUEST", CHANGES, 422),
    ("bo", "POST", "/approvals/REQUEST", {**CHANGES, "reason": " \n"}, 422),
    ("bo", "POST", "/approvals/REQUEST", {**CHANGES, "reason": "x" * 10_001}, 422),
    # Talk: in another's name, to people who may not approve, of those who see nothing.
    ("bo", "POST", "/approvals/REQUEST/comments", {"text": "yes", "by": "cy"}, 422),
    ("dee", "POST", "/approvals/REQUEST/comments", {"text": "yes"}, 403),
    ("eve", "POST", "/approvals/REQUEST/comments", {"text": "yes"}, 404),
    ("eve", "GET", "/approvals/REQUEST/assignable", None, 404),
    ("ada", "POST", "/approvals/REQUEST/assignee", {"person": "ada"}, 409),
    ("ada", "POST", "/approvals/REQUEST/assignee", {"person": "mia"}, 409),
    ("ada", "POST", "/approvals/REQUEST/assignee", {"person": "gone"}, 409),
    ("ada", "POST", "/approvals/REQUEST/assignee", {"person": "bo@example.com"}, 409),
    ("ada", "POST", "/approvals/REQUEST/assignee", {"person": ["bo"]}, 422),
    ("ada", "POST", "/approvals/REQUEST/assignee", {}, 422),
    ("dee", "POST", "/approvals/REQUEST/assignee", {"person": "bo"}, 403),
    # People: rights that the manager does not have, twins of names, by those who do not manage.
    ("mia", "POST", "/people", {"name": "mia", "rights": ["read", "people", "decide"]}, 403),
    ("mia", "POST", "/people", {"name": "bo", "key": "mine"}, 403),
    ("mia", "POST", "/people", {"name": "new", "rights": ["decide"], "key": "k"}, 403),
    ("mia", "POST", "/people", {"name": "BO", "rights": ["read"]}, 409),
    ("mia", "POST", "/people", {"name": "new", "rights": ["read"], "mail": "BO@example.com"}, 409),
    ("mia", "POST", "/people", {"name": "new", "rights": ["read"], "teams": ["bo"]}, 409),
    ("mia", "POST", "/people", {"name": "local", "rights": ["read"]}, 409),
    ("mia", "DELETE", "/people/mia", None, 409),
    ("bo", "POST", "/people", {"name": "bo", "rights": ["people"]}, 403),
    ("bo", "GET", "/people/ada/sessions", None, 403),
    ("bo", "GET", "/audit?format=csv", None, 403),
    ("lead", "POST", "/people", {"name": "x", "rights": ["read"]}, 403),
    # Notices: of others, in ways that do not exist, to places in the network of the server.
    ("ada", "POST", "/notices", {"notices": [], "person": "bo"}, 422),
    ("ada", "POST", "/notices", {"notices": ["all"]}, 422),
    ("ada", "POST", "/notices", {"notices": [], "ways": ["sms"]}, 422),
    ("ada", "POST", "/notices", {"notices": [], "webhook": "https://127.0.0.1/"}, 422),
    ("ada", "POST", "/notices", {"notices": [], "webhook": "https://hooks.a.com\\@evil.net"}, 422),
    ("ada", "POST", "/notices", {"notices": [], "webhook": "https://hooks.a.com%2eevil.net"}, 422),
    ("ada", "POST", "/notices", {"notices": [], "webhook": "https://u:p@hooks.a.com/"}, 422),
    # Triggers: unsigned, with a key in place of a signature, calls that change something.
    ("ada", "POST", "/hooks/order", {"a": 1}, 401),
    ("ada", "POST", "/hooks/other", {"a": 1}, 401),
    ("ada", "GET", "/hooks/order", None, 405),
    ("ada", "POST", "/schedules", {**SCHEDULE, "user": "bo:bo-uid"}, 422),
    ("ada", "POST", "/schedules", {**SCHEDULE, "setup": {"strategy": "routine"}}, 422),
    ("dee", "POST", "/schedules", SCHEDULE, 403),
)


@pytest.fixture
async def office(serve: Any):
    """A server with a request by ada that bo and cy may approve."""
    rule = {"approvers": ["ada", "bo", "cy"], "four_eyes": True}
    server = await serve(
        agent={"approval_rules": {"send": rule}},
        api_key="boss:boss-key",
        hooks=HOOK,
        notice_hosts=["hooks.a.com"],
    )
    ada = person("ada", scope="all")
    second = PersonKey(label="ci", digest=digest_of("ada-ci-key"), made_at=2.0)
    manager = ("read", "people")
    await add(
        server,
        replace(ada, keys=(*ada.keys, second)),
        person("bo", scope="all", mail="bo@example.com"),
        person("cy", scope="all"),
        person("dee", scope="all", rights=("read",)),
        person("eve"),
        person("mia", scope="all", rights=manager),
        person("lead", scope="team", teams=("ops",), rights=(*RIGHTS, "people")),
        person("out", scope="all"),
        person("gone", scope="all", revoked_at=2.0),
    )
    return server


async def test_team_attacks_are_refused_and_change_nothing(office: Any):
    order = {"task": doing("print(await send('bob'))")}
    office.client.headers.update(bearer("boss-key"))
    task = (await office.client.post("/run", json=order, headers=bearer("ada-key"))).json()
    name = (await office.question(task["task_id"]))["request_id"]
    journal = office.app.tasks.journal
    before = await journal.people()
    passed: list[Any] = []
    for who, method, path, body, status in ATTACKS:
        address = path.replace("REQUEST", name).replace("PREFIX", name[:10])
        answer = await office.client.request(
            method, address, json=body, headers=bearer(f"{who}-key")
        )
        if answer.status_code != status:
            passed.append((who, method, path, body, answer.status_code, answer.text[:200]))
    assert passed == []
    request = (await office.client.get(f"/approvals/{name}")).json()
    assert (request["state"], request["comments"], request["assignee"]) == ("waiting", [], None)
    assert await journal.people() == before
    assert [one.task_id for one in await journal.find()] == [task["task_id"]]
    assert office.box.sent == []


async def test_person_who_changed_a_call_cannot_approve_by_another_name_key_or_fork(office: Any):
    """A person who shaped a call approves no later call of the task or of its forks."""
    office.client.headers.update(bearer("boss-key"))
    order = {"task": doing("print(await send('bob'))")}
    task = (await office.client.post("/run", json=order, headers=bearer("ada-key"))).json()
    first = await office.question(task["task_id"])

    async def says(who: str, request: dict[str, Any], body: Any) -> int:
        address = f"/approvals/{request['request_id']}"
        answer = await office.client.post(address, json=body, headers=bearer(f"{who}-key"))
        return answer.status_code

    reason = "```run\nprint(await send('carl'))\n```"
    assert await says("bo", first, {**CHANGES, "reason": reason}) == 200
    second = await office.question(task["task_id"])
    assert await says("bo", second, YES) == 403
    edit = {"decision": "edit", "arguments": {"to": "mallory"}}
    assert await says("cy", second, edit) == 200
    third = await office.question(task["task_id"])
    assert [await says(who, third, YES) for who in ("ada", "bo", "cy")] == [403] * 3
    assert third["shaped_by"] == ["bo", "cy"]
    fork = await office.client.post(
        f"/tasks/{task['task_id']}/fork", json={}, headers=bearer("cy-key")
    )
    asked = await office.question(fork.json()["task_id"])
    assert [await says(who, asked, YES) for who in ("cy", "bo")] == [403, 403]
    assert office.box.sent == []
