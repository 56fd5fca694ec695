"""A transaction of several statements in a task: asked about, cut short, and resumed."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from delf import AlreadyDone, Approved
from delf import events as ev
from delf.protocols.facts import facts
from delf.testing import TestHost
from delf_devkit.testing.models import ScriptedModel
from delf_sql import SQL
from support.resuming import Bench, World

SCRIPT = """
done = await db.write(
    ["UPDATE stock SET n = n - :n WHERE item = 'lamp'", "INSERT INTO sold VALUES ('lamp', :n)"],
    {"n": 2},
)
print(done["rowcount"], (await db.query("SELECT n FROM stock"))[0]["n"])
"""
SETUP = "CREATE TABLE stock (item text, n int); CREATE TABLE sold (item text, n int);"


@pytest.fixture
def shop(tmp_path: Path):
    """A function that returns the rows of a shop, and the URL of its database."""
    path = tmp_path / "shop.db"

    def rows(setup: Any = ""):
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executescript(setup)
            return connection.execute(
                "SELECT (SELECT n FROM stock), (SELECT count(*) FROM sold)"
            ).fetchall()

    rows(SETUP)
    return rows, f"sqlite:///{path}"


@pytest.fixture
def bench(delf_host: TestHost, scripted_model: ScriptedModel) -> Bench:
    return Bench(delf_host, scripted_model)


def renew(rows: Any, *, is_done: bool) -> None:
    rows(
        "DELETE FROM stock; DELETE FROM sold; INSERT INTO stock VALUES ('lamp', 5);"
        + ("UPDATE stock SET n = 3; INSERT INTO sold VALUES ('lamp', 2);" if is_done else "")
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cut", "happened", "asked"),
    [
        (ev.ApprovalRequested, False, 1),
        (ev.ApprovalDecided, False, 0),
        (ev.CallStarted, False, 1),
        (ev.CallStarted, True, 1),
        (ev.CallFinished, True, 0),
    ],
)
async def test_transaction_interrupted_by_a_kill_is_done_once(
    shop: Any, bench: Any, cut: Any, happened: Any, asked: Any
):
    rows, url = shop
    bench.model.writes(SCRIPT)
    renew(rows, is_done=False)
    async with bench.agent(World(), more=[SQL(url, name="db")]) as agent:
        whole = (await agent.arun("Sell two lamps.")).raise_for_status()
    assert whole.text == "2 3"
    (request,) = bench.asked
    message = "\n".join(fact.text for fact in facts(request))
    assert "1. UPDATE stock SET n = n - :n WHERE item = 'lamp' (rows now: 1)" in message
    assert "2. INSERT INTO sold VALUES" in message
    assert message.count("(new rows: 1)") == 1

    events = await bench.journal.read(whole.trace.task_id)
    end = next(number for number, event in enumerate(events, 1) if isinstance(event, cut))
    await bench.journal.ended_after(events[:end])
    renew(rows, is_done=happened)
    bench.asked.clear()

    def decide(request: Any):
        if not request.outcome_unknown or not happened:
            return Approved()
        return AlreadyDone(result={"rowcount": 2, "rows": [], "committed": True})

    async with bench.agent(World(), decide, more=[SQL(url, name="db")]) as agent:
        again = (await agent.aresume(whole.trace.task_id)).raise_for_status()
    assert (again.text, len(bench.asked)) == ("2 3", asked)
    assert rows() == [(3, 1)]
