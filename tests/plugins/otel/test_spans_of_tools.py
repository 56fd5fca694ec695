"""Spans that tools begin are below the span in which their own task was ordered."""

from __future__ import annotations

import asyncio
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from delf import Agent, tool
from delf.testing import ScriptedModel, TestHost


async def test_tool_spans_belong_to_the_trace_of_their_request(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("shop")

    @tool(confirm=False)
    async def look(name: str) -> None:
        """Look on the loop."""
        with tracer.start_as_current_span(f"tool for {name}"):
            await asyncio.sleep(0)

    @tool(confirm=False)
    def read(name: str) -> None:
        """Look in a thread."""
        tracer.start_span(f"tool for {name}").end()

    def write(request: Any) -> str:
        name = request.messages[-1].text.rpartition("user-")[2].split()[0].strip(".")
        return f"```python\nlook('user-{name}')\nread('user-{name}')\n```"

    scripted_model.default = write

    async def request(name: str) -> None:
        with tracer.start_as_current_span(name):
            (await agent.arun(f"Look for {name}.")).raise_for_status()

    options: dict[str, Any] = {"llm": "scripted", "host": delf_host, "sandbox": "local"}
    async with Agent(tools=[look, read], **options) as agent:
        await request("user-99")  # its sandbox was made for nobody, the next ones after it
        await asyncio.gather(*(request(f"user-{number}") for number in range(10)))
    spans = exporter.get_finished_spans()
    requests = {span.name: span for span in spans if span.parent is None}
    tools = [span for span in spans if span.name.startswith("tool for ")]
    assert len(tools) == 22
    for span in tools:
        own = requests[span.name.removeprefix("tool for ")]
        assert span.parent is not None
        assert span.parent.span_id == own.context.span_id
