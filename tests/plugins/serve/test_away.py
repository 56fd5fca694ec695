"""Somebody is away: who decides in their place, how they say so, and that it is recorded."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace

import pytest
import pytest_asyncio
from click.testing import CliRunner
from playwright.async_api import expect

from delf_cli.main import cli
from plugins.serve.test_inbox import logged_in
from plugins.serve.test_page import accessible, browser, open_page  # noqa: F401 - fixtures
from plugins.serve.test_people import add, change, person
from support.serving import Outbox, bearer, doing, make_agent, serving

pytestmark = pytest.mark.asyncio(loop_scope="session")

RULE = {"send": {"approvers": ["ada"]}}
WEEK = 7 * 86_400


@pytest_asyncio.fixture(loop_scope="session")
async def shop(tmp_path, monkeypatch):
    """A server where only Ada decides; Bo and Cy are of her team, Eve is of none."""
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    monkeypatch.setenv("DELF_SERVE_FILES_FOLDER", str(tmp_path / "files"))
    box = Outbox()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    agent = make_agent(str(tmp_path), box, approval_rules=RULE, observers=["audit"])
    async with serving(agent, box, "ada-key", api_key="boss:boss-key") as server:
        server.people = {
            one.name: one
            for one in (
                person("ada", scope="team", teams=("finance",)),
                person("bo", scope="all", teams=("finance",)),
                person("cy", scope="team", teams=("finance",), rights=("read", "run")),
                person("eve"),
            )
        }
        await add(server, *server.people.values())
        server.trail = tmp_path / "delf" / "audit.jsonl"
        yield server


async def goes(server, who: str, delegate: str = "bo", until: float | None = None):
    sent = {"delegate": delegate, "until": time.time() + WEEK if until is None else until}
    return await server.client.post("/away", json=sent, headers=bearer(f"{who}-key"))


async def asked(server, who: str) -> str:
    order = {"task": doing("print(await send('bob'))"), "wait": 20}
    answer = await server.client.post("/run", json=order, headers=bearer(f"{who}-key"))
    return answer.json()["approvals"][0]


async def decides(server, who: str, request: str) -> int:
    path, yes = f"/approvals/{request}", {"decision": "approve"}
    return (await server.client.post(path, json=yes, headers=bearer(f"{who}-key"))).status_code


def records(server, what: str) -> list[dict]:
    lines = map(json.loads, server.trail.read_text().splitlines())
    return [line for line in lines if line["what"] == what]


async def test_another_person_decides_in_the_place_of_who_is_away_until_they_are_back(shop):
    request = await asked(shop, "cy")
    assert await decides(shop, "bo", request) == 403
    known = (await goes(shop, "ada")).json()
    assert (known["delegate"], known["candidates"]) == ("bo", ["bo"])
    (other,) = (await shop.client.get("/away", headers=bearer("bo-key"))).json()["stands_in_for"]
    assert (other["name"], other["until"]) == ("ada", known["until"])
    assert await decides(shop, "bo", request) == 200
    told = (await shop.client.get(f"/approvals/{request}")).json()["decided"]
    assert (told["by"], told["instead_of"]) == ("bo", ["ada"])
    request = await asked(shop, "cy")
    assert (await shop.client.delete("/away")).status_code == 204
    assert (await shop.client.get("/away")).json()["delegate"] is None
    assert await decides(shop, "bo", request) == 403
    assert await decides(shop, "ada", request) == 200


async def test_it_is_in_the_audit_who_said_so_and_from_where(shop):
    assert (await goes(shop, "ada")).is_success
    request = await asked(shop, "cy")
    await decides(shop, "bo", request)
    assert (await shop.client.delete("/away")).is_success
    await shop.client.get("/away")
    await shop.app.agent.astop()
    gone, back = records(shop, "person")
    assert (gone["name"], gone["change"], gone["delegate"]) == ("ada", "away", "bo")
    assert (gone["by"], gone["via"]) == ("ada", "API, 127.0.0.1")
    assert gone["until"] > time.time()
    assert (back["change"], back["delegate"]) == ("back", "bo")
    (decided,) = records(shop, "decision")
    assert (decided["by"], decided["instead_of"]) == ("bo", ["ada"])


@pytest.mark.parametrize(
    ("who", "delegate", "status"),
    [
        ("ada", "cy", 422),
        ("ada", "eve", 422),
        ("ada", "nobody", 422),
        ("ada", "ada", 422),
        ("eve", "bo", 422),
        ("cy", "bo", 403),
        ("boss", "bo", 409),
    ],
)
async def test_only_a_person_of_ones_own_who_may_decide_stands_in(shop, who, delegate, status):
    refused = await goes(shop, who, delegate)
    assert refused.status_code == status
    assert refused.headers["content-type"] == "application/problem+json"
    if status == 422:
        assert refused.json()["param"] == "delegate"
        assert refused.json()["detail"] == f"delegate: {delegate!r} cannot decide in your place"
    assert (await shop.client.get("/away", headers=bearer("bo-key"))).json()["stands_in_for"] == []


@pytest.mark.parametrize("seconds", [-1, 367 * 86_400])
async def test_a_time_that_is_over_or_too_far_is_none(shop, seconds):
    refused = await goes(shop, "ada", until=time.time() + seconds)
    assert (refused.status_code, refused.json()["param"]) == (422, "until")


async def test_a_later_person_of_the_same_name_does_not_stand_in(shop):
    await goes(shop, "ada")
    before = shop.people["bo"]
    await change(shop, before, gone := replace(before, revoked_at=time.time()))
    await change(shop, gone, replace(before, uid="another-uid"))
    request = await asked(shop, "cy")
    assert await decides(shop, "bo", request) == 403
    assert (await shop.client.get("/away", headers=bearer("bo-key"))).json()["stands_in_for"] == []


async def test_the_command_tells_the_audit_of_people_too(shop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELF_TRUST", str(tmp_path))
    path = tmp_path / "by-command.jsonl"
    settings = f'[agent]\nobservers = ["audit"]\n[plugins.audit]\npath = "{path}"\n'
    (tmp_path / "delf.toml").write_text(settings)
    commands = (
        "users add flo --team finance",
        "users add flo --key ci --rights read",
        "users away flo --days 2 --to bo",
        "users away flo --back",
        "users revoke flo --key ci",
        "users revoke flo",
    )

    def run_all() -> None:
        for words in commands:
            done = CliRunner().invoke(cli, words.split())
            assert done.exit_code == 0, done.output

    await asyncio.to_thread(run_all)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    told = ["added", "key added", "away", "back", "key revoked", "revoked"]
    assert [line["change"] for line in found] == told
    assert {line["name"] for line in found} == {"flo"}
    assert {line["via"] for line in found} == {"delf users"}


@pytest.mark.slow
async def test_somebody_says_on_the_page_that_they_are_away(shop, open_page):  # noqa: F811
    page, other = await open_page(f"{shop.url}/#/sessions"), await open_page(shop.url)
    await logged_in(page, "ada-key")
    part = page.get_by_role("region", name="While you are away")
    await part.get_by_label("Who decides").select_option("bo")
    assert await accessible(page) == []
    await part.get_by_role("button", name="I am away").click()
    await expect(part).to_contain_text("bo decides in your place until")
    assert await accessible(page) == []
    await logged_in(other, "bo-key")
    await other.get_by_role("link", name="sessions", exact=True).click()
    await expect(other.get_by_role("region", name="While you are away")).to_contain_text(
        "You decide in the place of ada until"
    )
    request = await asked(shop, "cy")
    await other.evaluate("name => { location.hash = `#/inbox`; }")
    await other.locator(".inbox-row").get_by_role("button", name="Approve").click()
    await expect(other.get_by_text("Nothing waits for you.")).to_be_visible()
    decided = (await shop.client.get(f"/approvals/{request}")).json()["decided"]
    assert (decided["by"], decided["instead_of"]) == ("bo", ["ada"])
    assert decided["via"] == "page, 127.0.0.1"
    await part.get_by_role("button", name="I am back").click()
    await expect(part.get_by_role("form", name="I am away")).to_be_visible()
    assert (await shop.client.get("/away")).json()["delegate"] is None
