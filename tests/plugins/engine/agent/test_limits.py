"""Tests that limits belong to the task: its next sandbox gets only what is left of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from delf import Agent, tool
from delf.errors import SandboxLimitError
from delf.protocols.sandbox import Limits
from delf_devkit.testing.models import ScriptedModel
from delf_engine.resource_budget import ResourceBudget

MakeAgent = Callable[..., Agent]

LEAVE = "\nimport re\nre.enum.sys.modules['posix']._exit(3)\n"
BURN = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass\n"


@pytest.fixture
def calls() -> list[int]:
    return []


@pytest.fixture
def note(calls: list[int]) -> object:
    @tool(confirm=False)
    async def note(n: int) -> None:
        """Note a number."""
        calls.append(n)

    return note


async def test_call_limit_ends_the_script(
    make_agent: MakeAgent, scripted_model: ScriptedModel, note: object, calls: list[int]
) -> None:
    scripted_model.writes(
        f"await note(1)\nawait note(2){LEAVE}",
        "while True:\n    await note(3)",
        "print('never')",
    )
    agent = make_agent(note, sandbox_config={"calls": 3}, retry_count=2)
    response = await agent.arun("Note.")
    assert isinstance(response.exception, SandboxLimitError)
    assert response.exception.limit == "calls"
    assert calls == [1, 2, 3]
    assert len(scripted_model.requests) == 2, "nothing is left for another script"


@pytest.mark.parametrize("limits", [{"total_file_bytes": 100}, {"max_files": 1}])
async def test_output_file_limits_end_the_script(
    make_agent: MakeAgent, scripted_model: ScriptedModel, limits: dict[str, int]
) -> None:
    hand_over = "add_to_output_files('{}.txt', 'x' * 60)"
    scripted_model.writes(
        f"{hand_over.format('a')}\nawait asyncio.sleep(0.01){LEAVE}", hand_over.format("b")
    )
    agent = make_agent(sandbox_config=limits, retry_count=1)
    response = await agent.arun("Write.")
    assert isinstance(response.exception, SandboxLimitError)
    assert response.exception.limit == "file"


async def test_processor_time_limit_ends_the_script(
    make_agent: MakeAgent, scripted_model: ScriptedModel
) -> None:
    scripted_model.writes(f"{BURN.format(0.3)}{LEAVE}", f"{BURN.format(5)}print('burnt')", "1")
    agent = make_agent(sandbox_config={"cpu_seconds": 0.5}, retry_count=2)
    response = await agent.arun("Burn.")
    assert isinstance(response.exception, SandboxLimitError)
    assert response.exception.limit == "cpu"
    assert len(scripted_model.requests) == 2, "nothing is left for another script"


async def test_failed_script_does_not_count_as_a_limit(
    make_agent: MakeAgent, scripted_model: ScriptedModel, note: object, calls: list[int]
) -> None:
    scripted_model.writes("await note(1)\n1 / 0", "await note(2)\nprint('done')")
    agent = make_agent(note, sandbox_config={"calls": 2})
    assert (await agent.arun("Note.")).raise_for_status().text == "done"
    assert calls == [1, 2]


class Session:
    """A session that used three seconds of processor time."""

    alive = False
    cpu_seconds = 3.0


def test_repeated_script_counts_its_limits_once() -> None:
    """A sandbox that the host killed is replaced, and its scripts make their calls again."""
    budget = ResourceBudget(Limits(cpu_seconds=10, calls=5))
    for _ in range(2):
        budget.begin_session()
        budget.count(calls=1)
    assert budget.remaining.calls == 5, "until it is over"
    budget.charge_session(Session())  # pyright: ignore[reportArgumentType]
    assert (budget.remaining.calls, budget.remaining.cpu_seconds) == (4, 7.0)
    assert budget.exhausted is None
    for _ in range(3):
        budget.charge_session(Session())  # pyright: ignore[reportArgumentType]
    assert budget.remaining.cpu_seconds == 0.0
    assert budget.exhausted is not None
