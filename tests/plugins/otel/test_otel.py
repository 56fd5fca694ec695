"""Spans of tasks at a collector: named by the conventions, in one trace, without content."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.trace import Tracer

from delf import Agent, CallContext, Response, tool
from delf.errors import LLMExecutionError
from delf.events import TaskFinished, TaskPostponed, TaskResumed, TaskStarted, Warned
from delf.providers import Providers
from delf.specs import Provider
from delf.testing import ObserverContract, ScriptedModel, TestHost
from delf_model_litellm.providers import PROVIDERS
from delf_otel.observer import OtelObserver
from delf_otel.spans import Spans, provider_of
from support import program

from .genai_conventions import Conventions
from .otel_collector import Collector

SECRET = "sk-live-4242424242424242"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        yield collector


@tool(effect="read", confirm=False)
def stock(product: str) -> int:
    """Pieces in the warehouse."""
    return {"lamp": 4}[product]


@tool(effect="irreversible")
def pay(amount: float) -> str:
    """Pay an amount."""
    return f"paid {amount:g}"


@tool(effect="read", confirm=False)
async def colleague(task: str, context: CallContext) -> str:
    """Have somebody else do it."""
    return (await context.delegate(task, tools=[stock])).text


async def run(model: ScriptedModel, task: str = "Do it.", **options: object) -> Response:
    """Run a task with an agent and its observer, until the agent is closed."""
    host = TestHost.discover(environ={})
    host.provide(model.spec, model.factory)
    settings = {"observers": ["otel"], "approval_mode": "approve_all", **options}
    tools = [stock, pay, colleague]
    async with Agent(tools=tools, llm="scripted", host=host, **settings) as agent:
        return await agent.arun(task)


WHOLE = """
print(await stock("lamp"))
print(await pay(20))
print(await colleague("Count the lamps."))
try: await stock("desk")
except ToolError: pass
"""


async def test_exported_spans_follow_the_conventions(collector: Collector) -> None:
    await run(ScriptedModel().writes(WHOLE, "print(await stock('lamp'))"))
    conventions = Conventions()
    assert [wrong for span in collector.spans for wrong in conventions.check_span(span)] == []
    assert [
        wrong for metric in collector.metrics for wrong in conventions.check_metric(metric)
    ] == []
    assert {span["name"] for span in collector.spans} == {
        "invoke_agent delf",
        "chat scripted",
        "execute_tool stock",
        "execute_tool pay",
        "execute_tool colleague",
        "delf.approval pay",
    }
    assert {metric["name"] for metric in collector.metrics} == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.token.usage",
    }
    assert collector.services == {"delf"}


async def test_parent_and_child_share_one_trace(collector: Collector) -> None:
    await run(ScriptedModel().writes(WHOLE, "print(await stock('lamp'))"))
    ids = {span["id"]: span for span in collector.spans}
    assert len({span["trace"] for span in collector.spans}) == 1
    assert len(ids) == len(collector.spans)
    roots = [span for span in collector.spans if not span["parent"]]
    assert [span["name"] for span in roots] == ["invoke_agent delf"]
    assert all(span["parent"] in ids for span in collector.spans if span["parent"])
    (child,) = [span for span in collector.named("invoke_agent") if span["parent"]]
    assert ids[child["parent"]]["name"] == "execute_tool colleague"
    for span in collector.spans:
        begin, end = span["ns"]
        assert begin <= end
        assert not span["parent"] or begin >= ids[span["parent"]]["ns"][0] - 1_000_000


def traced(sampled: bool = True) -> Tracer:
    """Return the tracer with which a program makes spans of its own."""
    return TracerProvider(sampler=ALWAYS_ON if sampled else ALWAYS_OFF).get_tracer("program")


def ways(agent: Agent) -> dict[str, Callable[[], object]]:
    return {
        "run": lambda: agent.run("Do it."),
        "submit": lambda: agent.wait(agent.submit("Do it.")),
        "arun": lambda: asyncio.run(agent.arun("Do it.")),
    }


@pytest.mark.parametrize("way", ["run", "submit", "arun"])
def test_program_span_is_the_parent(collector: Collector, way: str) -> None:
    host = TestHost.discover(environ={})
    model = ScriptedModel().writes("print(await colleague('Count.'))", "print(await stock('lamp'))")
    host.provide(model.spec, model.factory)
    tools = [stock, colleague]
    with (
        Agent(tools=tools, llm="scripted", host=host, observers=["otel"]) as agent,
        traced().start_as_current_span("order") as span,
    ):
        ways(agent)[way]()
    own = span.get_span_context()
    assert {span["trace"] for span in collector.spans} == {f"{own.trace_id:032x}"}
    ids = {span["id"] for span in collector.spans}
    assert [span["name"] for span in collector.spans if span["parent"] not in ids] == [
        "invoke_agent delf"
    ]
    assert f"{own.span_id:016x}" in {span["parent"] for span in collector.spans}
    assert len(ids) == len(collector.spans) == 6


async def test_unsampled_program_span_creates_no_spans(collector: Collector) -> None:
    with traced(sampled=False).start_as_current_span("order"):
        await run(ScriptedModel().writes("print(await colleague('Count.'))", "print(1)"))
    assert collector.spans == []
    assert {metric["name"] for metric in collector.metrics} == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.token.usage",
    }


@pytest.mark.slow
def test_one_trace_covers_resumed_processes_and_children(
    collector: Collector, tmp_path: Path
) -> None:
    trace, span = "1234567890abcdef" * 2, "fedcba0987654321"
    env = {
        **os.environ,
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "TRACEPARENT": f"00-{trace}-{span}-01",
    }
    command = [
        sys.executable,
        "-m",
        "plugins.otel.traced_worker",
        f"sqlite:///{tmp_path}/journal.db",
    ]
    here: dict[str, Any] = {"cwd": Path(__file__).parents[2], "env": env, "text": True}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with program.start([*command, "new"], **here, **pipes) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        task = first.stdout.readline().strip()
        collector.wait_for("execute_tool stock", 2)
        first.stdin.write("die\n")
        first.stdin.flush()
        assert first.wait(60) == -signal.SIGKILL
    before = len(collector.spans)
    del env["TRACEPARENT"]
    second = program.run([*command, task], **here)
    assert second.returncode == 0, second.stderr
    assert second.stdout.split() == ["4", "1", "1"]
    assert len(collector.spans) > before >= 4
    ids = {span["id"] for span in collector.spans}
    assert len(ids) == len(collector.spans)
    assert {span["trace"] for span in collector.spans} == {trace}
    (root,) = [each for each in collector.spans if each["parent"] not in ids]
    assert (root["name"], root["parent"]) == ("invoke_agent delf", span)
    conventions = Conventions()
    assert [wrong for span in collector.spans for wrong in conventions.check_span(span)] == []


async def test_call_is_linked_to_its_approval(collector: Collector) -> None:
    await run(ScriptedModel().writes(WHOLE, "print(1)"))
    (approval,) = collector.named("delf.approval")
    (call,) = collector.named("execute_tool pay")
    assert call["links"] == [approval["id"]]
    assert approval["attributes"]["delf.approval.decision"] == "approved"


async def test_task_texts_are_not_exported_by_default(collector: Collector) -> None:
    await run(ScriptedModel().writes(WHOLE, "print('the childs words')"), task="my private task")
    for words in (b"private", b"childs words", b"lamp", b"KeyError: 'desk'", b"print("):
        assert words not in collector.raw


@tool(effect="read", confirm=False)
def settings() -> str:
    """The settings of the shop."""
    return f"the key is {SECRET}"


async def test_content_option_exports_texts_without_secrets(
    collector: Collector, tmp_path: Path
) -> None:
    (tmp_path / "delf.toml").write_text(
        '[agent]\nllm = "scripted"\nobservers = "otel"\n'
        f'providers = {{ openai = "{SECRET}" }}\n[plugins.otel]\ncontent = true\n'
    )
    host = TestHost.discover(environ={})
    model = ScriptedModel().writes("print(await settings())")
    host.provide(model.spec, model.factory)
    async with Agent.from_project(tmp_path, tools=[settings], host=host) as agent:
        response = await agent.arun("What is set in my shop?")
    assert response.status
    assert b"What is set in my shop?" in collector.raw
    assert b"the key is" in collector.raw
    assert SECRET.encode() not in collector.raw
    conventions = Conventions()
    wrong = [w for span in collector.spans for w in conventions.check_span(span, content=True)]
    assert wrong == []


async def test_failing_model_span_has_an_error_type(collector: Collector) -> None:
    await run(ScriptedModel().says(LLMExecutionError("no reply from host secret-host")))
    (chat,) = collector.named("chat")
    (task,) = collector.named("invoke_agent")
    assert chat["failed"]
    assert chat["attributes"]["error.type"] == "_OTHER"
    assert task["attributes"]["error.type"] == "LLM-001" or task["failed"]
    assert b"secret-host" not in collector.raw


async def test_unreachable_collector_delays_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    async with asyncio.timeout(30):
        response = await run(ScriptedModel().writes("print(1)"))
    assert response.text.strip() == "1"


@pytest.mark.slow
async def test_agent_with_a_silent_collector_stops_in_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        began = time.monotonic()
        await run(ScriptedModel().writes("print(1)"))
        assert time.monotonic() - began < 9


async def test_lone_surrogate_loses_no_spans(collector: Collector) -> None:
    observer = OtelObserver(content=True)
    text = "half \ud83d"
    for event in (
        TaskStarted(task_id="t", seq=0, at=1.0, task=text),
        Warned(task_id="t", seq=1, at=1.0, message=text),
        TaskFinished(
            task_id="t", seq=2, at=2.0, status=False, text=text, error=text, duration_ms=1.0
        ),
    ):
        await observer.observe(event)
    await observer.aclose()
    (span,) = collector.spans
    assert "half ?" in span["attributes"]["gen_ai.input.messages"]


@pytest.mark.slow
def test_spans_go_to_the_programs_own_tracer_provider() -> None:
    program = """
