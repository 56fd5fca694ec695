"""Search and figures of a server: what happened in which task, and what it cost whom."""

from __future__ import annotations

import csv
import io
import time

import pytest

from delf.protocols.journal import filterable_fields
from support.serving import KEYS, bearer


async def done(server, code: str, words: str, **more) -> str:
    task = await server.run(code, words, **more)
    await server.until(task["task_id"], "done", "failed")
    return task["task_id"]


async def found(server, **query):
    answer = await server.client.get("/search", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["tasks"]


async def test_finished_task_is_found_by_its_content(serve):
    server = await serve()
    first = await done(server, "print((await look(4711))['name'])", "find the lamp")
    await done(server, "print(1)", "something else")
    for words, place in (("lamp", "task"), ("4711", "task"), ('"thing 4711"', "answer")):
        (one,) = await found(server, text=words)
        assert (one["task"]["task_id"], one["place"]) == (first, place), words
    (one,) = await found(server, action="look")
    assert one["task"]["task_id"] == first
    assert one["excerpt"] == ""
    for name in filterable_fields():
        assert await found(server, action="look", **{name: "another"}) == []


async def test_waiting_task_is_found_as_waiting(serve):
    server = await serve()
    task = await server.run("print(await send('bob', 7))", "post the letter")
    await server.until(task["task_id"], "waiting")
    (one,) = await found(server, text="letter", state="waiting")
    assert one["task"]["state"] == "waiting"
    assert await found(server, text="letter", state="running") == []


async def test_state_filter_fills_pages_despite_other_tasks(serve):
    server = await serve()
    first = await server.run("print(await send('bob', 7))", "post the letter")
    await server.until(first["task_id"], "waiting")
    held = [await server.run("print(await hold())", "hold the letter") for _ in range(3)]
    for task in held:
        await server.until(task["task_id"], "running")
    (one,) = await found(server, text="letter", state="waiting", limit=1)
    assert one["task"]["task_id"] == first["task_id"]
    running = await found(server, text="letter", state="running", limit=2)
    assert [one["task"]["task_id"] for one in running] == [t["task_id"] for t in held[:0:-1]]
    server.box.gate.set()


async def test_search_pages_follow_each_other(serve):
    server = await serve()
    names = [await done(server, f"print({n})", "the same words") for n in range(3)]
    seen, before = [], {}
    while True:
        part = (await server.client.get("/search", params={"limit": 2, **before})).json()
        seen += [one["task"]["task_id"] for one in part["tasks"]]
        if not part["more"]:
            break
        before = {"before": seen[-1]}
    assert seen == names[::-1]
    assert (await server.client.get("/search", params={"before": "task_no"})).status_code == 404


async def test_figures_show_use_per_person(serve):
    server = await serve(api_key=KEYS, key="ada-key", agent={"cost_usd": 0.25})
    await done(server, "print(await look(1))", "first")
    for who in ("ada-key", "cy-key"):
        server.client.headers.update(bearer(who))
        await done(server, "print(await look(2))", f"second of {who}")
    by_person = (await server.client.get("/figures", params={"by": "person"})).json()["figures"]
    assert [(one["group"], one["tasks"], one["cost_usd"]) for one in by_person] == [
        ("ada", 2, 0.5),
        ("cy", 1, 0.25),
    ]
    (day,) = (await server.client.get("/figures")).json()["figures"]
    assert day["group"] == time.strftime("%Y-%m-%d", time.gmtime())
    assert (day["tasks"], day["calls"], day["cost_usd"]) == (3, 3, 0.75)
    assert [one["task"]["task"].partition("\n")[0] for one in await found(server, person="cy")] == [
        "second of cy-key"
    ]


@pytest.mark.parametrize("by", ["day", "person", "connection", "action", "model"])
async def test_figures_can_be_exported_as_csv(serve, by):
    server = await serve()
    await done(server, "print(await look(1))", "first")
    answer = await server.client.get("/figures", params={"by": by, "format": "csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"] == f'attachment; filename="delf-{by}.csv"'
    (row,) = csv.DictReader(io.StringIO(answer.text))
    assert (row["tasks"], row["calls"]) == ("1", "1")
    assert by in row


@pytest.mark.parametrize(
    ("path", "query", "param"),
    [
        ("/figures", {"by": "hour"}, "by"),
        ("/figures", {"format": "xml"}, "format"),
        ("/search", {"limit": "0"}, "limit"),
        ("/search", {"since": "nan"}, "since"),
        ("/search", {"state": "asleep"}, "state"),
        ("/search", {"words": "x"}, "words"),
    ],
)
async def test_error_names_the_invalid_query_parameter(serve, path, query, param):
    server = await serve()
    answer = await server.client.get(path, params=query)
    assert answer.status_code == 422
    assert answer.json()["param"] == param


async def test_unknown_time_zone_is_reported(serve):
    server = await serve()
    answer = await server.client.get("/figures", params={"zone": "Mars/Olympus"})
    assert answer.status_code == 409
    assert "Europe/Berlin" in answer.json()["detail"]


async def test_tasks_with_many_equal_lines_are_compared_at_once(serve):
    server = await serve()
    made = [await server.run(f"print({start!r} + 'same\\n' * 30_000)") for start in ("", "x\n")]
    one, other = [task["task_id"] for task in made]
    for task_id in (one, other):
        await server.until(task_id, "done")
    found = (await server.client.get(f"/tasks/{one}/compare/{other}")).json()
    assert found["answer"][0] == {"left": "same", "right": "x", "same": False}
    assert found["answer"][1] == {"left": "same", "right": "same", "same": True}
    assert len(found["answer"]) == 30_001
