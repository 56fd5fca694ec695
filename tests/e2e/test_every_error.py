"""Every error class, met as a user meets it: its class, its code, a hint, and no secret."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from delf import Agent, CallContext, Chat, LLMConfig, errors, events, tool
from delf.errors import DelfError
from delf.specs import JournalSpec
from delf_chat.summary import ConversationCompressionError
from delf_cli.ids import check_id_prefix
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from delf_engine.journal.in_process import InProcessJournal
from delf_journal_sql import SqlJournal
from delf_memory_semantic import Memory
from delf_model_recorded import RecordingMismatch
from delf_openapi import APITool
from delf_sandbox import wire
from delf_sandbox.wire import WireError
from delf_sql import SQL
from delf_sql.failures import SQLSchemaError
from support.every_error import EVERY
from support.model_fixtures import LITELLM_WARNING
from support.openai_server import OpenAIServer, Reply
from support.raw_http import threaded_server
from support.workspace import ROOT

pytestmark = [pytest.mark.services, pytest.mark.filterwarnings(LITELLM_WARNING)]

SECRET: Final = "planted-s3cret"
ORDERS: Final = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "paths": {"/orders": {"post": {"operationId": "order", "responses": {}}}},
}
RAISED: Final = [cls for cls in EVERY if cls is not errors.TaskLeftError]
"""All but the one that only has others under it."""


@dataclass
class World:
    """The parts that the cases need."""

    folder: Path
    host: TestHost
    model: ScriptedModel
    monkeypatch: pytest.MonkeyPatch
    stack: ExitStack

    def agent(self, *tools: Any, **options: Any) -> Agent:
        """An agent with the scripted model, stopped at the end."""
        given = {"llm": "scripted", "sandbox": "local", "host": self.host, "retry_count": 0}
        agent = Agent(tools=tools, **{**given, **options})
        self.stack.callback(agent.stop)
        return agent

    def fails(self, script: str, *tools: Any, **options: Any) -> None:
        """Run a script, and raise what the task failed with."""
        self.model.writes(script)
        self.agent(*tools, **options).run("go").raise_for_status()

    def closed_port(self) -> int:
        """A port on which nobody listens."""
        holder = self.stack.enter_context(socket.socket())
        holder.bind(("127.0.0.1", 0))
        return holder.getsockname()[1]


@pytest.fixture
def world(
    tmp_path: Path,
    delf_host: TestHost,
    scripted_model: ScriptedModel,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path, delf_host, scripted_model, monkeypatch, stack)


@tool(confirm=False)
async def change() -> None:
    """Change something."""


@tool(confirm=False)
async def fail(kind: str = "") -> None:
    """Fail."""
    if kind:
        raise errors.ToolException(f"there is no {kind}")
    raise ValueError("broken")


@tool
async def delete() -> None:
    """Delete everything."""


@tool(confirm=False)
async def hang() -> None:
    """Never end."""
    await asyncio.Event().wait()


Case = Callable[[World], object]
CASES: dict[type[DelfError], Case] = {}


def raises(cls: type[DelfError]) -> Callable[[Case], Case]:
    """Mark the case of a class."""

    def keep(case: Case) -> Case:
        CASES[cls] = case
        return case

    return keep


raises(errors.DelfError)(lambda _: check_id_prefix("1", "req_123456789"))
raises(errors.UnreadableEventError)(lambda _: events.decode({"type": "FromTheFuture", "v": 99}))
raises(errors.ConfigurationError)(lambda w: w.agent(retry_count=-1))
raises(errors.ModelConfigurationError)(lambda w: w.agent(llm=None))
raises(errors.AgentConfirmationError)(lambda w: w.agent(on_confirm="yes"))
raises(errors.PluginError)(lambda w: w.agent(sandbox="nowhere").start())
raises(errors.ToolDefinitionError)(lambda _: tool(lambda *everything: everything))
raises(errors.ConnectionConfigurationError)(lambda _: SQL(url=f"nosql://me:{SECRET}@host/x"))
raises(errors.SandboxUnavailableError)(lambda w: w.agent(min_isolation="vm").start())
raises(errors.UnknownRequestError)(lambda w: w.agent().approve("req_none"))
raises(errors.UnknownTaskError)(lambda w: w.agent().poll("task_none"))
raises(WireError)(lambda _: wire.parse(b'{"no": "frame"}'))
raises(errors.MemorySetupError)(lambda _: Memory(path=f"mysql://me:{SECRET}@host/x"))
raises(errors.FixedAttributeError)(lambda w: setattr(w.agent(), "config", None))


@tool(confirm=False)
async def delegate(context: CallContext) -> str:
    """Delegate."""
    return (await context.delegate("a child")).text


@raises(errors.TaskLimitError)
def _(w: World) -> None:
    w.model.writes("await delegate()")
    failed = w.agent(delegate, max_children=0).run("go").exception
    assert failed is not None
    assert failed.__cause__ is not None
    raise failed.__cause__


raises(errors.ToolExecutionError)(lambda w: w.fails("await fail()", fail))
raises(errors.ToolRefusedError)(lambda w: w.fails("await fail(speed=3)", fail))
raises(errors.SandboxExecutionError)(lambda w: w.fails("1 / 0"))
raises(errors.ApprovalRejectedError)(
    lambda w: w.fails("await delete()", delete, approval_mode="strict")
)
raises(errors.TaskTimeoutError)(lambda w: w.fails("await hang()", hang, timeout=0.5))


@raises(errors.OutcomeUnknownError)
def _(_: World) -> None:
    with threaded_server(lambda seen: None) as server:  # it takes the order and hangs up
        api = APITool(ORDERS, name="shop", base_url=server.url)
        asyncio.run(_order(api))


async def _order(api: APITool) -> None:
    (action,) = await api.actions()
    try:
        await action.call()
    finally:
        await api.aclose()


@raises(errors.ToolException)
def _(w: World) -> None:
    w.model.writes("await fail('lamp')")
    w.agent(fail).run("go", output={"type": "integer"}).raise_for_status()


@raises(errors.SandboxLimitError)
def _(w: World) -> None:
    w.fails("print('x' * 100_000)", sandbox_config={"output_bytes": 1000})


@raises(errors.EnvironmentKeyError)
def _(w: World) -> None:
    w.agent(llm="gpt-4o-mini").run("go").raise_for_status()


@raises(errors.FolderNotTrustedError)
def _(w: World) -> None:
    w.monkeypatch.delenv("DELF_TRUST")
    (w.folder / "delf.toml").write_text(f"[agent]\nproviders = {{openai = '{SECRET}'}}\n")
    Agent.from_project(w.folder)


@raises(errors.KeyAddressError)
def _(w: World) -> None:
    w.monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    text = "[agent]\nllm = {model = 'm', base_url = 'http://127.0.0.1:9/v1'}\n"
    (w.folder / "delf.toml").write_text(text)
    Agent.from_project(w.folder, trust=True).start()


@raises(errors.CodeGenerationError)
def _(w: World) -> None:
    w.model.says("I would rather not.")
    w.agent().run("go").raise_for_status()


@raises(errors.LLMExecutionError)
def _(w: World) -> None:
    server = w.stack.enter_context(OpenAIServer([Reply(status=400, error=f"bad key {SECRET}")]))
    llm = LLMConfig("m", base_url=server.base_url, api_key=SECRET)
    w.agent(llm=llm).run("go").raise_for_status()


@raises(RecordingMismatch)
def _(w: World) -> None:
    (w.folder / "r.jsonl").write_text(
        '{"request": {"contains": ["zebra"]}, "reply": {"text": "y"}}\n'
    )
    w.agent(llm=f"recorded:{w.folder / 'r.jsonl'}").run("go").raise_for_status()


@raises(errors.BudgetExceededError)
def _(w: World) -> None:
    server = w.stack.enter_context(OpenAIServer(["```python\nprint(1)\n```"]))
    llm = LLMConfig("unheard-of", base_url=server.base_url, api_key=SECRET)
    w.agent(llm=llm, budget_usd=0.01).run("go").raise_for_status()


@raises(errors.ConnectionFileNotFoundError)
def _(w: World) -> None:
    w.fails("print(1)", SQL(url=f"sqlite:///{w.folder}/missing.db"))


@raises(SQLSchemaError)
def _(w: World) -> None:
    path = w.folder / "bad.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE t (a INT)")
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"\xff" * (len(data) - 100))
    w.fails("print(1)", SQL(url=f"sqlite:///{w.folder}/bad.db"))


@raises(errors.ConnectionUnavailableError)
def _(w: World) -> None:
    w.fails("print(1)", SQL(url=f"postgresql://me:{SECRET}@127.0.0.1:{w.closed_port()}/x"))


@raises(errors.OptionalDependencyError)
def _(w: World) -> None:
    w.monkeypatch.setitem(sys.modules, "psycopg", None)
    w.fails("print(1)", SQL(url=f"postgresql://me:{SECRET}@127.0.0.1:{w.closed_port()}/x"))


@raises(errors.MemoryRetrievalError)
def _(w: World) -> None:
    url = f"postgresql://me:{SECRET}@127.0.0.1:{w.closed_port()}/x"
    memory = Memory(path=url, embedding_model="off")
    w.stack.callback(memory.close)
    memory.search("Ada")


@raises(errors.PrefilterError)
def _(w: World) -> None:
    w.fails("no choice", delete, hang, prefilter_mode="filter")


@raises(errors.UnknownKeywordError)
def _(w: World) -> None:
    more: Any = {"file": [SECRET]}
    w.agent().submit("go", **more)


@raises(errors.TaskStoppedError)
def _(w: World) -> None:
    w.model.writes("await hang()")
    agent = w.agent(hang)
    name = agent.submit("go")
    agent.cancel(name)
    agent.wait(name)


@raises(errors.AgentStateError)
def _(w: World) -> None:
    agent = w.agent()

    async def main() -> None:
        async with agent:
            agent.run("go")

    asyncio.run(main())


@raises(errors.ReplayMismatch)
def _(w: World) -> None:
    journals = [InProcessJournal(), InProcessJournal()]
    w.host.provide(JournalSpec(name="kept", factory="x:y", summary="x"), lambda: journals[-1])
    w.model.writes("print(1)")
    task = w.agent(journal="kept").run("go").trace.task_id
    first = journals.pop()

    async def cut_off() -> None:
        for event in await first.read(task):
            if isinstance(event, events.ScriptFinished):
                await journals[0].append(replace(event, status="failed"))
                break
            await journals[0].append(event)

    asyncio.run(cut_off())
    w.agent(journal="kept").resume(task).raise_for_status()


@raises(errors.UndecidedCallError)
def _(w: World) -> None:
    journals = [InProcessJournal(), InProcessJournal()]
    w.host.provide(JournalSpec(name="kept", factory="x:y", summary="x"), lambda: journals[-1])
    w.model.writes("print(await change())")
    task = w.agent(change, journal="kept").run("go").trace.task_id
    first = journals.pop()

    async def cut_off() -> None:
        for event in await first.read(task):
            if isinstance(event, events.CallFinished):
                break
            await journals[0].append(event)

    asyncio.run(cut_off())
    w.agent(change, journal="kept", approvals=[]).resume(task).raise_for_status()


@raises(ConversationCompressionError)
def _(world: World) -> None:
    chat = Chat(keep=2)
    for number in range(4):
        chat.append("user", f"message {number}")
    world.model.replies.append(errors.LLMExecutionError("the model is down", hint="wait"))
    agent = world.agent(chat=chat)
    agent.start()
    chat.compress()


@raises(errors.UnrecordedCallError)
def _(world: World) -> None:
    class Full(InProcessJournal):
        async def append(self, event: events.Event) -> None:
            if isinstance(event, events.CallFinished):
                raise DelfError("the disk is full", hint="make room")
            await super().append(event)

    world.host.provide(JournalSpec(name="full", factory="a:b", summary=""), Full)
    world.fails("await fail('lamp')", fail, journal="full")


@raises(errors.UnrecordedEventError)
def _(world: World) -> None:
    class Full(InProcessJournal):
        async def append(self, event: events.Event) -> None:
            if isinstance(event, events.CallStarted):
                raise DelfError("the disk is full", hint="make room")
            await super().append(event)

    world.host.provide(JournalSpec(name="full", factory="a:b", summary=""), Full)
    world.fails("await fail('lamp')", fail, journal="full")


@raises(errors.JournalFailedError)
def _(world: World) -> None:
    class Away(InProcessJournal):
        async def read(self, task_id: str, after: int = 0) -> Sequence[events.Event]:
            raise ConnectionError("the database does not answer")

    world.host.provide(JournalSpec(name="away", factory="a:b", summary=""), Away)
    world.agent(journal="away").poll("task_1")


@raises(errors.JournalUnavailableError)
def _(world: World) -> None:
    class Full(SqlJournal):
        async def open(self) -> None:
            raise DelfError("the disk is full", hint="make room")

    spec = JournalSpec(name="full", factory="a:b", summary="")
    world.host.provide(spec, Full)
    world.agent(journal="full").start()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("cls", RAISED, ids=lambda c: c.__name__)
def test_error_has_code_hint_and_case(cls: type[DelfError], world: World) -> None:
    assert cls in CASES, f"{cls.__name__} needs a case here"
    with pytest.raises(cls) as caught:
        CASES[cls](world)
    error = caught.value
    assert type(error) is cls
    assert error.message
    assert error.describe().startswith(f"{cls.code}: {error.message}")
    assert error.hint
    assert f"## {cls.code} {cls.__name__}" in (ROOT / "docs/errors.md").read_text("utf-8")
    chain: BaseException | None = error
    while chain is not None:
        assert SECRET not in f"{chain} {chain!r} {getattr(chain, 'hint', '')}"
        chain = chain.__cause__
