"""People on the page and over HTTP: invited, changed, removed; and who did what."""

from __future__ import annotations

import csv
import io

import pytest
import pytest_asyncio
from playwright.async_api import expect

from plugins.serve.pages import accessible
from plugins.serve.test_inbox import logged_in
from plugins.serve.test_people import add, person
from support.serving import Outbox, bearer, doing, make_agent, serving

EVERY = ("read", "run", "decide", "delete", "people")


@pytest.fixture
async def office(serve):
    """A server where the lead manages people; boss is a key in the settings."""
    server = await serve("lead-key", api_key="boss:boss-key")
    everybody = (
        person("lead", scope="all", rights=EVERY),
        person("ada", scope="all"),
        person("cy", scope="own", rights=EVERY),
    )
    await add(server, *everybody)
    return server


async def test_person_is_invited_with_a_key_shown_once(office):
    wish = {
        "name": "bo",
        "rights": ["read", "run"],
        "scope": "team",
        "teams": ["finance"],
        "mail": "bo@example.com",
        "key": "laptop",
    }
    made = (await office.client.post("/people", json=wish)).json()
    headers = bearer(made["key"])
    known = (await office.client.get("/session", headers=headers)).json()
    assert (known["name"], known["scope"], known["teams"]) == ("bo", "team", ["finance"])
    assert known["rights"] == ["read", "run"]
    listed = (await office.client.get("/people")).json()["people"]
    bo = next(one for one in listed if one["name"] == "bo")
    assert [key["label"] for key in bo["keys"]] == ["laptop"]
    assert made["key"] not in str(listed)


async def test_person_can_be_changed_and_removed(office):
    change = {"name": "ada", "scope": "own", "rights": ["read"]}
    assert (await office.client.post("/people", json=change)).json()["key"] is None
    headers = bearer("ada-key")
    assert (await office.client.get("/session", headers=headers)).json()["rights"] == ["read"]
    assert (await office.client.delete("/people/ada")).status_code == 204
    assert (await office.client.get("/tasks", headers=headers)).status_code == 401
    assert (await office.client.delete("/people/ada")).status_code == 404
    again = {"name": "ada", "key": "new"}
    made = (await office.client.post("/people", json=again)).json()
    entries = (await office.client.get("/audit")).json()["entries"]
    about_ada = [one["what"] for one in entries if one["about"].startswith("ada:")]
    about_ada += [one["what"] for one in entries if one["about"] == "ada"]
    assert sorted(about_ada) == ["added", "changed", "revoked"]
    assert made["scope"] == "own"
    assert "people" not in made["rights"], "a new person, with the usual rights"


async def test_key_can_be_revoked(office):
    made = (await office.client.post("/people", json={"name": "ada", "key": "ci"})).json()
    assert (await office.client.delete("/people/ada/keys/ci")).status_code == 204
    headers = bearer(made["key"])
    assert (await office.client.get("/tasks", headers=headers)).status_code == 401
    assert (await office.client.get("/tasks", headers=bearer("ada-key"))).status_code == 200
    assert (await office.client.delete("/people/ada/keys/ci")).status_code == 409


async def test_sessions_of_a_person_can_be_listed_and_ended(office):
    answer = await office.client.post("/login", json={"key": "ada-key"})
    cookie = {"cookie": f"delf_session={answer.cookies['delf_session']}"}
    (one,) = (await office.client.get("/people/ada/sessions")).json()["sessions"]
    assert (await office.client.delete(f"/people/ada/sessions/{one['id']}")).status_code == 204
    office.client.headers.pop("authorization")
    assert (await office.client.get("/tasks", headers=cookie)).status_code == 401


REQUESTS = [
    ("GET", "/people", None),
    ("POST", "/people", {"name": "mallory", "key": "x"}),
    ("POST", "/people", {"name": "ada", "rights": list(EVERY)}),
    ("DELETE", "/people/lead", None),
    ("DELETE", "/people/lead/keys/first", None),
    ("GET", "/people/lead/sessions", None),
    ("DELETE", "/people/lead/sessions/x", None),
    ("GET", "/audit", None),
    ("GET", "/audit?format=csv", None),
]


@pytest.mark.slow
@pytest.mark.parametrize("who", ["ada", "cy"])
@pytest.mark.parametrize("sent", REQUESTS, ids=str)
async def test_managing_users_needs_the_right_and_the_scope(office, who, sent):
    method, path, body = sent
    answer = await office.client.request(method, path, json=body, headers=bearer(f"{who}-key"))
    assert answer.status_code == 403, answer.text
    people = await office.app.tasks.journal.people()
    assert {one.name for one in people} == {"lead", "ada", "cy"}
    assert all(one.revoked_at is None for one in people)


