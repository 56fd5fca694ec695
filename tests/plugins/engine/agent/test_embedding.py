"""Agents inside other programs: threads, time, arguments by position, missing streams."""

import logging
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from delf import Agent, Connection, Response, action, tool
from delf.errors import ConnectionConfigurationError
from delf.settings import PluginSettings, SecretStr
from support.program import write_recording
from support.until import until_now

PAY = "print(await pay(amount=3))"


@tool(effect="irreversible")
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def recorded(tmp_path: Path, *scripts: str) -> str:
    return write_recording(tmp_path / "r.jsonl", *scripts)


def waiting_agent(tmp_path: Path) -> Agent:
    """An agent whose calls wait for the program."""
    return Agent([pay], llm=recorded(tmp_path, PAY), sandbox="local", wait_approvals=True)


def test_request_can_be_approved_from_another_thread(tmp_path: Path) -> None:
    with waiting_agent(tmp_path) as agent:
        done: list[Response] = []
        thread = threading.Thread(target=lambda: done.append(agent.run("x", timeout=30)))
        thread.start()
        waiting = until_now(agent.get_pending_approvals)
        agent.approve(waiting[0].request_id)
        thread.join()
    assert done[0].text.strip() == "paid 3"


def test_main_thread_can_run_while_another_thread_decides(tmp_path: Path) -> None:
    with waiting_agent(tmp_path) as agent:

        def decide() -> None:
            waiting = until_now(agent.get_pending_approvals)
            agent.approve(waiting[0].request_id)

        thread = threading.Thread(target=decide, daemon=True)
        thread.start()
        assert agent.run("x", timeout=30).text.strip() == "paid 3"


@pytest.mark.parametrize("where", ["the main thread", "a thread of a web framework"])
def test_call_without_an_approval_channel_is_rejected_at_once(tmp_path: Path, where: str) -> None:
    model = recorded(tmp_path, PAY)
    with Agent([pay], llm=model, sandbox="local", retry_count=0) as agent:
        assert agent.get_pending_approvals() == []  # a look changes nothing
        if where == "the main thread":
            response = agent.run("x")
        else:
            with ThreadPoolExecutor(1) as pool:
                response = pool.submit(agent.run, "x").result(30)
    assert "nobody could be asked" in str(response.error)
    assert "on_confirm=… or wait_approvals=True" in str(response.error)
    assert response.duration_ms < 20_000


def test_explicit_timeout_includes_waiting_for_approval(tmp_path: Path) -> None:
    with waiting_agent(tmp_path) as agent:
        began = time.monotonic()
        response = agent.run("x", timeout=1)
        assert time.monotonic() - began < 15
    assert str(response.error).endswith(
        "did not end within 1 s; it waited for a decision about pay"
    )


class Settings(PluginSettings):
    url: str = ""
    limit: int = 1


class Shelf(Connection[Settings]):
    """A shelf."""

    @action(effect="read")
    def look(self) -> str:
        """Look."""
        return "a book"


def test_connection_takes_its_first_setting_by_position() -> None:
    assert Shelf("here", limit=2).settings.url == "here"
    for wrong in (lambda: Shelf("a", "b"), lambda: Shelf("a", url="b")):
        with pytest.raises(ConnectionConfigurationError, match="by position, url, and only once"):
            wrong()


def test_connections_of_delf_accept_positional_settings() -> None:
    from delf_sql import SQL
    from delf_web import WebSearch

    assert (SQL("sqlite:///x.db").settings.url or SecretStr("")).get_secret_value().endswith("x.db")
    assert WebSearch("gemini-2.5-flash").settings.llm == "gemini-2.5-flash"


def test_untyped_tool_accepts_anything_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):

        @tool(effect="read", confirm=False)
        def add(a, b=2):  # pyright: ignore[reportUnknownParameterType, reportMissingParameterType]
            """Add two."""
            return a + b  # pyright: ignore[reportUnknownVariableType]

    assert "'a', 'b'" in caplog.text
    with Agent([add], llm=recorded(tmp_path, "print(await add(a=40))"), sandbox="local") as agent:
        assert agent.run("x").text.strip() == "42"


def test_script_interpreter_can_be_configured(tmp_path: Path) -> None:
    model = recorded(tmp_path, "print(1)")
    chosen = {"python": sys.executable}
    with Agent(llm=model, sandbox="local", sandbox_config=chosen) as agent:
        assert agent.run("x").text.strip() == "1"


@pytest.mark.parametrize("executable", ["None", "''", "'/usr/bin/uwsgi'"])
@pytest.mark.slow
def test_embedded_python_without_executable_or_stderr_works(
    tmp_path: Path, executable: str
) -> None:
    model = recorded(tmp_path, "print('ran')")
    program = f"""
import sys
sys.stderr = None
sys.executable = {executable}
from delf import Agent
with Agent(llm={model!r}, sandbox="local", verbose=True) as agent:
    print(agent.run("x").text)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=False, timeout=60
    )
    assert done.stdout.strip() == b"ran"


def test_plugin_errors_can_be_imported_from_delf_errors() -> None:
    from delf.errors import ConversationCompressionError, SQLSchemaError

    assert SQLSchemaError.__module__.startswith("delf_sql")
    assert issubclass(ConversationCompressionError, Exception)
    with pytest.raises(ImportError):
        from delf.errors import Nonsense  # noqa: F401 # type: ignore[attr-defined]


FEW_DESCRIPTORS = """
import asyncio, resource
from delf import Agent, tool
from delf.testing import ScriptedModel, TestHost

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

@tool(confirm=False)
async def look(n: int) -> int:
    "Look."
    await asyncio.sleep(0.01)
    return n

async def main():
    host, model = TestHost.discover(environ={}), ScriptedModel()
    host.provide(model.spec, model.factory)
    model.writes(*["print(await look(1))"] * 60)
    async with Agent([look], llm="scripted", host=host, sandbox="local") as agent:
        done = await asyncio.gather(*(agent.arun("Look.") for _ in range(60)))
    print({response.text or str(response.error) for response in done})

asyncio.run(main())
"""


@pytest.mark.slow
def test_tasks_wait_for_free_file_descriptors(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FEW_DESCRIPTORS], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("{'1'}\n", "")
