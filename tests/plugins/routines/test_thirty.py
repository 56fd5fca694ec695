"""Thirty tasks of five kinds of services: asked once, saved, and run with other values."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from delf import Agent, tool
from delf_filesystem import Filesystem
from delf_mcp import MCP
from delf_openapi import APITool
from delf_routines.program import Routines
from delf_sql.connection import SQL
from support.raw_http import Reply, Seen, raw_server

pytestmark = pytest.mark.timeout(120)

MCP_SERVER = str(Path(__file__).parents[1] / "mcp/server.py")


@dataclass(frozen=True)
class Asked:
    """A task: its words, the scripts that did it, and its expected parameters.

    ``other`` has other values for the parameters; ``gives`` is the answer with these. ``fixed``
    are proposed parameters that a person must reject; ``missed`` are values that a person must
    turn into parameters by hand.
    """

    words: str
    scripts: tuple[str, ...]
    other: dict[Any, Any]
    gives: str
    fixed: tuple[str, ...] = ()
    missed: tuple[Any, ...] = ()
    one: str = ""


SUM = "select coalesce(sum(total), 0) as s from orders where"
TASKS = {
    "sql sum": Asked(
        "How much did Berlin pay in 2026-10?",
        (
            (
                f"rows = await shop.query(\"{SUM} city = 'Berlin' and day like '2026-10-%'\")\n"
                "print(f\"Berlin paid {rows[0]['s']} euros\")"
            ),
        ),
        {"Berlin": "Rome", "2026-10": "2026-11"},
        "Rome paid 9 euros",
    ),
    "sql status": Asked(
        "How many orders are 'open'?",
        (
            (
                "rows = await shop.query(\"select count(*) as n from orders where status = 'open'\")\n"
                "print(rows[0]['n'])"
            ),
        ),
        {"open": "paid"},
        "4",
    ),
    "sql top": Asked(
        "Which are the top 2 cities by revenue?",
        (
            (
                'rows = await shop.query("select city, sum(total) as s from orders group by city '
                'order by s desc")\nfor row in rows[:2]:\n    print(row["city"], row["s"])'
            ),
        ),
        {2: 1},
        "Berlin 42",
    ),
    "sql threshold": Asked(
        "Which orders are above 20 euros?",
        (
            (
                'rows = await shop.query("select id, total from orders order by id")\n'
                'print([row["id"] for row in rows if row["total"] > 20])'
            ),
        ),
        {20: 8},
        "[1, 4]",
    ),
    "sql threshold in the statement": Asked(
        "How many orders are above 20 euros?",
        (
            (
                'rows = await shop.query("select count(*) as n from orders where total > 20")\n'
                'print(rows[0]["n"])'
            ),
        ),
        {20: 8},
        "2",
    ),
    "sql between": Asked(
        "How many orders came from 2026-10-01 to 2026-10-31?",
        (
            (
                'rows = await shop.query("select count(*) as n from orders where day between '
                "'2026-10-01' and '2026-10-31'\")\nprint(rows[0]['n'])"
            ),
        ),
        {"2026-10-01": "2026-11-01", "2026-10-31": "2026-11-30"},
        "3",
    ),
    "sql loop": Asked(
        "How many orders had each customer in Rome?",
        (
            (
                "people = await shop.query(\"select name from customers where city = 'Rome' "
                'order by name")\nfor one in people:\n'
                '    rows = await shop.query("select count(*) as n from orders where customer = '
                "'\" + one['name'] + \"'\")\n    print(one['name'], rows[0]['n'])"
            ),
        ),
        {"Rome": "Berlin"},
        "Ada 2",
    ),
    "sql month in words": Asked(
        "What did all pay in October 2026?",
        (f"rows = await shop.query(\"{SUM} day like '2026-10-%'\")\nprint(rows[0]['s'])",),
        {"2026-10": "2026-11"},
        "13",
    ),
    "sql again": Asked(
        "What did Rome pay in all?",
        (
            f"rows = await shop.query(\"{SUM} town = 'Rome'\")\nprint(rows[0]['s'])",
            f"rows = await shop.query(\"{SUM} city = 'Rome'\")\nprint(rows[0]['s'])",
        ),
        {"Rome": "Berlin"},
        "42",
    ),
    "file of a month": Asked(
        "How many lines has the report of 2026-10?",
        ("text = await disk.read_file('reports/2026-10.csv')\nprint(len(text.splitlines()))",),
        {"2026-10": "2026-11"},
        "3",
    ),
    "files that hold a word": Asked(
        "Which reports hold the word overdue?",
        (
            (
                "found = await disk.find('overdue', path='reports')\n"
                "print(sorted({one['path'] for one in found}))"
            ),
        ),
        {"overdue": "paid"},
        "['reports/2026-10.csv', 'reports/2026-11.csv']",
        fixed=("path",),
    ),
    "file list": Asked(
        "How many reports are there?",
        ("print(len(await disk.list_files('reports', pattern='*.csv')))",),
        {},
        "2",
        fixed=("path",),
    ),
    "file written": Asked(
        "Write the sum of 2026-10 to out/sum.txt.",
        (
            (
                f"rows = await shop.query(\"{SUM} day like '2026-10-%'\")\n"
                "await disk.write_file('out/sum.txt', str(rows[0]['s']))\nprint('written')"
            ),
        ),
        {"2026-10": "2026-11", "out/sum.txt": "out/november.txt"},
        "written",
    ),
    "output file": Asked(
        "Give me the orders of 2026-10 as orders.json.",
        (
            (
                "rows = await shop.query(\"select id from orders where day like '2026-10-%'\")\n"
                "add_to_output_files('orders.json', rows)\nprint(f'{len(rows)} orders')"
            ),
        ),
        {"2026-10": "2026-11", "orders.json": "november.json"},
        "3 orders",
    ),
    "mail count": Asked(
        "How many mails came from ada@example.com?",
        ("print(len(await inbox(sender='ada@example.com')))",),
        {"ada@example.com": "bob@example.com"},
        "1",
    ),
    "mail sent": Asked(
        "Send ada@example.com a mail with the subject 'Report of 2026-10'.",
        (
            (
                "await send(to='ada@example.com', subject='Report of 2026-10', text='Hello')\n"
                "print('sent')"
            ),
        ),
        {"ada@example.com": "bob@example.com", "Report of 2026-10": "Report of 2026-11"},
        "sent",
    ),
    "mail to each": Asked(
        "Remind every customer in Rome by mail.",
        (
            (
                "people = await shop.query(\"select name, mail from customers where city = 'Rome' "
                'order by name")\nfor one in people:\n'
                "    await send(to=one['mail'], subject='Reminder', text=f\"Dear {one['name']}\")\n"
                "print(f'{len(people)} reminded')"
            ),
        ),
        {"Rome": "Berlin"},
        "1 reminded",
    ),
    "mail since": Asked(
        "How many mails from ada@example.com came since 2026-10-05?",
        (
            (
                "found = [m for m in await inbox('ada@example.com') if m['day'] >= '2026-10-05']\n"
                "print(len(found))"
            ),
        ),
        {"ada@example.com": "bob@example.com", "2026-10-05": "2026-10-01"},
        "1",
    ),
    "mail with a sentence": Asked(
        'Answer bob@example.com with "Thank you, we will look at it."',
        (
            (
                "await send(to='bob@example.com', subject='Re:', text='Thank you, we will look at it.')\n"
                "print('answered')"
            ),
        ),
        {"bob@example.com": "ada@example.com", "Thank you, we will look at it.": "Done."},
        "answered",
    ),
    "rest path and query": Asked(
        "What is the weather in Oslo on 2026-11-02?",
        (
            (
                "found = await api.weather(city='Oslo', day='2026-11-02')\n"
                "print(f\"{found['city']}: {found['sky']}\")"
            ),
        ),
        {"Oslo": "Rome", "2026-11-02": "2026-11-03"},
        "Rome: sun on 2026-11-03",
    ),
    "rest id": Asked(
        "What is the mail of user 17?",
        ("print((await api.user(17))['mail'])",),
        {17: 18},
        "u18@example.com",
    ),
    "rest ids": Asked(
        "What are the mails of the users 17, 18 and 19?",
        ("for number in [17, 18, 19]:\n    print((await api.user(number))['mail'])",),
        {17: 27, 18: 28, 19: 29},
        "u27@example.com\nu28@example.com\nu29@example.com",
    ),
    "rest body": Asked(
        "Open a ticket 'Printer broken' with priority 2.",
        (
            (
                "made = await api.open_ticket(title='Printer broken', priority=2)\n"
                "print(made['id'], made['title'])"
            ),
        ),
        {"Printer broken": "Door stuck", 2: 3},
        "t3 Door stuck",
    ),
    "rest in two passes": Asked(
        "What is the weather on 2026-11-02 where user 17 lives?",
        (
            "city = (await api.user(17))['city']\nrerun(f'they live in {city}', 'the weather')",
            "print((await api.weather(city=city, day='2026-11-02'))['sky'])",
        ),
        {17: 18, "2026-11-02": "2026-11-03"},
        "sun on 2026-11-03",
        one="city = (await api.user(17))['city']\n"
        "print((await api.weather(city=city, day='2026-11-02'))['sky'])",
    ),
    "rest written out by the model": Asked(
        "What is the weather in Oslo on 2026-11-02, and in the city of user 17?",
        (
            "city = (await api.user(17))['city']\nrerun(city, 'the weather')",
            (
                "for city in ('Oslo', 'City17'):\n"
                "    print((await api.weather(city=city, day='2026-11-02'))['sky'])"
            ),
        ),
        {"Oslo": "Rome", 17: 18, "2026-11-02": "2026-11-03"},
        "sun on 2026-11-03\nsun on 2026-11-03",
        one="city = (await api.user(17))['city']\nfor place in ('Oslo', city):\n"
        "    print((await api.weather(city=place, day='2026-11-02'))['sky'])",
    ),
    "mcp numbers": Asked(
        "What are 17 and 25 together?",
        ("print(await srv.add(a=17, b=25))",),
        {17: 1, 25: 2},
        "{'result': 3}",
    ),
    "mcp a date that is an object": Asked(
        "How many days are it from 2026-10-01 to 2026-10-09, and 20 more?",
        (
            (
                "import datetime\n"
                "days = (datetime.date(2026, 10, 9) - datetime.date(2026, 10, 1)).days\n"
                "print((await srv.add(days, 20))['result'])"
            ),
        ),
        {20: 4},
        "12",
        missed=("2026-10-01", "2026-10-09"),
    ),
    "mcp text": Asked(
        "Keep the note 'buy milk'.",
        ("print(await srv.note(text='buy milk'))",),
        {"buy milk": "buy tea"},
        "{'result': 'noted: buy tea'}",
    ),
    "mcp loop": Asked(
        "Add 5 to each of the totals of Rome.",
        (
            (
                "rows = await shop.query(\"select total from orders where city = 'Rome' order by id\")\n"
                "for row in rows:\n    print(await srv.add(row['total'], 5))"
            ),
        ),
        {5: 10, "Rome": "Oslo"},
        "{'result': 12}",
    ),
    "sql and mail": Asked(
        "Mail ada@example.com the orders of 2026-10 that are above 20 euros.",
        (
            (
                "rows = await shop.query(\"select id, total from orders where day like '2026-10-%'\")\n"
                "large = [row for row in rows if row['total'] > 20]\n"
                "await send(to='ada@example.com', subject='Orders of 2026-10', text=str(len(large)))\n"
                "print(f'{len(large)} orders of 2026-10 above 20')"
            ),
        ),
        {"ada@example.com": "bob@example.com", "2026-10": "2026-11", 20: 3},
        "1 orders of 2026-11 above 3",
    ),
}
SPEC = {
    "openapi": "3.1.0",
    "info": {"title": "Things", "version": "1"},
    "paths": {
        "/weather/{city}": {
            "get": {
                "operationId": "weather",
                "parameters": [
                    {"name": "city", "in": "path", "required": True, "schema": {"type": "string"}},
                    {"name": "day", "in": "query", "schema": {"type": "string"}},
                ],
                "responses": {"200": {"description": "It."}},
            }
        },
        "/users/{number}": {
            "get": {
                "operationId": "user",
                "parameters": [
                    {
                        "name": "number",
                        "in": "path",
                        "required": True,
                        "schema": {"type": "integer"},
                    }
                ],
                "responses": {"200": {"description": "It."}},
            }
        },
        "/tickets": {
            "post": {
                "operationId": "open_ticket",
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {
                            "schema": {
                                "type": "object",
                                "required": ["title", "priority"],
                                "properties": {
                                    "title": {"type": "string"},
                                    "priority": {"type": "integer"},
                                },
                            }
                        }
                    },
                },
                "responses": {"200": {"description": "It."}},
            }
        },
    },
}


def answered(seen: Seen) -> Reply:
    """Answer as the API: the weather of a city, users by number, tickets."""
    _, kind, *rest = seen.path.split("/")
    if kind == "weather":
        day = seen.query.partition("=")[2]
        found = {"city": rest[0], "sky": f"sun on {day}"}
    elif kind == "users":
        found = {"mail": f"u{rest[0]}@example.com", "city": f"City{rest[0]}"}
    else:
        given = json.loads(seen.body)
        found = {"id": f"t{given['priority']}", **given}
    return Reply(body=json.dumps(found).encode())


ORDERS = [
    (1, "Berlin", "2026-10-03", 40, "open", "Ada"),
    (2, "Berlin", "2026-11-07", 2, "paid", "Ada"),
    (3, "Rome", "2026-10-09", 7, "paid", "Bob"),
    (4, "Rome", "2026-11-11", 9, "paid", "Eve"),
    (5, "Oslo", "2026-11-12", 2, "paid", "Cai"),
]
PEOPLE = [
    ("Ada", "ada@example.com", "Berlin"),
    ("Bob", "bob@example.com", "Rome"),
    ("Eve", "eve@example.com", "Rome"),
]
MAILS = [
    ("ada@example.com", "2026-10-03"),
    ("ada@example.com", "2026-10-07"),
    ("bob@example.com", "2026-10-02"),
]


def files(folder: Path) -> None:
    """Write the database and the reports."""
    with closing(sqlite3.connect(folder / "shop.db")) as db, db:
        db.execute("create table orders (id, city text, day text, total integer, status, customer)")
        db.execute("create table customers (name text, mail text, city text)")
        db.executemany("insert into orders values (?, ?, ?, ?, ?, ?)", ORDERS)
        db.executemany("insert into customers values (?, ?, ?)", PEOPLE)
    (folder / "reports").mkdir()
    (folder / "out").mkdir()
    (folder / "reports/2026-10.csv").write_text("id,state\n1,overdue\n2,paid\n3,paid\n")
    (folder / "reports/2026-11.csv").write_text("id,state\n4,paid\n5,paid\n")


@pytest.fixture
async def agent(store, tmp_path, delf_host, scripted_model, monkeypatch):
    """An agent with all the services, whose person approves everything."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files(tmp_path)

    @tool(effect="read", confirm=False)
    def inbox(sender: str) -> list[dict[str, str]]:
        """Mails of a sender."""
        return [{"sender": who, "day": day} for who, day in MAILS if who == sender]

    @tool(effect="irreversible")
    def send(to: str, subject: str, text: str) -> str:
        """Send a mail."""
        return "sent"

    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(raw_server(answered))
        roots = {"reports": "reports", "out": {"root": "out", "mode": "rw"}}
        tools = [
            SQL(f"sqlite:///{tmp_path}/shop.db", name="shop", confirm=False),
            Filesystem(name="disk", roots=roots),
            APITool(SPEC, name="api", base_url=server.url),
            MCP(name="srv", command=sys.executable, args=[MCP_SERVER], protocol="legacy"),
            inbox,
            send,
        ]
        options = {"on_confirm": lambda _: True, "retry_count": 2, "flows": "off"}
        made = Agent(tools=tools, llm="scripted", host=delf_host, **options)
        yield await stack.enter_async_context(made)


@pytest.mark.slow
async def test_thirty_tasks_become_routines_for_other_values(agent, scripted_model):
    right = 0
    for name, asked in TASKS.items():
        scripted_model.writes(*asked.scripts)
        response = await agent.arun(asked.words)
        assert response.status, (name, response.error)
        if asked.one:
            scripted_model.writes(asked.one)
        draft = await Routines(agent).adraft(response.trace.task_id, "task", fixed=asked.fixed)
        assert not draft.differences, (name, draft.differences)
        assert not draft.warnings, (name, draft.warnings)
        found = {item.default: item.name for item in draft.routine.parameters.values()}
        assert set(found) == set(asked.other), name
        right += not (asked.fixed or asked.missed)
        requests = len(scripted_model.requests)
        inputs = {found[value]: other for value, other in asked.other.items()}
        again = await draft.keep().arun(**inputs)
        assert (again.status, again.text) == (True, asked.gives), (name, again.error)
        assert again.cost_usd == 0
        assert len(scripted_model.requests) == requests, name
    # The README of the plugin tells these numbers.
    assert (len(TASKS), right) == (30, 27)