from delf import Agent, tool
from delf.testing import ScriptedModel, TestHost
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
kept = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)

@tool(effect="read", confirm=False)
def stock(product: str) -> int:
    return 4

host = TestHost.discover(environ={})
model = ScriptedModel().writes("print(await stock('lamp'))")
host.provide(model.spec, model.factory)
with trace.get_tracer("program").start_as_current_span("order") as order:
    with Agent(tools=[stock], llm="scripted", host=host, observers=["otel"]) as agent:
        agent.run("Count.")
spans = kept.get_finished_spans()
print(sorted(span.name for span in spans))
print({span.context.trace_id for span in spans} == {order.get_span_context().trace_id})
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    names, one_trace = done.stdout.strip().splitlines()[-2:]
    assert "execute_tool stock" in names
    assert "order" in names
    assert one_trace == "True"


@pytest.mark.parametrize("is_postponed", [True, False])
def test_tasks_without_an_end_are_forgotten(*, is_postponed: bool) -> None:
    spans = Spans(Providers(()))
    spans.take(TaskStarted(task_id="task_1", seq=1, at=1.0, task="x"))
    if is_postponed:
        away = {"error": "away", "code": "x", "tries": 1, "not_before": 3.0}
        spans.take(TaskPostponed(task_id="task_1", seq=2, at=2.0, **away))
    else:
        for number in range(10_000):
            spans.take(TaskStarted(task_id=f"other_{number}", seq=1, at=1.0, task="x"))
    end = {"text": "", "status": True, "duration_ms": 1.0}
    assert spans.take(TaskFinished(task_id="task_1", seq=3, at=3.0, **end)) is None
    spans.take(TaskResumed(task_id="task_1", seq=3, at=3.0))
    assert spans.take(TaskFinished(task_id="task_1", seq=4, at=4.0, **end)) is not None


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("gpt-4o-mini", "openai"),
        ("claude-sonnet-4-5", "anthropic"),
        ("gemini-2.5-pro", "gcp.gemini"),
        ("gemini/gemini-2.5-pro", "gcp.gemini"),
        ("azure/gpt-4o", "azure.ai.openai"),
        ("ollama/llama3", "ollama"),
        ("recorded:demo.jsonl", "recorded"),
        ("acme-large", "acme"),
        ("AC/large", "acme"),
    ],
)
def test_provider_names_follow_the_opentelemetry_conventions(model: str, provider: str) -> None:
    acme = Provider(name="acme", aliases=("ac",), models=("acme-*",))
    assert provider_of(model, Providers((*PROVIDERS, acme))) == provider


class TestOtel(ObserverContract):
    @pytest.fixture
    def observer(self, collector: Collector) -> OtelObserver:
        return OtelObserver(content=True)
