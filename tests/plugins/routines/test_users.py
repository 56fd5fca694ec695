"""Routines of one agent that many users run, each of whom a program keeps in a ContextVar."""

from __future__ import annotations

from typing import Any

import pytest

from delf_routines.connection import RoutineTools
from delf_routines.routine import Parameter, Routine, UsedAction
from support.users import *  # noqa: F403 - the fixture office
from support.users import NAMED, Office, all_at_once, confirming

SCRIPT = """\
print(await bank.salary(name=who), await plain(name=who), await bank.pay(name=who))
print(await desk.file(name=who))
"""
USED = {
    "bank.salary": UsedAction(effect="read", parameters=("name: str",), returns="str"),
    "bank.pay": UsedAction(effect="write", parameters=("name: str",), returns="str"),
    "desk.file": UsedAction(effect="write", parameters=("name: str",), returns="str"),
    "plain": UsedAction(effect="irreversible", parameters=("name: str",), returns="str"),
}


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_concurrent_users_of_a_routine_are_kept_apart(
    office: Office, scripted_model: Any, store: Any
) -> None:
    who = Parameter(name="who", type="text", default="user-0", pattern=r"user-\d+")
    store.keep(
        Routine(
            name="payday",
            title="Pay somebody.",
            task="Pay user-0.",
            script=SCRIPT,
            parameters={"who": who},
            actions=USED,
        )
    )
    sightings = office.sightings

    def complete(request: Any) -> str:
        task = next(m.text for m in reversed(request.messages) if NAMED.search(m.text))
        sightings.note("model", task)
        return f"```python\nprint(await routines.payday(who={NAMED.findall(task)[-1]!r}))\n```"

    scripted_model.default = complete
    confirm = confirming(sightings, plain=True)
    async with office.open(RoutineTools(), on_confirm=confirm) as agent:

        async def one(name: str) -> None:
            response = await agent.arun(f"Pay {name}.")
            response.raise_for_status()
            assert set(NAMED.findall(response.text)) == {name}

        await all_at_once(one)
    assert sightings.strangers == {}
    assert sightings.parts >= {"model", "async action", "plain action", "plain function"}
    assert sightings.parts >= {"approved action", "async check", "plain check", "on_confirm"}
