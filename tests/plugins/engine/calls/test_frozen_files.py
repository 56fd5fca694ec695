"""Tests that a file in a call is read once, so that the file which a person approved is sent."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delf import Agent, CallContext, Connection, action
from delf.events import ApprovalDecided, CallStarted
from delf.protocols.approval import ApprovalRequest, Approved
from delf.protocols.connection import Allowed
from delf.protocols.facts import FactKind, RequestFact, facts
from delf.specs import JournalSpec
from delf.testing import ScriptedModel, TestHost
from support.cut_journal import CutJournal

Decide = Callable[[ApprovalRequest], Any]


class Post(Connection):
    """A post office."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.sent: list[bytes] = []

    @action(effect="irreversible", sinks=["to"])
    async def send(self, to: str, files: list[str], context: CallContext) -> str:
        """Send files."""
        for name in files:
            self.sent.append(await asyncio.to_thread(context.read_file, name, 1000))
        return "sent"


class ShowingPost(Post):
    """A post office whose preview shows what it would send."""

    def check(self, call: Any) -> Any:
        sizes = [
            len(call.context.read_file(name, 1000)) for name in call.arguments.get("files", ())
        ]
        return Allowed(preview=f"{sizes} bytes")


SEND = "print(await post.send('bob', ['report.txt']))"
WRITE = "add_to_output_files('report.txt', 'as asked')\n"


@pytest.fixture(params=[Post, ShowingPost], ids=["without a check", "with a check"])
def post(request: Any) -> Post:
    return request.param(name="post")


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "report.txt"
    path.write_text("as asked")
    return path


def agent_with(post: Post, host: TestHost, decide: Decide, **options: Any) -> Agent:
    return Agent(tools=[post], llm="scripted", host=host, on_confirm=decide, **options)


