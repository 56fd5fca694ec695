"""Schedules over HTTP: each person's own; runners do their tasks."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from delf import load_project
from plugins.serve.test_people import RIGHTS, add, person
from plugins.serve.test_routines import store  # noqa: F401 - a fixture
from support.serving import bearer

MORNING = {"name": "morning", "cron": "0 8 * * 1-5", "task": "Tell what came in overnight."}
ROUTINE = {"name": "things", "cron": "* * * * *", "routine": True}
EACH = {**MORNING, "name": "mails", "each": 'mails(query="is:unread")', "id_field": "id"}


@pytest.fixture
async def team(serve, store, tmp_path, monkeypatch):  # noqa: F811
    """A project's server with several people, one of whom manages the others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELF_RUNNER_DBOS_DATABASE", f"sqlite:///{tmp_path}/dbos.sqlite")
    server = await serve(agent={"project": load_project(tmp_path)}, api_key="boss:read:boss-key")
    people = (person("ada"), person("eve"), person("mia", scope="all"))
    lead = person("lea", scope="all", rights=(*RIGHTS, "people"))
    await add(server, *people, lead)
    return server


def ask(server, method, path, name="ada", **more):
    return server.client.request(method, f"/schedules{path}", headers=bearer(f"{name}-key"), **more)


async def names(server, name):
    found = (await ask(server, "GET", "", name)).json()["schedules"]
    return [one["name"] for one in found]


@pytest.mark.parametrize("name", ["mails", "mails/pause?", "a/b/test"])
async def test_schedule_can_be_added_shown_paused_and_removed(team, name):
    place = f"/{quote(name, safe='')}"
    added = await ask(team, "POST", "", json={**EACH, "name": name})
    assert added.status_code == 201, added.text
    expected = {
        **EACH,
        "name": name,
        "zone": None,
        "queue": "default",
        "paused": False,
        "last": None,
    }
    expected["routine"] = False
    assert added.json() == {**expected, "user": "ada"}
    assert (await ask(team, "GET", "")).json()["schedules"] == [added.json()]
    for paused in (True, False):
        change = await ask(team, "POST", f"{place}/pause", json={"paused": paused})
        assert change.json() == {**added.json(), "paused": paused}
    assert (await ask(team, "GET", f"{place}/history")).json()["firings"] == []
    tested = (await ask(team, "POST", f"{place}/test")).json()
    assert (tested["state"], tested["test"], tested["task_ids"]) == ("queued", True, [])
    assert (await ask(team, "GET", f"{place}/history")).json()["firings"] == [tested]
    assert tested["task_states"] == {}
    assert (await ask(team, "DELETE", place)).status_code == 204
    assert await names(team, "ada") == []


async def test_schedules_are_visible_to_those_who_see_their_tasks(team):
    await ask(team, "POST", "", json=MORNING)
    seen = {name: await names(team, name) for name in ("ada", "eve", "mia", "lea", "boss")}
    assert seen == {"ada": ["morning"], "eve": [], "mia": ["morning"], "lea": ["morning"]} | {
        "boss": ["morning"]
    }


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/pause", {"paused": True}),
        ("POST", "/test", None),
        ("DELETE", "", None),
        ("GET", "/history", None),
    ],
)
async def test_schedule_of_another_person_cannot_be_changed(team, method, path, body):
    await ask(team, "POST", "", json=MORNING)
    more = {} if body is None else {"json": body}
    statuses = [
        (await ask(team, method, f"/morning{path}", name, **more)).status_code
        for name in ("eve", "mia", "boss")
    ]
    assert statuses == ([404, 200, 200] if method == "GET" else [404, 403, 403])
    assert await names(team, "ada") == ["morning"]
    assert (await ask(team, method, f"/morning{path}", "lea", **more)).is_success


REFUSED: list[tuple[dict, int, str]] = [
    ({"name": "x", "cron": "every day"}, 422, "every day"),
    ({"name": "x", "cron": "0 0 30 2 *"}, 422, "never come"),
    ({"name": "x", "zone": "Mars/Base"}, 422, "Mars/Base"),
    ({"name": "x", "each": "import os"}, 422, "is not a call with values"),
    ({"name": "x", "each": "post.search()"}, 422, "there is no tool 'post.search'"),
    ({"name": "x", "each": "mail()"}, 422, "did you mean 'mails'?"),
    ({"name": "x", "each": "mails(sender='a')"}, 422, "sender"),
    ({"name": "x", "each": "mails(query=7)"}, 422, "query"),
    ({"name": "x", "each": "send(to='a')"}, 422, "send changes something"),
    ({"name": ""}, 422, "name"),
    ({"name": "a\nb"}, 422, "cannot be the name"),
    ({"task": ""}, 422, "task"),
    ({"other": 1}, 422, "other"),
    ({}, 422, "already"),
    ({"routine": "stream"}, 422, "routine"),
    ({**ROUTINE, "task": "gone(number=3)"}, 422, "gone"),
    ({**ROUTINE, "task": "Do the thing."}, 422, "is not a call of a routine"),
    ({**ROUTINE, "task": "thing(3)"}, 422, "is not a call of a routine"),
    ({**ROUTINE, "task": "thing(number=open('x'))"}, 422, "is not a call of a routine"),
    ({**ROUTINE, "task": "thing(number='x')"}, 422, "number"),
    ({**ROUTINE, "task": "thing(other=1)"}, 422, "no parameter 'other'"),
    ({**ROUTINE, "task": "thing(number=item['n'])"}, 422, "if the schedule has `each`"),
]


async def test_invalid_schedule_is_refused(team):
    """All cases share one server, because each server needs a database for schedules."""
    await ask(team, "POST", "", json=MORNING)
    for wrong, status, words in REFUSED:
        answer = await ask(team, "POST", "", json={**MORNING, **wrong})
        assert (answer.status_code, words in answer.text) == (status, True), (wrong, answer.text)
    assert await names(team, "ada") == ["morning"]


async def test_routine_is_kept_as_a_schedule(team):
    each = {"name": "mine", "each": "mails()", "task": 'thing(number=item["n"])'}
    for more in ({"task": "thing(number=9)"}, {"name": "plain", "task": "thing()"}, each):
        added = await ask(team, "POST", "", json={**ROUTINE, **more})
        assert (added.status_code, added.json()["routine"]) == (201, True), added.text


async def test_schedule_list_without_a_project_reports_it(serve):
    server = await serve()
    answer = (await server.client.get("/schedules")).json()
    assert answer["schedules"] == []
    assert "need a project" in answer["missing"]
    assert (await server.client.post("/schedules", json=MORNING)).status_code == 409
