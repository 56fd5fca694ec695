"""A project with workers, and agents whose model says what the test wrote."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from delf import Agent
from delf import events as ev
from delf.messages import ModelReply
from delf.specs import JournalSpec
from delf_devkit.testing.models import USAGE, script
from delf_engine.journal.in_process import InProcessJournal
from delf_workers import Workers


class Recorded(InProcessJournal):
    """Records the order of all tasks' events."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[Any] = []

    async def append(self, event: Any) -> None:
        await super().append(event)
        self.order.append(event)


class Bench:
    """A folder with workers, and an agent that may call them."""

    def __init__(self, host: Any, model: Any, folder: Path) -> None:
        self.host, self.model, self.folder = host, model, folder
        self.journal = Recorded()
        host.provide(JournalSpec(name="test", factory="x:y", summary="x"), lambda: self.journal)

    def worker(self, name: str, head: str = "", instructions: str = "Do it.") -> Path:
        """Write a worker's file."""
        path = self.folder / "workers" / f"{name}.worker"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"---\n{textwrap.dedent(head).strip()}\n---\n{instructions}\n")
        return path

    def workers(self, **options: Any) -> Workers:
        return Workers(folders=[str(self.folder / "workers")], **options)

    def answers(self, words: str, *scripts: str, cost: float = 0.0) -> None:
        """Set the model's answers, in order, to requests that contain some words."""
        self._replies.setdefault(words, []).extend(
            ModelReply(text=script(code), model="scripted", usage=USAGE, cost_usd=cost)
            for code in scripts
        )
        self.model.default = self._answer

    @property
    def _replies(self) -> dict[str, list[ModelReply]]:
        return self.__dict__.setdefault("replies", {})

    def _answer(self, request: Any) -> ModelReply:
        text = "\n".join(message.text for message in request.messages)
        for words, replies in self._replies.items():
            if words in text and replies:
                return replies.pop(0) if len(replies) > 1 else replies[0]
        raise AssertionError(f"nobody wrote an answer to: {text[-500:]}")

    def agent(self, *tools: Any, **options: Any) -> Agent:
        held = [tool for tool in tools if isinstance(tool, Workers)] or [self.workers()]
        others = [tool for tool in tools if not isinstance(tool, Workers)]
        return Agent(
            tools=[*held, *others],
            llm=options.pop("llm", "scripted"),
            host=self.host,
            journal="test",
            **{"retry_count": 0, **options},
        )

    async def run(self, code: str, *tools: Any, **options: Any) -> Any:
        """Run a parent's script."""
        self.answers("the parent's task", code)
        async with self.agent(*tools, **options) as agent:
            return await agent.arun("the parent's task")

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.journal.order if isinstance(event, kind)]

    @property
    def children(self) -> list[ev.TaskStarted]:
        return [event for event in self.of(ev.TaskStarted) if event.parent]


@pytest.fixture
def bench(
    delf_host: Any, scripted_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Bench:
    monkeypatch.chdir(tmp_path)
    return Bench(delf_host, scripted_model, tmp_path)
