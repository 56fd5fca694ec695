"""Evaluations over HTTP and on the page: data sets, and reports compared with the run before."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from delf import load_project
from delf_evals.places import RUNS
from delf_evals.report import CaseResult, CheckResult, Report, VariantResult, keep
from plugins.serve.pages import HOSTILE, accessible
from support.serving import Outbox, bearer, make_agent, serving


def made(at, *passed, before=()):
    checks = [CheckResult(name="Contains", passed=ok, reason=HOSTILE) for ok in passed]
    cases = [
        CaseResult(name=f"case {n}", task=HOSTILE, passed=ok, answer=HOSTILE, checks=[checks[n]])
        for n, ok in enumerate(passed)
    ]
    variants = [VariantResult(name=f"llm={name}", model=name, cases=cases) for name in "xy"]
    report = Report(dataset="mine", at=at, variants=variants)
    report.compare_with_last(before)
    return report


@pytest.fixture
def agent(tmp_path, monkeypatch):
    """The options of an agent in a project with a data set and two runs."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "evals/mine.yaml"
    path.parent.mkdir()
    path.write_text("cases:\n- inputs: x\n")
    first = made("2026-11-01T00:00:00Z", True, False)
    kept = keep(first, path)
    keep(made("2026-11-02T00:00:00Z", True, True, before=[kept]), path)
    return {"project": load_project(tmp_path)}


async def test_reports_are_listed_and_read(agent, serve):
    server = await serve(agent=agent)
    listed = (await server.client.get("/evals")).json()
    assert listed["evaluations"] == [{"name": "mine", "runs": 2}]
    last = (await server.client.get("/evals/mine")).json()["report"]
    assert [row["passed"] for row in last["variants"]] == [2, 2]
    assert [change["case"] for change in last["changes"]] == ["case 1", "case 1"]
    before = (await server.client.get("/evals/mine?run=2")).json()["report"]
    assert before["at"] == last["since"]


@pytest.mark.parametrize(
    "path", ["/evals/other", "/evals/mine?run=3", "/evals/..%2Fevals%2Fmine.yaml"]
)
async def test_unknown_report_is_not_found(agent, serve, path):
    server = await serve(agent=agent)
    assert (await server.client.get(path)).status_code == 404


async def test_damaged_report_is_reported(agent, serve, tmp_path):
    server = await serve(agent=agent)
    newest = max((tmp_path / "evals" / RUNS / "mine").iterdir())
    newest.write_text("{")
    answer = await server.client.get("/evals/mine")
    assert answer.status_code == 404
    assert "is not a report" in answer.text


async def test_evaluations_are_visible_only_with_access_to_all_tasks(agent, serve):
    server = await serve(api_key="bob:read@own:bob-key,ada:read:ada-key", agent=agent)
    for name, count in (("bob-key", 0), ("ada-key", 1)):
        listed = (await server.client.get("/evals", headers=bearer(name))).json()
        assert len(listed["evaluations"]) == count
        answer = await server.client.get("/evals/mine", headers=bearer(name))
        assert answer.status_code == (200 if count else 404)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
async def test_page_shows_the_last_run_and_the_one_before(
    agent,
    tmp_path,
    monkeypatch,
    open_page,
    width,
    height,
):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    box = Outbox()
    async with serving(make_agent(str(tmp_path), box, **agent), box) as server:
        page = await open_page(f"{server.url}/#/evals", width, height)
        await page.locator("summary", has_text="mine").first.click()
        section = page.get_by_role("region", name="mine", exact=True)
        await expect(section).to_contain_text("2 better, 0 worse")
        await expect(section).to_contain_text("passed (new)")
        await section.get_by_label("Run of mine").select_option("2")
        await expect(section).not_to_contain_text("compared with")
        await expect(section).to_contain_text("FAILED")
        assert await accessible(page) == []
        assert not await page.evaluate("window.hurt")
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