async def test_input_file_is_sent_as_it_was_when_approval_was_requested(
    post: Post, report: Path, delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    def decide(request: ApprovalRequest) -> Any:
        report.write_text("something else")
        return True

    scripted_model.writes(SEND)
    async with agent_with(post, delf_host, decide, files=[str(report)]) as agent:
        assert (await agent.arun("Send it.")).text == "sent"
    assert post.sent == [b"as asked"]


@pytest.mark.parametrize("name", ["./report.txt", "/in/report.txt"])
async def test_file_in_a_folder_is_frozen_too(
    post: Post, report: Path, delf_host: TestHost, scripted_model: ScriptedModel, name: str
) -> None:
    def decide(request: ApprovalRequest) -> Any:
        report.write_text("something else")
        return True

    scripted_model.writes(f"print(await post.send('bob', [{name!r}]))")
    async with agent_with(post, delf_host, decide, files=[str(report)]) as agent:
        assert (await agent.arun("Send it.")).text == "sent"
    assert post.sent == [b"as asked"]


async def test_request_names_the_files_with_their_sizes(
    post: Post, report: Path, delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    message: list[RequestFact] = []

    def decide(request: ApprovalRequest) -> Any:
        message.extend(fact for fact in facts(request) if fact.kind is FactKind.FILE)
        return True

    scripted_model.writes(SEND)
    async with agent_with(post, delf_host, decide, files=[str(report)]) as agent:
        assert (await agent.arun("Send it.")).text == "sent"
    assert [(fact.text, fact.note) for fact in message] == [("report.txt", "8 bytes")]


async def test_input_file_deleted_during_a_pending_request_is_sent_as_approved(
    post: Post, report: Path, delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    def decide(request: ApprovalRequest) -> Any:
        report.unlink()
        return True

    scripted_model.writes(SEND)
    async with agent_with(post, delf_host, decide, files=[str(report)]) as agent:
        assert (await agent.arun("Send it.")).text == "sent"
    assert post.sent == [b"as asked"]


async def test_file_unreadable_when_approval_is_requested_is_not_sent(
    report: Path, delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    class LosingPost(Post):
        @action(effect="read")
        async def lose(self) -> None:
            """Lose the file."""
            report.unlink()

    post = LosingPost(name="post")

    def decide(request: ApprovalRequest) -> Any:
        report.write_text("never shown")
        return True

    scripted_model.writes(
        f"await post.lose()\ntry:\n    {SEND}\nexcept Exception as error:\n    print(error)"
    )
    async with agent_with(post, delf_host, decide, files=[str(report)]) as agent:
        assert "could not be read when a person was asked" in (await agent.arun("Send it.")).text
    assert post.sent == []


async def test_file_written_during_a_pending_request_is_not_sent(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    asked, written = asyncio.Event(), asyncio.Event()

    class WaitingPost(Post):
        @action(effect="read")
        async def asked(self) -> None:
            """Wait until a person is asked."""
            await asked.wait()

        @action(effect="read")
        async def wrote(self) -> None:
            """Say that the file is written."""
            written.set()

    post = WaitingPost(name="post")

    async def decide(request: ApprovalRequest) -> Any:
        asked.set()
        await written.wait()
        return True

    script = """
import asyncio
async def write():
    await post.asked()
    add_to_output_files('report.txt', 'never shown')
    await post.wrote()
try:
    print(await asyncio.gather(post.send('bob', ['report.txt']), write()))
except Exception as error:
    print(error)
"""
    scripted_model.writes(script)
    async with agent_with(post, delf_host, decide) as agent:
        assert "could not be read when a person was asked" in (await agent.arun("Send it.")).text
    assert post.sent == []


async def test_file_swapped_for_a_link_during_a_pending_request_is_not_sent(
    post: Post, report: Path, delf_host: TestHost, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("a secret")

    def decide(request: ApprovalRequest) -> Any:
        report.unlink()
        report.symlink_to(tmp_path / "secret")
        return True

    scripted_model.writes("from pathlib import Path\nprint(await post.send('bob', ['report.txt']))")
    async with agent_with(post, delf_host, decide, files=[str(report)]) as agent:
        assert (await agent.arun("Send it.")).text == "sent"
    assert post.sent == [b"as asked"]


async def test_task_file_rewritten_during_a_pending_request_is_sent_as_approved(
    post: Post, delf_host: TestHost, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()

    def decide(request: ApprovalRequest) -> Any:
        (tmp_path / "out/report.txt").write_text("something else")
        return True

    scripted_model.writes(WRITE + SEND)
    options = {"output_dir": str(tmp_path / "out")}
    async with agent_with(post, delf_host, decide, **options) as agent:
        assert (await agent.arun("Send it.")).text == "sent"
    assert post.sent == [b"as asked"]


async def test_remembered_approval_of_a_file_covers_only_its_content(
    post: Post, report: Path, delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    asked: list[str | None] = []

    def decide(request: ApprovalRequest) -> Any:
        asked.append(request.files_digest)
        return Approved(remember="task")

    kind: Any = type(post)

    class Changing(kind):
        @action(effect="read")
        async def change(self, text: str) -> None:
            """Change the file."""
            report.write_text(text)

    changing = Changing(name="post")
    script = f"{SEND}\n{SEND}\nawait post.change('something else')\n{SEND}"
    scripted_model.writes(script)
    async with agent_with(changing, delf_host, decide, files=[str(report)]) as agent:
        assert (await agent.arun("Send it.")).status
    assert changing.sent == [b"as asked", b"as asked", b"something else"]
    assert len(asked) == 2
    assert asked[0] != asked[1]


async def test_resumed_task_asks_again_about_a_changed_file(
    post: Post, report: Path, delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    journal, asked = CutJournal(), list[str | None]()
    delf_host.provide(JournalSpec(name="test", factory="x:y", summary="x"), lambda: journal)

    def decide(request: ApprovalRequest) -> Any:
        asked.append(request.files_digest)
        return True

    scripted_model.writes(SEND)
    options = {"files": [str(report)], "journal": "test"}
    async with agent_with(post, delf_host, decide, **options) as agent:
        await agent.arun("Send it.")
        (record,) = await journal.find()
        events = list(await journal.read(record.task_id))
        decided = next(n for n, event in enumerate(events) if isinstance(event, ApprovalDecided))
        assert any(isinstance(event, CallStarted) for event in events[decided:])
        for content, questions in (("as asked", 0), ("something else", 1)):
            report.write_text(content)
            await journal.ended_after(events[: decided + 1])
            post.sent.clear()
            asked.clear()
            response = await agent.aresume(record.task_id)
            assert response.text == "sent", response.error
            assert len(asked) == questions
            assert post.sent == [content.encode()]
