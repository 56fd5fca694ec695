"""Writes are made as a person saw them; after a change of the file the person is asked again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delf import Agent
from delf.errors import ToolExecutionError
from delf.protocols.connection import ProposedCall
from delf.testing import ScriptedModel, TestHost
from delf_filesystem import Filesystem

REPLACE = "print(await disk.replace('two', '2', 'notes'))"
EDIT = "await disk.edit_file('notes/plan.md', 'two', '2')"
WRITE = "print(await disk.write_file('notes/plan.md', 'new'))"


@pytest.fixture
def ask(notes: Path, delf_host: TestHost, scripted_model: ScriptedModel) -> Callable[..., Any]:
    """Run a script with a person who approves everything while something else happens."""

    async def run(code: str, *happens: Callable[[], object]) -> list[str]:
        left, previews = list(happens), list[str]()

        def decide(request: Any) -> bool:
            previews.append(request.preview)
            if left:
                left.pop(0)()
            return True

        scripted_model.writes(code)
        disk = Filesystem(name="disk", roots={"notes": {"root": str(notes), "mode": "rw"}})
        options: dict[str, Any] = {"llm": "scripted", "host": delf_host, "retry_count": 0}
        async with Agent(tools=[disk], on_confirm=decide, **options) as agent:
            await agent.arun("x")
        return previews

    return run


@pytest.mark.parametrize("code", [REPLACE, EDIT, WRITE])
async def test_file_changed_after_its_diff_requires_approval_again(
    ask: Callable[..., Any], notes: Path, code: str
) -> None:
    plan = notes / "plan.md"
    first, second = await ask(code, lambda: plan.write_text("zero\ntwo\nsecret\n"))
    assert "zero" not in first
    assert "secret" in second
    assert plan.read_text() == ("new" if code == WRITE else "zero\n2\nsecret\n")


async def test_file_added_after_its_diff_requires_approval_again(
    ask: Callable[..., Any], notes: Path
) -> None:
    late = notes / "late.md"
    first, second = await ask(REPLACE, lambda: late.write_text("two secrets\n"))
    assert "late.md" not in first
    assert "late.md" in second
    assert late.read_text() == "2 secrets\n"


async def test_change_below_the_visible_part_of_a_diff_asks_again(
    ask: Callable[..., Any], notes: Path
) -> None:
    plan = notes / "plan.md"
    long = "".join(f"two {number}\n" for number in range(8000))
    plan.write_text(long)
    previews = await ask(REPLACE, lambda: plan.write_text(f"{long}two at the end\n"))
    assert len(previews) == 2
    assert all("lines more" in preview for preview in previews)


async def test_change_of_another_file_needs_no_second_approval(
    ask: Callable[..., Any], notes: Path
) -> None:
    previews = await ask(EDIT, lambda: (notes / "other.md").write_text("two\n"))
    assert len(previews) == 1
    assert (notes / "plan.md").read_text() == "one\n2\nthree\n"


@pytest.mark.parametrize("name", ["replace", "edit_file", "write_file"])
async def test_concurrent_change_is_never_overwritten(notes: Path, name: str) -> None:
    """The change may come from another call of the same task; the action itself detects it."""
    disk = Filesystem(roots={"notes": {"root": str(notes), "mode": "rw"}})
    texts = {"old_text": "two", "new_text": "2"}
    arguments = {
        "replace": {**texts, "path": "notes"},
        "edit_file": {**texts, "path": "notes/plan.md"},
        "write_file": {"path": "notes/plan.md", "content": "new"},
    }[name]
    call = ProposedCall(action=name, arguments=arguments)
    seen: Any = await disk.check(call)
    context: Any = type("Context", (), {"basis": seen.basis})
    (notes / "plan.md").write_text("one\ntwo\nmine\n")
    with pytest.raises(ToolExecutionError, match="changed since a person approved"):
        getattr(disk, name)(**arguments, context=context)
    assert (notes / "plan.md").read_text() == "one\ntwo\nmine\n"
    again: Any = await disk.check(call)
    context.basis = again.basis
    getattr(disk, name)(**arguments, context=context)
    assert (notes / "plan.md").read_text() in ("one\n2\nmine\n", "new")
