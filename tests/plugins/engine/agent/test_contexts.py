"""Tasks of many users at once, each of whom a program keeps in a ContextVar.

Whatever is done for a task sees the ContextVars of the task's own caller: tools, checks, approval
channels, observers, listeners, models, memory. What an agent makes ahead keeps nobody's.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from delf import Agent, CallContext, tool
from delf.events import Event, TaskStarted
from delf.machine.threads import in_own_thread
from delf.specs import SandboxSpec, StrategySpec
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from support.dockerd import docker_session
from support.resuming import Bench
from support.until import until
from support.users import *  # noqa: F403 - the fixture office
from support.users import (
    NAMED,
    PARTS,
    USERS,
    CarelessSandbox,
    CarelessStrategy,
    Office,
    User,
    answer,
    confirming,
    user,
)


@pytest.fixture(scope="session")
def docker_engine(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The session's engine."""
    with docker_session(tmp_path_factory) as engine:
        yield engine


OURS = ("local", "monty", "docker")


@pytest.fixture(params=[*OURS, "careless"])
def sandbox(request: pytest.FixtureRequest, delf_host: TestHost) -> dict[str, Any]:
    """Options of an agent with each sandbox."""
    if request.param == "docker":
        engine: Any = request.getfixturevalue("docker_engine")
        options = {"engine": engine.url, "base_image": engine.base_image}
        return {"sandbox": "docker", "sandbox_config": options}
    if request.param == "careless":
        spec = SandboxSpec(name="careless", summary="S.", factory="x:y", isolation="vm")
        delf_host.provide(spec, CarelessSandbox)
    return {"sandbox": request.param}


async def everybody(office: Office, agent: Agent, users: int = USERS) -> None:
    """Run tasks for users, in every way that a program can, ten of them concurrently."""
    office_of = office.sightings

    def listen(name: str) -> Callable[[Event], None]:
        return lambda _: office_of.note("listener", name)

    async def one(number: int) -> None:
        name = f"user-{number}"
        user.set(User(name))
        task = f"Pay {name}."
        match number % 4:
            case 0:
                response = await agent.arun(task, listeners=[listen(name)])
            case 1:  # a thread of a web program
                response = await in_own_thread(lambda: asyncio.run(agent.arun(task)), "web")
            case 2:
                task_id = await agent.asubmit(task)
                response = await in_own_thread(lambda: agent.wait(task_id), "web")
            case _:
                handle = await agent.asubmit(task)
                response = await handle
        response.raise_for_status()
        assert set(NAMED.findall(response.text)) <= {name}

    await one(users)  # its sandboxes, connections and observers serve those who come next
    for start in range(0, users, 10):
        async with asyncio.TaskGroup() as group:
            for number in range(start, start + 10):
                group.create_task(one(number))


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("sandbox", "plain"),
    [("local", True), *((name, False) for name in (*OURS, "careless"))],
    indirect=["sandbox"],
)
async def test_concurrent_users_of_one_agent_are_kept_apart(
    office: Office, sandbox: dict[str, Any], plain: bool
) -> None:
    confirm = confirming(office.sightings, plain=plain)
    users = 10 if sandbox["sandbox"] == "docker" else USERS  # a container takes a third of a second
    async with office.open(**sandbox, on_confirm=confirm) as agent:
        await everybody(office, agent, users)
    assert office.sightings.strangers == {}
    assert office.sightings.parts >= PARTS


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("strategy", ["stream", "careless"])
async def test_concurrent_users_are_kept_apart_in_every_strategy(
    office: Office, scripted_model: ScriptedModel, strategy: str
) -> None:
    if strategy == "stream":
        scripted_model.default = answer(office.sightings, "markers")
    else:
        made = CarelessStrategy()
        spec = StrategySpec(name="careless", summary="C.", factory="x:y")
        office.host.provide(spec, lambda: made)
    confirm = confirming(office.sightings, plain=True)
    async with office.open(strategy=strategy, on_confirm=confirm) as agent:
        await everybody(office, agent)
    assert office.sightings.strangers == {}
    assert office.sightings.parts >= PARTS


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_concurrent_users_in_threads_are_kept_apart(office: Office) -> None:
    """A threaded program, such as with Flask, is served by the agent's own loop."""
    agent = office.open(on_confirm=confirming(office.sightings, plain=True))

    def one(number: int) -> str:
        name = f"user-{number}"
        user.set(User(name))
        if number % 2:
            agent.run(f"Pay {name}.").raise_for_status()
            return name
        agent.wait(agent.submit(f"Pay {name}.")).raise_for_status()
        return name

    with ThreadPoolExecutor(10) as threads:
        contextvars.Context().run(lambda: list(threads.map(one, range(USERS))))
    assert office.sightings.strangers == {}
    assert office.sightings.parts >= PARTS - {"listener"}


async def test_approved_call_runs_in_the_context_of_its_task(office: Office) -> None:
    agent, office.witness.approves = office.open(wait_approvals=True), False

    async def one(number: int) -> None:
        name = f"user-{number}"
        user.set(User(name))
        (await agent.arun(f"Pay {name}.")).raise_for_status()

    def approve() -> bool:
        for request in agent.get_pending_approvals():
            agent.approve(request.request_id)
        return all(work.done() for work in working)

    async with agent:
        working = [asyncio.create_task(one(number)) for number in range(10)]
        user.set(User("the boss"))
        await until(approve)
        await asyncio.gather(*working)
    assert office.sightings.strangers == {}
    assert "approved action" in office.sightings.parts


@pytest.mark.parametrize("sandbox", OURS, indirect=True)
async def test_agent_releases_user_contexts_after_tasks(
    office: Office, sandbox: dict[str, Any]
) -> None:
    """Objects made ahead or kept for reuse hold no context of the users for whom they were made."""
    confirm = confirming(office.sightings, plain=False)
    async with office.open(**sandbox, on_confirm=confirm, journal="sql") as agent:
        users: list[weakref.ref[User]] = []

        async def one(number: int) -> None:
            me = User(f"user-{number}")
            users.append(weakref.ref(me))
            user.set(me)
            (await agent.arun(f"Pay {me.name}.")).raise_for_status()

        for number in range(3):
            await asyncio.create_task(one(number), context=contextvars.Context())

        def is_alone() -> bool:  # what the last task left is closed in the background
            for _ in range(1000):  # asyncio forgets cancelled timers when most timers are
                asyncio.get_running_loop().call_later(60, gc.collect).cancel()
            gc.collect()
            return all(ref() is None for ref in users)

        assert await until(is_alone)


async def test_child_and_resumed_tasks_run_in_the_right_user_context(
    make_agent: Callable[..., Agent], scripted_model: ScriptedModel, bench: Bench
) -> None:
    @tool(effect="read", confirm=False)
    async def look() -> str:
        """Look who the user is."""
        return user.get().name

    @tool(effect="read", confirm=False)
    async def ask_another(context: CallContext) -> str:
        """Delegate a task."""
        return (await context.delegate("Look.")).text

    scripted_model.writes("print(await ask_another(), await look())", "print(await look())")
    async with make_agent(look, ask_another, journal="test", host=bench.host) as agent:
        user.set(User("ann"))
        response = await agent.arun("Look twice.")
        assert (response.error, response.text) == (None, "ann ann")
        scripted_model.writes("print(await ask_another(), await look())", "print(await look())")
        await bench.journal.ended_with(response.trace.task_id, TaskStarted)
        user.set(User("bob"))
        resumed = await agent.aresume(response.trace.task_id)
        assert (resumed.error, resumed.text) == (None, "bob bob")