async def test_user_cannot_grant_a_right_they_do_not_have(serve):
    server = await serve("lead-key")
    await add(server, person("lead", scope="all", rights=("read", "people")))
    wish = {"name": "bo", "rights": ["decide"], "key": "x"}
    answer = await server.client.post("/people", json=wish)
    assert (answer.status_code, "decide" in answer.json()["detail"]) == (403, True)
    wish = {"name": "bo", "key": "x"}
    answer = await server.client.post("/people", json=wish)
    assert answer.status_code == 403, "the usual rights of a new person are more, too"


async def test_user_cannot_lock_themselves_out_or_take_a_name(office):
    assert (await office.client.delete("/people/lead")).status_code == 409
    for wish in (
        {"name": "local", "key": "x"},
        {"name": "a/b", "key": "x"},
        {"name": "bo", "mail": "ada", "key": "x"},
        {"name": "bo", "teams": ["ada"], "key": "x"},
        {"name": "ADA", "key": "x"},
    ):
        assert (await office.client.post("/people", json=wish)).status_code == 409, wish


async def test_audit_records_who_changed_users(office):
    task = {"task": doing("print(await send('bob'))")}
    run = (await office.client.post("/run", json=task)).json()
    asked = await office.question(run["task_id"])
    place = f"/approvals/{asked['request_id']}"
    yes = {"decision": "reject", "reason": "=1+1"}
    await office.client.post(place, json=yes, headers=bearer("ada-key"))
    await office.client.post("/people", json={"name": "bo", "key": "laptop"})
    await office.client.delete("/people/bo")
    await office.client.post("/login", json={"key": "ada-key"})
    (session,) = (await office.client.get("/people/ada/sessions")).json()["sessions"]
    await office.client.delete(f"/people/ada/sessions/{session['id']}")
    entries = (await office.client.get("/audit")).json()["entries"]
    recorded = [(one["by"], one["what"], one["about"].partition(":")[0]) for one in entries]
    assert recorded == [
        ("ada", "logged in", "key"),
        ("lead", "revoked", "bo"),
        ("lead", "added", "bo"),
        ("ada", "rejected", "send, asked by lead"),
    ]
    assert all(one["via"].startswith(("API", "page")) for one in entries)
    only = (await office.client.get("/audit?by=ada&limit=1")).json()
    assert (len(only["entries"]), only["more"]) == (1, True)
    table = (await office.client.get("/audit?format=csv")).text
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["what"] for row in rows] == [one[1] for one in recorded]


@pytest_asyncio.fixture(loop_scope="session")
async def page_office(tmp_path, monkeypatch):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    monkeypatch.setenv("DELF_SERVE_FILES_FOLDER", str(tmp_path / "files"))
    box = Outbox()
    async with serving(make_agent(str(tmp_path), box), box, "lead-key") as server:
        await add(server, person("lead", scope="all", rights=EVERY), person("ada", scope="all"))
        yield server


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_team_lead_invites_and_removes_people_on_the_page(page_office, open_page):
    page = await open_page(page_office.url)
    await logged_in(page, "lead-key")
    await page.get_by_role("link", name="people", exact=True).click()
    await page.get_by_text("Add or change a person").click()
    await page.get_by_label("Name", exact=True).fill("bo")
    await page.get_by_label("Teams, with commas between them").fill("finance")
    await page.get_by_label("delete tasks").uncheck()
    await page.get_by_role("button", name="Save").click()
    key = await page.locator(".made code").inner_text()
    known = (await page_office.client.get("/session", headers=bearer(key))).json()
    assert (known["name"], known["teams"]) == ("bo", ["finance"])
    assert known["rights"] == ["decide", "read", "run"]
    await expect(page.get_by_role("heading", name="bo", exact=True)).to_be_visible()
    await expect(page.locator("tbody tr").first).to_contain_text("added")
    assert await accessible(page) == []
    await page.get_by_text("Add or change a person").click()  # the form begins anew, as it was
    await page.get_by_label("Name", exact=True).fill("cleo")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".made")).to_contain_text("The key of cleo")
    other = bearer(await page.locator(".made code").inner_text())
    known = (await page_office.client.get("/session", headers=other)).json()
    assert known["rights"] == ["decide", "delete", "read", "run"]
    page.on("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("button", name="Remove bo").click()
    await expect(page.get_by_role("heading", name="bo removed")).to_be_visible()
    run = await page_office.run("print(await send('bob'))")
    asked = await page_office.question(run["task_id"])
    no = {"decision": "reject"}
    await page_office.client.post(f"/approvals/{asked['request_id']}", json=no)
    await expect(page.locator("tbody tr").first).to_contain_text("rejected")  # the list follows
    assert (await page_office.client.get("/tasks", headers=bearer(key))).status_code == 401
