"""A provider that another plugin declares is asked and priced like a provider of this plugin."""

from __future__ import annotations

import json

import pytest

from delf import Agent
from delf.specs import ModelSpec, Provider
from delf.testing import TestHost
from delf_model_http.model import HttpModel


@pytest.mark.parametrize("model", ["acme-3", "acme/acme-3", "ac:acme-3"])
async def test_task_uses_a_provider_of_another_plugin(model, openai_server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pricing.json").write_text(
        json.dumps({"acme-*": {"input": 1_000_000, "output": 1_000_000}})
    )
    server = openai_server(lambda _: "```python\nprint(1)\n```", api_key="acme-key")
    provider = Provider(
        name="acme",
        aliases=("ac",),
        models=("acme-*",),
        keys=("ACME_KEY",),
        dialect="openai",
        url=server.base_url,
    )
    monkeypatch.setenv("ACME_KEY", "acme-key")
    host = TestHost.discover()
    spec = ModelSpec(name="acme", summary="Acme.", factory="acme:Model", providers=(provider,))
    host.provide(spec, HttpModel)
    async with Agent(tools=[], llm=model, host=host) as agent:
        response = await agent.arun("Print 1.")
    assert [body["model"] for body in server.json] == ["acme-3"]
    assert response.cost_usd
